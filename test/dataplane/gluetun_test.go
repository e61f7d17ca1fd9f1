package dataplane

import (
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
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
	w := newGuardedWorld(t, newEgressGateway(t))
	e, c, g, around := w.egress, w.peer, w.gluetun, w.around

	// The agent is there first, and gluetun not at all.
	e.write(w.gateway)
	w.agent = w.runAgent()
	w.agent.refuses(t, "not up yet")
	w.begin(t)
	if got := w.agent.metric(`wireguard_gateway_egress_up{mode="Gluetun"}`); got != 1 {
		t.Errorf("wireguard_gateway_egress_up is %v, want 1", got)
	}
	pod := &load{stop: w.load.stop}
	for _, a := range []string{server4, server6} {
		w.gateway.stream(pod, net.JoinHostPort(a, strconv.Itoa(podPort)))
	}
	pod.flows(t)

	// Each begins with what the one before has left.
	t.Run("GracefulRestart", func(t *testing.T) {
		for range 5 {
			g.stop()
			w.up(t)
		}
		g.stop()
		w.shut(t, "stopped")
		w.agent.refuses(t, "tunnel is down")
		w.again(t, "restarted")
	})
	t.Run("DeviceDies", func(t *testing.T) {
		g.Run("ip link del tun0")
		w.shut(t, "without device")
		w.agent.refuses(t, "tunnel is down")
		if got := w.agent.metric(`wireguard_gateway_egress_up{mode="Gluetun"}`); got != 0 {
			t.Errorf("wireguard_gateway_egress_up is %v, want 0", got)
		}
		w.again(t, "another device")
	})
	t.Run("Terminated", w.terminated)
	t.Run("Killed", func(t *testing.T) {
		g.crash()
		w.shut(t, "killed")
		// The stale rule, on which the next gluetun would fail, is cleaned up.
		netns.WaitFor(t, limit, "the stale rule to go", func() error {
			if out := g.Run("ip rule show pref 101") + g.Run("ip -6 rule show pref 101"); out != "" {
				return fmt.Errorf("still there: %s", out)
			}
			return nil
		})
		w.startAgain(t, "started again")
	})
	t.Run("ProviderDies", func(t *testing.T) {
		since := time.Now()
		w.vpn.server.Kill()
		w.shut(t, "without provider")
		// gluetun notices nothing for minutes: device, routes and rules stay.
		w.agent.refuses(t, "tunnel is down")
		t.Logf("noticed after %s", time.Since(since).Round(10*time.Millisecond))
		if out := g.Run("ip route show table 51820"); !contains(out, "tun0") {
			t.Errorf("the tunnel is gone, so this shows nothing: %s", out)
		}
		// When it does notice, it starts its tunnel again and again.
		for range 3 {
			g.stop()
			w.up(t)
		}
		w.shut(t, "without provider, started again")
		since = time.Now()
		w.vpn.serve()
		w.goesOn(t, since, "the provider is back")
	})
	t.Run("Syncs", func(t *testing.T) {
		since := time.Now()
		w.agent.syncs(t, w.on, 100, func(i int) {
			if i%25 == 10 {
				g.stop()
				w.up(t)
			}
		})
		w.agent.waitReady(w.on)
		w.peers.goOn(t, since, "synced")
		w.own.goOn(t, since, "synced")
		c.expect(t, "synced", works)
		around.none(t, "synced")
		w.provided(t, "synced")
	})
	t.Run("AgentKilled", func(t *testing.T) {
		left := e.outlive(w.agent)
		since := time.Now()
		w.peers.goOn(t, since, "without agent")
		c.expect(t, "without agent", works)
		g.stop()
		w.shut(t, "without agent and tunnel")
		g.open()
		w.shut(t, "all open, without agent and tunnel")
		around.none(t, "without agent")
		left.Kill()
		since = time.Now()
		w.agent = w.runAgent()
		w.agent.refuses(t, "not up yet")
		w.shut(t, "another agent, no tunnel")
		w.startAgain(t, "another agent")
		t.Logf("ready again after %s", time.Since(since).Round(10*time.Millisecond))
	})
	t.Run("FirewallFlushed", func(t *testing.T) {
		g.open()
		c.expect(t, "all open", works)
		g.crash()
		w.shut(t, "all open, no tunnel")
		around.none(t, "all open, no tunnel")
		w.agent.refuses(t, "tunnel is down")
		w.startAgain(t, "closed again")
	})
	// Either wall holds without the other.
	t.Run("PastOurRules", func(t *testing.T) {
		// Somebody's rule takes peers past ours, and the firewall is left.
		g.open()
		g.crash()
		w.gateway.NFT(openTable)
		g.pastOurRules()
		w.shut(t, "past the routing rules")
		// No sync leaves a moment without firewall.
		w.agent.syncs(t, w.on, 100, func(int) {})
		w.shut(t, "past the routing rules, synced")
		around.none(t, "past the routing rules")
		g.behindOurRules()
	})
	t.Run("PastOurFirewall", func(t *testing.T) {
		// The firewall is gone, until the agent notices, and the rules are left.
		// They are for peers only: the pod's own traffic is not looked at.
		time.Sleep(2 * time.Second)
		g.Run("nft delete table inet wireguard_gateway")
		w.shut(t, "past the firewall")
		if n := around.leaked(); n != 0 {
			t.Errorf("past the firewall: %d packets of peers went around the tunnel", n)
		}
	})
	t.Run("NobodyThere", func(t *testing.T) {
		w.agent.Kill()
		w.shut(t, "all open, no tunnel, no agent")
		since := time.Now()
		w.agent = w.runAgent()
		w.agent.refuses(t, "not up yet")
		g.firewall()
		g.routing()
		w.up(t)
		w.load.recovered(t, since, "from nothing")
		w.peers.goOn(t, since, "from nothing")
		w.agent.waitReady(w.on)
		c.expect(t, "from nothing", works)
		if n := around.leaked(); n != 0 {
			t.Errorf("%d packets of peers went around the tunnel", n)
		}
	})
}
