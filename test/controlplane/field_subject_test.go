package controlplane

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/test/controlplane/harness"
)

// effect is all that a composite resource is: what it composes, and its status.
func (g *gateway) effect() string {
	g.t.Helper()
	b := &strings.Builder{}
	composed := g.composed()
	for _, key := range slices.Sorted(maps.Keys(composed)) {
		fmt.Fprintf(b, "%s: %s\n", key, text(g.t, composed[key]))
	}
	xr := g.get()
	status, _, _ := unstructured.NestedMap(xr.Object, "status")
	delete(status, "conditions")
	j, err := json.Marshal(status)
	if err != nil {
		g.t.Fatal(err)
	}
	b.Write(j)
	for _, name := range []string{"KeysReady", "PeersReady", "GatewayFound", "Permitted"} {
		c := harness.Condition(xr, name)
		fmt.Fprintf(b, "\n%s: %v %v", name, c["status"], c["reason"])
	}
	return b.String()
}

// subject is a composite resource whose fields are changed.
type subject struct {
	*gateway

	// base is its spec.
	base string
	// of is the gateway of a WireguardPeer. What it does to that counts, too.
	of *gateway
	// apps is the namespace of a peer that was let in.
	apps string
}

func (s subject) effect() string {
	s.t.Helper()
	if s.of == nil {
		return s.gateway.effect()
	}
	return s.gateway.effect() + "\n" + s.of.effect()
}

// namespaces are where the subject has an effect.
func (s subject) namespaces() []string {
	if s.of == nil {
		return []string{s.namespace}
	}
	return []string{s.namespace, s.of.namespace}
}

// settle waits until Crossplane has reconciled what was applied, and is done.
func (s subject) settle() {
	s.t.Helper()
	s.eventually("what was applied to be reconciled", func() error {
		o := s.get()
		if seen, _ := harness.Condition(o, "Synced")["observedGeneration"].(int64); seen != o.GetGeneration() {
			return fmt.Errorf("generation %d is not reconciled yet, the last was %d", o.GetGeneration(), seen)
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	if err := s.c.WaitQuietIn(ctx, s.namespaces()...); err != nil {
		s.t.Fatal(err)
	}
}

// within waits for what takes less than a second, for as long as a machine that
// is busy may take. It looks again whenever anything was written.
func (s subject) within(what string, check func() error) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	seen, last := -1, error(nil)
	return s.c.Wait(ctx, what, func() error {
		n, err := s.c.WritesIn(s.namespaces()...)
		if err != nil || n == seen {
			return cmp.Or(err, last)
		}
		seen, last = n, check()
		return last
	})
}

// newFieldGateway creates a gateway with the Secrets that changes refer to, and a
// peer of another namespace.
func newFieldGateway(t *testing.T, c *harness.Cluster, spec string) subject {
	t.Helper()
	namespace, apps := newNamespace(t, c, "fields-"), newNamespace(t, c, "apps-")
	fieldSecrets(t, c, namespace)
	g := newGatewayIn(t, c, namespace, "home", spec)
	g.waitReady()
	if spec == baseShared {
		if err := c.MergePatch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: apps}}, `{"metadata":{"labels":{"team":"a"}}}`); err != nil {
			t.Fatal(err)
		}
		newPeer(t, g, apps, "guest", "{routes: [192.168.77.0/24]}")
		g.waitDevice(apps + "/guest")
	}
	return subject{gateway: g, base: spec, apps: apps}
}

// newFieldPeer creates a WireguardPeer and its gateway.
func newFieldPeer(t *testing.T, c *harness.Cluster, spec string) subject {
	t.Helper()
	apps := newNamespace(t, c, "apps-")
	fieldSecrets(t, c, apps)
	g := newGatewayIn(t, c, newNamespace(t, c, "fields-"), "home", baseOfPeers)
	g.waitReady()
	p := &gateway{t: t, c: c, kind: v1alpha1.PeerKind, namespace: apps, name: "media"}
	t.Cleanup(p.remove)
	base := strings.ReplaceAll(spec, "GATEWAY", g.namespace)
	p.apply(base)
	// Not before that are all of its objects there.
	if spec == baseClient {
		p.waitReady()
	} else {
		// Admission is there while other tests have it.
		p.eventually("its pods to be let in, but for admission", func() error {
			if c := harness.Condition(p.get(), "PodsReady"); c["reason"] != "Available" && c["reason"] != "AdmissionMissing" {
				return fmt.Errorf("PodsReady is %v, %v", c["reason"], c["message"])
			}
			return nil
		})
	}
	return subject{gateway: p, base: base, of: g}
}

// fieldSecrets makes the Secrets that changes refer to.
func fieldSecrets(t *testing.T, c *harness.Cluster, namespace string) {
	t.Helper()
	key := func(b byte) []byte { return []byte(strings.Repeat(string(b), 42) + "A=") }
	for name, data := range map[string]map[string][]byte{
		"credentials": {"wireguard-private-key": key('c')},
		"keys":        {"first": key('d'), "second": key('e')},
		"seeds":       {"first": key('f')},
	} {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data}
		if err := c.Client.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
}

func (g *gateway) applyMap(spec map[string]any) {
	g.t.Helper()
	if err := g.tryApplyMap(spec); err != nil {
		g.t.Fatal(err)
	}
}

func (g *gateway) tryApplyMap(spec map[string]any) error {
	b, err := yaml.Marshal(spec)
	if err != nil {
		return err
	}
	return g.tryApply(string(b))
}

// firstDifference shows where two effects part.
func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			at := 0
			for at < min(len(w[i]), len(g[i])) && w[i][at] == g[i][at] {
				at++
			}
			from := max(0, at-60)
			return fmt.Sprintf("%.20s: want …%.160s, got …%.160s", w[i], w[i][from:], g[i][from:])
		}
	}
	return fmt.Sprintf("want %d lines, got %d", len(w), len(g))
}
