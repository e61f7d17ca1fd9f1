package dataplane

import (
	"fmt"
	"net"
	"strconv"
	"testing"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

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
