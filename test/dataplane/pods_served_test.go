package dataplane

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// report returns the report as the ConfigMap has it.
func (api *podAPI) report() (wireguard.Report, error) {
	data, _ := api.Get("configmaps", "vpn", "home-wireguard.status")["data"].(map[string]any)
	text, _ := data[wireguard.ReportKey].(string)
	return wireguard.DecodeReport([]byte(text))
}

func (api *podAPI) writes() int {
	n := 0
	for _, r := range api.Requests() {
		if strings.HasPrefix(r, "PATCH") {
			n++
		}
	}
	return n
}

// Which pods are served, what is said of the others, and what the report and the
// metrics tell. A pod that the gateway does not serve it does not disturb: its
// address stays what it is.
func TestPodsServed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	api := w.podAPI()
	books := wireguard.PodClass{Namespace: "apps", Name: "books", Key: seed.PodClassKey("apps", "books")}
	on := podConfig()
	on.PodClasses = append(on.PodClasses, books, wireguard.PodClass{Namespace: "library", Name: "books", Key: seed.PodClassKey("library", "books")})
	a := w.startPodAgent(on)

	good, plain, node, stranger := w.pod(1), w.pod(2), w.pod(3), w.pod(4)
	plain.object["spec"].(map[string]any)["initContainers"] = []any{}
	node.object["spec"].(map[string]any)["hostNetwork"] = true
	stranger.object["status"].(map[string]any)["podIPs"] = []any{map[string]any{"ip": "192.0.2.99"}}
	other := podObject("book", "uid-book", "10.244.1.200")
	other["metadata"].(map[string]any)["labels"] = map[string]any{wireguard.PeerLabel: "books"}
	other["spec"].(map[string]any)["volumes"].([]any)[0].(map[string]any)["secret"] = map[string]any{"secretName": "books-wireguard.enrolment"}
	// A pod of the other class that mounts this class's Secret.
	thief := podObject("thief", "uid-thief", "10.244.1.201")
	thief["metadata"].(map[string]any)["labels"] = map[string]any{wireguard.PeerLabel: "books"}

	for range 3 {
		api.put(good, plain, node, stranger)
		api.Set("pods", other)
		api.Set("pods", thief)
		api.HangUp()
		time.Sleep(100 * time.Millisecond)
	}
	w.serves(t, 1, good) // and the book
	if out := w.gateway.Run("wg show wg0 allowed-ips"); !contains(out, wireguard.PodKey(books.Key, "uid-book").Public().String()) {
		t.Errorf("no book among the peers:\n%s", out)
	}
	log := a.Out.String()
	for name, reason := range map[string]string{
		plain.name: "no init container wireguard", node.name: "on its node's network", stranger.name: "outside of the cluster's networks",
		"thief": "mounts the Secret books-wireguard.enrolment",
	} {
		n := 0
		for l := range strings.Lines(log) {
			if contains(l, `"apps/`+name+`"`) && contains(l, reason) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%s: got %d lines with %q, want one:\n%s", name, n, reason, log)
		}
	}
	for _, secret := range []string{media.Key.String(), good.key().String()} {
		if contains(log, secret) {
			t.Error("a key is in the log")
		}
	}
	for metric, want := range map[string]float64{
		`wireguard_gateway_injected_pods{peer_name="media",peer_namespace="apps"}`:    1,
		`wireguard_gateway_injected_pods{peer_name="books",peer_namespace="apps"}`:    1,
		`wireguard_gateway_injected_pods{peer_name="books",peer_namespace="library"}`: 0,
		"wireguard_gateway_peers": 0,
	} {
		if got := a.metric(metric); got != want {
			t.Errorf("%s is %v, want %v", metric, got, want)
		}
	}
	counted := func(want int) func() error {
		return func() error {
			r, err := api.report()
			if err == nil && (r.InjectedPods != want || !r.Ready) {
				err = fmt.Errorf("%+v", r)
			}
			return err
		}
	}
	netns.WaitFor(t, limit, "the report", counted(2))
	w.gateway.expect(t, "pods that are not served are reached as ever", map[string]bool{"icmp " + plain.four: true, "icmp " + plain.six: true})

	// A pod that is being deleted is served to its end.
	good.object["metadata"].(map[string]any)["deletionTimestamp"] = time.Now().UTC().Format(time.RFC3339)
	api.put(good)
	time.Sleep(200 * time.Millisecond)
	w.serves(t, 1, good)
	before := api.writes()
	good.set("phase", "Succeeded")
	api.put(good)
	w.serves(t, 1)
	netns.WaitFor(t, limit, "the report", counted(1))
	if n := api.writes() - before; n != 1 {
		t.Errorf("the report was written %d times, want once", n)
	}

	// One class of the namespace goes, the other stays.
	on.PodClasses = on.PodClasses[1:]
	a.apply(on)
	w.serves(t, 1)
	_, metrics, err := a.get("/metrics")
	if err != nil || contains(metrics, `injected_pods{peer_name="media"`) {
		t.Errorf("the metric of a class that is gone is still there: %v", err)
	}
	on.PodClasses = append(on.PodClasses, media)
	good.set("phase", "Running")
	api.put(good)
	a.apply(on)
	w.serves(t, 1, good)
}

