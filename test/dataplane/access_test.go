package dataplane

import (
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// rule builds an access rule.
func rule(action, cidr, protocol string, ports ...string) wireguard.AccessRule {
	r := wireguard.AccessRule{Action: action, Protocol: protocol}
	if cidr != "" {
		r.To.CIDR = netip.MustParsePrefix(cidr)
	}
	for _, p := range ports {
		x, err := wireguard.ParsePortRange(p)
		if err != nil {
			panic(err)
		}
		r.To.Ports = append(r.To.Ports, x)
	}
	return r
}

// destinations are everything that the access tests try to reach.
func destinations() []string {
	var out []string
	for _, address := range []string{server4, server6} {
		for _, port := range []string{"53", "443", "8050"} {
			out = append(out, "tcp "+address+" "+port, "udp "+address+" "+port)
		}
		out = append(out, "icmp "+address)
	}
	return out
}

func TestAccess(t *testing.T) {
	t.Parallel()
	const tcp4, tcp6, udp4, udp6 = "tcp " + server4, "tcp " + server6, "udp " + server4, "udp " + server6
	cases := map[string]struct {
		reason string
		rules  []wireguard.AccessRule
		pass   []string
	}{
		"None": {"without rules everything passes", nil, destinations()},
		"Ports": {"single ports and ranges, of one protocol and network", []wireguard.AccessRule{
			rule(wireguard.Accept, server4+"/32", wireguard.ProtocolTCP, "443", "8000-8100"),
		}, []string{tcp4 + " 443", tcp4 + " 8050"}},
		"AnyProtocol": {"ports of any protocol are TCP's and UDP's", []wireguard.AccessRule{
			rule(wireguard.Accept, "", wireguard.ProtocolAny, "53"),
		}, []string{tcp4 + " 53", tcp6 + " 53", udp4 + " 53", udp6 + " 53"}},
		"UDP": {"a protocol without ports", []wireguard.AccessRule{
			rule(wireguard.Accept, "", wireguard.ProtocolUDP),
		}, []string{udp4 + " 53", udp4 + " 443", udp4 + " 8050", udp6 + " 53", udp6 + " 443", udp6 + " 8050"}},
		"ICMP": {"ICMP of both families", []wireguard.AccessRule{
			rule(wireguard.Accept, "", wireguard.ProtocolICMP),
		}, []string{"icmp " + server4, "icmp " + server6}},
		"IPv6": {"a network of one family is nothing of the other", []wireguard.AccessRule{
			rule(wireguard.Accept, "::/0", wireguard.ProtocolAny),
		}, []string{tcp6 + " 53", tcp6 + " 443", tcp6 + " 8050", udp6 + " 53", udp6 + " 443", udp6 + " 8050", "icmp " + server6}},
		"Order": {"the first rule that matches decides", []wireguard.AccessRule{
			rule(wireguard.Reject, "203.0.113.0/24", wireguard.ProtocolTCP, "443"),
			rule(wireguard.Accept, server4+"/32", wireguard.ProtocolTCP),
			rule(wireguard.Reject, "", ""),
			rule(wireguard.Accept, "", wireguard.ProtocolICMP),
		}, []string{tcp4 + " 53", tcp4 + " 8050"}},
		"Reject": {"a list that is not empty ends in reject", []wireguard.AccessRule{
			rule(wireguard.Accept, "198.51.100.0/24", ""),
		}, nil},
	}
	w := newWorld(t)
	w.server.echo(53, 443, 8050)
	c, other := w.client(1), w.client(2)
	a := w.startAgent(configWith(c.peer, other.peer))
	c.up()
	other.up()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			restricted := c.peer
			restricted.Access = tc.rules
			a.apply(configWith(restricted, other.peer))
			want := map[string]bool{}
			for _, d := range destinations() {
				want[d] = slices.Contains(tc.pass, d)
			}
			c.expect(t, tc.reason, want)
			other.expect(t, "another peer's rules are its own", map[string]bool{tcp4 + " 53": true, udp6 + " 443": true, "icmp " + server4: true})
		})
	}

	t.Run("Running", func(t *testing.T) {
		a.apply(configWith(c.peer, other.peer))
		conn, err := c.dial("tcp", net.JoinHostPort(server4, "443"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		if err := exchange(conn); err != nil {
			t.Fatal(err)
		}
		restricted := c.peer
		restricted.Access = []wireguard.AccessRule{rule(wireguard.Reject, "", "")}
		a.apply(configWith(restricted, other.peer))
		_ = conn.SetDeadline(time.Now().Add(probeTime))
		if err := exchange(conn); err == nil {
			t.Error("a connection went on after its access was taken back")
		}
	})
}

func TestPeerToPeer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	one, two := w.client(1), w.client(2)
	one.echo(443)
	two.echo(443)
	w.server.echo(443)
	a := w.startAgent(configWith(one.peer, two.peer))
	one.up()
	two.up()
	const toOne4, toOne6, toTwo4, toTwo6 = "tcp 10.8.0.2 443", "udp fd00:8::2 443", "tcp 10.8.0.3 443", "udp fd00:8::3 443"
	internet := "tcp " + server4 + " 443"

	one.expect(t, "off by default", map[string]bool{toTwo4: false, toTwo6: false, "icmp 10.8.0.3": false, internet: true})
	two.expect(t, "off by default", map[string]bool{toOne4: false, toOne6: false, internet: true})

	on := configWith(one.peer, two.peer)
	on.PeerToPeer = true
	a.apply(on)
	one.expect(t, "on for all", map[string]bool{toTwo4: true, toTwo6: true, "icmp 10.8.0.3": true, internet: true})
	two.expect(t, "on for all", map[string]bool{toOne4: true, toOne6: true, internet: true})

	// Rules are about what a peer opens. Its answers need none.
	restricted := two.peer
	restricted.Access = []wireguard.AccessRule{rule(wireguard.Accept, server4+"/32", "")}
	on.Peers = []wireguard.Peer{one.peer, restricted}
	a.apply(on)
	one.expect(t, "replies pass", map[string]bool{toTwo4: true, toTwo6: true, "icmp 10.8.0.3": true})
	two.expect(t, "peers are destinations like others", map[string]bool{toOne4: false, toOne6: false, internet: true})
}

