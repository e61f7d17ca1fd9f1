package dataplane

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

const pushPort = 7000

// pusher is a server on the internet that does not stop to answer.
func (w *world) pusher() {
	w.t.Helper()
	w.server.push(server4, server6)
}

// push does not stop to answer: every 10 ms the host sends to whoever has called
// it last, from each of its addresses.
func (h *host) push(addresses ...string) {
	h.T.Helper()
	for _, a := range addresses {
		var c net.PacketConn
		var err error
		h.Within(func() { c, err = net.ListenPacket("udp", net.JoinHostPort(a, fmt.Sprint(pushPort))) })
		if err != nil {
			h.T.Fatal(err)
		}
		h.T.Cleanup(func() { _ = c.Close() })
		callers := make(chan net.Addr)
		go func() {
			defer close(callers)
			b := make([]byte, 64)
			for {
				_, from, err := c.ReadFrom(b)
				if err != nil {
					return
				}
				callers <- from
			}
		}()
		go func() {
			ticker := time.NewTicker(10 * time.Millisecond)
			defer ticker.Stop()
			var to net.Addr
			for {
				select {
				case from, open := <-callers:
					if !open {
						return
					}
					to = from
				case <-ticker.C:
					if to != nil {
						_, _ = c.WriteTo([]byte("for the old one only"), to)
					}
				}
			}
		}()
	}
}

// call makes the pusher send to a host, by both families, and waits until it
// does.
func (h *host) call() {
	h.T.Helper()
	h.callAt(server4, server6)
}

func (h *host) callAt(addresses ...string) {
	h.T.Helper()
	for _, a := range addresses {
		var c net.Conn
		var err error
		h.Within(func() { c, err = net.Dial("udp", net.JoinHostPort(a, fmt.Sprint(pushPort))) })
		if err != nil {
			h.T.Fatal(err)
		}
		h.T.Cleanup(func() { _ = c.Close() })
		netns.WaitFor(h.T, limit, "an answer", func() error {
			if _, err := c.Write([]byte("hello")); err != nil {
				return err
			}
			_ = c.SetReadDeadline(time.Now().Add(500 * time.Millisecond))
			_, err := c.Read(make([]byte, 64))
			return err
		})
	}
}

// received counts what a pod gets of that.
func (p *pod) received(device string) func() int {
	return p.count(device, fmt.Sprintf("udp sport %d", pushPort))
}

// The address of a pod passes to another: it gets nothing that is meant for the
// one before, in the tunnel or in the clear.
func TestPodAddressPasses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		pass   func(api *podAPI, from, to *pod)
	}{
		"Deleted": {"as it should be", func(api *podAPI, from, to *pod) {
			api.Delete("pods", media.Namespace, from.name)
			api.put(to)
		}},
		"Late": {"the API may hear of the new pod before the old one is gone", func(api *podAPI, _, to *pod) {
			to.set("startTime", time.Now().Add(time.Minute).UTC().Format(time.RFC3339))
			api.put(to)
		}},
		"Ended": {"a pod that has ended keeps its address in its status", func(api *podAPI, from, to *pod) {
			from.set("phase", "Failed")
			api.put(from, to)
		}},
		"Unseen": {"both while the watch is down", func(api *podAPI, from, to *pod) {
			api.Down(true)
			api.Delete("pods", media.Namespace, from.name)
			api.put(to)
			api.Forget()
			api.Down(false)
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			api := w.podAPI()
			w.server.echo(443)
			w.pusher()
			from := w.pod(1)
			w.startPodAgent(podConfig())
			api.put(from)
			w.serves(t, 0, from)
			from.join()
			from.call()
			from.gone()
			to := w.podNamed("other", 1)
			outside := to.received("eth0")
			tc.pass(api, from, to)
			w.serves(t, 0, to)
			to.join()
			tunnel := to.received("wgc0")
			to.expect(t, tc.reason, everything(true))
			time.Sleep(time.Second)
			if a, b := tunnel(), outside(); a != 0 || b != 0 {
				t.Errorf("%s: the new pod got %d packets of the old one in the tunnel, %d in the clear", tc.reason, a, b)
			}
			// It would get what is its own.
			to.call()
			if tunnel() == 0 {
				t.Error("the counter counts nothing")
			}
		})
	}
}

