package dataplane

import (
	"fmt"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/test/gluetun"
	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// OpenVPN leads into its tunnel by the main table, beside the pod's own default
// routes, which stay there. Peers have the tunnel or nothing all the same.
func TestGluetunOpenVPN(t *testing.T) {
	t.Parallel()
	w := newGuardedWorld(t, newOpenVPNGateway(t))
	e, c, g, around := w.egress, w.peer, w.gluetun, w.around

	e.write(w.gateway)
	w.gateway.Exec("rm", "-r", "/run/secrets/gluetun")
	w.agent = w.runAgent()
	w.agent.refuses(t, "gluetun's credentials lack openvpn-user and openvpn-password")
	e.credentials(w.gateway)
	w.agent.refuses(t, "not up yet")
	w.begin(t)
	for _, ip := range []string{"ip", "ip -6"} {
		if out := g.Run(ip + " route show default"); !contains(out, "eth0") {
			t.Errorf("the pod's own default route is gone, so this shows nothing: %s", out)
		}
		if out := g.Run(ip + " rule show pref 101"); out != "" {
			t.Errorf("gluetun has a rule for WireGuard only, got %s", out)
		}
	}

	// Each begins with what the one before has left.
	t.Run("Reconnects", func(t *testing.T) {
		for range 3 {
			g.disconnect()
			w.up(t)
		}
		g.disconnect()
		w.shut(t, "disconnected")
		w.agent.refuses(t, "tunnel is down")
		w.again(t, "connected again")
	})
	t.Run("Killed", func(t *testing.T) {
		g.stop()
		if out := g.Run("ip route show " + provider4); !contains(out, "eth0") {
			t.Errorf("a killed OpenVPN leaves its route to the server, got %s", out)
		}
		w.shut(t, "killed")
		w.agent.refuses(t, "tunnel is down")
		w.again(t, "started again")
	})
	t.Run("Terminated", w.terminated)
	t.Run("RoutesGo", func(t *testing.T) {
		// The device stays, and the pod's own default routes are what is left.
		g.script(gluetun.Unlead(g.settings, g.network))
		w.agent.refuses(t, "tunnel is down")
		netns.WaitFor(t, limit, "our table to be empty", func() error {
			if out := g.Run("ip route show table all"); contains(out, "table 51822") {
				return fmt.Errorf("still there: %s", out)
			}
			return nil
		})
		w.shut(t, "without routes")
		g.tunnel.Kill()
		w.again(t, "another device")
	})
	t.Run("PushedRoutes", func(t *testing.T) {
		// The server may ask for routes to what is none of its business. Each is
		// more specific than those of the gateway.
		for _, l := range []string{
			"ip route add 192.168.50.0/25 via 10.64.0.1", "ip -6 route add fd50::/80 dev tun0",
			"ip route add 10.8.0.128/25 via 10.64.0.1", "ip -6 route add fd00:8::8000:0:0:0/65 dev tun0",
		} {
			g.Run(l)
		}
		four := w.vpn.count("wgp0", "ip daddr { 192.168.50.0/24, 10.8.0.0/24 }")
		six := w.vpn.count("wgp0", "ip6 daddr { fd50::/64, fd00:8::/64 }")
		sent := w.vpn.count("wgp0", "ip daddr "+server4)
		c.expect(t, "what is not there", map[string]bool{
			"udp 192.168.50.10 443": false, "udp fd50::10 443": false, "udp 10.8.0.200 443": false, "udp fd00:8::8000:0:0:200 443": false,
		})
		if four() > 0 || six() > 0 || sent() == 0 {
			t.Errorf("the provider got %d packets for the cluster and peers by IPv4 and %d by IPv6, and %d for the internet", four(), six(), sent())
		}
		g.stop()
		w.again(t, "without such routes")
	})
	t.Run("ProviderDies", func(t *testing.T) {
		w.vpn.server.Kill()
		w.shut(t, "without provider")
		w.agent.refuses(t, "tunnel is down")
		since := time.Now()
		w.vpn.serve()
		w.goesOn(t, since, "the provider is back")
	})
	t.Run("AgentKilled", func(t *testing.T) {
		left := e.outlive(w.agent)
		w.peers.goOn(t, time.Now(), "without agent")
		c.expect(t, "without agent", works)
		// Nobody leads peers into another device.
		g.stop()
		w.up(t)
		c.expect(t, "another device, without agent", blocked)
		w.peers.stand(t, "another device, without agent")
		g.stop()
		g.open()
		w.shut(t, "all open, without agent and tunnel")
		around.none(t, "without agent")
		left.Kill()
		w.agent = w.runAgent()
		w.agent.refuses(t, "not up yet")
		w.startAgain(t, "another agent")
	})
	// Either wall holds without the other.
	t.Run("PastOurRules", func(t *testing.T) {
		// Somebody's rule takes peers past ours, to where the pod's own default
		// routes are, and gluetun's firewall is open.
		g.open()
		w.gateway.NFT(openTable)
		g.pastOurRules()
		c.expect(t, "past the routing rules", works)
		g.stop()
		w.shut(t, "past the routing rules, no tunnel")
		around.none(t, "past the routing rules")
		g.behindOurRules()
	})
	t.Run("PastOurFirewall", func(t *testing.T) {
		time.Sleep(2 * time.Second)
		g.Run("nft delete table inet wireguard_gateway")
		c.expect(t, "past the firewall", blocked)
		if n := around.leaked(); n != 0 {
			t.Errorf("past the firewall: %d packets of peers went around the tunnel", n)
		}
	})
	t.Run("Removed", func(t *testing.T) {
		w.up(t)
		w.agent.waitReady(w.on)
		w.agent.Kill()
		w.gateway.Exec(agentBinary, "remove")
		if out := g.Run("ip route show table all") + g.Run("ip rule") + g.Run("ip -6 rule"); contains(out, "51822") || contains(out, "proto 86") {
			t.Errorf("something is left: %s", out)
		}
	})
}

// The server chooses the tunnel's network. Where that is the pool of the peers,
// OpenVPN's routes are by the gateway's own device, so the agent says why there is
// no way out.
func TestGluetunOpenVPNInPool(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.provider()
	w.server.echo(443)
	e := newOpenVPNGateway(t)
	e.write(w.gateway)
	g := w.newGluetun(e.env(), e.file(wireguard.PostRulesKey))
	g.firewall()
	g.routing()
	around := w.watchAround()
	c := w.client(1)
	a := w.runAgent()
	a.refuses(t, "not up yet")
	// Whom nobody answers tries again after five seconds only.
	e.connect(c, "laptop")
	if err := g.up(); err != nil {
		t.Fatal(err)
	}
	a.waitReady(e.config())
	c.expect(t, "another network", map[string]bool{reached4: true, reached6: true})
	g.stop()
	g.upOpenVPN("10.8.0.1", "10.8.0.7/24", tunnel6+"/64")
	a.refuses(t, "gluetun's tunnel has addresses of 10.8.0.0/24, which overlaps with the gateway's: choose another pool")
	c.expect(t, "in the pool", map[string]bool{reached4: false, "icmp " + server4: false})
	around.none(t, "in the pool")
}
