package injection

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// figures are p50 and p99 of durations.
func figures(v []time.Duration) (p50, p99 time.Duration) {
	v = slices.Sorted(slices.Values(v))
	return v[len(v)/2].Round(time.Millisecond), v[(len(v)-1)*99/100].Round(time.Millisecond)
}

// busy tells whether others keep the machine busy, so that a time says nothing.
func busy() bool {
	b, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return false
	}
	load, err := strconv.ParseFloat(strings.Fields(string(b))[0], 64)
	return err == nil && load > float64(4*runtime.NumCPU())
}

// parallel calls f for each number, a few at a time, and returns what failed.
func parallel(n, atATime int, f func(int) error) error {
	var (
		running sync.WaitGroup
		mu      sync.Mutex
		all     error
	)
	numbers := make(chan int)
	for range atATime {
		running.Go(func() {
			for i := range numbers {
				if err := f(i); err != nil {
					mu.Lock()
					all = errors.Join(all, err)
					mu.Unlock()
				}
			}
		})
	}
	for i := range n {
		numbers <- i
	}
	close(numbers)
	running.Wait()
	return all
}

// seenAs says what is wrong with how a pod is seen on the internet.
func (p *pod) seenAs(want []netip.Addr) error {
	got, err := exits(p.net)
	if err != nil {
		return err
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("%s is seen as %v, not as %v", p.object.Name, got, want)
	}
	return nil
}

// metricPods counts the pods of a class.
const metricPods = `wireguard_gateway_injected_pods{peer_name="media",peer_namespace="apps"}`

// Fifty pods come, a few at a time, are all there, and go. Each is seen as its
// gateway, sends nothing around it, and nothing of them stays.
func TestFiftyPods(t *testing.T) {
	const pods, atATime = 50, 5
	w := newWorld(t)
	gateway := w.gateways["home"]
	before := state{}
	waitFor(t, "pods of other tests to go", func() (err error) {
		before, err = gateway.state()
		if err == nil && (len(before.Peers) > 0 || strings.Contains(strings.Join(before.Routes, "\n"), "blackhole")) {
			err = fmt.Errorf("%v %v", before.Peers, before.Routes)
		}
		return err
	})
	w.internet.seen()

	start := time.Now()
	all, took := make([]*pod, pods), make([]timing, pods)
	t.Cleanup(func() {
		for _, p := range all {
			if p != nil {
				_ = p.remove(context.Background())
			}
		}
	})
	if err := parallel(pods, atATime, func(i int) (err error) {
		// The kubelet tells the API of the addresses within a second.
		late := time.Duration(i*7%10) * 100 * time.Millisecond
		if all[i], took[i], err = w.run(t.Context(), "media", late); err != nil {
			return err
		}
		return all[i].seenAs(gateway.addresses)
	}); err != nil {
		t.Fatal(err)
	}
	var up, after []time.Duration
	for _, d := range took {
		up, after = append(up, d.up), append(after, d.up-d.known)
	}
	p50, p99 := figures(up)
	t.Logf("from the creation of a pod until its tunnel is up, %d at a time: p50 %s, p99 %s of %d", atATime, p50, p99, pods)
	p50, p99 = figures(after)
	t.Logf("of that, since the API knows its addresses: p50 %s, p99 %s", p50, p99)
	if m, err := gateway.metrics(); err != nil || m[metricPods] != pods {
		t.Errorf("the gateway counts %v pods of %d: %v", m[metricPods], pods, err)
	}
	if err := parallel(pods, pods, func(i int) error {
		if l := w.wall(all[i]).leaks(all[i].capture.seen()); len(l) > 0 {
			return fmt.Errorf("%s has sent outside of the tunnel: %s", all[i].object.Name, l)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}

	if err := parallel(pods, atATime, func(i int) error { return all[i].remove(t.Context()) }); err != nil {
		t.Fatal(err)
	}
	gone := waitFor(t, "the gateway to forget the pods", func() error { return gateway.asBefore(before) })
	total := time.Since(start)
	t.Logf("%d pods in and out within %s, and nothing is left %s after the last one has gone", pods, total.Round(100*time.Millisecond), gone.Round(time.Millisecond))
	if total > time.Minute && !busy() {
		t.Errorf("%d pods in and out took %s, more than a minute", pods, total)
	}
	m, err := gateway.metrics()
	if err != nil {
		t.Fatal(err)
	}
	if m[metricPods] != 0 {
		t.Errorf("the gateway still counts %v pods", m[metricPods])
	}
	for name := range m {
		if strings.Contains(name, `"media-`) {
			t.Errorf("there still is the metric %s", name)
		}
	}
	for _, p := range all {
		for _, a := range p.addresses {
			if n, err := gateway.flows(a); n > 0 || err != nil {
				t.Errorf("the gateway remembers %d flows of %s: %v", n, a, err)
			}
		}
	}
	for a, n := range w.internet.seen() {
		if !slices.Contains(gateway.addresses, a) {
			t.Errorf("the internet has seen %d of %s", n, a)
		}
	}
	w.waitReported(t, 0)
}

// waitReported waits until the gateway's agent reports so many pods, which it
// does seldom, and looks for them in the gateway's status.
func (w *world) waitReported(t *testing.T, pods int) {
	t.Helper()
	waitFor(t, "the count in the gateway's report", func() error {
		m := &corev1.ConfigMap{}
		if err := w.Client.Get(t.Context(), client.ObjectKey{Namespace: "vpn", Name: "home-wireguard.status"}, m); err != nil {
			return err
		}
		r, err := wireguard.DecodeReport([]byte(m.Data[wireguard.ReportKey]))
		if err == nil && r.InjectedPods != pods {
			err = fmt.Errorf("%d pods, not %d", r.InjectedPods, pods)
		}
		return err
	})
	if err := w.composer.settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	status, _, _ := unstructured.NestedFieldNoCopy(w.composer.composites[0].Object, "status", "injectedPods")
	if got := fmt.Sprint(status); got != fmt.Sprint(pods) && (pods > 0 || status != nil) {
		t.Errorf("status.injectedPods is %s, and %d pods are reported", got, pods)
	}
}