// Who has lost access gets nothing more of what it has asked for before: a
// server may go on sending for ever. What it may still reach goes on.
func TestAccessTakenBack(t *testing.T) {
	t.Parallel()
	t.Run("Rules", func(t *testing.T) {
		w := newWorld(t)
		w.server.echo(443)
		w.pusher()
		c := w.client(1)
		a := w.startAgent(configWith(c.peer))
		c.up()
		goesOn := c.talk(net.JoinHostPort(server4, "443"))
		c.call()
		c.peer.Access = []wireguard.AccessRule{rule(wireguard.Accept, server4+"/32", wireguard.ProtocolTCP)}
		a.apply(configWith(c.peer))
		c.silent(t, "its rules let it reach TCP only")
		if err := goesOn(); err != nil {
			t.Errorf("a connection that it may have has ended: %v", err)
		}

		c.peer.Access = nil
		a.apply(configWith(c.peer))
		c.call()
		c.peer.Access = []wireguard.AccessRule{rule(wireguard.Accept, "", wireguard.ProtocolTCP)}
		time.Sleep(1500 * time.Millisecond) // for the agent to see where the client is
		a.Kill()
		a.write(encode(t, configWith(c.peer)))
		w.runAgent().waitReady(configWith(c.peer))
		netns.WaitFor(t, limit, "the tunnel", func() error { return c.probe("tcp " + server4 + " 443") })
		c.silent(t, "its rules have changed while the agent was away")
	})
	t.Run("Gone", func(t *testing.T) {
		w := newWorld(t)
		w.server.echo(443)
		w.pusher()
		c := w.client(1)
		a := w.startAgent(configWith(c.peer))
		c.up()
		c.call()
		a.apply(configWith())
		c.peer.Access = []wireguard.AccessRule{rule(wireguard.Accept, "", wireguard.ProtocolTCP)}
		a.apply(configWith(c.peer))
		netns.WaitFor(t, limit, "the tunnel", func() error { return c.probe("tcp " + server4 + " 443") })
		c.silent(t, "it has come back with other rules")
	})
	t.Run("PeerToPeer", func(t *testing.T) {
		w := newWorld(t)
		w.server.echo(443)
		c, pusher := w.client(1), w.client(2)
		on := configWith(c.peer, pusher.peer)
		on.PeerToPeer = true
		a := w.startAgent(on)
		c.up()
		pusher.up()
		goesOn := c.talk(net.JoinHostPort(server4, "443"))
		pusher.push("10.8.0.3", "fd00:8::3")
		c.callAt("10.8.0.3", "fd00:8::3")
		on.PeerToPeer = false
		a.apply(on)
		c.silent(t, "peers do not reach each other any more")
		if err := goesOn(); err != nil {
			t.Errorf("a connection to the internet has ended: %v", err)
		}
	})
}

