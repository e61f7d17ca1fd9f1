package dataplane

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// What others have in the pod's network stays as it is, byte for byte, after
// 100 syncs and after the removal of all that is ours.
func TestOthersRules(t *testing.T) {
	t.Parallel()
	const syncs = 100
	w := newWorld(t)
	g := w.gateway
	for _, l := range []string{
		"iptables -A FORWARD -p tcp --dport 9999 -m comment --comment other -j ACCEPT",
		"iptables -t nat -A POSTROUTING -s 172.16.0.0/12 -o eth0 -j MASQUERADE",
		"iptables -t mangle -A PREROUTING -p udp -j MARK --set-mark 7",
		"iptables -N OTHER", "iptables -A OTHER -j RETURN", "iptables -I INPUT -j OTHER",
		"ip6tables -A OUTPUT -p tcp --dport 9999 -j ACCEPT",
		"ip rule add pref 77 from 192.0.2.1 lookup 100", "ip route add 198.51.100.0/24 via 10.244.0.1 proto 99",
		"ip rule add pref 90 fwmark 0x5 lookup 100",
	} {
		g.Run(l)
	}
	g.NFT(`
		table inet other { set s { type ipv4_addr; elements = { 192.0.2.1, 192.0.2.2 }; }
			chain forward { type filter hook forward priority -10; policy accept; ip saddr @s drop; }; }
		table ip wireguard_gateway { chain x { ip saddr 192.0.2.9 accept; }; }`)
	others := func() string {
		g.T.Helper()
		out := ""
		for _, l := range []string{
			"iptables-save", "ip6tables-save", "nft -a list table inet other", "nft -a list table ip wireguard_gateway",
			"ip route show table main proto 99", "ip route show table main proto boot", "ip rule show pref 77",
		} {
			out += "# " + l + "\n" + g.Run(l)
		}
		return withoutTimes(out)
	}
	before, rules := others(), g.Run("ip rule show")

	base := configWith(testPeer(1, testKey("client", 1)))
	base.Egress.ClusterCIDRs = prefixes("10.96.0.0/12")
	a := w.startAgent(base)
	for i := range syncs {
		c := base
		p := testPeer(2+i%7, testKey("client", 2+i%7))
		p.Access = []wireguard.AccessRule{rule(wireguard.Accept, "", "", fmt.Sprint(1+i))}
		p.Routes = prefixes(fmt.Sprintf("192.168.%d.0/24", i))
		c.Peers = []wireguard.Peer{base.Peers[0], p}
		c.PeerToPeer = i%2 == 0
		a.apply(c)
	}
	// A last one that changes the egress brings and takes our routing rules.
	tunnel := base
	tunnel.Egress.Mode = wireguard.EgressGluetun
	a.write(encode(t, tunnel))
	a.refuses(t, "gluetun's tunnel is not up yet")
	if out := g.Run("ip rule show pref 91"); !contains(out, "lookup 51820") {
		t.Errorf("no routing rules of ours: %s", out)
	}
	if diff := cmp.Diff(before, others()); diff != "" {
		t.Errorf("others' rules after %d syncs: -before, +after:\n%s", syncs, diff)
	}
	a.Kill()
	g.Exec(agentBinary, "remove")
	if diff := cmp.Diff(before, others()); diff != "" {
		t.Errorf("others' rules after the removal: -before, +after:\n%s", diff)
	}
	if diff := cmp.Diff(rules, g.Run("ip rule show")); diff != "" {
		t.Errorf("routing rules after the removal: -before, +after:\n%s", diff)
	}
	if out := g.Run("nft list tables"); contains(out, "inet wireguard_gateway") {
		t.Errorf("our table is left: %s", out)
	}
}

// The agent notices when others take its rules or its peers away.
func TestDrift(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.server.echo(443)
	c := w.client(1)
	on := configWith(c.peer)
	a := w.startAgent(on)
	c.up()
	works := map[string]bool{"tcp " + server4 + " 443": true}
	c.expect(t, "before", works)
	for name, harm := range map[string]string{
		"Firewall": "nft delete table inet wireguard_gateway",
		"Ruleset":  "nft flush ruleset",
		"Peer":     "wg set wg0 peer " + c.peer.PublicKey.String() + " allowed-ips 10.8.0.77/32",
		"Port":     "wg set wg0 listen-port 4444",
		"Address":  "ip addr del 10.8.0.1/24 dev wg0",
		"Down":     "ip link set wg0 down",
		"Device":   "ip link del wg0",
	} {
		t.Run(name, func(t *testing.T) {
			w.gateway.Run(harm)
			netns.WaitFor(t, limit, "repair", func() error {
				if err := c.probe("tcp " + server4 + " 443"); err != nil {
					return err
				}
				_, err := w.gateway.Try("nft", "list", "table", "inet", "wireguard_gateway")
				return err
			})
		})
	}
	a.waitReady(on)
}

// What others change in tables of their own is no reason to write ours again, also
// soon after a change of ours and while more is to come.
func TestOthersChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	c := configWith(testPeer(1, testKey("client", 1)))
	a := w.startAgent(c)
	// A sync for the network is always due.
	w.gateway.Run("ip link add events type veth peer name events2")
	events := w.gateway.Start("sh", "-c", "while true; do ip addr add 198.51.100.1/32 dev events; ip addr del 198.51.100.1/32 dev events; sleep 0.02; done")
	for i := range 5 {
		c.Peers[0].Access = []wireguard.AccessRule{rule(wireguard.Accept, "", "", fmt.Sprint(1+i))}
		a.apply(c)
		time.Sleep(100 * time.Millisecond) // for the agent to see what it wrote
		w.gateway.NFT(fmt.Sprintf("table inet other%d { chain c { ip saddr 192.0.2.1 drop; }; }", i))
		time.Sleep(200 * time.Millisecond)
	}
	events.Kill()
	if out := a.Out.String(); contains(out, "somebody else has changed nftables") {
		t.Errorf("our table is written again: %s", out)
	}
}