// Without any of the steps, in their order, it gets something. The firewall, the
// rules and the routes are the agent's; the device is not, so that the agent
// does not put it right.
func TestPodAddressPassesUnguarded(t *testing.T) {
	t.Parallel()
	block := func(g *host, p *pod) {
		g.Run("ip route replace blackhole " + p.four + " table 51821")
		g.Run("ip -6 route replace blackhole " + p.six + " table 51821")
	}
	unroute := func(g *host, p *pod) {
		g.Run("ip route del " + p.four + " table 51821")
		g.Run("ip -6 route del " + p.six + " table 51821")
	}
	remove := func(g *host, p *pod) { g.Exec("wg", "set", "wg0", "peer", p.key().Public().String(), "remove") }
	add := func(g *host, p *pod) {
		g.Exec("wg", "set", "wg0", "peer", p.key().Public().String(), "allowed-ips", p.four+","+p.six)
		g.Run("ip route replace " + p.four + " dev wg0 table 51821")
		g.Run("ip -6 route replace " + p.six + " dev wg0 table 51821")
	}
	forget := func(g *host, p *pod) {
		for _, a := range []string{p.four, p.six} {
			for _, side := range []string{"-s", "-d", "-r", "-q"} {
				_, _ = g.Try("conntrack", "-D", side, a)
			}
		}
	}
	cases := map[string]struct {
		reason        string
		pass          func(g *host, from, to *pod)
		tunnel, clear bool
	}{
		"NewKeyOnly": {"WireGuard moves the address, the kernel its connections", func(g *host, _, to *pod) {
			add(g, to)
		}, true, false},
		"NotForgotten": {"the connections outlive the peer", func(g *host, from, to *pod) {
			block(g, from)
			remove(g, from)
			add(g, to)
		}, true, false},
		"NoWall": {"without route into the tunnel another is taken", func(g *host, from, _ *pod) {
			g.Run("nft flush chain inet wireguard_gateway forward")
			remove(g, from)
			unroute(g, from)
		}, false, true},
		"Wall": {"the wall alone stops that", func(g *host, from, _ *pod) {
			remove(g, from)
			unroute(g, from)
		}, false, false},
		"WallByMark": {"also where it no longer knows the address", func(g *host, from, _ *pod) {
			g.Run("nft flush set inet wireguard_gateway inside4")
			g.Run("nft flush set inet wireguard_gateway inside6")
			remove(g, from)
			unroute(g, from)
		}, false, false},
		"InOrder": {"all steps", func(g *host, from, to *pod) {
			block(g, from)
			remove(g, from)
			forget(g, from)
			add(g, to)
		}, false, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			api := w.podAPI()
			w.pusher()
			from := w.pod(1)
			a := w.startPodAgent(podConfig())
			api.put(from)
			w.serves(t, 0, from)
			a.Kill()
			w.deviceByHand(serverKey)
			add(w.gateway, from)
			from.join()
			from.call()
			from.gone()
			to := w.podNamed("other", 1)
			outside := to.received("eth0")
			tc.pass(w.gateway, from, to)
			to.join()
			tunnel := to.received("wgc0")
			time.Sleep(2 * time.Second)
			if a, b := tunnel(), outside(); a > 0 != tc.tunnel || b > 0 != tc.clear {
				t.Errorf("%s: the new pod got %d packets of the old one in the tunnel, %d in the clear: want any %t, %t", tc.reason, a, b, tc.tunnel, tc.clear)
			} else {
				t.Logf("%d packets in the tunnel, %d in the clear", a, b)
			}
		})
	}
}

