package dataplane

import (
	"fmt"
	"strings"
	"testing"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

const (
	provider4, provider6 = "198.51.100.10", "2001:db8:3::10"
	tunnel4, tunnel6     = "10.64.0.2", "fd64::2"
)

// gluetun stands in for the gluetun container, whose program cannot be had
// here. It does to the pod's network what versions 3.41 and master do, in their
// order: policies first, then the post-rules, routing rules and the tunnel.
type gluetun struct {
	*host
	tunnel *process
}

// postRules are what the function gives gluetun to let peers through.
var postRules = func() []string {
	var out []string
	for ip, icmp := range map[string]string{"iptables": "icmp", "ip6tables": "ipv6-icmp"} {
		out = append(out,
			ip+" -A FORWARD -i wg0 -o tun0 -j ACCEPT",
			ip+" -A FORWARD -i tun0 -o wg0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
			ip+" -A INPUT -i wg0 -p "+icmp+" -j ACCEPT",
			ip+" -A OUTPUT -o wg0 -j ACCEPT",
			ip+" -A OUTPUT -o eth0 -p udp --sport 51820 -j ACCEPT",
		)
	}
	return out
}()

// provider makes the commercial VPN at the other end.
func (w *world) provider() {
	w.t.Helper()
	p := w.attach("provider", provider4+"/24", "198.51.100.1/24", provider6+"/64", "2001:db8:3::1/64")
	p.sysctl("net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	p.write("wgp0.conf", fmt.Sprintf("[Interface]\nPrivateKey = %s\nListenPort = 51821\n[Peer]\nPublicKey = %s\nAllowedIPs = %s/32, %s/128\n",
		testKey("provider", 0), testKey("tunnel", 0).Public(), tunnel4, tunnel6))
	p.wireguardGo("wgp0")
	for _, l := range []string{"ip addr add 10.64.0.1/24 dev wgp0", "ip addr add fd64::1/64 dev wgp0 nodad", "ip link set wgp0 up"} {
		p.run(l)
	}
	p.nft(`table inet provider { chain p { type nat hook postrouting priority 100; oifname "eth0" masquerade; }; }`)
	// The server is also whoever the agent looks for through the tunnel.
	for _, a := range []string{"1.1.1.1", "8.8.8.8", "2606:4700:4700::1111", "2001:4860:4860::8888"} {
		ip, via, bits := "ip", server4, "/32"
		if strings.Contains(a, ":") {
			ip, via, bits = "ip -6", server6, "/128"
		}
		w.server.run("ip addr add " + a + bits + " dev lo")
		w.router.run(ip + " route add " + a + bits + " via " + via)
	}
}

// wireguardGo starts plain wireguard-go with the configuration of that name.
func (h *host) wireguardGo(device string) *process {
	h.t.Helper()
	p := h.start("env", "LOG_LEVEL=error", wireguardGoBinary, "-f", device)
	waitFor(h.t, limit, "wireguard-go", func() error {
		_, err := h.try("wg", "setconf", device, "/run/"+device+".conf")
		return err
	})
	return p
}

// firewall is the first thing that gluetun does.
func (g *gluetun) firewall() {
	g.t.Helper()
	for _, ip := range []string{"iptables", "ip6tables"} {
		for _, l := range []string{
			"-P INPUT DROP", "-P OUTPUT DROP", "-P FORWARD DROP",
			"-A INPUT -i lo -j ACCEPT", "-A OUTPUT -o lo -j ACCEPT",
			"-A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT", "-A OUTPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT",
			"-A INPUT -i eth0 -p udp --dport 51820 -j ACCEPT",
		} {
			g.run(ip + " " + l)
		}
	}
	g.run("ip6tables -A INPUT -i eth0 -p ipv6-icmp -j ACCEPT")
	g.run("ip6tables -A OUTPUT -o eth0 -p ipv6-icmp -j ACCEPT")
	for _, l := range postRules {
		g.run(l)
	}
	for _, l := range []string{
		"ip rule add to 10.244.0.0/24 lookup main pref 98", "ip -6 rule add to 2001:db8:2::/64 lookup main pref 98",
		"ip route add default via 10.244.0.1 dev eth0 table 200", "ip rule add from " + gateway4 + " lookup 200 pref 100",
		"ip -6 route add default via 2001:db8:2::1 dev eth0 table 200", "ip -6 rule add from " + gateway6 + " lookup 200 pref 100",
		"iptables -A OUTPUT -d " + provider4 + " -o eth0 -p udp --dport 51821 -j ACCEPT",
		"iptables -A OUTPUT -o tun0 -j ACCEPT", "ip6tables -A OUTPUT -o tun0 -j ACCEPT",
	} {
		g.run(l)
	}
}