// A device whose control socket somebody has taken away can be changed no more. It
// is made anew, and serves those whom it has served and who come next, but nobody
// who was removed meanwhile.
func TestControlSocketDeleted(t *testing.T) {
	t.Parallel()
	for name, harm := range map[string]string{
		"Deleted": "rm /run/wireguard/wg0.sock",
		"Moved":   "mv /run/wireguard/wg0.sock /run/wireguard/other.sock",
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.server.echo(443)
			first, second, removed := w.client(1), w.client(2), w.client(3)
			a := w.startAgent(configWith(first.peer, removed.peer))
			works := map[string]bool{"tcp " + server4 + " 443": true}
			first.up()
			removed.up()
			first.expect(t, "before", works)
			removed.expect(t, "before", works)
			time.Sleep(1500 * time.Millisecond) // for the agent to see where the clients are
			w.gateway.Run(harm)
			a.apply(configWith(first.peer, second.peer))
			second.up()
			second.expect(t, "one that comes after", works)
			first.expect(t, "one from before", works)
			removed.expect(t, "one that was removed meanwhile", map[string]bool{"tcp " + server4 + " 443": false})
		})
	}
}

// Somebody flushes all of nftables, as a restart of its service on a node does:
// what a peer may not reach is open for a moment, not for seconds.
func TestFlushedRuleset(t *testing.T) {
	t.Parallel()
	const flushes, most = 3, 500 * time.Millisecond
	w := newWorld(t)
	w.server.echo(443, 7000)
	c := w.client(1)
	c.peer.Access = []wireguard.AccessRule{rule(wireguard.Accept, "", wireguard.ProtocolTCP)}
	w.startAgent(configWith(c.peer))
	c.up()
	c.expect(t, "before", map[string]bool{"tcp " + server4 + " 443": true, "udp " + server4 + " 7000": false})
	arrived := w.server.count("eth0", "udp dport 7000")
	b := c.Beacon(server4, 7000) // one each 10 ms
	for range flushes {
		w.gateway.Run("nft flush ruleset")
		netns.WaitFor(t, limit, "repair", func() error {
			_, err := w.gateway.Try("nft", "list", "table", "inet", "wireguard_gateway")
			return err
		})
		time.Sleep(500 * time.Millisecond)
	}
	_, _ = b.End(time.Now())
	n := arrived()
	t.Logf("%d packets of %d flushes got out", n, flushes)
	if n > flushes*int(most/(10*time.Millisecond)) {
		t.Errorf("%d packets of %d flushes got out", n, flushes)
	}
}

// What a peer opens while the ruleset is flushed has its own address outside. It
// works as soon as all is repaired, also where the peer goes on with the same port.
func TestFlushedConnections(t *testing.T) {
	t.Parallel()
	const connections, most, silence = 20, 2 * time.Second, 500 * time.Millisecond
	w := newWorld(t)
	w.server.echo(443, 7000)
	c := w.client(1)
	w.startAgent(configWith(c.peer))
	c.up()
	c.expect(t, "before", map[string]bool{"tcp " + server4 + " 443": true, "udp " + server4 + " 7000": true})
	shown := w.server.count("eth0", "ip saddr 10.8.0.0/24")
	// The agent looks again after a rest only.
	flushed := make(chan struct{})
	go func() {
		defer close(flushed)
		_, _ = w.gateway.Try("sh", "-c", "for i in 1 2 3 4 5 6 7 8; do nft flush ruleset; sleep 0.02; done")
	}()
	var beacons []*netns.Beacon
	for range connections {
		beacons = append(beacons, c.Beacon(server4, 7000))
		time.Sleep(10 * time.Millisecond)
	}
	<-flushed
	if shown() == 0 {
		t.Error("nothing got out while the ruleset was flushed")
	}
	time.Sleep(most)
	dead, repaired := 0, time.Now()
	time.Sleep(silence)
	for _, b := range beacons {
		if _, gap := b.End(repaired); gap >= silence {
			dead++
		}
	}
	if dead > 0 {
		t.Errorf("%d of %d connections are dead %s after the repair", dead, connections, most)
	}
}

// A device of somebody else that has our name is left alone.
func TestForeignDevice(t *testing.T) {
	w := newWorld(t)
	w.gateway.Run("ip link add wg0 type veth peer name other")
	w.gateway.Run("ip addr add 192.0.2.99/32 dev wg0")
	before := w.gateway.Run("ip -d addr show wg0")
	on := configWith()
	w.gateway.Write("config/config.json", encode(t, on))
	a := w.runAgent()
	a.refuses(t, "belongs to somebody else")
	w.gateway.Exec(agentBinary, "remove")
	if diff := cmp.Diff(before, w.gateway.Run("ip -d addr show wg0")); diff != "" {
		t.Errorf("it was changed: -before, +after:\n%s", diff)
	}
	w.gateway.Run("ip link del wg0")
	a.waitReady(on)
}
