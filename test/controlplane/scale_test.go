package controlplane

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

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

// peersAdvised is up to how many peers Crossplane's circuit breaker must not open,
// which is what the documentation says.
const peersAdvised = 250

// TestPeers creates gateways with ever more peers, adds one to each, and removes
// it again. None of that may take a burst of the circuit breaker.
func TestPeers(t *testing.T) {
	c := shared(t)
	sizes := []int{10, 50}
	if long() {
		sizes = append(sizes, 100, peersAdvised, 2*peersAdvised)
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
			created := waitQuiet(t, c)
			applies, err := appliesSince(c, mark)
			if err != nil {
				t.Fatal(err)
			}
			keys := g.keys()

			start = time.Now()
			g.apply(withPeers(n + 1))
			fleet{g}.waitServed(int64(n + 1))
			added := time.Since(start)
			changed := waitQuiet(t, c)
			start = time.Now()
			g.apply(withPeers(n))
			fleet{g}.waitServed(int64(n))
			removed := time.Since(start)
			after := waitQuiet(t, c)
			if g.keys() != keys {
				t.Error("keys or addresses changed")
			}
			events := []int{
				created.BreakerEvents - before.BreakerEvents, changed.BreakerEvents - created.BreakerEvents, after.BreakerEvents - changed.BreakerEvents,
			}
			if n <= peersAdvised {
				checkEvents(t, "creation, or one peer", slices.Max(events), 1)
			}
			t.Logf("%d peers: ready after %v, %d reconciles, %d applies; one more after %v, one less after %v; events of its breaker: %v", n,
				ready.Round(time.Millisecond), created.Reconciles-before.Reconciles, applies,
				added.Round(time.Millisecond), removed.Round(time.Millisecond), events)
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
	t.Logf("%d gateways: all ready after %v, %d reconciles, %d applies, which is %.1f reconciles and %d events of the breaker each", n,
		ready.Round(time.Millisecond), after.Reconciles-before.Reconciles, applies, float64(after.Reconciles-before.Reconciles)/float64(n),
		checkEvents(t, "created", after.BreakerEvents-before.BreakerEvents, n))
}

// ofGateways counts the breaker's events of gateways.
func ofGateways(from, to harness.Metrics) int {
	return to.BreakerEvents - to.PeerEvents - from.BreakerEvents + from.PeerEvents
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

// Fifty peers of ten namespaces come at once. They take nobody's burst of the
// circuit breaker, and a gateway that has nothing to do with them is not even looked at.
func TestFiftyPeersAtOnce(t *testing.T) {
	const teams, peers = 10, 50
	c := shared(t)
	vpn := newNamespace(t, c, "vpn-")
	var names []string
	for range teams {
		names = append(names, newNamespace(t, c, "team-"))
	}
	g := newGatewayIn(t, c, vpn, "home", fmt.Sprintf(openGateway, strings.Join(names, ", ")))
	g.waitReady()
	other := newGateway(t, c, `{endpoint: {host: vpn.example.com}, service: {type: ClusterIP}, allowedPeerNamespaces: {from: All}}`)
	other.waitReady()
	waitQuiet(t, c)
	// From now on, it asks for itself once its response expires, after a minute.
	other.poke()
	before := waitQuiet(t, c)
	mark, err := c.Mark()
	if err != nil {
		t.Fatal(err)
	}

	start := time.Now()
	var all []*gateway
	for i := range peers {
		all = append(all, newPeer(t, g, names[i%teams], fmt.Sprintf("p%d", i), "{}"))
	}
	for _, p := range all {
		p.direct()
	}
	served := time.Since(start)
	after := waitQuiet(t, c)
	window := time.Since(start)
	writes, err := c.Writes(mark)
	if err != nil {
		t.Fatal(err)
	}
	perGateway, perOther, perPeer := 0, 0, map[string]int{}
	for _, w := range writes {
		switch {
		case w.Verb != "patch" || w.Subresource != "":
		case w.Resource == "secrets" && w.Namespace == vpn && w.Name == "home-wireguard.config":
			perGateway++
		case w.Namespace == other.namespace:
			perOther++
		case w.Resource == "configmaps" && strings.HasSuffix(w.Name, "-wireguard.attachment"):
			perPeer[w.Namespace+"/"+w.Name]++
		}
	}
	counts := slices.Sorted(maps.Values(perPeer))
	t.Logf("%d peers of %d namespaces served after %v, quiet after %v: the gateway was reconciled %d times, each peer %d to %d times, the other gateway %d; events of the breaker: %d of the gateway, %d of each peer",
		peers, teams, served.Round(10*time.Millisecond), window.Round(10*time.Millisecond), perGateway, counts[0], counts[len(counts)-1], perOther,
		checkEvents(t, "the gateway, which peers join", ofGateways(before, after), 1), checkEvents(t, "a peer that joins", after.PeerEvents-before.PeerEvents, peers))
	if window < 50*time.Second && perOther > 0 {
		t.Errorf("the other gateway was reconciled: %d objects of it were applied", perOther)
	}
	if onDevice, err := g.onDevice(); err != nil || len(onDevice) != peers {
		t.Errorf("want %d peers on the device, got %d (%v)", peers, len(onDevice), err)
	}

	// Addresses and keys are all distinct.
	seen := map[string]types.NamespacedName{}
	for _, p := range g.status().Peers {
		for _, v := range append([]string{p.PublicKey}, p.Addresses...) {
			if other, ok := seen[v]; ok {
				t.Errorf("%s/%s and %s both have %s", p.Namespace, p.Name, other, v)
			}
			seen[v] = types.NamespacedName{Namespace: p.Namespace, Name: p.Name}
		}
	}

	// All at once, they are let go.
	start = time.Now()
	g.apply(closedGateway)
	g.waitDevice()
	for _, n := range names {
		g.eventually("the Secrets to go", func() error { return nothingIn(t, c, n) })
	}
	took := time.Since(start)
	// The events of all these deletions may open the gateway's breaker: by then
	// it has done what they are about, since its own change is what it acts on.
	last := waitQuiet(t, c)
	t.Logf("withdrawn from all after %v; events of the breaker: %d of the gateway, %d of each peer", took.Round(10*time.Millisecond),
		ofGateways(after, last), (last.PeerEvents-after.PeerEvents)/peers)
}
