package client

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

const limit = netns.Limit

// world is a node with pods on it, and a host on the internet. The node knows
// the pods' Services, and gives each pod a public address of its own, so that
// the internet host can tell who sent.
type world struct {
	t                       *testing.T
	node, app, gateway, svc *host
	inet                    *host
	dns                     *dnsServer
	leaks                   *capture
	gateways                map[string]*host
	uid                     string
}

// Addresses. IPv6 is not translated.
const (
	app4, app6         = "10.244.1.5", "2001:db8:1::5"
	gateway4, gateway6 = "10.244.0.10", "2001:db8:2::10"
	svc4, svc6         = "10.244.2.20", "2001:db8:6::20"
	inet4, inet6       = "203.0.113.10", "2001:db8:4::10"
	node4, node6       = "10.244.1.1", "2001:db8:1::1"

	// Services.
	endpoint4, nameserver4, service4 = "10.96.0.50", "10.96.0.10", "10.96.0.20"
	endpointName                     = "home-wireguard.vpn.svc.cluster.local"

	// How the internet host sees the pods.
	seenApp4, seenGateway4 = "203.0.113.205", "203.0.113.210"

	echoPort = 8080
)

// shape says how the pods are connected.
type shape struct {
	// routed pods have an address of their own only, and no neighbours, as
	// with Calico. Otherwise they share a bridge.
	routed bool
	// device is the pod's interface, eth0 if empty.
	device string
}

func newWorld(t *testing.T) *world { t.Helper(); return newWorldOf(t, shape{}) }

