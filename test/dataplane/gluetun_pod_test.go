package dataplane

import (
	"testing"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// Inside the pod's network everything stays as it was: the kubelet's probes,
// the cluster, and what peers may reach, whichever way the pod has its address,
// and whichever tunnel it has.
func TestGluetunPod(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		gateway func(*testing.T) *egressGateway
		setup   func(*world, *standIn)
	}{
		"Subnet":  {newEgressGateway, func(*world, *standIn) {}},
		"Single":  {newEgressGateway, single},
		"OpenVPN": {newOpenVPNGateway, single},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.provider()
			w.server.echo(443, 80)
			service := w.attach("service", "10.43.0.10/16", "10.43.0.1/16", "fd43::10/64", "fd43::1/64")
			// One of two networks is named, so the other is as far as the internet.
			named := w.attach("named", "192.168.50.10/24", "192.168.50.1/24", "fd50::10/64", "fd50::1/64")
			other := w.attach("other", "192.168.60.10/24", "192.168.60.1/24", "fd60::10/64", "fd60::1/64")
			for _, h := range []*host{service, named, other} {
				h.echo(443)
			}
			e := tc.gateway(t)
			g := w.newGluetun(e.env(), e.file(wireguard.PostRulesKey))
			tc.setup(w, g)
			laptop, phone, site := w.client(1), w.client(2), w.client(3)
			laptop.echo(8050)
			w.gateway.echo(8088, 7000)
			g.serve(e.file(wireguard.GluetunAuthKey))
			e.write(w.gateway)
			if err := g.start(); err != nil {
				t.Fatal(err)
			}
			a := w.runAgent()
			a.waitReady(e.config())
			e.connect(laptop, "laptop")
			e.connect(phone, "phone")
			// The gateway dials this one, which never calls by itself.
			site.Write("wgc0.conf", "[Interface]\nPrivateKey = "+site.key.String()+"\nListenPort = 51000\n[Peer]\nPublicKey = "+e.config().PrivateKey.Public().String()+"\nAllowedIPs = 10.8.0.0/24\n")
			site.wireguardGo("wgc0")
			site.Run("ip link set wgc0 up")
			netns.WaitFor(t, limit, "the gateway's call", func() error { return want(site.Run("wg show wgc0 endpoints"), gateway4+":51820") })

			// The node's kubelet probes what the pod says that it listens on. What
			// else listens is open where gluetun takes the network for local.
			probes := map[string]bool{
				"http " + gateway4 + " 9586": true, "http " + gateway6 + " 9586": true,
				"tcp " + gateway4 + " 8088": true, "tcp " + gateway6 + " 8088": true,
				"tcp " + gateway4 + " 7000": name == "Subnet", "http " + gateway4 + " 8000": false,
			}
			w.router.expect(t, "probes", probes)
			// The pod reaches the cluster beside the tunnel, and all else through
			// it.
			direct, provided := service.count("eth0", "ip saddr "+gateway4), w.server.count("eth0", "ip saddr "+provider4)
			w.gateway.expect(t, "the pod", map[string]bool{"tcp 10.43.0.10 443": true, "tcp " + server4 + " 443": true})
			if direct() == 0 || provided() == 0 {
				t.Errorf("the cluster saw %d packets of the pod, the provider's customers %d", direct(), provided())
			}
			w.gateway.expect(t, "the pod's own", map[string]bool{"http 127.0.0.1 8000": true, "http 127.0.0.1 9999": true, "http 127.0.0.1 9586": true, "tcp 127.0.0.1 8088": true})
			var astray []func() int
			for _, h := range []*host{service, named} {
				astray = append(astray, h.count("eth0", "ip saddr "+provider4), h.count("eth0", "ip6 saddr "+provider6))
			}
			laptop.expect(t, "a peer", map[string]bool{
				"tcp 10.43.0.10 443": true, "udp fd43::10 443": true, "icmp 10.43.0.10": true, "icmp fd43::10": true, reached4: true, reached6: true,
				"icmp 10.8.0.1": true, "icmp fd00:8::1": true, "tcp 10.8.0.1 53": true, "udp fd00:8::1 53": true,
				// Control server, health, agent and what else listens in the pod.
				"http 10.8.0.1 8000": false, "http 10.8.0.1 9999": false, "http 10.8.0.1 9586": false, "http fd00:8::1 9586": false,
				"tcp 10.8.0.1 8088": false, "tcp 10.8.0.1 7000": false, "udp 10.8.0.1 7000": false, "tcp fd00:8::1 7000": false,
				"http " + gateway4 + " 9586": false, "tcp " + gateway4 + " 8088": false, "tcp " + gateway6 + " 7000": false,
			})
			direct, provided = named.count("eth0", "ip saddr "+gateway4), other.count("eth0", "ip saddr "+provider4)
			around := other.count("eth0", "ip saddr "+gateway4)
			networks := map[string]bool{"tcp 192.168.50.10 443": true, "udp fd50::10 443": true, "tcp 192.168.60.10 443": true, "udp fd60::10 443": true}
			laptop.expect(t, "a peer", networks)
			w.gateway.expect(t, "the pod", networks)
			if direct() == 0 || provided() == 0 || around() > 0 {
				t.Errorf("the named network saw %d packets of the pod, the other %d of the provider's and %d of the pod", direct(), provided(), around())
			}
			for _, packets := range astray {
				if n := packets(); n > 0 {
					t.Errorf("%d packets for the cluster came through the tunnel", n)
				}
			}
			// Our own table decides on peers, whatever gluetun's lets through.
			phone.expect(t, "a peer with access rules", map[string]bool{
				"tcp " + server4 + " 443": true, "tcp " + server4 + " 80": false, reached6: false, "tcp 10.43.0.10 443": false,
				"tcp " + e.address("laptop") + " 8050": false,
			})
			e.spec.Object["spec"].(map[string]any)["peers"] = []any{map[string]any{"name": "laptop"}, map[string]any{"name": "phone"}}
			e.render("")
			a.apply(e.config())
			phone.expect(t, "a peer without", map[string]bool{"tcp " + server4 + " 80": true, "tcp " + e.address("laptop") + " 8050": true})
			e.spec.Object["spec"].(map[string]any)["peerToPeer"] = false
			e.render("")
			a.apply(e.config())
			phone.expect(t, "peers apart", map[string]bool{"tcp " + server4 + " 80": true, "tcp " + e.address("laptop") + " 8050": false})
			g.crash()
			w.router.expect(t, "probes without tunnel", probes)
			laptop.expect(t, "without tunnel", map[string]bool{"tcp 10.43.0.10 443": true, "udp fd43::10 443": true, "tcp 192.168.50.10 443": true, "udp fd50::10 443": true, "tcp 192.168.60.10 443": false, "udp fd60::10 443": false, reached4: false, reached6: false})
			// Our own table guards the pod's ports where gluetun's lets all in.
			g.open()
			laptop.expect(t, "all open", map[string]bool{
				"http 10.8.0.1 9586": false, "http fd00:8::1 9586": false, "http 10.8.0.1 8000": false, "tcp 10.8.0.1 8088": false,
				"tcp 10.8.0.1 7000": false, "tcp fd00:8::1 7000": false, "udp 10.8.0.1 7000": false, "udp fd00:8::1 7000": false,
				"tcp " + gateway4 + " 8088": false, "tcp " + gateway6 + " 7000": false, "icmp 10.8.0.1": true,
			})
		})
	}
}

