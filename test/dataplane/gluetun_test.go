package dataplane

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

const reached4, reached6 = "tcp " + server4 + " 443", "udp " + server6 + " 443"

var (
	works   = everything(true)
	blocked = everything(false)
)

// everything is the server by both families and all protocols.
func everything(passes bool) map[string]bool {
	out := map[string]bool{}
	for _, a := range []string{server4, server6} {
		out["tcp "+a+" 443"], out["udp "+a+" 443"], out["icmp "+a] = passes, passes, passes
	}
	return out
}

// Peers' traffic leaves through gluetun's tunnel or not at all, whatever
// happens to gluetun, to its provider or to the agent, and with connections
// going on. Each fault is in TestGluetunUnguarded too, where it leaks.
func TestGluetun(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	w.server.echo(443, podPort)
	e := newEgressGateway(t)
	on := e.config()
	c := w.client(1)
	around := w.watchAround()
	callers := w.callers()

	// The agent is there first, and gluetun not at all.
	e.write(w.gateway)
	a := w.runAgent()
	a.refuses(t, "not up yet")
	e.connect(c, "laptop")
	c.expect(t, "before gluetun", blocked)
	around.none(t, "before gluetun")
	g := w.newGluetun(e.env(), e.file(wireguard.PostRulesKey))
	g.firewall()
	g.routing()
	c.expect(t, "before the tunnel", blocked)
	if err := g.up(); err != nil {
		t.Fatal(err)
	}
	a.waitReady(on)
	c.expect(t, "with the tunnel", works)
	around.none(t, "with the tunnel")
	if seen := callers(); !contains(seen, provider4) || !contains(seen, provider6) || contains(seen, gateway4) || contains(seen, gateway6) {
		t.Errorf("want the provider as caller, by both families, and no other, got %s", seen)
	}
	if got := a.metric(`wireguard_gateway_egress_up{mode="Gluetun"}`); got != 1 {
		t.Errorf("wireguard_gateway_egress_up is %v, want 1", got)
	}
	l := c.load()
	pod := &load{stop: l.stop}
	for _, a := range []string{server4, server6} {
		w.gateway.stream(pod, net.JoinHostPort(a, strconv.Itoa(podPort)))
	}
	l.flows(t)
	pod.flows(t)

	again := func(t *testing.T, what string) {
		t.Helper()
		since := time.Now()
		if err := g.up(); err != nil {
			t.Fatal(err)
		}
		l.recovered(t, since, what)
		a.waitReady(on)
		c.expect(t, what, works)
		around.none(t, what)
	}
	t.Run("GracefulRestart", func(t *testing.T) {
		for range 5 {
			g.stop()
			if err := g.up(); err != nil {
				t.Fatal(err)
			}
		}
		g.stop()
		c.expect(t, "stopped", blocked)
		a.refuses(t, "tunnel is down")
		again(t, "restarted")
	})
	t.Run("DeviceDies", func(t *testing.T) {
		g.run("ip link del tun0")
		c.expect(t, "without device", blocked)
		a.refuses(t, "tunnel is down")
		if got := a.metric(`wireguard_gateway_egress_up{mode="Gluetun"}`); got != 0 {
			t.Errorf("wireguard_gateway_egress_up is %v, want 0", got)
		}
		again(t, "another device")
	})
	t.Run("Terminated", func(t *testing.T) {
		g.terminate()
		c.expect(t, "terminated", blocked)
		g.firewall()
		g.routing()
		c.expect(t, "starting", blocked)
		again(t, "started again")
	})
	t.Run("Killed", func(t *testing.T) {
		g.crash()
		c.expect(t, "killed", blocked)
		// The stale rule, on which the next gluetun would fail, is cleaned up.
		waitFor(t, limit, "the stale rule to go", func() error {
			if out := g.run("ip rule show pref 101") + g.run("ip -6 rule show pref 101"); out != "" {
				return fmt.Errorf("still there: %s", out)
			}
			return nil
		})
		g.firewall()
		g.routing()
		again(t, "started again")
	})
	t.Run("ProviderDies", func(t *testing.T) {
		since := time.Now()
		p.server.kill()
		c.expect(t, "without provider", blocked)
		// gluetun notices nothing for minutes: device, routes and rules stay.
		a.refuses(t, "tunnel is down")
		t.Logf("noticed after %s", time.Since(since).Round(10*time.Millisecond))
		if out := g.run("ip route show table 51820"); !contains(out, "tun0") {
			t.Errorf("the tunnel is gone, so this shows nothing: %s", out)
		}
		since = time.Now()
		p.serve()
		l.recovered(t, since, "the provider is back")
		a.waitReady(on)
		c.expect(t, "the provider is back", works)
		around.none(t, "the provider was dead")
	})
	t.Run("Syncs", func(t *testing.T) {
		for i := range 100 {
			// Another keepalive is another configuration, which changes nothing else.
			on.PersistentKeepalive = 100 + i
			a.write(encode(t, on))
			time.Sleep(20 * time.Millisecond)
			if i%25 == 10 {
				g.stop()
				if err := g.up(); err != nil {
					t.Fatal(err)
				}
			}
		}
		a.waitReady(on)
		c.expect(t, "synced", works)
		around.none(t, "synced")
	})
	t.Run("AgentKilled", func(t *testing.T) {
		a.kill()
		c.expect(t, "without agent", blocked)
		g.crash()
		around.none(t, "without agent and tunnel")
		since := time.Now()
		a = w.runAgent()
		a.refuses(t, "not up yet")
		g.firewall()
		g.routing()
		if err := g.up(); err != nil {
			t.Fatal(err)
		}
		a.waitReady(on)
		t.Logf("ready again after %s", time.Since(since).Round(10*time.Millisecond))
		// The client does not know that the gateway has forgotten it.
		waitFor(t, limit, "the client", func() error { return c.probe(reached4) })
		c.expect(t, "another agent", works)
		around.none(t, "another agent")
	})
	t.Run("FirewallFlushed", func(t *testing.T) {
		g.open()
		c.expect(t, "all open", works)
		g.crash()
		c.expect(t, "all open, no tunnel", blocked)
		around.none(t, "all open, no tunnel")
		a.refuses(t, "tunnel is down")
		g.firewall()
		g.routing()
		again(t, "closed again")
		// Either wall holds without the other. Somebody's rule takes peers past
		// ours, and the firewall is left.
		g.open()
		g.crash()
		w.gateway.nft(openTable)
		for _, ip := range []string{"ip", "ip -6"} {
			g.run(ip + " rule add iif wg0 lookup main pref 50")
		}
		c.expect(t, "past the routing rules", blocked)
		around.none(t, "past the routing rules")
		for _, ip := range []string{"ip", "ip -6"} {
			g.run(ip + " rule del pref 50")
		}
		// Then the firewall is gone, until the agent notices, and the rules are
		// left. They are for peers only: the pod's own traffic is not looked at.
		time.Sleep(2 * time.Second)
		g.run("nft delete table inet wireguard_gateway")
		c.expect(t, "past the firewall", blocked)
		if n := around.leaked(); n != 0 {
			t.Errorf("past the firewall: %d packets of peers went around the tunnel", n)
		}
	})
	t.Run("NobodyThere", func(t *testing.T) {
		a.kill()
		c.expect(t, "all open, no tunnel, no agent", blocked)
		if n := around.leaked(); n != 0 {
			t.Errorf("%d packets of peers went around the tunnel", n)
		}
	})
}