// up brings up the tunnel: the device first, and the rule to it last. It fails
// where that rule is there already.
func (g *gluetun) up() error {
	g.t.Helper()
	g.write("tun0.conf", fmt.Sprintf("[Interface]\nPrivateKey = %s\nFwMark = 51820\n[Peer]\nPublicKey = %s\nEndpoint = %s:51821\nAllowedIPs = 0.0.0.0/0, ::/0\n",
		testKey("tunnel", 0), testKey("provider", 0).Public(), provider4))
	g.tunnel = g.wireguardGo("tun0")
	for _, l := range []string{
		"ip addr add " + tunnel4 + "/32 dev tun0", "ip addr add " + tunnel6 + "/128 dev tun0 nodad", "ip link set tun0 mtu 1320 up",
		"ip route add default dev tun0 table 51820", "ip -6 route add default dev tun0 table 51820",
	} {
		g.run(l)
	}
	for _, l := range []string{"ip -6 rule add not fwmark 51820 lookup 51820 pref 101", "ip rule add not fwmark 51820 lookup 51820 pref 101"} {
		if _, err := g.try(strings.Fields(l)...); err != nil {
			g.tunnel.kill()
			return err
		}
	}
	return nil
}

// down stops the tunnel as gluetun does: the rules first.
func (g *gluetun) down() {
	g.t.Helper()
	g.run("ip rule del pref 101")
	g.run("ip -6 rule del pref 101")
	g.tunnel.kill()
}

// Peers' traffic leaves through gluetun's tunnel or not at all, whatever
// happens to gluetun.
func TestGluetun(t *testing.T) {
	w := newWorld(t)
	w.provider()
	w.server.echo(443)
	c := w.client(1)
	on := configWith(c.peer)
	on.Egress.Mode = wireguard.EgressGluetun
	on.MTU = 1320

	// Whatever of peers gets to the server from the gateway and not from the
	// provider has gone around.
	around4 := w.server.count("eth0", "ip saddr "+gateway4)
	around6 := w.server.count("eth0", "ip6 saddr "+gateway6)
	provided := w.server.count("eth0", "ip saddr "+provider4)
	inClear := w.peersInClear()
	closed := func(step string) {
		t.Helper()
		if n := around4() + around6() + inClear(); n != 0 {
			t.Errorf("%s: %d packets went around the tunnel", step, n)
		}
	}
	works := map[string]bool{"tcp " + server4 + " 443": true, "udp " + server6 + " 443": true, "icmp " + server4: true}
	blocked := map[string]bool{"tcp " + server4 + " 443": false, "udp " + server6 + " 443": false, "icmp " + server4: false}

	// The agent is there first, and gluetun not at all.
	w.gateway.write("config/config.json", encode(t, on))
	a := w.runAgent()
	a.refuses(t, "not up yet")
	c.up()
	c.expect(t, "before gluetun", blocked)
	closed("before gluetun")

	g := &gluetun{host: w.gateway}
	g.firewall()
	c.expect(t, "before the tunnel", blocked)
	if err := g.up(); err != nil {
		t.Fatal(err)
	}
	a.waitReady(on)
	c.expect(t, "with the tunnel", works)
	closed("with the tunnel")
	if got := a.metric(`wireguard_gateway_egress_up{mode="Gluetun"}`); got != 1 {
		t.Errorf("wireguard_gateway_egress_up is %v, want 1", got)
	}
	if provided() == 0 {
		t.Error("nothing came by the provider: the counters show nothing")
	}
	c.expect(t, "the gateway itself", map[string]bool{"icmp 10.8.0.1": true, "icmp fd00:8::1": true})

	t.Run("GracefulRestart", func(t *testing.T) {
		g.down()
		c.expect(t, "stopped", blocked)
		a.refuses(t, "tunnel is down")
		if err := g.up(); err != nil {
			t.Fatal(err)
		}
		a.waitReady(on)
		c.expect(t, "again", works)
		closed("restart")
	})
	t.Run("Kill", func(t *testing.T) {
		g.tunnel.kill()
		c.expect(t, "killed", blocked)
		// The stale rule, on which the next gluetun would fail, is cleaned up.
		waitFor(t, limit, "the stale rule to go", func() error {
			if out := g.run("ip rule show pref 101") + g.run("ip -6 rule show pref 101"); out != "" {
				return fmt.Errorf("still there: %s", out)
			}
			return nil
		})
		if err := g.up(); err != nil {
			t.Fatal(err)
		}
		a.waitReady(on)
		c.expect(t, "again", works)
		closed("kill")
	})
	t.Run("FirewallFlushed", func(t *testing.T) {
		// What 3.41 does when it fails to start: everything open.
		for _, ip := range []string{"iptables", "ip6tables"} {
			for _, l := range []string{"--flush", "--delete-chain", "-P INPUT ACCEPT", "-P OUTPUT ACCEPT", "-P FORWARD ACCEPT"} {
				g.run(ip + " " + l)
			}
		}
		g.tunnel.kill()
		c.expect(t, "all open, no tunnel", blocked)
		closed("all open, no tunnel")
		a.kill()
		c.expect(t, "all open, no tunnel, no agent", blocked)
		closed("all open, no tunnel, no agent")
	})

	// The negative control: without what the agent has put there, peers go
	// around, and the counters see it.
	t.Run("WithoutGuard", func(t *testing.T) {
		a = w.runAgent()
		a.refuses(t, "not up yet")
		for _, l := range []string{"nft delete table inet wireguard_gateway", "ip rule del pref 91", "ip rule del pref 92"} {
			g.run(l)
		}
		g.sysctl("net.ipv4.ip_forward=1")
		g.nft(`table ip open { chain p { type nat hook postrouting priority 100; ip saddr 10.8.0.0/24 oifname "eth0" masquerade; }; }`)
		before := around4()
		_ = c.probe("icmp " + server4)
		if around4() == before {
			t.Error("nothing went around without the guard: the test shows nothing")
		}
	})
}