// single gives the pod single addresses and a gateway that is in no network of
// its, as Calico does.
func single(w *world, g *standIn) {
	for _, l := range []string{
		"ip addr flush dev r-gateway scope global", "ip addr add 169.254.1.1/32 dev r-gateway", "ip -6 addr replace fe80::1/64 dev r-gateway nodad",
		"ip route add " + gateway4 + " dev r-gateway", "ip -6 route add " + gateway6 + " dev r-gateway",
		"ip addr add 10.244.9.1/32 dev lo", "ip addr add 2001:db8:9::1/128 dev lo",
	} {
		w.router.Run(l)
	}
	for _, l := range []string{
		"ip addr flush dev eth0 scope global", "ip addr add " + gateway4 + "/32 dev eth0", "ip addr add " + gateway6 + "/128 dev eth0 nodad",
		"ip route add 169.254.1.1 dev eth0 scope link", "ip route add default via 169.254.1.1 dev eth0",
		"ip -6 route replace default via fe80::1 dev eth0",
	} {
		w.gateway.Run(l)
	}
	g.network.Local4, g.network.Local6 = []string{"169.254.1.1/32"}, []string{gateway6 + "/128", "fe80::1/128"}
	g.network.Gateway4, g.network.Gateway6 = "169.254.1.1", "fe80::1"
}