// openTable lets peers out with the pod's own address, if they get that far.
const openTable = `table inet open { chain p { type nat hook postrouting priority 100;
	ip saddr ` + pool4 + ` oifname { "eth0", "tun0" } masquerade; ip6 saddr ` + pool6 + ` oifname { "eth0", "tun0" } masquerade; }; }`

// The same faults, on a gateway with gluetun and WireGuard but without agent
// and rules of ours, leak: so the counters see what leaks.
func TestGluetunUnguarded(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	w.server.echo(443, podPort)
	e := newEgressGateway(t)
	c := w.client(1)
	around := w.watchAround()

	// What people do to make a server work beside gluetun.
	on := e.config()
	conf := fmt.Sprintf("[Interface]\nPrivateKey = %s\nListenPort = 51820\nFwMark = 51820\n", on.PrivateKey)
	for _, peer := range on.Peers {
		conf += fmt.Sprintf("[Peer]\nPublicKey = %s\nAllowedIPs = %s/32, %s/128\n", peer.PublicKey, peer.Addresses[0], peer.Addresses[1])
	}
	w.gateway.write("wg0.conf", conf)
	w.gateway.wireguardGo("wg0")
	w.gateway.sysctl("net.ipv4.ip_forward=1")
	for _, l := range []string{
		"ip addr add 10.8.0.1/24 dev wg0", "ip addr add fd00:8::1/64 dev wg0 nodad", "ip link set wg0 mtu 1280 up",
		"ip rule add to 10.8.0.0/24 lookup main pref 90", "ip -6 rule add to fd00:8::/64 lookup main pref 90",
	} {
		w.gateway.run(l)
	}
	w.gateway.nft(openTable)
	g := w.newGluetun(e.env(), e.file(wireguard.PostRulesKey))
	g.rules += "iptables -A FORWARD -j ACCEPT\nip6tables -A FORWARD -j ACCEPT\n"
	leaks := func(t *testing.T, fault string, want bool) {
		t.Helper()
		before := around.leaked()
		for what := range works {
			_ = c.probe(what)
		}
		if n := around.leaked() - before; (n > 0) != want {
			t.Errorf("%s: %d packets leaked, want some is %t", fault, n, want)
		}
	}
	e.connect(c, "laptop")
	leaks(t, "not started", true)
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, limit, "the tunnel", func() error { return c.probe(reached4) })
	leaks(t, "up", false)
	l := &load{stop: make(chan struct{})}
	defer close(l.stop)
	w.gateway.stream(l, net.JoinHostPort(server4, strconv.Itoa(podPort)))
	l.flows(t)
	g.stop()
	leaks(t, "stopped", true)
	if around.packets()["tunnel"] == 0 {
		t.Error("stopped: nothing of the pod's own left with the tunnel's address")
	}
	again := func() {
		t.Helper()
		_, _ = g.try("ip", "rule", "del", "pref", "101")
		_, _ = g.try("ip", "-6", "rule", "del", "pref", "101")
		if err := g.start(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, limit, "the tunnel", func() error { return c.probe(reached4) })
	}
	again()
	g.run("ip link del tun0")
	leaks(t, "device dies", true)
	again()
	g.terminate()
	leaks(t, "terminated", true)
	again()
	g.crash()
	leaks(t, "killed", true)
	again()
	// A dead provider takes nothing away by itself. When gluetun notices, it
	// starts its tunnel again and again, and that leaks.
	p.server.kill()
	leaks(t, "provider dies", false)
	g.stop()
	leaks(t, "provider dies, and gluetun restarts", true)
	g.open()
	leaks(t, "flushed", true)
}