// While the API is out of reach, pods that are known stay, and that is no reason
// not to be ready.
func TestPodsOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	api := w.podAPI()
	w.server.echo(443)
	one := w.pod(1)
	a := w.startPodAgent(podConfig())
	api.put(one)
	w.serves(t, 0, one)
	one.join()
	one.expect(t, "before", everything(true))
	api.Down(true)
	netns.WaitFor(t, limit, "the outage to be noticed", func() error { return want(a.Out.String(), "cannot watch pods") })
	time.Sleep(3 * time.Second)
	a.waitReady(podConfig())
	netns.WaitFor(t, limit, "readyz to say so", func() error {
		_, body, err := a.get("/readyz")
		return errors.Join(err, want(body, "pods of namespace apps cannot be watched"))
	})
	one.expect(t, "during the outage", everything(true))
	if n := strings.Count(a.Out.String(), `"msg":"cannot watch pods`); n != 1 {
		t.Errorf("%d lines about it:\n%s", n, a.Out)
	}
	two := w.pod(2)
	api.put(two)
	api.Down(false)
	w.serves(t, 0, one, two)
	netns.WaitFor(t, limit, "the end of it", func() error {
		_, body, err := a.get("/readyz")
		if err == nil && contains(body, "cannot be watched") {
			err = errors.New(body)
		}
		return err
	})
}

// A gateway with a pool of IPv4 only has pods of both families. Their IPv6 is
// passed on where the kernel does so, and goes nowhere else.
func TestPodsIPv4Pool(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	api := w.podAPI()
	w.server.echo(443)
	one := w.pod(1)
	on := podConfig()
	on.Addresses = on.Addresses[:1]
	a := w.startPodAgent(on)
	api.put(one)
	w.serves(t, 0, one)
	callers, inClear := w.callers(), w.podsInClear()
	one.join()
	one.expect(t, "IPv6 is on", everything(true))
	if seen := fmt.Sprint(callers()); contains(seen, one.four) || contains(seen, one.six) || !contains(seen, gateway6) {
		t.Errorf("the server has seen %s", seen)
	}
	w.gateway.Sysctl("net.ipv6.conf.all.forwarding=0")
	four := map[string]bool{"tcp " + server4 + " 443": true, "udp " + server4 + " 443": true, "icmp " + server4: true}
	for what := range everything(true) {
		if !four[what] {
			four[what] = false
		}
	}
	one.expect(t, "IPv6 is off", four)
	// Below 1280 the device itself has no IPv6.
	w.gateway.Sysctl("net.ipv6.conf.all.forwarding=1")
	small := on
	small.MTU = 1200
	a.apply(small)
	one.expect(t, "the MTU is too small for IPv6", four)
	a.apply(on)
	one.expect(t, "the MTU is large enough again", everything(true))
	if n := inClear(); n != 0 {
		t.Errorf("%d packets of the pod left in the clear", n)
	}
}

// Strict reverse path filtering for all interfaces, as some nodes have it, does
// not stop pods, and neither does a device that is made again.
func TestPodsReversePath(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	api := w.podAPI()
	w.server.echo(443)
	w.gateway.Sysctl("net.ipv4.conf.all.rp_filter=1", "net.ipv4.conf.default.rp_filter=1", "net.ipv4.conf.eth0.rp_filter=1")
	one := w.pod(1)
	a := w.startPodAgent(podConfig())
	api.put(one)
	w.serves(t, 0, one)
	one.join(clusterNetworks...)
	want := everything(true)
	want["http "+gateway4+" 9586"] = true
	one.expect(t, "strict", want)
	w.gateway.Run("ip link del wg0")
	// Before that, wg(8) might remove the new device's socket.
	netns.WaitFor(t, limit, "the new device", func() error { return one.probe("udp " + server4 + " 443") })
	w.serves(t, 0, one)
	one.expect(t, "another device", want)
	w.gateway.expect(t, "from the gateway", map[string]bool{"icmp " + one.four: true})
	a.waitReady(podConfig())
	// The test sees what the settings are for.
	a.Kill()
	w.deviceByHand(serverKey)
	w.gateway.Exec("wg", "set", "wg0", "peer", one.key().Public().String(), "allowed-ips", one.four+","+one.six)
	w.gateway.Run("ip route add " + one.four + " dev wg0 table 51821")
	netns.WaitFor(t, limit, "the pod by hand", func() error { return one.probe("udp " + server4 + " 443") })
	w.gateway.Sysctl("net.ipv4.conf.wg0.rp_filter=1", "net.ipv4.conf.wg0.src_valid_mark=0", "net.ipv4.conf.eth0.rp_filter=1", "net.ipv4.conf.eth0.src_valid_mark=0")
	one.expect(t, "without the settings", map[string]bool{"udp " + server4 + " 443": false, "http " + gateway4 + " 9586": false})
}