// silent expects that a client gets nothing of a pusher.
func (c *client) silent(t *testing.T, reason string) {
	t.Helper()
	time.Sleep(100 * time.Millisecond) // for what is on its way
	got := c.pushed()
	time.Sleep(time.Second)
	if n := got(); n != 0 {
		t.Errorf("%s: got %d packets", reason, n)
	}
}

// What peers reach of the gateway itself, and what reaches peers from outside.
func TestGatewayItself(t *testing.T) {
	w := newWorld(t)
	c := w.client(1)
	w.gateway.echo(53, 8000)
	c.echo(443)
	restricted := c.peer
	a := w.startAgent(configWith(restricted))
	c.up()
	c.expect(t, "ping and DNS only", map[string]bool{
		"icmp 10.8.0.1": true, "icmp fd00:8::1": true,
		"tcp 10.8.0.1 53": true, "udp fd00:8::1 53": true,
		"http 10.8.0.1 9586": false, "http " + gateway4 + " 9586": false, "tcp 10.8.0.1 8000": false, "udp fd00:8::1 8000": false,
	})
	restricted.Access = []wireguard.AccessRule{rule(wireguard.Accept, "10.8.0.1/32", wireguard.ProtocolUDP, "53")}
	a.apply(configWith(restricted))
	c.expect(t, "as far as access rules let", map[string]bool{
		"icmp 10.8.0.1": false, "tcp 10.8.0.1 53": false, "udp 10.8.0.1 53": true, "udp fd00:8::1 53": false,
	})
	a.apply(configWith(c.peer))

	// Who knows the way could send to peers from outside.
	w.router.Run("ip route add " + pool4 + " via " + gateway4)
	w.router.Run("ip -6 route add " + pool6 + " via " + gateway6)
	arrived4, arrived6 := c.count("wgc0", "ip saddr "+server4), c.count("wgc0", "ip6 saddr "+server6)
	arrived := func() int { return arrived4() + arrived6() }
	w.server.expect(t, "nobody outside opens connections to peers", map[string]bool{"tcp 10.8.0.2 443": false, "udp fd00:8::2 443": false, "icmp 10.8.0.2": false})
	if n := arrived(); n != 0 {
		t.Errorf("%d packets from outside arrived at the peer", n)
	}
	w.gateway.expect(t, "the gateway does", map[string]bool{"tcp 10.8.0.2 443": true, "udp fd00:8::2 443": true, "icmp 10.8.0.2": true})
	c.expect(t, "answers from outside arrive", map[string]bool{"icmp " + server4: true, "icmp " + server6: true})
	if n := arrived(); n != 2 {
		t.Errorf("the counter counts %d answers of 2", n)
	}
	w.server.expect(t, "the agent's own port is open", map[string]bool{"tcp " + gateway4 + " 53": true})
}

// A peer that takes another's address gets nothing through, in any direction.
func TestSpoofing(t *testing.T) {
	w := newWorld(t)
	honest, thief := w.client(1), w.client(2)
	w.server.echo(443)
	on := configWith(honest.peer, thief.peer)
	on.PeerToPeer = true
	a := w.startAgent(on)
	honest.up()
	stolen := thief.clientConfig()
	stolen.Addresses = honest.clientConfig().Addresses
	thief.upWith(stolen)

	inClear := w.peersInClear()
	probes := map[string]bool{"tcp " + server4 + " 443": false, "udp " + server6 + " 443": false, "icmp " + server4: false, "icmp 10.8.0.1": false, "udp 10.8.0.1 53": false}
	arrived := w.server.count("eth0", "meta l4proto { tcp, udp, icmp }")
	thief.expect(t, "a stolen address", probes)
	if n := arrived(); n != 0 {
		t.Errorf("%d packets of the thief arrived", n)
	}
	honest.expect(t, "the owner keeps it", map[string]bool{"tcp " + server4 + " 443": true, "udp " + server6 + " 443": true})
	if n := inClear(); n != 0 {
		t.Errorf("%d packets left with a peer's own address", n)
	}

	// The same client with the same configuration, once the address is its
	// own, shows that nothing else stood in its way.
	owner := thief.peer
	owner.Addresses = honest.peer.Addresses
	a.apply(configWith(owner))
	thief.expect(t, "an address of its own", map[string]bool{"tcp " + server4 + " 443": true, "udp " + server6 + " 443": true, "icmp 10.8.0.1": true})
	if arrived() == 0 {
		t.Error("the counter counts nothing")
	}
}