// Inside the pod's network everything stays as it was: the kubelet's probes,
// the cluster, and what peers may reach, whichever way the pod has its address.
func TestGluetunPod(t *testing.T) {
	for name, setup := range map[string]func(*world, *gluetun){
		"Subnet": func(*world, *gluetun) {},
		"Single": single,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.provider()
			w.server.echo(443, 80)
			service := w.attach("service", "10.43.0.10/16", "10.43.0.1/16", "fd43::10/64", "fd43::1/64")
			service.echo(443)
			e := newEgressGateway(t)
			g := w.newGluetun(e.env(), e.file(wireguard.PostRulesKey))
			setup(w, g)
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
			site.write("wgc0.conf", "[Interface]\nPrivateKey = "+site.key.String()+"\nListenPort = 51000\n[Peer]\nPublicKey = "+e.config().PrivateKey.Public().String()+"\nAllowedIPs = 10.8.0.0/24\n")
			site.wireguardGo("wgc0")
			site.run("ip link set wgc0 up")
			waitFor(t, limit, "the gateway's call", func() error { return want(site.run("wg show wgc0 endpoints"), gateway4+":51820") })

			// The node's kubelet probes what the pod says that it listens on. What
			// else listens is open where gluetun takes the network for local.
			w.router.expect(t, "probes", map[string]bool{
				"http " + gateway4 + " 9586": true, "http " + gateway6 + " 9586": true,
				"tcp " + gateway4 + " 8088": true, "tcp " + gateway6 + " 8088": true,
				"tcp " + gateway4 + " 7000": name == "Subnet", "tcp " + gateway4 + " 8000": false,
			})
			// The pod reaches the cluster beside the tunnel, and all else through
			// it.
			direct, provided := service.count("eth0", "ip saddr "+gateway4), w.server.count("eth0", "ip saddr "+provider4)
			w.gateway.expect(t, "the pod", map[string]bool{"tcp 10.43.0.10 443": true, "tcp " + server4 + " 443": true})
			if direct() == 0 || provided() == 0 {
				t.Errorf("the cluster saw %d packets of the pod, the provider's customers %d", direct(), provided())
			}
			laptop.expect(t, "a peer", map[string]bool{
				"tcp 10.43.0.10 443": true, "udp fd43::10 443": true, reached4: true, reached6: true,
				"icmp 10.8.0.1": true, "icmp fd00:8::1": true, "tcp 10.8.0.1 53": true, "udp fd00:8::1 53": true,
				// Control server, health, agent and what else listens in the pod.
				"tcp 10.8.0.1 8000": false, "tcp 10.8.0.1 9999": false, "tcp 10.8.0.1 9586": false, "tcp fd00:8::1 9586": false,
				"tcp 10.8.0.1 8088": false, "tcp 10.8.0.1 7000": false, "udp 10.8.0.1 7000": false, "tcp fd00:8::1 7000": false,
				"tcp " + gateway4 + " 9586": false, "tcp " + gateway4 + " 8088": false, "tcp " + gateway6 + " 7000": false,
			})
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
			laptop.expect(t, "without tunnel", map[string]bool{"tcp 10.43.0.10 443": true, "udp fd43::10 443": true, reached4: false, reached6: false})
			// Our own table guards the pod's ports where gluetun's lets all in.
			g.open()
			laptop.expect(t, "all open", map[string]bool{
				"tcp 10.8.0.1 9586": false, "tcp 10.8.0.1 8088": false, "tcp 10.8.0.1 7000": false, "tcp fd00:8::1 7000": false,
				"tcp " + gateway4 + " 8088": false, "icmp 10.8.0.1": true,
			})
		})
	}
}

