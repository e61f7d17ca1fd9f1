package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wireguardgateway/function-wireguard-gateway/test/controlplane/harness"
	node "github.com/wireguardgateway/function-wireguard-gateway/test/node/harness"
)

// soakVariable is an environment variable that says how long the soak lasts.
const soakVariable = "WIREGUARD_GATEWAY_SOAK"

const (
	// turn is how often an inline peer is added or removed. With three gateways,
	// Crossplane's circuit breaker allows no more.
	turn = 5 * time.Second
	// faultPace is how long nothing is broken after everything was well again.
	faultPace = 20 * time.Second
	// recovery bounds how long it may take until everything is well again. The
	// kubelet itself waits for up to five minutes where a container ends again and
	// again.
	recovery = 6 * time.Minute
	// replicas are the pods that are rolled.
	replicas = 4
)

// member is a gateway whose peers come and go, and one of its clients.
type member struct {
	*gateway
	client *node.Client
	// added are the peers that may go again, oldest first.
	added  []string
	number int
}

// soak is a cluster in use.
type soak struct {
	n      *node.Node
	apps   string
	joined *gateway // pods join it
	// steady is where nothing is broken, and shaken where things are.
	steady *member
	shaken []*member
	// leaving is behind a provider.
	leaving       *gluetunGateway
	leavingClient *node.Client

	owners *ledger
	calls  *callers
	guest  *node.Client // connects to peers that were added a moment ago
	visits string       // the gateway and peer that the guest is connected to
	first  []time.Duration
	cut    []time.Duration

	start, end time.Time
	recovered  map[string][]time.Duration
}

// TestSoak has a cluster in use for as long as soakVariable says, two hours
// without it. Peers come and go every few seconds, pods are rolled, and
// one thing after the other is broken at random. Nothing may leak, nothing may
// be left over, and nothing may grow.
func TestSoak(t *testing.T) {
	length := 2 * time.Hour
	if v := os.Getenv(soakVariable); v != "" {
		var err error
		if length, err = time.ParseDuration(v); err != nil {
			t.Fatalf("%s: %v", soakVariable, err)
		}
	}
	n := shared(t)
	s := newSoak(t, n)
	s.checkControl(t)

	// At rest, no pods are joined.
	s.scale(t, 0)
	before, identity := s.state(t), s.identities()
	s.scale(t, replicas)
	if diff := cmp.Diff(before, s.state(t)); diff == "" {
		t.Error("pods that joined are not seen in the state: it shows nothing")
	}
	flow := startFlow(t, s.steady.client, node.Site4)
	s.start = time.Now()
	s.end = s.start.Add(length)
	ctx, cancel := context.WithDeadline(t.Context(), s.end)
	u := &usage{series: map[string][]sample{}}
	var broken error
	var all sync.WaitGroup
	defer func() {
		cancel()
		all.Wait()
	}()
	all.Go(func() { u.watch(ctx, s) })
	all.Go(func() {
		if broken = s.breakThings(ctx, t); broken != nil {
			cancel()
		}
	})
	turns := 0
	for ; ctx.Err() == nil; turns++ {
		next := time.Now().Add(turn)
		s.changePeers(t, turns)
		if turns%24 == 0 {
			t.Logf("%v: %d turns, guests' first reply %s", time.Since(s.start).Round(time.Second), turns, quantiles(s.first))
		}
		time.Sleep(time.Until(next))
	}
	all.Wait()
	if broken != nil {
		t.Error(broken)
	}
	r := flow.end()
	t.Logf("the client of the gateway that nothing happened to: of %d packets %d lost, longest silence %v; TCP: slowest round trip %v, %v",
		r.Sent, r.Lost, r.Silence, r.Slowest, ended(r.Broken))
	if r.Lost > r.Sent/10000 || r.Broken != nil {
		t.Error("it was disturbed")
	}
	t.Logf("%d turns; from apply to a new peer's first reply: %s; from removal until it had no answer: %s", turns, quantiles(s.first), quantiles(s.cut))
	for _, fault := range s.faults() {
		if d := s.recovered[fault.name]; len(d) > 0 {
			t.Logf("%s %d times; everything was well again after: %s", fault.name, len(d), quantiles(d))
		}
	}

	s.leave(t)
	s.scale(t, 0)
	if leaks, calls := s.owners.outside(s.calls); len(leaks) > 0 {
		t.Errorf("of %d connections, outside of the tunnel: %v", calls, leaks)
	} else {
		t.Logf("of %d connections none outside of the tunnel", calls)
	}
	s.calls.alive(t)
	if strangers, err := outsideOf(t, n).Strangers(t.Context()); err != nil || len(strangers) > 0 {
		t.Errorf("the outside saw who does not come from the provider: %q, %v", strangers, err)
	}
	u.check(t)
	n.Eventually(t, "everybody else to be as before", func() error {
		if diff := cmp.Diff(identity, s.identities()); diff != "" {
			return fmt.Errorf("-before +after:\n%s", diff)
		}
		return nil
	})
	n.Eventually(t, "nothing to be left", func() error {
		if diff := cmp.Diff(before, s.state(t)); diff != "" {
			return fmt.Errorf("-before +after:\n%s", diff)
		}
		return nil
	})
}

