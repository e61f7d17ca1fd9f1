package dataplane

import (
	"fmt"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
)

// Traffic and handshakes of each peer are metrics, by the names that dashboards
// know.
func TestMetrics(t *testing.T) {
	w := newWorld(t)
	c, silent := w.client(1), testPeer(5, testKey("client", 5))
	on := configWith(c.peer, silent)
	a := w.startAgent(on)
	c.up()
	if c.pings(server4) == 0 {
		t.Fatal("the tunnel does not work")
	}
	series := func(name, peer string) float64 {
		t.Helper()
		p, addresses := c.peer, "10.8.0.2/32,fd00:8::2/128"
		if peer == "vpn/client5" {
			p, addresses = silent, "10.8.0.6/32,fd00:8::6/128"
		}
		return a.metric(fmt.Sprintf(`%s{allowed_ips=%q,interface="wg0",peer_name=%q,public_key=%q}`, name, addresses, peer, p.PublicKey.String()))
	}
	for _, name := range []string{"wireguard_sent_bytes_total", "wireguard_received_bytes_total"} {
		if got := series(name, "vpn/client1"); got < 3*84 {
			t.Errorf("%s is %v, less than three pings", name, got)
		}
		if got := series(name, "vpn/client5"); got != 0 {
			t.Errorf("%s of a peer that was never there is %v", name, got)
		}
	}
	if got, now := series("wireguard_latest_handshake_seconds", "vpn/client1"), float64(time.Now().Unix()); got < now-60 || got > now+1 {
		t.Errorf("the last handshake was at %v, now it is %v", got, now)
	}
	if got := series("wireguard_latest_handshake_seconds", "vpn/client5"); got != 0 {
		t.Errorf("a peer that was never there had a handshake at %v", got)
	}
	for name, want := range map[string]float64{
		"wireguard_gateway_ready": 1, "wireguard_gateway_peers": 2, "wireguard_gateway_config_valid": 1,
		`wireguard_gateway_pool_addresses{pool="10.8.0.0/24"}`: 253,
	} {
		if got := a.metric(name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

// When nothing happens the agent does next to nothing, and says nothing. What
// others do to tables of their own is nothing.
func TestQuiet(t *testing.T) {
	t.Parallel()
	const idle = 12 * time.Second // past the check of the firewall
	w := newWorld(t)
	a := w.startAgent(configWith(manyPeers(50)...))
	time.Sleep(2 * time.Second)
	said, used, changed := len(a.Out.String()), a.CPU(), a.metric(`wireguard_gateway_sync_duration_seconds_count{cause="network"}`)
	generation := w.gateway.Run("nft -a list table inet wireguard_gateway")
	w.gateway.NFT("add table inet other")
	time.Sleep(idle)
	if log := a.Out.String()[said:]; log != "" {
		t.Errorf("the agent has something to say:\n%s", log)
	}
	share := (a.CPU() - used).Seconds() / idle.Seconds()
	t.Logf("idle with 50 peers: %.2f %% of a processor", 100*share)
	if share > 0.02 {
		t.Errorf("the agent uses %.1f %% of a processor for nothing", 100*share)
	}
	if n := a.metric(`wireguard_gateway_sync_duration_seconds_count{cause="network"}`); n != changed {
		t.Errorf("%v syncs for nothing", n-changed)
	}
	if now := w.gateway.Run("nft -a list table inet wireguard_gateway"); withoutCounters(now) != withoutCounters(generation) {
		t.Error("the firewall was written for nothing")
	}
}

// The pod's network may come after the agent, and change.
func TestUplinkChanges(t *testing.T) {
	w := newWorld(t)
	w.server.echo(443)
	c := w.client(1)
	on := configWith(c.peer)
	w.gateway.Write("config/config.json", encode(t, on))
	w.gateway.Run("ip link set eth0 down")
	a := w.runAgent()
	a.refuses(t, "no default route")
	w.gateway.Run("ip link set eth0 up")
	for _, l := range []string{"ip route add default via 10.244.0.1", "ip addr replace 2001:db8:2::10/64 dev eth0 nodad", "ip -6 route add default via 2001:db8:2::1"} {
		w.gateway.Run(l)
	}
	a.waitReady(on)
	// It is ready with one family, and the other one's route came after.
	leavesBy := func(device string) {
		t.Helper()
		netns.WaitFor(t, limit, "IPv6 by "+device, func() error {
			return want(w.gateway.Run("nft list table inet wireguard_gateway"), `meta nfproto ipv6 oifname "`+device+`" return`)
		})
	}
	leavesBy("eth0")
	c.up()
	works := map[string]bool{"tcp " + server4 + " 443": true, "udp " + server6 + " 443": true}
	c.expect(t, "a network that came later", works)

	// Another interface takes over: peers leave by it, and not by the old one.
	w.gateway.Run("ip link set eth0 down")
	w.gateway.Run("ip link set eth0 name net1")
	w.gateway.Run("ip link set net1 mtu 1400")
	w.gateway.Run("ip link set net1 up")
	for _, l := range []string{"ip route add default via 10.244.0.1", "ip addr replace 2001:db8:2::10/64 dev net1 nodad", "ip -6 route add default via 2001:db8:2::1"} {
		w.gateway.Run(l)
	}
	netns.WaitFor(t, limit, "the other interface", func() error {
		return want(w.gateway.Run("nft list table inet wireguard_gateway"), `oifname "net1" masquerade`)
	})
	netns.WaitFor(t, limit, "its MTU, less what WireGuard adds", func() error {
		return want(w.gateway.Run("ip link show wg0"), "mtu 1320 ")
	})
	leavesBy("net1")
	c.expect(t, "another interface", works)
}

// One sync, for debugging.
func TestOnce(t *testing.T) {
	w := newWorld(t)
	w.gateway.Write("config/config.json", encode(t, configWith(testPeer(1, testKey("client", 1)))))
	w.gateway.Exec(agentBinary, "gateway", "--once", "--config=/run/config/config.json")
	w.gateway.Run("nft list table inet wireguard_gateway")
	w.gateway.Write("config/config.json", "{}")
	out, err := w.gateway.Try(agentBinary, "gateway", "--once", "--config=/run/config/config.json")
	if err == nil || !contains(out, "version 0 is not known") {
		t.Errorf("a bad configuration is no failure: %v %s", err, out)
	}
}
