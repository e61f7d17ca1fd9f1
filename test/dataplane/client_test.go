package dataplane

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// Every configuration that clients get works with wg-quick(8) as it is.
func TestClientConfigs(t *testing.T) {
	t.Parallel()
	psk := testKey("psk", 1)
	const tcp4, udp6 = "tcp " + server4 + " 443", "udp " + server6 + " 443"
	cases := map[string]struct {
		reason  string
		gateway func(*wireguard.GatewayConfig)
		change  func(*client, *wireguard.ClientConfig)
		want    map[string]bool
	}{
		"Full":         {"everything into the tunnel", nil, nil, map[string]bool{tcp4: true, udp6: true}},
		"Preshared":    {"a preshared key", func(g *wireguard.GatewayConfig) { g.Peers[0].PresharedKey = &psk }, func(_ *client, cc *wireguard.ClientConfig) { cc.PresharedKey = &psk }, map[string]bool{tcp4: true, udp6: true}},
		"NotPreshared": {"without the preshared key nothing works", func(g *wireguard.GatewayConfig) { g.Peers[0].PresharedKey = &psk }, nil, map[string]bool{tcp4: false, udp6: false}},
		"IPv6Endpoint": {"the gateway by IPv6", nil, func(_ *client, cc *wireguard.ClientConfig) { cc.Endpoint = "[" + gateway6 + "]:51820" }, map[string]bool{tcp4: true, udp6: true}},
		"OtherPort":    {"another port", func(g *wireguard.GatewayConfig) { g.ListenPort = 4500 }, func(_ *client, cc *wireguard.ClientConfig) { cc.Endpoint = gateway4 + ":4500" }, map[string]bool{tcp4: true, udp6: true}},
		"DNS": {"resolvers and search domains", nil, func(c *client, cc *wireguard.ClientConfig) {
			cc.DNS = []string{"10.8.0.1", "fd00:8::1", "example.com"}
			// wg-quick hands them to resolvconf(8), which is not there.
			c.Write("resolvconf", "#!/bin/sh\ncat >>/run/resolvconf.log\n")
			c.Exec("sh", "-ec", "chmod +x /run/resolvconf; touch /run/bind; for d in /usr/sbin; do mount -t tmpfs none /mnt; cp -a $d/. /mnt/; cp /run/resolvconf /mnt/; mount --bind /mnt $d; done")
		}, map[string]bool{tcp4: true, udp6: true}},
		"SplitTunnel": {"only some networks into the tunnel", nil, func(_ *client, cc *wireguard.ClientConfig) {
			cc.AllowedIPs = prefixes("10.8.0.0/24", "203.0.113.0/24")
		}, map[string]bool{tcp4: true, "icmp 10.8.0.1": true}},
		"IPv4Only": {"a pool of IPv4 only", func(g *wireguard.GatewayConfig) {
			g.Addresses, g.Peers[0].Addresses = g.Addresses[:1], g.Peers[0].Addresses[:1]
		}, func(_ *client, cc *wireguard.ClientConfig) {
			cc.Addresses, cc.AllowedIPs = cc.Addresses[:1], []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
		}, map[string]bool{tcp4: true}},
		"IPv6Only": {"a pool of IPv6 only", func(g *wireguard.GatewayConfig) {
			g.Addresses, g.Peers[0].Addresses = g.Addresses[1:], g.Peers[0].Addresses[1:]
		}, func(_ *client, cc *wireguard.ClientConfig) {
			cc.Addresses, cc.AllowedIPs = cc.Addresses[1:], []netip.Prefix{netip.MustParsePrefix("::/0")}
		}, map[string]bool{udp6: true}},
		"FwMark": {"a mark of the client's own", nil, func(_ *client, cc *wireguard.ClientConfig) { cc.FwMark = 4242 }, map[string]bool{tcp4: true, udp6: true}},
		"Hooks": {"hooks run", nil, func(_ *client, cc *wireguard.ClientConfig) {
			cc.PreUp = []string{"touch /run/pre-up"}
		}, map[string]bool{tcp4: true}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.server.echo(443)
			c := w.client(1)
			g := configWith(c.peer)
			if tc.gateway != nil {
				tc.gateway(&g)
			}
			w.startAgent(g)
			cc := c.clientConfig()
			if tc.change != nil {
				tc.change(c, &cc)
			}
			c.upWith(cc)
			c.expect(t, tc.reason, tc.want)
			switch name {
			case "DNS":
				if got := c.Run("cat /run/resolvconf.log"); !contains(got, "nameserver 10.8.0.1") || !contains(got, "search example.com") {
					t.Errorf("resolvconf got %s", got)
				}
			case "Hooks":
				c.Run("test -e /run/pre-up")
			}
			c.down()
		})
	}
}

