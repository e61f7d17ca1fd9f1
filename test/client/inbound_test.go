package client

import (
	"fmt"
	"testing"

	"github.com/wireguardgateway/function-wireguard-gateway/test/packet"
)

// Connections from outside are answered where they came in, and those through
// the tunnel there, whatever the pod's network looks like and however strict
// the node is about reverse paths.
func TestInbound(t *testing.T) {
	for name, tc := range map[string]struct {
		shape    shape
		rpFilter int
		bypass   bool
	}{
		"Bridge":           {shape{}, 2, false},
		"BridgeBypass":     {shape{}, 2, true},
		"Routed":           {shape{routed: true}, 2, false},
		"RoutedBypass":     {shape{routed: true}, 2, true},
		"NoReversePath":    {shape{}, 0, true},
		"StrictPath":       {shape{}, 1, false},
		"StrictPathBypass": {shape{}, 1, true},
		"StrictPathRouted": {shape{routed: true}, 1, true},
		"OtherName":        {shape{device: "net0"}, 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorldOf(t, tc.shape)
			w.app.Sysctl(fmt.Sprintf("net.ipv4.conf.all.rp_filter=%d", tc.rpFilter), fmt.Sprintf("net.ipv4.conf.default.rp_filter=%d", tc.rpFilter))
			w.gateway.Run("nft list tables")
			e := enrolment()
			if tc.bypass {
				e.BypassCIDRs = cluster()
			}
			s := up(t, w, e)
			w.forwardPort()
			w.expectSeen("up", seenGateway4, gateway6)
			w.leaks.reset()
			// The node's address is the one that it has towards the pod, or any.
			outside := func(p packet.Packet) bool {
				return to(node4, node6, "169.254.1.1", "2001:db8:4::1", svc4, svc6, inet4, inet6)(p) && p.FromPort == echoPort || p.Protocol == "icmp" || p.Protocol == "icmp6"
			}
			for from, tc := range map[string]struct {
				h         *host
				four, six string // how the pod sees it
			}{
				"the node":     {w.node, "", ""},
				"another pod":  {w.svc, svc4, svc6},
				"the internet": {w.inet, inet4, inet6},
			} {
				for _, a := range []string{app4, app6} {
					want := tc.four
					if a == app6 {
						want = tc.six
					}
					for _, network := range []string{"tcp", "udp"} {
						got := tc.h.ask(network, a)
						if !answered(got) || want != "" && got != want {
							t.Errorf("%s to %s from %s: %s", network, a, from, got)
						}
					}
					if !tc.h.pings(a) {
						t.Errorf("no answer to a ping from %s to %s", from, a)
					}
				}
			}
			w.expectNoLeak("inbound", outside)

			// What comes by the tunnel goes back by it: from the gateway
			// itself, and from the internet by a port that it forwards.
			w.leaks.reset()
			for _, network := range []string{"tcp", "udp"} {
				for _, a := range []string{app4, app6} {
					if got := w.gateway.ask(network, a); !answered(got) {
						t.Errorf("%s from the gateway to %s: %s", network, a, got)
					}
				}
				if got := w.inet.ask(network, gateway4); got != inet4 {
					t.Errorf("%s to the forwarded port: %s", network, got)
				}
				if got := w.inet.ask(network, gateway6); got != inet6 {
					t.Errorf("%s to the forwarded port: %s", network, got)
				}
			}
			w.expectNoLeak("by the tunnel")

			// And out again.
			w.leaks.reset()
			four, six := svc4, svc6
			seen4, seen6 := gateway4, gateway6
			if tc.bypass {
				seen4, seen6 = app4, app6
			}
			for _, network := range []string{"tcp", "udp"} {
				if got := w.app.ask(network, four); got != seen4 {
					t.Errorf("%s to another pod is seen as %s, want %s", network, got, seen4)
				}
				if got := w.app.ask(network, six); got != seen6 {
					t.Errorf("%s to another pod is seen as %s, want %s", network, got, seen6)
				}
				if tc.bypass {
					if got := w.app.ask(network, service4); got != app4 {
						t.Errorf("%s to a Service is seen as %s", network, got)
					}
					if got := w.app.lookup(endpointName); got != endpoint4 {
						t.Errorf("the nameserver says %s", got)
					}
				}
			}
			w.expectNoLeak("to the cluster", func(p packet.Packet) bool { return tc.bypass && to(svc4, svc6, service4)(p) })
			w.expectSeen("after all", seenGateway4, gateway6)
			if t.Failed() {
				t.Log(s.Out, w.app.Run("nft list ruleset"), w.app.Run("ip rule"), w.app.Run("ip route"), w.app.Run("wg show"))
			}
		})
	}
}

// forwardPort makes the gateway forward the port to the pod.
func (w *world) forwardPort() {
	w.t.Helper()
	w.gateway.NFT(fmt.Sprintf(`table inet gateway {
  chain forwarded {
    type nat hook prerouting priority dstnat; policy accept;
    iifname "eth0" meta l4proto { tcp, udp } th dport %d dnat ip to %s
    iifname "eth0" meta l4proto { tcp, udp } th dport %d dnat ip6 to %s
  }
}
insert rule inet gateway forward iifname "eth0" oifname "wg0" ct status dnat accept
`, echoPort, app4, echoPort, app6))
}
