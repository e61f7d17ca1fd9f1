package dataplane

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/kube/kubetest"
	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// idlePod is the n-th pod of many, of which there is nothing but the object.
func idlePod(n, generation int) kubetest.Object {
	name := fmt.Sprintf("idle-%d-%d", n, generation)
	return podObject(name, "uid-"+name, fmt.Sprintf("10.244.%d.%d", 100+n/200, n%200), fmt.Sprintf("2001:db8:5:ffff::%x", n+1))
}

func objectName(o kubetest.Object) string { return o["metadata"].(map[string]any)["name"].(string) }

// left returns what the gateway's kernel still knows of idle pods.
func (w *world) left() string {
	out := ""
	for _, command := range []string{
		"ip route show table all", "nft list table inet wireguard_gateway", "wg show wg0 allowed-ips", "conntrack -L 2>/dev/null", "ip rule", "ip -6 rule",
	} {
		text, _ := w.gateway.Try("sh", "-c", command)
		for l := range strings.Lines(text) {
			if contains(l, "10.244.10") || contains(l, "2001:db8:5:ffff:") {
				out += command + ": " + l
			}
		}
	}
	return out
}

// Pods come and go, by dozens within seconds and with addresses used again:
// nothing is left behind, and a peer with a connection notices nothing.
func TestPodsComeAndGo(t *testing.T) {
	const n, rounds = 50, 4
	w := newWorld(t)
	api := w.podAPI()
	w.server.echo(7000)
	c := w.client(1)
	a := w.startPodAgent(podConfig(c.peer))
	c.up()
	b := c.Beacon(server4, 7000)
	b.Answered(t, time.Now())
	start := time.Now()
	for r := range rounds {
		for i := range n {
			// A connection that the kernel has to forget.
			w.gateway.Run(fmt.Sprintf("conntrack -I -p udp -s 10.244.100.%d -d %s --sport %d --dport 443 -t 600", i, server4, 1000+r))
			api.Set("pods", idlePod(i, r))
		}
		netns.WaitFor(t, limit, "all pods", func() error {
			if got := a.metric(`wireguard_gateway_injected_pods{peer_name="media",peer_namespace="apps"}`); got != n {
				return fmt.Errorf("%v pods", got)
			}
			return nil
		})
		if r == 0 && w.left() == "" {
			t.Error("nothing is seen of pods that are there")
		}
		for i := range n {
			api.Delete("pods", media.Namespace, objectName(idlePod(i, r)))
			if r < rounds-1 && i%2 == 0 {
				// The next one may have the address before the last one is gone.
				api.Set("pods", idlePod(i, r+1))
			}
		}
	}
	w.serves(t, 1)
	took := time.Since(start)
	if _, gap := b.End(start); gap > 500*time.Millisecond {
		t.Errorf("the peer had no answer for %s", gap)
	}
	w.nothingLeft(t)
	if got := a.metric(`wireguard_gateway_injected_pods{peer_name="media",peer_namespace="apps"}`); got != 0 {
		t.Errorf("the metric counts %v pods", got)
	}
	_, body, err := a.get("/metrics")
	if err != nil {
		t.Fatal(err)
	}
	if contains(body, "idle-") || strings.Count(body, "wireguard_received_bytes_total{") != 1 {
		t.Errorf("metrics of pods:\n%s", body)
	}
	// Nor in what is kept for a restart.
	if got := w.gateway.Run("cat /var/lib/wireguard-gateway/pods.json"); contains(got, "idle-") {
		t.Errorf("kept for a restart: %s", got)
	}
	syncs := a.metric(`wireguard_gateway_sync_duration_seconds_count{cause="pods"}`)
	total := a.metric(`wireguard_gateway_sync_duration_seconds_sum{cause="pods"}`)
	t.Logf("%d pods in and out %d times in %s: %v syncs, %.1f ms each", n, rounds, took.Round(time.Millisecond), syncs, 1000*total/syncs)
}

// One more among 500 pods takes less than ten times as long as among 50.
func TestManyPods(t *testing.T) {
	const few, n = 50, 500
	w := newWorld(t)
	api := w.podAPI()
	a := w.startPodAgent(podConfig())
	// times are how long single pods take to come and to go, in the middle.
	times := func(first int) (in, out time.Duration) {
		var ins, outs []time.Duration
		for i := range 20 {
			o := idlePod(n, first+i)
			key := wireguard.PodKey(media.Key, "uid-"+objectName(o)).Public()
			ins = append(ins, w.until(t, key, true, func() { api.Set("pods", o) }))
			time.Sleep(2 * podPause)
			outs = append(outs, w.until(t, key, false, func() { api.Delete("pods", media.Namespace, objectName(o)) }))
			time.Sleep(2 * podPause)
		}
		slices.Sort(ins)
		slices.Sort(outs)
		return ins[10], outs[10]
	}
	idle := rss(t, a)
	for i := range few {
		api.Set("pods", idlePod(i, 0))
	}
	w.peersOnDevice(t, few)
	fewIn, fewOut := times(0)
	before := a.CPU()
	start := time.Now()
	for i := few; i < n; i++ {
		api.Set("pods", idlePod(i, 0))
	}
	w.peersOnDevice(t, n)
	t.Logf("%d more pods within %s, %s of processor time; memory %d MiB, without pods %d MiB", n-few, time.Since(start).Round(time.Millisecond), a.CPU()-before, rss(t, a), idle)

	in, out := times(20)
	t.Logf("one more of %d pods is on the device after %s, and off it after %s; of %d after %s and %s", n, in, out, few, fewIn, fewOut)
	if in > n/few*fewIn || out > n/few*fewOut {
		t.Error("one pod takes too long")
	}

	// All of them are off when consent is withdrawn.
	start = time.Now()
	a.write(encode(t, configWith()))
	w.peersOnDevice(t, 0)
	t.Logf("%d pods are off %s after consent was withdrawn", n, time.Since(start).Round(time.Millisecond))
	w.nothingLeft(t)
}