// The gateway dials a peer that has an endpoint in its configuration, by
// address and by name, and follows it when it moves, also over a restart. What
// is configured anew while no agent runs is dialled by the next one.
func TestEndpoint(t *testing.T) {
	t.Parallel()
	for name, endpoint := range map[string]string{"Address": "192.0.2.6:51000", "Name": "localhost:51000"} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c := w.client(1)
			c.peer.Endpoint = endpoint
			c.peer.PersistentKeepalive = 1
			a := w.startAgent(configWith(c.peer))
			if name == "Name" {
				netns.WaitFor(t, limit, "the name to be resolved", func() error {
					return want(w.gateway.Run("wg show wg0 endpoints"), ":51000")
				})
				return
			}
			// This client never calls by itself.
			c.Write("wgc0.conf", "[Interface]\nPrivateKey = "+c.key.String()+"\nListenPort = 51000\n[Peer]\nPublicKey = "+serverKey.Public().String()+"\nAllowedIPs = 10.8.0.0/24\n")
			c.wireguardGo("wgc0")
			c.Run("ip addr add 10.8.0.2/24 dev wgc0")
			c.Run("ip link set wgc0 up")
			netns.WaitFor(t, limit, "the gateway's call", func() error {
				return want(c.Run("wg show wgc0 endpoints"), gateway4+":51820")
			})
			// The client moves to another port. The gateway follows it, and a
			// sync does not bring the old one back.
			c.Run("wg set wgc0 listen-port 51001")
			c.Exec("ping", "-n", "-c1", "-W2", "10.8.0.1")
			if out := w.gateway.Run("wg show wg0 endpoints"); !contains(out, ":51001") {
				t.Fatalf("the gateway did not follow: %s", out)
			}
			on := configWith(c.peer, testPeer(7, testKey("client", 7)))
			a.write(encode(t, on))
			netns.WaitFor(t, limit, "the sync", func() error {
				return want(w.gateway.Run("wg show wg0 peers"), on.Peers[1].PublicKey.String())
			})
			if out := w.gateway.Run("wg show wg0 endpoints"); !contains(out, ":51001") {
				t.Errorf("a sync brought the configured endpoint back: %s", out)
			}

			a.Signal(syscall.SIGTERM)
			a.Wait(limit)
			a = w.runAgent()
			a.waitReady(on)
			if out := w.gateway.Run("wg show wg0 endpoints"); !contains(out, ":51001") {
				t.Errorf("a restart brought the configured endpoint back: %s", out)
			}

			a.Signal(syscall.SIGTERM)
			a.Wait(limit)
			c.Run("wg set wgc0 listen-port 51002")
			on.Peers[0].Endpoint = "192.0.2.6:51002"
			w.gateway.Write("config/config.json", encode(t, on))
			w.runAgent().waitReady(on)
			if out := w.gateway.Run("wg show wg0 endpoints"); !contains(out, "192.0.2.6:51002") {
				t.Errorf("what was configured while no agent ran is not dialled: %s", out)
			}
			netns.WaitFor(t, limit, "the answer to the call there", func() error {
				if out := w.gateway.Run("wg show wg0 latest-handshakes"); contains(out, c.peer.PublicKey.String()+"\t0") {
					return errors.New(out)
				}
				return nil
			})
		})
	}
}
