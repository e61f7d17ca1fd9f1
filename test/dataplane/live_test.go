package dataplane

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// Other peers come, change and go, and with them the firewall, while one has a
// transfer running: nothing of it is lost. The transfer has a fixed rate, so
// that it shows what is dropped, and not how the test's own work slows the
// machine. A busy machine loses packets of its own, now and then: what the
// changes cause would be there each time.
func TestChangesDuringTransfer(t *testing.T) {
	const attempts = 3
	w := newWorld(t)
	w.server.iperf(5201)
	c := w.client(1)
	a := w.startAgent(configWith(c.peer))
	c.up()
	if got := c.pings(server4); got == 0 {
		t.Fatal("the tunnel does not work")
	}
	others := &crowd{random: rand.New(rand.NewPCG(1, 1)), peers: map[int]wireguard.Peer{}}
	for range attempts {
		during, quiet := c.transferWithChanges(a, others)
		t.Logf("%d changes: %.1f Mbit/s of %.1f, %d retransmits during them, %d without",
			changesPerTransfer, during.rate/1e6, quiet.rate/1e6, during.retransmits, quiet.retransmits)
		if during.rate >= 0.95*quiet.rate && during.retransmits <= quiet.retransmits {
			return
		}
	}
	t.Errorf("each of %d transfers lost something during the changes", attempts)
}

const (
	changesPerTransfer = 50
	phase              = 7.0 // seconds, of a transfer that has three
)

// measure is of a part of a transfer. The rate is in bits per second.
type measure struct {
	rate        float64
	retransmits int
}

// transferWithChanges makes changes during the second of three phases of a
// transfer, and compares it with the others.
func (c *client) transferWithChanges(a *agent, others *crowd) (during, quiet measure) {
	c.T.Helper()
	before := a.metric(`wireguard_gateway_sync_duration_seconds_count{cause="config"}`)
	start := time.Now()
	result := c.transfer(server4, 5201, 3*phase*time.Second, "-b", "150M")
	at := func(seconds float64) {
		time.Sleep(time.Until(start.Add(time.Duration(seconds * float64(time.Second)))))
	}
	at(phase)
	for i := range changesPerTransfer {
		a.apply(others.change(i, c.peer))
		at(phase + (phase-1)*float64(i+1)/changesPerTransfer)
	}
	ended := max(2*phase, time.Since(start).Seconds()+0.5)
	r := result()
	if n := a.metric(`wireguard_gateway_sync_duration_seconds_count{cause="config"}`) - before; n < changesPerTransfer {
		c.T.Errorf("only %v of %d changes were applied", n, changesPerTransfer)
	}
	const slowStart = 1.0
	first, last := r.between(slowStart, phase), r.between(ended, 3*phase)
	return r.between(phase, ended), measure{rate: (first.rate + last.rate) / 2, retransmits: first.retransmits + last.retransmits}
}

// crowd is peers that come, change and go.
type crowd struct {
	random *rand.Rand
	peers  map[int]wireguard.Peer
}

// change returns a configuration that differs from the last one in one peer,
// beside a peer that stays.
func (o *crowd) change(i int, stays wireguard.Peer) wireguard.GatewayConfig {
	n := 2 + o.random.IntN(20)
	p, there := o.peers[n]
	switch {
	case !there:
		o.peers[n] = testPeer(n, testKey("other", n))
	case i%2 == 0:
		delete(o.peers, n)
	default:
		psk := testKey("psk", o.random.IntN(1e6))
		p.PresharedKey = &psk
		p.Access = []wireguard.AccessRule{rule(wireguard.Accept, "", wireguard.ProtocolTCP, strconv.Itoa(1000+i))}
		o.peers[n] = p
	}
	peers := []wireguard.Peer{stays}
	for _, p := range o.peers {
		peers = append(peers, p)
	}
	return configWith(peers...)
}

