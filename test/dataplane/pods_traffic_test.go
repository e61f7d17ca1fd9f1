package dataplane

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// Pods are peers: they reach the internet and are seen there as the gateway, by
// both families. What they send outside of their tunnel is answered there.
func TestPods(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	api := w.podAPI()
	w.server.echo(443)
	w.gateway.echo(53)
	one, two, c := w.pod(1), w.pod(2), w.client(1)
	a := w.startPodAgent(podConfig(c.peer))
	api.put(one, two)
	w.serves(t, 1, one, two)
	callers := w.callers()
	inClear := w.podsInClear()
	one.echo(8080)
	c.echo(8080)
	one.join(clusterNetworks...)
	two.join()
	c.up()

	one.expect(t, "the internet", everything(true))
	two.expect(t, "without bypass", everything(true))
	c.expect(t, "other peers", everything(true))
	seen := fmt.Sprint(callers())
	for _, p := range []*pod{one, two} {
		if contains(seen, p.four) || contains(seen, p.six) {
			t.Errorf("the server has seen a pod by its own address: %s", seen)
		}
	}
	if !contains(seen, gateway4) || !contains(seen, gateway6) {
		t.Errorf("the server has not seen the gateway: %s", seen)
	}
	if n := inClear(); n != 0 {
		t.Errorf("%d packets of pods left the gateway in clear", n)
	}

	inbound := map[string]bool{"tcp " + one.four + " 8080": true, "tcp " + one.six + " 8080": true, "udp " + one.four + " 8080": true, "udp " + one.six + " 8080": true, "icmp " + one.four: true}
	byTunnel := one.count("wgc0", "tcp sport { 53, 9586 }")
	one.expect(t, "from pod to gateway, outside of the tunnel", map[string]bool{
		"http " + gateway4 + " 9586": true, "http " + gateway6 + " 9586": true, "tcp " + gateway4 + " 53": true, "icmp " + gateway4: true, "icmp " + gateway6: true,
	})
	// An answer by the other way would be taken, too.
	if n := byTunnel(); n != 0 {
		t.Errorf("%d packets were answered by the tunnel", n)
	}
	two.expect(t, "from pod to gateway, by the tunnel", map[string]bool{
		"http " + gateway4 + " 9586": false, "icmp 10.8.0.1": true, "udp 10.8.0.1 53": true, "tcp fd00:8::1 53": true,
	})
	w.router.expect(t, "from the node to the gateway", map[string]bool{"http " + gateway4 + " 9586": true, "http " + gateway6 + " 9586": true, "icmp " + gateway4: true})
	w.router.expect(t, "from the node to the pod", inbound)
	w.server.expect(t, "from elsewhere to the pod", inbound)
	w.gateway.expect(t, "from the gateway to the pod", inbound)
	if out := w.gateway.Run("ip route get " + one.four); !contains(out, "dev wg0") {
		t.Errorf("the gateway reaches the pod outside of the tunnel: %s", out)
	}
	fromPod := map[string]bool{"tcp 10.8.0.2 8080": false, "udp fd00:8::2 8080": false}
	one.expect(t, "pods do not reach peers", fromPod)
	c.expect(t, "peers do not reach pods", map[string]bool{"tcp " + one.four + " 8080": false})
	two.expect(t, "pods do not reach each other", map[string]bool{"tcp " + one.four + " 8080": false, "udp " + one.six + " 8080": false})

	on := podConfig(c.peer)
	on.PeerToPeer = true
	a.apply(on)
	c.expect(t, "peerToPeer", inbound)
	one.expect(t, "peerToPeer", map[string]bool{"tcp 10.8.0.2 8080": true, "udp fd00:8::2 8080": true})
	two.expect(t, "peerToPeer", inbound)

	on.PodClasses[0].Access = []wireguard.AccessRule{rule(wireguard.Accept, server4+"/32", wireguard.ProtocolTCP, "443")}
	a.apply(on)
	restricted := everything(false)
	restricted["tcp "+server4+" 443"] = true
	one.expect(t, "access rules", restricted)
	two.expect(t, "access rules", map[string]bool{"tcp " + one.four + " 8080": false})
	one.expect(t, "access rules", fromPod)
	c.expect(t, "access rules are about what pods open", inbound)
	c.expect(t, "access rules of others", everything(true))

	// Consent is withdrawn.
	since := time.Now()
	a.write(encode(t, configWith(c.peer)))
	w.peersOnDevice(t, 1)
	t.Logf("pods are off %s after consent was withdrawn", time.Since(since).Round(time.Millisecond))
	a.waitReady(configWith(c.peer))
	one.expect(t, "withdrawn", everything(false))
	two.expect(t, "withdrawn", everything(false))
	c.expect(t, "withdrawn", everything(true))
	w.noPods(t)
	if n := inClear(); n != 0 {
		t.Errorf("%d packets of pods left the gateway in clear", n)
	}
	if t.Failed() {
		t.Log(a.Out, w.gateway.Run("nft list ruleset"), w.gateway.Run("wg show"), one.Run("wg show"), w.gateway.Run("ip rule"), w.gateway.Run("ip route show table all"))
	}
}

// noPods fails the test where the gateway's kernel still knows of a pod.
func (w *world) noPods(t *testing.T) {
	t.Helper()
	for _, command := range []string{
		"ip route show table all", "ip -6 route show table all",
		"nft list table inet wireguard_gateway", "wg show wg0 allowed-ips", "conntrack -L 2>/dev/null", "conntrack -L -f ipv6 2>/dev/null",
	} {
		out, _ := w.gateway.Try("sh", "-c", command)
		for l := range strings.Lines(out) {
			// Pods that do not know yet go on calling.
			if (contains(l, "10.244.1.") || contains(l, "2001:db8:5:")) && !contains(l, "dport=51820") {
				t.Errorf("%s: %s", command, l)
			}
		}
	}
}