// newSoak makes what is in use: gateways with a client each, one of them behind a
// provider, and workloads whose pods join a further one.
func newSoak(t *testing.T, n *node.Node) *soak {
	t.Helper()
	s := &soak{n: n, recovered: map[string][]time.Duration{}}
	s.joined, s.apps = newJoinable(t, n)
	for i := range 3 {
		m := &member{}
		m.gateway, m.client = connected(t, n, `{}`)
		if i == 0 {
			s.steady = m
		} else {
			s.shaken = append(s.shaken, m)
		}
	}
	s.leaving = newGluetunGateway(t, n, newNamespace(t, n, "privileged"), onPlatform+"\npeers: [{name: laptop}]")
	s.leaving.apply()
	s.leaving.waitReady()
	s.leavingClient = s.leaving.connect("laptop")
	var err error
	if s.guest, err = n.NewClient(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.owners, s.calls = keepLedger(t, n), watchCallers(t, n)
	for _, w := range []string{workload("Deployment", s.apps, "rolled", replicas), workload("StatefulSet", s.apps, "steady", 1)} {
		n.Eventually(t, "admission", func() error { return n.ApplyYAML(t.Context(), w) })
	}
	n.Eventually(t, "everything to be well", func() error { return s.well(t.Context()) })
	return s
}

// checkControl shows that a pod outside of the tunnel is noticed.
func (s *soak) checkControl(t *testing.T) {
	t.Helper()
	if _, err := s.n.Kubectl(t.Context(), "-n", s.apps, "run", "control", "--image", node.ImageProgram, "--restart", "Never", "--", "once", node.Site4+":"+node.EchoPort); err != nil {
		t.Fatal(err)
	}
	s.n.Eventually(t, "the control", func() error {
		leaks, _ := s.owners.outside(s.calls)
		if leaks[s.apps+"/control"] == 0 {
			return fmt.Errorf("a pod outside of the tunnel is not noticed: %v", leaks)
		}
		return nil
	})
	if _, err := s.n.Kubectl(t.Context(), "-n", s.apps, "delete", "pod", "control"); err != nil {
		t.Fatal(err)
	}
	s.calls.forget()
}

func (s *soak) members() []*member { return append([]*member{s.steady}, s.shaken...) }

func (s *soak) gateways() []*gateway {
	out := []*gateway{s.joined, s.leaving.gateway}
	for _, m := range s.members() {
		out = append(out, m.gateway)
	}
	return out
}

func (s *soak) identities() []map[string]string {
	var out []map[string]string
	for _, g := range s.gateways() {
		out = append(out, g.identity())
	}
	return out
}

// well holds that everything is as its user expects.
func (s *soak) well(ctx context.Context) error {
	for _, g := range s.gateways() {
		o, err := s.n.Get(ctx, "wireguardgateway.io/v1alpha1", "WireguardGateway", g.namespace, gatewayName)
		if err != nil {
			return err
		}
		if err := harness.HasCondition(o, "Ready", "True", ""); err != nil {
			return fmt.Errorf("%s: %w", g.namespace, err)
		}
		if err := g.podReady(ctx); err != nil {
			return fmt.Errorf("%s: %w", g.namespace, err)
		}
	}
	for _, m := range s.members() {
		if err := answers(ctx, m.client, node.Site4); err != nil {
			return fmt.Errorf("client of %s: %w", m.namespace, err)
		}
	}
	if err := answers(ctx, s.leavingClient, node.Outside4); err != nil {
		return fmt.Errorf("client of %s: %w", s.leaving.namespace, err)
	}
	d := &appsv1.Deployment{}
	if err := s.n.Client.Get(ctx, client.ObjectKey{Namespace: s.apps, Name: "rolled"}, d); err != nil {
		return err
	}
	if d.Status.ObservedGeneration != d.Generation || d.Status.UpdatedReplicas != *d.Spec.Replicas || d.Status.ReadyReplicas != *d.Spec.Replicas || d.Status.Replicas != *d.Spec.Replicas {
		return fmt.Errorf("of the pods that joined, %d of %d are ready", d.Status.ReadyReplicas, *d.Spec.Replicas)
	}
	p, err := s.joined.pod(ctx)
	if err != nil {
		return err
	}
	if *d.Spec.Replicas > 0 && s.calls.since(p.Status.PodIP, time.Now().Add(-time.Second)) == 0 {
		return errors.New("the pods that joined reach nothing")
	}
	return nil
}

// answers holds that a client has an answer of a host.
func answers(ctx context.Context, c *node.Client, host string) error {
	conn, err := c.Dial(ctx, "udp", net.JoinHostPort(host, node.EchoPort))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	b := make([]byte, 8)
	for range 3 {
		_, _ = conn.Write(b)
		_ = conn.SetReadDeadline(time.Now().Add(200 * time.Millisecond))
		if _, err = conn.Read(b); err == nil {
			return nil
		}
	}
	return err
}

// changePeers adds a peer to a gateway or removes one, and has a guest look
// whether that is so.
func (s *soak) changePeers(t *testing.T, turns int) {
	t.Helper()
	members := s.members()
	m := members[turns%len(members)]
	// A guest stays for a while only. Otherwise a turn adds or removes with the same
	// chance.
	visited := s.visitsOf(m) != ""
	if !visited && (len(m.added) < 2 || (len(m.added) < 8 && rand.IntN(2) == 0)) {
		m.number++
		name := fmt.Sprintf("guest-%d", m.number)
		m.added = append(m.added, name)
		m.addPeer(name)
		applied := m.apply()
		if s.visits == "" {
			if err := s.guest.Up(t.Context(), m.conf(name)); err != nil {
				t.Fatal(err)
			}
			s.first = append(s.first, waitReply(t, s.guest, node.Site4).Sub(applied))
			s.visits = m.namespace + "/" + name
		}
	} else {
		i := max(0, slices.Index(m.added, s.visitsOf(m)))
		s.removePeer(t, m, i)
	}
	if turns%2 == 0 {
		s.changeWireguardPeers(t, turns/2)
	}
}

// visitsOf names the peer of a gateway that the guest is, if any.
func (s *soak) visitsOf(m *member) string {
	for _, name := range m.added {
		if s.visits == m.namespace+"/"+name {
			return name
		}
	}
	return ""
}

// removePeer removes one. If the guest is it, it has no answer from then on.
func (s *soak) removePeer(t *testing.T, m *member, i int) {
	t.Helper()
	name := m.added[i]
	visited := s.visitsOf(m) == name
	m.added = slices.Delete(m.added, i, i+1)
	m.removePeer(name)
	applied := m.apply()
	if !visited {
		return
	}
	s.n.Eventually(t, "the removed peer to have no answer", func() error {
		if answers(t.Context(), s.guest, node.Site4) == nil {
			return errors.New("it has one")
		}
		return nil
	})
	s.cut = append(s.cut, time.Since(applied))
	if err := s.guest.Down(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.visits = ""
}

// changeWireguardPeers has six of another namespace come, and go again.
func (s *soak) changeWireguardPeers(t *testing.T, turns int) {
	t.Helper()
	name := fmt.Sprintf("guest-%d", turns%6)
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "wireguardgateway.io/v1alpha1", "kind": "WireguardPeer",
		"metadata": map[string]any{"namespace": s.apps, "name": name},
		"spec": map[string]any{
			"crossplane": map[string]any{"compositionRef": map[string]any{"name": "platform-wireguardpeers.wireguardgateway.io"}},
			"gatewayRef": map[string]any{"name": gatewayName, "namespace": s.joined.namespace},
		},
	}}
	var err error
	if turns/6%2 == 0 {
		err = s.n.Apply(t.Context(), o)
	} else {
		err = client.IgnoreNotFound(s.n.Client.Delete(t.Context(), o))
	}
	if err != nil && t.Context().Err() == nil {
		t.Fatal(err)
	}
}

// leave takes away all peers that have come.
func (s *soak) leave(t *testing.T) {
	t.Helper()
	for _, m := range s.members() {
		for len(m.added) > 0 {
			s.removePeer(t, m, len(m.added)-1)
		}
	}
	for i := range 6 {
		s.changeWireguardPeers(t, 6+i)
	}
}

// scale has so many pods joined, and waits until everything is well.
func (s *soak) scale(t *testing.T, pods int) {
	t.Helper()
	if _, err := s.n.Kubectl(t.Context(), "-n", s.apps, "scale", "deployment/rolled", fmt.Sprintf("--replicas=%d", pods)); err != nil {
		t.Fatal(err)
	}
	s.n.Eventually(t, "everything to be well", func() error {
		got, err := podsOf(t.Context(), s.n, s.apps, client.MatchingLabels{"app": "deployment"})
		if err != nil {
			return err
		}
		if len(got) != pods {
			return fmt.Errorf("there are %d pods", len(got))
		}
		return s.well(t.Context())
	})
}
