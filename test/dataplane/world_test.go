package dataplane

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// world is a small internet: a router with the gateway's pod, a server and
// clients around it.
//
//	gateway  eth0 10.244.0.10/24      2001:db8:2::10/64
//	server   eth0 203.0.113.10/24     2001:db8:4::10/64
//	client n eth0 192.0.2.(4n+2)/30   2001:db8:10n::2/64
type world struct {
	t                       *testing.T
	router, gateway, server *host
}

const (
	gateway4, gateway6 = "10.244.0.10", "2001:db8:2::10"
	server4, server6   = "203.0.113.10", "2001:db8:4::10"
	pool4, pool6       = "10.8.0.0/24", "fd00:8::/64"
)

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, router: newHost(t, "router")}
	w.router.Sysctl("net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	w.gateway = w.attach("gateway", "10.244.0.10/24", "10.244.0.1/24", "2001:db8:2::10/64", "2001:db8:2::1/64")
	w.server = w.attach("server", "203.0.113.10/24", "203.0.113.1/24", "2001:db8:4::10/64", "2001:db8:4::1/64")
	// What the privileged init container does.
	w.gateway.Exec(agentBinary, "sysctl", "net.ipv6.conf.all.forwarding=1")
	return w
}

// attach makes a host with one interface, and the router its default route.
func (w *world) attach(name, own4, router4, own6, router6 string) *host {
	w.t.Helper()
	h := newHost(w.t, name)
	port := "r-" + name
	w.router.Run(fmt.Sprintf("ip link add %s type veth peer name eth0 netns %d", port, h.PID))
	for _, x := range []struct {
		h         *host
		device    string
		four, six string
	}{{w.router, port, router4, router6}, {h, "eth0", own4, own6}} {
		x.h.Run("ip addr add " + x.four + " dev " + x.device)
		x.h.Run("ip addr add " + x.six + " dev " + x.device + " nodad")
		x.h.Run("ip link set " + x.device + " up")
	}
	h.Run("ip route add default via " + netip.MustParsePrefix(router4).Addr().String())
	h.Run("ip -6 route add default via " + netip.MustParsePrefix(router6).Addr().String())
	return h
}

// client is a VPN client, and its peer on the gateway.
type client struct {
	*host
	peer wireguard.Peer
	key  wireguard.Key
}

// client makes the n-th client, from 1, with the peer addresses 10.8.0.(n+1)
// and fd00:8::(n+1). Its tunnel is not up yet.
func (w *world) client(n int) *client {
	w.t.Helper()
	h := w.attach(fmt.Sprintf("client%d", n),
		fmt.Sprintf("192.0.2.%d/30", 4*n+2), fmt.Sprintf("192.0.2.%d/30", 4*n+1),
		fmt.Sprintf("2001:db8:10%d::2/64", n), fmt.Sprintf("2001:db8:10%d::1/64", n))
	key := testKey("client", n)
	return &client{host: h, key: key, peer: testPeer(n, key)}
}

// seed makes every key of the tests.
var seed = wireguard.Seed{1, 2, 3}

func testKey(kind string, n int) wireguard.Key {
	return seed.PeerKey("vpn", fmt.Sprintf("%s%d", kind, n), 0)
}

func testPeer(n int, key wireguard.Key) wireguard.Peer {
	return wireguard.Peer{
		Namespace: "vpn", Name: fmt.Sprintf("client%d", n), PublicKey: key.Public(),
		Addresses: []netip.Addr{
			netip.AddrFrom4([4]byte{10, 8, byte((n + 1) >> 8), byte(n + 1)}),
			netip.AddrFrom16([16]byte{0: 0xfd, 3: 8, 14: byte((n + 1) >> 8), 15: byte(n + 1)}),
		},
	}
}

var serverKey = seed.ServerKey(0)

// configWith returns a gateway's configuration with these peers.
func configWith(peers ...wireguard.Peer) wireguard.GatewayConfig {
	return wireguard.GatewayConfig{
		Gateway: "vpn/home", PrivateKey: serverKey, ListenPort: 51820, MTU: 1420,
		Addresses:      []netip.Prefix{netip.MustParsePrefix("10.8.0.1/24"), netip.MustParsePrefix("fd00:8::1/64")},
		Implementation: wireguard.ImplementationAuto,
		Egress:         wireguard.Egress{Mode: wireguard.EgressDirect},
		Peers:          peers,
	}
}

// clientConfig returns the configuration file that the client gets.
func (c *client) clientConfig() wireguard.ClientConfig {
	cc := wireguard.ClientConfig{
		PrivateKey: &c.key, MTU: 1420,
		PublicKey: serverKey.Public(), PresharedKey: c.peer.PresharedKey,
		AllowedIPs:          []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")},
		Endpoint:            gateway4 + ":51820",
		PersistentKeepalive: 25,
	}
	for _, a := range c.peer.Addresses {
		cc.Addresses = append(cc.Addresses, netip.PrefixFrom(a, a.BitLen()))
	}
	return cc
}

// up brings up the client's tunnel with wg-quick(8), from the configuration as
// it is rendered.
func (c *client) up() { c.upWith(c.clientConfig()) }

func (c *client) upWith(cc wireguard.ClientConfig) {
	c.T.Helper()
	c.upConf(cc.String())
}

func (c *client) upConf(conf string) {
	c.T.Helper()
	c.Write("wgc0.conf", conf)
	// The daemon that it starts would keep a pipe open.
	c.Exec("sh", "-c", "WG_QUICK_USERSPACE_IMPLEMENTATION="+wireguardGoBinary+" LOG_LEVEL=error wg-quick up /run/wgc0.conf >/run/wg-quick.log 2>&1 || { cat /run/wg-quick.log; exit 1; }")
	c.T.Cleanup(func() { _, _ = c.Try("ip", "link", "del", "wgc0") })
}

func (c *client) down() {
	c.T.Helper()
	c.Exec("wg-quick", "down", "/run/wgc0.conf")
}