// nothingLeft waits until the gateway's kernel knows nothing of idle pods.
func (w *world) nothingLeft(t *testing.T) {
	t.Helper()
	netns.WaitFor(t, limit, "the rest", func() error {
		if left := w.left(); left != "" {
			return fmt.Errorf("left behind:\n%.1000s", left)
		}
		return nil
	})
}

// podPause is the time that the agent leaves between two syncs for pods, at the
// least. The tests keep it, so as not to measure it.
const podPause = 50 * time.Millisecond

func (w *world) peersOnDevice(t *testing.T, n int) {
	t.Helper()
	netns.WaitFor(t, limit, fmt.Sprintf("%d peers", n), func() error {
		d, err := w.gateway.uapi("wg0")
		if err != nil {
			return err
		}
		if got := strings.Count(d, "public_key="); got != n {
			return fmt.Errorf("%d peers", got)
		}
		return nil
	})
}

// until does something, and returns after how long the device has a peer, or has
// it no more.
func (w *world) until(t *testing.T, key wireguard.Key, there bool, do func()) time.Duration {
	t.Helper()
	k := hex.EncodeToString(key.Key[:])
	start := time.Now()
	do()
	for {
		d, err := w.gateway.uapi("wg0")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(d, k) == there {
			return time.Since(start)
		}
		if time.Since(start) > limit {
			t.Fatalf("the device has the peer: %t, want %t", !there, there)
		}
		time.Sleep(200 * time.Microsecond)
	}
}

// From the pod's status to the peer on the device, through a real API server
// and with the rights that the function composes. The right to see the pods may
// come after the configuration.
func TestPodToDevice(t *testing.T) {
	const runs = 50
	w := newWorld(t)
	k := w.newCluster()
	k.writeStatus()
	k.create("/api/v1/namespaces", `{"metadata":{"name":"apps"}}`)
	k.writeSecret(podConfig())
	a := w.runAgentInCluster()
	a.waitReady(podConfig())
	time.Sleep(3 * time.Second)
	if n := strings.Count(a.Out.String(), `"msg":"cannot watch pods`); n != 1 {
		t.Errorf("got %d lines about the pods that cannot be seen, want one:\n%s", n, a.Out)
	}
	k.create("/apis/rbac.authorization.k8s.io/v1/namespaces/apps/roles", `{"metadata":{"name":"media-wireguard.pods"},"rules":[
		{"apiGroups":[""],"resources":["pods"],"verbs":["get","list","watch"]}]}`)
	k.create("/apis/rbac.authorization.k8s.io/v1/namespaces/apps/rolebindings", `{"metadata":{"name":"media-wireguard.pods"},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"media-wireguard.pods"},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"agent"}]}`)
	granted := time.Now()
	var in, out []time.Duration
	for i := range runs {
		uid, path := k.createPod(t, fmt.Sprintf("p%d", i))
		key := wireguard.PodKey(media.Key, uid).Public()
		took := w.until(t, key, true, func() {
			k.request(http.MethodPatch, path+"/status", "application/merge-patch+json", []byte(fmt.Sprintf(
				`{"status":{"phase":"Running","podIP":"10.244.1.%d","podIPs":[{"ip":"10.244.1.%d"}],"startTime":%q}}`, i+10, i+10, time.Now().UTC().Format(time.RFC3339))))
		})
		if i == 0 {
			t.Logf("the first pod is served %s after the right was granted", time.Since(granted).Round(time.Millisecond))
			continue
		}
		in = append(in, took)
		if i%2 == 0 {
			out = append(out, w.until(t, key, false, func() { k.request(http.MethodDelete, path+"?gracePeriodSeconds=0", "", nil) }))
		}
	}
	slices.Sort(in)
	slices.Sort(out)
	t.Logf("from the write of a pod's status until the peer is on the device: p50 %s, p99 %s; from the deletion until it is off: p50 %s, p99 %s",
		in[len(in)/2], in[len(in)*99/100], out[len(out)/2], out[len(out)*99/100])
	want := runs - len(out)
	k.waitReport("the count", func(r wireguard.Report) error {
		if r.InjectedPods != want || !r.Ready {
			return fmt.Errorf("%+v", r)
		}
		return nil
	})
}

// createPod makes a pod as admission leaves it, without status.
func (c *cluster) createPod(t *testing.T, name string) (uid, path string) {
	t.Helper()
	o := podObject(name, "")
	delete(o, "status")
	delete(o["metadata"].(map[string]any), "uid")
	spec := o["spec"].(map[string]any)
	spec["containers"] = []any{map[string]any{"name": "app", "image": "app"}}
	spec["nodeName"] = "node"
	spec["initContainers"].([]any)[0].(map[string]any)["image"] = "agent"
	spec["initContainers"].([]any)[0].(map[string]any)["restartPolicy"] = "Always"
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	const pods = "/api/v1/namespaces/apps/pods"
	got := struct {
		Metadata struct {
			UID string `json:"uid"`
		} `json:"metadata"`
	}{}
	if err := json.Unmarshal(c.request(http.MethodPost, pods, "application/json", b), &got); err != nil {
		t.Fatal(err)
	}
	return got.Metadata.UID, pods + "/" + name
}