// deviceByHand makes the gateway's device as an agent would, which is dead.
func (w *world) deviceByHand(key wireguard.Key) {
	w.t.Helper()
	w.gateway.Write("wg0.conf", fmt.Sprintf("[Interface]\nPrivateKey = %s\nListenPort = 51820\nFwMark = %d\n", key, wireguard.FirewallMark))
	w.gateway.Exec("sh", "-c", "LOG_LEVEL=error "+wireguardGoBinary+" wg0 >/run/wireguard-go.log 2>&1")
	w.t.Cleanup(func() { _, _ = w.gateway.Try("ip", "link", "del", "wg0") })
	w.gateway.Sysctl("net.ipv4.conf.wg0.forwarding=1", "net.ipv4.conf.wg0.rp_filter=2", "net.ipv4.conf.wg0.src_valid_mark=1")
	for _, l := range []string{"wg setconf wg0 /run/wg0.conf", "ip addr add 10.8.0.1/24 dev wg0", "ip addr add fd00:8::1/64 dev wg0 nodad", "ip link set wg0 mtu 1420 up"} {
		w.gateway.Run(l)
	}
}

// The agent is killed, and its device with it: what comes for peers and pods
// goes nowhere. When it is back they are served as before.
func TestPodsAgentKilled(t *testing.T) {
	w := newWorld(t)
	api := w.podAPI()
	w.server.echo(443)
	w.pusher()
	one, c := w.pod(1), w.client(1)
	on := podConfig(c.peer)
	a := w.startPodAgent(on)
	api.put(one)
	w.serves(t, 1, one)
	one.join()
	c.up()
	c.call()
	time.Sleep(1500 * time.Millisecond) // for the agent to see where the pod is
	toPeers := w.router.count("r-gateway", "ip daddr "+pool4)
	inClear := w.podsInClear()
	one.call()
	a.Kill()
	time.Sleep(time.Second)
	if n, m := inClear(), toPeers(); n != 0 || m != 0 {
		t.Errorf("%d packets to the pod and %d to the peer left in the clear", n, m)
	}

	// The API says nothing for now. The pod was served, and so it is again.
	api.Down(true)
	since := time.Now()
	a = w.runPodAgent()
	a.waitReady(on)
	w.serves(t, 1, one)
	netns.WaitFor(t, limit, "the pod to be served again", func() error { return one.probe("udp " + server4 + " 443") })
	t.Logf("the pod was served again %s after the start, without API", time.Since(since).Round(10*time.Millisecond))
	one.expect(t, "without API", everything(true))
	// It is gone when the API says so, and not before.
	api.Delete("pods", media.Namespace, one.name)
	api.Down(false)
	w.serves(t, 1)
	one.expect(t, "gone", everything(false))
	if n := inClear(); n != 0 {
		t.Errorf("%d packets of the pod left in the clear", n)
	}

	// Without the wall there would have been something to see.
	api.put(one)
	w.serves(t, 1, one)
	netns.WaitFor(t, limit, "the pod to be served", func() error { return one.probe("udp " + server4 + " 443") })
	one.call()
	w.gateway.Run("nft flush chain inet wireguard_gateway forward")
	a.Kill()
	netns.WaitFor(t, limit, "packets in the clear", func() error {
		if n := inClear(); n == 0 {
			return fmt.Errorf("none")
		}
		return nil
	})
}

// The same holds for peers of a gateway without pods.
func TestPeersAgentKilled(t *testing.T) {
	w := newWorld(t)
	w.pusher()
	c := w.client(1)
	on := configWith(c.peer)
	a := w.startAgent(on)
	c.up()
	four, six := w.router.count("r-gateway", "ip daddr "+pool4), w.router.count("r-gateway", "ip6 daddr "+pool6)
	c.call()
	a.Kill()
	time.Sleep(time.Second)
	if n := four() + six(); n != 0 {
		t.Errorf("%d packets to the peer left in the clear", n)
	}
	w.gateway.Run("nft flush chain inet wireguard_gateway forward")
	netns.WaitFor(t, limit, "packets in the clear, without the wall", func() error {
		if four() == 0 || six() == 0 {
			return fmt.Errorf("%d by IPv4, %d by IPv6", four(), six())
		}
		return nil
	})
}