// A peer that is taken away and given back has no session on the gateway. It
// gets one at once, since the gateway remembers where it is and calls first.
func TestPeerComesBack(t *testing.T) {
	w := newWorld(t)
	w.server.echo(7000)
	c := w.client(1)
	a := w.startAgent(configWith(c.peer))
	c.up()
	b := c.Beacon(server4, 7000)
	b.Answered(t, time.Now())
	time.Sleep(1500 * time.Millisecond) // for the agent to see where the client is
	a.apply(configWith())
	a.apply(configWith(c.peer))
	back := time.Now()
	b.Answered(t, back)
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
	if out := w.gateway.Run("ip -o addr show dev wg0 scope global"); contains(out, "10.8.0.1") || !contains(out, "10.99.0.1/16") || contains(out, "fd00:8::1") || !contains(out, "fd00:99::1/64") {
		t.Errorf("the device has other addresses than its pools:\n%s", out)
	}
	c.down()
	c.peer = after.Peers[0]
	c.up()
	c.expect(t, "after", map[string]bool{"tcp " + server4 + " 443": true, "udp " + server6 + " 443": true, "icmp 10.99.0.1": true, "icmp 10.8.0.1": false})
}

// A network behind a peer is reached by other peers, and reaches them.
func TestSiteToSite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	site, c := w.client(1), w.client(2)
	site.Run("ip link add lan type veth peer name lan-peer")
	site.Run("ip addr add 192.168.50.1/24 dev lan")
	site.Run("ip link set lan up")
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
	if got := site.Exec("ping", "-n", "-c1", "-W2", "-I", "192.168.50.1", "10.8.0.3"); !contains(got, "bytes from") {
		t.Errorf("the network does not reach other peers: %s", got)
	}
	on.PeerToPeer = false
	a.apply(on)
	c.expect(t, "peers only with peerToPeer", map[string]bool{"tcp 192.168.50.1 443": false})
	on.Peers[0].Routes = nil
	a.apply(on)
	if out := w.gateway.Run("ip route show dev wg0"); contains(out, "192.168.50") {
		t.Errorf("the route is still there: %s", out)
	}
}

// A peer announces what the gateway's pod has itself. It does not get that, and
// everybody has all else: the pod's network is not a peer's to take.
func TestRouteOfThePod(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.server.echo(443)
	site, c := w.client(1), w.client(2)
	site.Run("ip link add lan type veth peer name lan-peer")
	site.Run("ip addr add 192.168.50.1/24 dev lan")
	site.Run("ip link set lan up")
	site.echo(443)
	w.gateway.Run("ip route add 198.51.100.0/24 via 10.244.0.1")
	before := w.gateway.Run("ip route show table main")
	on := configWith(site.peer, c.peer)
	on.PeerToPeer = true
	a := w.startAgent(on)
	site.up()
	c.up()
	site.expect(t, "the site reaches the gateway", map[string]bool{"icmp 10.8.0.1": true})
	for name, tc := range map[string]struct{ reason, route, says string }{
		"Own":    {"the kernel has a route to it already", "10.244.0.0/24", "the pod has 10.244.0.10/24 on eth0"},
		"Wider":  {"the pod's own address is in it", "10.244.0.0/16", "the pod has 10.244.0.10/24 on eth0"},
		"Part":   {"so it is in a part of its network", "10.244.0.0/25", "the pod has 10.244.0.10/24 on eth0"},
		"IPv6":   {"it is alike", "2001:db8:2::/64", "the pod has 2001:db8:2::10/64 on eth0"},
		"Static": {"somebody else routes it", "198.51.100.0/24", "the pod has another route to it"},
	} {
		t.Run(name, func(t *testing.T) {
			with := on
			with.Peers = slices.Clone(on.Peers)
			with.Peers[0].Routes = prefixes("192.168.50.0/24", tc.route)
			a.apply(with)
			netns.WaitFor(t, limit, "a word on it", func() error {
				_, body, err := a.get("/readyz")
				if err == nil {
					err = want(body, "route "+tc.route+" of peer vpn/client1 is left out: "+tc.says)
				}
				return err
			})
			c.expect(t, tc.reason, map[string]bool{"tcp " + server4 + " 443": true, "udp " + server6 + " 443": true, "tcp 192.168.50.1 443": true})
			a.apply(on)
			if _, body, err := a.get("/readyz"); err != nil || contains(body, "left out") {
				t.Errorf("it is not announced any more: %v %s", err, body)
			}
		})
	}
	if diff := cmp.Diff(withoutDevice(before, "wg0"), withoutDevice(w.gateway.Run("ip route show table main"), "wg0")); diff != "" {
		t.Errorf("routes of others: -before, +after:\n%s", diff)
	}
}

// withoutDevice leaves out the routes into a device.
func withoutDevice(routes, device string) string {
	out := ""
	for l := range strings.Lines(routes) {
		if !contains(l, "dev "+device+" ") {
			out += l
		}
	}
	return out
}
