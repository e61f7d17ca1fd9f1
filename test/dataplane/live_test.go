package dataplane

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// Other peers come, change and go, and with them the firewall, while one has a
// transfer running: nothing of it is lost. The transfer has a fixed rate, so
// that it shows what is dropped, and not how the test's own work slows the
// machine.
func TestChangesDuringTransfer(t *testing.T) {
	const phase, settle, changes = 7.0, 1.0, 50
	w := newWorld(t)
	w.server.iperf(5201)
	c := w.client(1)
	a := w.startAgent(configWith(c.peer))
	c.up()
	if got := c.pings(server4); got == 0 {
		t.Fatal("the tunnel does not work")
	}

	random := rand.New(rand.NewPCG(1, 1))
	others := map[int]wireguard.Peer{}
	change := func(i int) wireguard.GatewayConfig {
		n := 2 + random.IntN(20)
		p, there := others[n]
		switch {
		case !there:
			others[n] = testPeer(n, testKey("other", n))
		case i%2 == 0:
			delete(others, n)
		default:
			psk := testKey("psk", i)
			p.PresharedKey = &psk
			p.Access = []wireguard.AccessRule{rule(wireguard.Accept, "", wireguard.ProtocolTCP, fmt.Sprint(1000+i))}
			others[n] = p
		}
		peers := []wireguard.Peer{c.peer}
		for _, p := range others {
			peers = append(peers, p)
		}
		return configWith(peers...)
	}

	start := time.Now()
	result := c.transfer(server4, 5201, 3*time.Duration(phase)*time.Second, "-b", "150M")
	at := func(seconds float64) {
		time.Sleep(time.Until(start.Add(time.Duration(seconds * float64(time.Second)))))
	}
	at(phase)
	for i := range changes {
		a.apply(change(i))
		at(phase + (phase-1)*float64(i+1)/changes)
	}
	ended := time.Since(start).Seconds()
	if ended > 2*phase {
		t.Logf("the changes took until second %.1f", ended)
	}
	r := result()

	before, retransmitsBefore := r.between(settle, phase)
	after, retransmitsAfter := r.between(max(2*phase, ended+0.5), 3*phase)
	during, retransmits := r.between(phase, max(2*phase, ended))
	quiet := (before + after) / 2
	t.Logf("%d changes: %.1f Mbit/s of %.1f, %d retransmits during them, %d without", changes, during/1e6, quiet/1e6, retransmits, retransmitsBefore+retransmitsAfter)
	if during < 0.95*quiet {
		t.Errorf("the transfer had %.1f Mbit/s during the changes, and %.1f without", during/1e6, quiet/1e6)
	}
	if retransmits > retransmitsBefore+retransmitsAfter {
		t.Errorf("the changes caused %d retransmits, without them there were %d", retransmits, retransmitsBefore+retransmitsAfter)
	}
	if n := int(a.metric(`wireguard_gateway_sync_duration_seconds_count{cause="config"}`)); n < changes {
		t.Errorf("only %d of %d changes were applied", n, changes)
	}
}

// A peer that is taken away and given back has no session on the gateway. It
// gets one at once, since the gateway remembers where it is and calls first.
func TestPeerComesBack(t *testing.T) {
	w := newWorld(t)
	w.server.echo(7000)
	c := w.client(1)
	a := w.startAgent(configWith(c.peer))
	c.up()
	b := c.beacon(server4, 7000)
	b.answered(t, time.Now())
	time.Sleep(1500 * time.Millisecond) // for the agent to see where the client is
	a.apply(configWith())
	a.apply(configWith(c.peer))
	back := time.Now()
	b.answered(t, back)
	// WireGuard itself would need 15 seconds.
	if gap := time.Since(back); gap > 5*time.Second {
		t.Errorf("the peer was back after %s", gap)
	}
}

// The pools change: the device has the new addresses, and no old one.
func TestPoolChange(t *testing.T) {
	w := newWorld(t)
	w.server.echo(443)
	c := w.client(1)
	before := configWith(c.peer)
	a := w.startAgent(before)
	c.up()
	c.expect(t, "before", map[string]bool{"tcp " + server4 + " 443": true, "icmp 10.8.0.1": true})

	after := configWith(c.peer)
	after.Addresses = prefixes("10.99.0.1/16", "fd00:99::1/64")
	after.Peers[0].Addresses = addresses("10.99.0.2", "fd00:99::2")
	a.apply(after)
	if out := w.gateway.run("ip -o addr show dev wg0 scope global"); contains(out, "10.8.0.1") || !contains(out, "10.99.0.1/16") || contains(out, "fd00:8::1") || !contains(out, "fd00:99::1/64") {
		t.Errorf("the device has other addresses than its pools:\n%s", out)
	}
	c.down()
	c.peer = after.Peers[0]
	c.up()
	c.expect(t, "after", map[string]bool{"tcp " + server4 + " 443": true, "udp " + server6 + " 443": true, "icmp 10.99.0.1": true, "icmp 10.8.0.1": false})
}

// A network behind a peer is reached by other peers, and reaches them.
func TestSiteToSite(t *testing.T) {
	w := newWorld(t)
	site, c := w.client(1), w.client(2)
	site.run("ip link add lan type veth peer name lan-peer")
	site.run("ip addr add 192.168.50.1/24 dev lan")
	site.run("ip link set lan up")
	site.echo(443)
	c.echo(443)
	site.peer.Routes = prefixes("192.168.50.0/24")
	on := configWith(site.peer, c.peer)
	on.PeerToPeer = true
	a := w.startAgent(on)
	site.up()
	c.up()
	// A handshake, so that the gateway knows where the site is.
	site.expect(t, "the site reaches the gateway", map[string]bool{"icmp 10.8.0.1": true})
	c.expect(t, "the network behind a peer", map[string]bool{"tcp 192.168.50.1 443": true})
	if got := site.exec("ping", "-n", "-c1", "-W2", "-I", "192.168.50.1", "10.8.0.3"); !contains(got, "bytes from") {
		t.Errorf("the network does not reach other peers: %s", got)
	}
	on.PeerToPeer = false
	a.apply(on)
	c.expect(t, "peers only with peerToPeer", map[string]bool{"tcp 192.168.50.1 443": false})
	on.Peers[0].Routes = nil
	a.apply(on)
	if out := w.gateway.run("ip route show dev wg0"); contains(out, "192.168.50") {
		t.Errorf("the route is still there: %s", out)
	}
}