// The cluster's networks are reached directly, and only they.
func TestGluetunClusterCIDRs(t *testing.T) {
	w := newWorld(t)
	w.provider()
	w.server.echo(443)
	service := w.attach("service", "10.43.0.10/16", "10.43.0.1/16", "fd43::10/64", "fd43::1/64")
	service.echo(443)
	c := w.client(1)
	on := configWith(c.peer)
	on.Egress = wireguard.Egress{Mode: wireguard.EgressGluetun, ClusterCIDRs: prefixes("10.43.0.0/16", "fd43::/64")}
	g := &gluetun{host: w.gateway}
	g.firewall()
	for _, ip := range []struct{ name, cidr string }{{"iptables", "10.43.0.0/16"}, {"ip6tables", "fd43::/64"}} {
		g.run(ip.name + " -A FORWARD -i wg0 -o eth0 -d " + ip.cidr + " -j ACCEPT")
		g.run(ip.name + " -A FORWARD -i eth0 -o wg0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
	}
	if err := g.up(); err != nil {
		t.Fatal(err)
	}
	a := w.startAgent(on)
	c.up()
	direct := service.count("eth0", "ip saddr "+gateway4)
	c.expect(t, "cluster and internet", map[string]bool{"tcp 10.43.0.10 443": true, "udp fd43::10 443": true, "tcp " + server4 + " 443": true, "udp " + server6 + " 443": true})
	if direct() == 0 {
		t.Error("the cluster was not reached directly")
	}
	g.tunnel.kill()
	c.expect(t, "without tunnel", map[string]bool{"tcp 10.43.0.10 443": true, "udp fd43::10 443": true, "tcp " + server4 + " 443": false, "udp " + server6 + " 443": false})
	a.refuses(t, "tunnel is down")
	// Traffic of the pod itself must not go on in the clear with the tunnel's
	// address, also where gluetun's own firewall is open.
	g.run("iptables -P OUTPUT ACCEPT")
	leak := w.router.count("r-gateway", "ip saddr "+tunnel4)
	g.run("ip addr add " + tunnel4 + "/32 dev lo")
	_, _ = g.try("ping", "-n", "-c2", "-i0.2", "-W1", "-m", "51820", "-I", tunnel4, server4)
	if n := leak(); n != 0 {
		t.Errorf("%d packets of the pod left in the clear with the tunnel's address", n)
	}
	g.run("nft delete table inet wireguard_gateway")
	_, _ = g.try("ping", "-n", "-c2", "-i0.2", "-W1", "-m", "51820", "-I", tunnel4, server4)
	if leak() == 0 {
		t.Error("nothing left without the guard either: the test shows nothing")
	}
}
