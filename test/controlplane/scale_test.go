package controlplane

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/test/controlplane/harness"
)

func withPeers(n int) string {
	b := &strings.Builder{}
	b.WriteString("endpoint: {host: vpn.example.com}\npeerCIDR: 10.8.0.0/20\npeers:\n")
	for i := range n {
		fmt.Fprintf(b, "  - {name: peer-%d}\n", i)
	}
	return b.String()
}

// TestPeers creates gateways with ever more peers, adds one to each, and removes
// it again. Crossplane's circuit breaker must not open.
func TestPeers(t *testing.T) {
	c := shared(t)
	sizes := []int{10, 50}
	if long() {
		sizes = append(sizes, 100, 250)
	}
	for _, n := range sizes {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			before := waitQuiet(t, c)
			mark, err := c.Mark()
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			g := newGateway(t, c, withPeers(n))
			fleet{g}.waitServed(int64(n))
			ready := time.Since(start)
			created := g.waitQuiet()
			applies, err := appliesSince(c, mark)
			if err != nil {
				t.Fatal(err)
			}
			keys := g.keys()

			start = time.Now()
			g.apply(withPeers(n + 1))
			fleet{g}.waitServed(int64(n + 1))
			added := time.Since(start)
			g.waitQuiet()
			start = time.Now()
			g.apply(withPeers(n))
			fleet{g}.waitServed(int64(n))
			removed := time.Since(start)
			after := g.waitQuiet()
			if g.keys() != keys {
				t.Error("keys or addresses changed")
			}
			if opened := after.BreakersOpened - before.BreakersOpened; opened > 0 {
				t.Errorf("the circuit breaker opened %d times", opened)
			}
			t.Logf("%d peers: ready after %v, %d reconciles, %d applies; one more after %v, one less after %v", n,
				ready.Round(time.Millisecond), created.Reconciles-before.Reconciles, applies,
				added.Round(time.Millisecond), removed.Round(time.Millisecond))
		})
	}
}

// TestGateways creates many gateways at once.
func TestGateways(t *testing.T) {
	c := shared(t)
	n := 20
	if long() {
		n = 100
	}
	before := waitQuiet(t, c)
	mark, err := c.Mark()
	if err != nil {
		t.Fatal(err)
	}
	f := newFleet(t, c, n)
	start := time.Now()
	f.apply(twoPeers)
	f.waitServed(2)
	ready := time.Since(start)
	after := waitQuiet(t, c)
	applies, err := appliesSince(c, mark)
	if err != nil {
		t.Fatal(err)
	}
	if opened := after.BreakersOpened - before.BreakersOpened; opened > 0 {
		t.Errorf("the circuit breaker opened %d times", opened)
	}
	t.Logf("%d gateways: all ready after %v, %d reconciles, %d applies, which is %.1f reconciles each", n, ready.Round(time.Millisecond),
		after.Reconciles-before.Reconciles, applies, float64(after.Reconciles-before.Reconciles)/float64(n))
}

// appliesSince counts applies of composed objects.
func appliesSince(c *harness.Cluster, mark harness.Mark) (int, error) {
	writes, err := c.Writes(mark)
	n := 0
	for _, w := range writes {
		if w.Verb == "patch" && w.Subresource == "" && w.Resource != "wireguardgateways" && w.Resource != "events" {
			n++
		}
	}
	return n, err
}
