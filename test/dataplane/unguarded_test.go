package dataplane

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
)

// openTable lets peers out with the pod's own address, if they get that far.
const openTable = `table inet open { chain p { type nat hook postrouting priority 100;
	ip saddr ` + pool4 + ` oifname { "eth0", "tun0" } masquerade; ip6 saddr ` + pool6 + ` oifname { "eth0", "tun0" } masquerade; }; }`

// tryAll tries to reach everything, and leaves open what becomes of it.
func (c *client) tryAll() {
	var all sync.WaitGroup
	for what := range works {
		all.Go(func() { _ = c.probe(what) })
	}
	all.Wait()
}

// The same faults, on a gateway with gluetun and WireGuard but without agent
// and rules of ours, leak, of what is new and of what was there: so the
// counters see what leaks.
func TestGluetunUnguarded(t *testing.T) {
	t.Parallel()
	w := newEgressWorld(t, newEgressGateway(t))
	p, e, c, g, around := w.vpn, w.egress, w.peer, w.gluetun, w.around

	// What people do to make a server work beside gluetun.
	conf := fmt.Sprintf("[Interface]\nPrivateKey = %s\nListenPort = 51820\nFwMark = 51820\n", w.on.PrivateKey)
	for _, peer := range w.on.Peers {
		conf += fmt.Sprintf("[Peer]\nPublicKey = %s\nAllowedIPs = %s/32, %s/128\n", peer.PublicKey, peer.Addresses[0], peer.Addresses[1])
	}
	e.device(w.gateway, conf)
	w.gateway.Sysctl("net.ipv4.ip_forward=1")
	for _, l := range []string{"ip rule add to 10.8.0.0/24 lookup main pref 90", "ip -6 rule add to fd00:8::/64 lookup main pref 90"} {
		w.gateway.Run(l)
	}
	g.settings.Rules += "iptables -A FORWARD -j ACCEPT\nip6tables -A FORWARD -j ACCEPT\n"
	e.connect(c, "laptop")
	around.leak(t, "not started, no NAT", func() {
		c.tryAll()
		_ = w.gateway.probe("tcp 1.1.1.1 443")
		_ = w.gateway.probe("tcp 2606:4700:4700::1111 443")
	}, "peers4", "peers6", "probes4", "probes6")
	w.gateway.NFT(openTable)
	around.leak(t, "not started", c.tryAll, masqueraded...)
	faults := []struct {
		name   string
		before func() // which does no harm yet
		fault  func()
	}{
		{"Stopped", func() {}, g.stop},
		{"DeviceDies", func() {}, func() { g.Run("ip link del tun0") }},
		{"Terminated", func() {}, g.terminate},
		{"Killed", func() {}, g.crash},
		// A dead provider takes nothing away by itself. When gluetun notices, it
		// starts its tunnel again and again, and that leaks.
		{"ProviderDies", p.server.Kill, g.stop},
		{"FirewallFlushed", g.open, g.crash},
	}
	for _, f := range faults {
		t.Run(f.name, func(t *testing.T) {
			g.cleanUp()
			if !p.server.Running() {
				p.serve()
			}
			if err := g.start(); err != nil {
				t.Fatal(err)
			}
			netns.WaitFor(t, limit, "the tunnel", func() error { return c.probe(reached4) })
			peers, own := c.sessions(sessionPort), w.gateway.sessions(podPort)
			quiet := around.packets()
			peers.goOn(t, time.Now(), "up")
			own.goOn(t, time.Now(), "up")
			f.before()
			c.tryAll()
			if got := around.packets(); !maps.Equal(got, quiet) {
				t.Errorf("packets leaked before the fault: %v, before %v", got, quiet)
			}
			kinds := slices.Concat(masqueraded, []string{"sessions4", "sessions6"})
			if f.name == "Stopped" {
				// The device is there a moment longer, and so is its address.
				kinds = append(kinds, "tunnel4", "tunnel6")
			}
			around.leak(t, f.name, func() {
				f.fault()
				c.tryAll()
			}, kinds...)
		})
	}
}

// The faults of the agent leak where no walls are left: with an agent that
// cleans up behind itself when it ends, and with one whose syncs take the
// firewall away before they put it back.
func TestGluetunUnguardedAgent(t *testing.T) {
	t.Parallel()
	w := newEgressWorld(t, newEgressGateway(t))
	e, c, g, around := w.egress, w.peer, w.gluetun, w.around
	w.gateway.NFT(openTable)
	e.write(w.gateway)
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	a := w.runAgent()
	a.waitReady(w.on)
	e.connect(c, "laptop")
	netns.WaitFor(t, limit, "the tunnel", func() error { return c.probe(reached4) })
	c.load()

	t.Run("Syncs", func(t *testing.T) {
		// Each sends again once a second, so that one alone might hit none of the
		// moments.
		peers := slices.Concat(c.sessions(sessionPort), c.sessions(sessionPort), c.sessions(sessionPort))
		g.open()
		g.pastOurRules()
		g.crash()
		c.expect(t, "past the routing rules", blocked)
		peers.stand(t, "past the routing rules")
		around.none(t, "past the routing rules")
		around.leak(t, "syncs that are not one step", func() {
			a.syncs(t, w.on, 100, func(int) {
				g.Run("nft delete table inet wireguard_gateway")
				time.Sleep(20 * time.Millisecond)
			})
		}, slices.Concat(masqueraded, []string{"sessions4", "sessions6"})...)
		g.behindOurRules()
	})
	t.Run("AgentKilled", func(t *testing.T) {
		g.cleanUp()
		if err := g.start(); err != nil {
			t.Fatal(err)
		}
		a.waitReady(w.on)
		netns.WaitFor(t, limit, "the tunnel", func() error { return c.probe(reached4) })
		peers, own := c.sessions(sessionPort), w.gateway.sessions(podPort)
		left := e.outlive(a)
		peers.goOn(t, time.Now(), "without agent")
		own.goOn(t, time.Now(), "without agent")
		around.leak(t, "without agent and walls", func() {
			w.gateway.Exec(agentBinary, "remove")
			g.stop()
			g.open()
			c.tryAll()
		}, slices.Concat(masqueraded, []string{"sessions4", "sessions6", "tunnel4", "tunnel6"})...)
		left.Kill()
	})
}
