package dataplane

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
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
// going on. Each fault leaks in TestGluetunUnguarded, and those of the agent in
// TestGluetunUnguardedAgent.
func TestGluetun(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.provider()
	e := newEgressGateway(t)
	on := e.config()
	c := w.client(1)
	for _, h := range []*host{w.server, w.gateway, c.host} {
		h.patient()
	}
	w.server.echo(443, podPort, sessionPort)
	around := w.watchAround()
	callers := w.callers()

	// The agent is there first, and gluetun not at all.
	e.write(w.gateway)
	a := w.runAgent()
	a.refuses(t, "not up yet")
	e.connect(c, "laptop")
	l := c.load()
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
	provided := func(t *testing.T, what string) {
		t.Helper()
		want := []string{
			"icmp " + provider4, "ipv6-icmp " + provider6, "tcp " + provider4, "tcp " + provider6, "udp " + provider4, "udp " + provider6,
		}
		if diff := cmp.Diff(want, strings.Split(callers(), "\n")); diff != "" {
			t.Errorf("%s: who called, -want, +got:\n%s", what, diff)
		}
	}
	provided(t, "with the tunnel")
	if got := a.metric(`wireguard_gateway_egress_up{mode="Gluetun"}`); got != 1 {
		t.Errorf("wireguard_gateway_egress_up is %v, want 1", got)
	}
	pod := &load{stop: l.stop}
	for _, a := range []string{server4, server6} {
		w.gateway.stream(pod, net.JoinHostPort(a, strconv.Itoa(podPort)))
	}
	l.flows(t)
	pod.flows(t)
	// These were there before each fault, and are there after it.
	peers, own := c.sessions(sessionPort), w.gateway.sessions(podPort)

	// shut holds that nothing passes, of what is new and of what was there.
	shut := func(t *testing.T, what string) {
		t.Helper()
		c.expect(t, what, blocked)
		peers.stand(t, what)
		own.stand(t, what)
	}
	again := func(t *testing.T, what string) {
		t.Helper()
		since := time.Now()
		if err := g.up(); err != nil {
			t.Fatal(err)
		}
		l.recovered(t, since, what)
		peers.goOn(t, since, what)
		own.goOn(t, since, what)
		a.waitReady(on)
		c.expect(t, what, works)
		around.none(t, what)
		provided(t, what)
	}
	t.Run("GracefulRestart", func(t *testing.T) {
		for range 5 {
			g.stop()
			if err := g.up(); err != nil {
				t.Fatal(err)
			}
		}
		g.stop()
		shut(t, "stopped")
		a.refuses(t, "tunnel is down")
		again(t, "restarted")
	})
	t.Run("DeviceDies", func(t *testing.T) {
		g.Run("ip link del tun0")
		shut(t, "without device")
		a.refuses(t, "tunnel is down")
		if got := a.metric(`wireguard_gateway_egress_up{mode="Gluetun"}`); got != 0 {
			t.Errorf("wireguard_gateway_egress_up is %v, want 0", got)
		}
		again(t, "another device")
	})
	t.Run("Terminated", func(t *testing.T) {
		g.terminate()
		shut(t, "terminated")
		g.firewall()
		g.routing()
		c.expect(t, "starting", blocked)
		again(t, "started again")
	})
	t.Run("Killed", func(t *testing.T) {
		g.crash()
		shut(t, "killed")
		// The stale rule, on which the next gluetun would fail, is cleaned up.
		netns.WaitFor(t, limit, "the stale rule to go", func() error {
			if out := g.Run("ip rule show pref 101") + g.Run("ip -6 rule show pref 101"); out != "" {
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
		p.server.Kill()
		shut(t, "without provider")
		// gluetun notices nothing for minutes: device, routes and rules stay.
		a.refuses(t, "tunnel is down")
		t.Logf("noticed after %s", time.Since(since).Round(10*time.Millisecond))
		if out := g.Run("ip route show table 51820"); !contains(out, "tun0") {
			t.Errorf("the tunnel is gone, so this shows nothing: %s", out)
		}
		// When it does notice, it starts its tunnel again and again.
		for range 3 {
			g.stop()
			if err := g.up(); err != nil {
				t.Fatal(err)
			}
		}
		shut(t, "without provider, started again")
		since = time.Now()
		p.serve()
		l.recovered(t, since, "the provider is back")
		peers.goOn(t, since, "the provider is back")
		own.goOn(t, since, "the provider is back")
		a.waitReady(on)
		c.expect(t, "the provider is back", works)
		around.none(t, "the provider was dead")
	})
	t.Run("Syncs", func(t *testing.T) {
		since := time.Now()
		a.syncs(t, on, 100, func(i int) {
			if i%25 == 10 {
				g.stop()
				if err := g.up(); err != nil {
					t.Fatal(err)
				}
			}
		})
		a.waitReady(on)
		peers.goOn(t, since, "synced")
		own.goOn(t, since, "synced")
		c.expect(t, "synced", works)
		around.none(t, "synced")
		provided(t, "synced")
	})
	t.Run("AgentKilled", func(t *testing.T) {
		left := e.outlive(a)
		since := time.Now()
		peers.goOn(t, since, "without agent")
		c.expect(t, "without agent", works)
		g.stop()
		shut(t, "without agent and tunnel")
		g.open()
		shut(t, "all open, without agent and tunnel")
		around.none(t, "without agent")
		left.Kill()
		since = time.Now()
		a = w.runAgent()
		a.refuses(t, "not up yet")
		shut(t, "another agent, no tunnel")
		g.firewall()
		g.routing()
		again(t, "another agent")
		t.Logf("ready again after %s", time.Since(since).Round(10*time.Millisecond))
	})
	t.Run("FirewallFlushed", func(t *testing.T) {
		g.open()
		c.expect(t, "all open", works)
		g.crash()
		shut(t, "all open, no tunnel")
		around.none(t, "all open, no tunnel")
		a.refuses(t, "tunnel is down")
		g.firewall()
		g.routing()
		again(t, "closed again")
		// Either wall holds without the other. Somebody's rule takes peers past
		// ours, and the firewall is left.
		g.open()
		g.crash()
		w.gateway.NFT(openTable)
		g.pastOurRules()
		shut(t, "past the routing rules")
		// No sync leaves a moment without firewall.
		a.syncs(t, on, 100, func(int) {})
		shut(t, "past the routing rules, synced")
		around.none(t, "past the routing rules")
		g.behindOurRules()
		// Then the firewall is gone, until the agent notices, and the rules are
		// left. They are for peers only: the pod's own traffic is not looked at.
		time.Sleep(2 * time.Second)
		g.Run("nft delete table inet wireguard_gateway")
		shut(t, "past the firewall")
		if n := around.leaked(); n != 0 {
			t.Errorf("past the firewall: %d packets of peers went around the tunnel", n)
		}
	})
	t.Run("NobodyThere", func(t *testing.T) {
		a.Kill()
		shut(t, "all open, no tunnel, no agent")
		since := time.Now()
		a = w.runAgent()
		a.refuses(t, "not up yet")
		g.firewall()
		g.routing()
		if err := g.up(); err != nil {
			t.Fatal(err)
		}
		l.recovered(t, since, "from nothing")
		peers.goOn(t, since, "from nothing")
		a.waitReady(on)
		c.expect(t, "from nothing", works)
		if n := around.leaked(); n != 0 {
			t.Errorf("%d packets of peers went around the tunnel", n)
		}
	})
}
