package dataplane

import (
	"fmt"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// Pods leave through gluetun's tunnel or not at all, and are seen as the
// provider. What they say to the gateway outside of their tunnel goes on beside
// gluetun's rules, which send the pods' networks out by the uplink.
func TestPodsGluetun(t *testing.T) {
	w := newWorld(t)
	p := w.provider()
	api := w.podAPI()
	w.server.echo(443)
	w.pusher()
	e := newEgressGateway(t)
	on := e.config()
	on.PodClasses, on.PodCIDRs = []wireguard.PodClass{media}, prefixes(podNetworks4, podNetworks6)
	e.write(w.gateway)
	w.gateway.Write("config/config.json", encode(t, on))
	one := w.pod(1)
	one.gateway = on.PrivateKey.Public()
	one.echo(8080)
	around, callers, inClear := w.watchAround(), w.callers(), w.podsInClear()
	clean := func(step string) {
		t.Helper()
		around.none(t, step)
		if n := inClear(); n != 0 {
			t.Errorf("%s: %d packets of the pod left in the clear", step, n)
		}
	}

	a := w.runPodAgent()
	a.refuses(t, "not up yet")
	api.put(one)
	w.serves(t, len(on.Peers), one)
	one.join(clusterNetworks...)
	one.expect(t, "before gluetun", blocked)
	g := w.newGluetun(e.env(), e.file(wireguard.PostRulesKey))
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	a.waitReady(on)
	direct := map[string]bool{"http " + gateway4 + " 9586": true, "http " + gateway6 + " 9586": true}
	check := func(step string, want map[string]bool) {
		t.Helper()
		one.expect(t, step, want)
		one.expect(t, step+", to the gateway", direct)
		w.router.expect(t, step+", from the node", map[string]bool{"http " + gateway4 + " 9586": true, "tcp " + one.four + " 8080": true, "udp " + one.six + " 8080": true})
		clean(step)
	}
	check("with the tunnel", works)
	if seen := fmt.Sprint(callers()); !contains(seen, provider4) || !contains(seen, provider6) ||
		contains(seen, gateway4) || contains(seen, gateway6) || contains(seen, one.four) || contains(seen, one.six) {
		t.Errorf("want the provider as caller, by both families, and no other, got %s", seen)
	}
	w.gateway.expect(t, "from the gateway", map[string]bool{"tcp " + one.four + " 8080": true, "udp " + one.six + " 8080": true})

	one.call()
	for step, fault := range map[string]func(){"stopped": g.stop, "killed": func() { g.crash(); g.cleanUp() }} {
		fault()
		a.refuses(t, "is down")
		check(step, blocked)
		if err := g.up(); err != nil {
			t.Fatal(err)
		}
		a.waitReady(on)
		check("after it was "+step, works)
	}
	one.call()
	p.server.Kill()
	check("without provider", blocked)
	p.serve()
	a.waitReady(on)
	netns.WaitFor(t, limit, "the provider", func() error { return one.probe("udp " + server4 + " 443") })
	check("the provider is back", works)

	// The rule ahead of gluetun's, and either wall, are what keeps the answers in
	// the tunnel.
	one.call()
	a.Kill()
	w.deviceByHand(on.PrivateKey)
	w.gateway.Exec("wg", "set", "wg0", "peer", one.key().Public().String(), "allowed-ips", one.four+","+one.six)
	w.gateway.Run("ip route add " + one.four + " dev wg0 table 51821")
	w.gateway.Run("ip -6 route add " + one.six + " dev wg0 table 51821")
	time.Sleep(500 * time.Millisecond)
	clean("without agent")
	for _, ip := range []string{"ip", "ip -6"} {
		w.gateway.Run(ip + " rule del pref 88")
	}
	time.Sleep(500 * time.Millisecond)
	clean("without the rule")
	w.gateway.Run("iptables -P FORWARD ACCEPT")
	w.gateway.Run("ip6tables -P FORWARD ACCEPT")
	time.Sleep(500 * time.Millisecond)
	clean("without the rule and gluetun's wall")
	w.gateway.Run("nft flush chain inet wireguard_gateway forward")
	netns.WaitFor(t, limit, "packets in the clear", func() error {
		if inClear() == 0 {
			return fmt.Errorf("none")
		}
		return nil
	})
}