func newWorldOf(t *testing.T, s shape) *world {
	t.Helper()
	if s.device == "" {
		s.device = "eth0"
	}
	w := &world{t: t, node: newHost(t, "node"), gateways: map[string]*host{}, uid: "7d2b6e54-6a0e-4a43-a3b7-2f6c0f0a1d11"}
	w.node.Sysctl("net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	w.app = w.attach("app", s, app4, app6)
	others := shape{routed: s.routed, device: "eth0"}
	w.gateway = w.attach("gw", others, gateway4, gateway6)
	w.svc = w.attach("svc", others, svc4, svc6)
	w.inet = w.attach("inet", shape{device: "eth0"}, inet4, inet6)
	for _, a := range []string{"205", "210", "211", "220"} {
		w.node.Run("ip addr add 203.0.113." + a + "/24 dev n-inet")
	}
	w.node.NFT(`
table ip nodenat {
  map endpoints {
    type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service
    elements = {
      ` + endpoint4 + ` . udp . 51820 : ` + gateway4 + ` . 51820,
      ` + nameserver4 + ` . udp . 53 : ` + svc4 + ` . 53,
      ` + nameserver4 + ` . tcp . 53 : ` + svc4 + ` . 53,
      ` + service4 + ` . tcp . 8080 : ` + svc4 + ` . 8080,
      ` + service4 + ` . udp . 8080 : ` + svc4 + ` . 8080,
    }
  }
  chain pre {
    type nat hook prerouting priority dstnat; policy accept;
    dnat ip to ip daddr . ip protocol . th dport map @endpoints
  }
  chain post {
    type nat hook postrouting priority srcnat; policy accept;
    oifname "n-inet" ip saddr ` + app4 + ` snat to ` + seenApp4 + `
    oifname "n-inet" ip saddr ` + gateway4 + ` snat to ` + seenGateway4 + `
    oifname "n-inet" ip saddr 10.244.0.11 snat to 203.0.113.211
    oifname "n-inet" ip saddr ` + svc4 + ` snat to 203.0.113.220
  }
}`)
	w.app.Write("resolv.conf", "search apps.svc.cluster.local svc.cluster.local cluster.local\nnameserver "+nameserver4+"\noptions ndots:5\n")
	// It was bound before it was written.
	w.app.Exec("sh", "-ec", "umount /etc/resolv.conf; mount --bind /run/resolv.conf /etc/resolv.conf")
	w.dns = w.svc.serveDNS(map[string][]string{endpointName + ".": {endpoint4}})
	w.inet.echo(echoPort)
	w.svc.echo(echoPort)
	w.app.echo(echoPort)
	w.leaks = w.node.capture("n-app")
	return w
}

// attach makes a host with one interface, and the node its next hop.
func (w *world) attach(name string, s shape, four, six string) *host {
	w.t.Helper()
	h := newHost(w.t, name)
	port := "n-" + name
	w.node.Run(fmt.Sprintf("ip link add %s type veth peer name %s netns %d", port, s.device, h.PID))
	w.node.Run("ip link set " + port + " up")
	if s.routed {
		h.Run("ip addr add " + four + "/32 dev " + s.device)
		h.Run("ip addr add " + six + "/128 dev " + s.device + " nodad")
		h.Run("ip link set " + s.device + " up")
		w.node.Run("ip addr add 169.254.1.1/32 dev " + port)
		w.node.Run("ip -6 addr add fe80::1/64 dev " + port + " nodad")
		w.node.Run("ip route add " + four + "/32 dev " + port)
		w.node.Run("ip -6 route add " + six + "/128 dev " + port)
		h.Run("ip route add 169.254.1.1 dev " + s.device + " scope link")
		h.Run("ip route add default via 169.254.1.1 dev " + s.device)
		h.Run("ip -6 route add default via fe80::1 dev " + s.device)
		return h
	}
	hop4 := four[:strings.LastIndex(four, ".")] + ".1"
	hop6 := six[:strings.LastIndex(six, "::")] + "::1"
	w.node.Run("ip addr add " + hop4 + "/24 dev " + port)
	w.node.Run("ip addr add " + hop6 + "/64 dev " + port + " nodad")
	h.Run("ip addr add " + four + "/24 dev " + s.device)
	h.Run("ip addr add " + six + "/64 dev " + s.device + " nodad")
	h.Run("ip link set " + s.device + " up")
	h.Run("ip route add default via " + hop4)
	h.Run("ip -6 route add default via " + hop6)
	return h
}

// Keys.
var (
	seed       = wireguard.Seed{1, 2, 3}
	classKey   = seed.PodClassKey("apps", "media")
	gatewayKey = seed.ServerKey(0)
)

// enrolment returns what the sidecar gets. Without bypass networks.
func enrolment() wireguard.Enrolment {
	return wireguard.Enrolment{
		Gateway: "vpn/home", GatewayPublicKey: gatewayKey.Public(), Endpoint: endpointName + ":51820",
		ClassKey: classKey, MTU: 1420, Implementation: wireguard.ImplementationAuto, PersistentKeepalive: 25,
	}
}

// cluster are the networks of the cluster, as bypass.
func cluster() []netip.Prefix {
	return prefixes("10.244.0.0/16", "10.96.0.0/16", "2001:db8:6::/64", "2001:db8:2::/64", "2001:db8:1::/64")
}

func prefixes(ss ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range ss {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// serveGateway makes a host a gateway that knows no pod yet: WireGuard, rules,
// forwarding and masquerading as the gateway's own agent has them.
func (w *world) serveGateway(h *host) {
	w.t.Helper()
	h.Sysctl("net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1", "net.ipv4.conf.all.rp_filter=2")
	h.NFT(`
table inet gateway
delete table inet gateway
table inet gateway {
  chain prerouting {
    type filter hook prerouting priority -90; policy accept;
    iifname "eth0" fib daddr type local meta mark set 0xca6c
    iifname "eth0" fib daddr type local ct direction original ct mark set 0xca6c
  }
  chain reroute {
    type route hook output priority mangle; policy accept;
    ct mark 0xca6c ct direction reply meta mark set 0xca6c
  }
  chain forward {
    type filter hook forward priority -10; policy drop;
    oifname "wg0" tcp flags syn tcp option maxseg size set rt mtu
    iifname "wg0" oifname "eth0" accept
    iifname "eth0" oifname "wg0" ct state established,related accept
    counter drop
  }
  chain postrouting {
    type nat hook postrouting priority srcnat; policy accept;
    iifname "wg0" oifname "eth0" masquerade
  }
}`)
	h.Write("gateway.key", gatewayKey.String()+"\n")
	p := h.Start(wireguardGoBinary, "-f", "wg0")
	netns.WaitFor(w.t, limit, "the gateway's device", func() error {
		// Not by wg(8): it deletes a socket that is not listened on yet.
		if _, err := h.Try("grep", "-q", "00010000 .*/wireguard/wg0.sock", "/proc/net/unix"); err != nil {
			return fmt.Errorf("%w\n%s", err, p.Out)
		}
		return nil
	})
	h.Run("wg set wg0 private-key /run/gateway.key listen-port 51820 fwmark 0xca6c")
	h.Run("ip link set wg0 mtu 1420 up")
	for _, f := range []string{"-4", "-6"} {
		if !strings.Contains(h.Run("ip "+f+" rule"), "lookup 51821") {
			h.Run("ip " + f + " rule add prio 90 not fwmark 0xca6c lookup 51821")
			h.Run("ip " + f + " rule add prio 92 iif wg0 lookup main")
		}
	}
}

// admit makes the pod a peer of a gateway.
func (w *world) admit(h *host) {
	w.t.Helper()
	h.Run("wg set wg0 peer " + wireguard.PodKey(classKey, w.uid).Public().String() + " allowed-ips " + app4 + "/32," + app6 + "/128")
	h.Run("ip route replace " + app4 + "/32 dev wg0 table 51821")
	h.Run("ip -6 route replace " + app6 + "/128 dev wg0 table 51821")
}