// single gives the pod single addresses and a gateway that is in no network of
// its, as Calico does.
func single(w *world, g *gluetun) {
	for _, l := range []string{
		"ip addr flush dev r-gateway scope global", "ip addr add 169.254.1.1/32 dev r-gateway", "ip -6 addr replace fe80::1/64 dev r-gateway nodad",
		"ip route add " + gateway4 + " dev r-gateway", "ip -6 route add " + gateway6 + " dev r-gateway",
		"ip addr add 10.244.9.1/32 dev lo", "ip addr add 2001:db8:9::1/128 dev lo",
	} {
		w.router.run(l)
	}
	for _, l := range []string{
		"ip addr flush dev eth0 scope global", "ip addr add " + gateway4 + "/32 dev eth0", "ip addr add " + gateway6 + "/128 dev eth0 nodad",
		"ip route add 169.254.1.1 dev eth0 scope link", "ip route add default via 169.254.1.1 dev eth0",
		"ip -6 route replace default via fe80::1 dev eth0",
	} {
		w.gateway.run(l)
	}
	g.local4, g.local6 = []string{"169.254.1.1/32"}, []string{gateway6 + "/128", "fe80::1/128"}
	g.gateway4, g.gateway6 = "169.254.1.1", "fe80::1"
}

// What the agent sees comes to the gateway's status: through a real API server
// and the function.
func TestGluetunStatus(t *testing.T) {
	w := newWorld(t)
	k := w.newCluster()
	p := w.provider()
	w.server.echo(443)
	e := newEgressGateway(t)
	e.write(w.gateway)
	w.gateway.exec("rm", "-r", "/run/secrets/gluetun")
	k.writeStatus()
	g := w.newGluetun(e.env(), e.file(wireguard.PostRulesKey))
	g.firewall()
	g.routing()
	g.serve(e.file(wireguard.GluetunAuthKey))
	a := w.runAgentInCluster("--secret=")

	// status goes from the agent's report to the composite.
	status := func(step, reason, egress string) {
		t.Helper()
		waitFor(t, 2*limit, step, func() error {
			e.render(k.status().Data[wireguard.ReportKey])
			got := fmt.Sprint(e.spec.Object["status"].(map[string]any)["egress"])
			if r := e.spec.Object["conditions"].(map[string]any)["EgressReady"]; r != reason || got != egress {
				return fmt.Errorf("want %s %s, got %s %s", reason, egress, r, got)
			}
			return nil
		})
	}
	const none = "<nil>"
	status("no credentials", "CredentialsMissing", none)
	a.refuses(t, "gluetun's credentials lack wireguard-private-key and wireguard-addresses")
	e.credentials(w.gateway)
	status("not up", "TunnelStarting", none)
	if err := g.up(); err != nil {
		t.Fatal(err)
	}
	status("up", "TunnelUp", "map[country:CH publicIP:"+provider4+"]")
	g.exit(provider4, 41230)
	status("a port", "TunnelUp", "map[country:CH forwardedPort:41230 publicIP:"+provider4+"]")
	g.mu.Lock()
	g.next = true
	g.mu.Unlock()
	g.exit("198.51.100.11", 41231, 41230)
	status("another exit", "TunnelUp", "map[country:CH forwardedPort:41231 publicIP:198.51.100.11]")
	p.server.kill()
	status("the provider is dead", "TunnelDown", none)
	p.serve()
	status("the provider is back", "TunnelUp", "map[country:CH forwardedPort:41231 publicIP:198.51.100.11]")
	g.crash()
	status("killed", "TunnelDown", none)
	waitFor(t, limit, "readiness to follow", func() error {
		code, _, err := a.get("/readyz")
		if err == nil && code != http.StatusServiceUnavailable {
			err = fmt.Errorf("%d", code)
		}
		return err
	})
	if log := a.out.String(); strings.Contains(log, e.file(wireguard.GluetunAuthKey)[30:50]) || strings.Count(log, "gluetun's tunnel has another state") > 8 {
		t.Errorf("the log has a secret, or too much:\n%s", log)
	}
}
