package controlplane

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/test/controlplane/harness"
)

// gateway is one that a test created, in a namespace of its own.
type gateway struct {
	t         *testing.T
	c         *harness.Cluster
	kind      string
	namespace string
	name      string
}

var namespaces atomic.Int64

// newNamespace makes a namespace that ends with the test.
func newNamespace(t *testing.T, c *harness.Cluster, prefix string) string {
	t.Helper()
	n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s%d", prefix, namespaces.Add(1))}}
	if err := c.Client.Create(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	return n.Name
}

// newGateway applies a gateway. It is removed with the test, and is gone then:
// those of other tests must not be disturbed.
func newGateway(t *testing.T, c *harness.Cluster, spec string) *gateway {
	t.Helper()
	return newGatewayIn(t, c, newNamespace(t, c, "vpn-"), "home", spec)
}

func newGatewayIn(t *testing.T, c *harness.Cluster, namespace, name, spec string) *gateway {
	t.Helper()
	g := trackGateway(t, c, namespace, name)
	g.apply(spec)
	return g
}

// trackGateway removes a gateway with the test. It is applied by others.
func trackGateway(t *testing.T, c *harness.Cluster, namespace, name string) *gateway {
	t.Helper()
	g := &gateway{t: t, c: c, kind: v1alpha1.GatewayKind, namespace: namespace, name: name}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		xr := g.object()
		if err := c.Client.Delete(ctx, xr); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
		c.Eventually(t, "the gateway to go", func() error { return gone(c.Client.Get(ctx, client.ObjectKeyFromObject(xr), xr)) })
	})
	return g
}

// gone turns "not found" into success.
func gone(err error) error {
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err == nil:
		return errors.New("still there")
	default:
		return err
	}
}

func (g *gateway) object() *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(v1alpha1.GroupVersion.String())
	o.SetKind(g.kind)
	o.SetNamespace(g.namespace)
	o.SetName(g.name)
	return o
}

// apply applies a spec. What was applied before and is not in it is removed.
func (g *gateway) apply(spec string) {
	g.t.Helper()
	if err := g.tryApply(spec); err != nil {
		g.t.Fatal(err)
	}
}

func (g *gateway) tryApply(spec string) error {
	o := g.object()
	m := map[string]any{}
	if err := yaml.Unmarshal([]byte(spec), &m); err != nil {
		return err
	}
	o.Object["spec"] = m
	return g.c.Apply(g.t.Context(), o)
}

// get returns the composite resource as it is.
func (g *gateway) get() *unstructured.Unstructured {
	g.t.Helper()
	o := g.object()
	if err := g.c.Client.Get(g.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
		g.t.Fatal(err)
	}
	return o
}

func (g *gateway) status() v1alpha1.WireguardGatewayStatus {
	g.t.Helper()
	return statusOf(g.t, g.get())
}

func statusOf(t *testing.T, o *unstructured.Unstructured) v1alpha1.WireguardGatewayStatus {
	t.Helper()
	s := v1alpha1.WireguardGatewayStatus{}
	m, _, _ := unstructured.NestedMap(o.Object, "status")
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(m, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// waitReady waits until Crossplane says that the gateway is ready, as it is
// specified now.
func (g *gateway) waitReady() {
	g.t.Helper()
	g.eventually("the gateway to be ready", func() error {
		o := g.get()
		for _, condition := range []string{"Synced", "Ready"} {
			if err := harness.HasCondition(o, condition, "True", ""); err != nil {
				return err
			}
			if seen, _ := harness.Condition(o, condition)["observedGeneration"].(int64); seen != o.GetGeneration() {
				return fmt.Errorf("condition %s is of generation %d, not %d", condition, seen, o.GetGeneration())
			}
		}
		return nil
	})
}

func (g *gateway) waitCondition(condition, status, reason string) {
	g.t.Helper()
	g.eventually("condition "+condition, func() error { return harness.HasCondition(g.get(), condition, status, reason) })
}

func (g *gateway) eventually(what string, check func() error) {
	g.t.Helper()
	g.c.Eventually(g.t, what, check)
}

// keyAnnotation is how Crossplane knows what it composed.
const keyAnnotation = "crossplane.io/composition-resource-name"

// composed returns the live objects that the gateway refers to, by key. Those
// that do not exist are not among them.
func (g *gateway) composed() map[string]*unstructured.Unstructured {
	g.t.Helper()
	xr := g.get()
	// A claim's objects are its composite resource's.
	if name, ok, _ := unstructured.NestedString(xr.Object, "spec", "resourceRef", "name"); ok {
		var err error
		if xr, err = g.c.Get(g.t.Context(), v1alpha1.GroupVersion.String(), v1alpha1.CompositeGatewayKind, "", name); err != nil {
			g.t.Fatal(err)
		}
	}
	out, err := composedOf(g.t, g.c, xr)
	if err != nil {
		g.t.Fatal(err)
	}
	return out
}

func composedOf(t *testing.T, c *harness.Cluster, xr *unstructured.Unstructured) (map[string]*unstructured.Unstructured, error) {
	t.Helper()
	refs, _, _ := unstructured.NestedSlice(xr.Object, "spec", "crossplane", "resourceRefs")
	if len(refs) == 0 {
		refs, _, _ = unstructured.NestedSlice(xr.Object, "spec", "resourceRefs")
	}
	out := map[string]*unstructured.Unstructured{}
	for _, r := range refs {
		m, _ := r.(map[string]any)
		field := func(name string) string { s, _ := m[name].(string); return s }
		namespace := field("namespace")
		if namespace == "" {
			namespace = xr.GetNamespace()
		}
		o, err := c.Get(t.Context(), field("apiVersion"), field("kind"), namespace, field("name"))
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s %s: %w", field("kind"), field("name"), err)
		}
		out[o.GetAnnotations()[keyAnnotation]] = o
	}
	return out, nil
}

// secret returns the data of a Secret, with a key for a file name.
func (g *gateway) secret(name string) map[string][]byte {
	g.t.Helper()
	s := &corev1.Secret{}
	if err := g.c.Client.Get(g.t.Context(), client.ObjectKey{Namespace: g.namespace, Name: name}, s); err != nil {
		g.t.Fatal(err)
	}
	return s.Data
}

// keys are what must never change by accident: the gateway's public key and
// seed, and the keys and addresses of all peers.
func (g *gateway) keys() string {
	g.t.Helper()
	return keysOf(g.status())
}

func keysOf(s v1alpha1.WireguardGatewayStatus) string {
	lines := []string{s.PublicKey + " " + s.SeedID + " " + strings.Join(s.Addresses, " ")}
	for _, p := range s.Peers {
		lines = append(lines, p.Name+" "+p.PublicKey+" "+strings.Join(p.Addresses, " "))
	}
	slices.Sort(lines[1:])
	return strings.Join(lines, "\n")
}

// poke makes Crossplane reconcile without a change of the spec, and waits until
// it has.
func (g *gateway) poke() {
	g.t.Helper()
	mark := g.mark()
	if err := g.c.MergePatch(g.t.Context(), g.object(), fmt.Sprintf(`{"metadata":{"annotations":{"example.com/poke":"%d"}}}`, namespaces.Add(1))); err != nil {
		g.t.Fatal(err)
	}
	g.eventually("a reconcile", func() error {
		_, status, err := g.reconciles(mark)
		if err == nil && status == 0 {
			err = errors.New("none yet")
		}
		return err
	})
}

func (g *gateway) mark() harness.Mark {
	g.t.Helper()
	mark, err := g.c.Mark()
	if err != nil {
		g.t.Fatal(err)
	}
	return mark
}

// reconciles counts what Crossplane's reconciles wrote to the gateway itself since
// a mark.
func (g *gateway) reconciles(since harness.Mark) (refs, status int, err error) {
	return g.c.Reconciles(since, strings.ToLower(g.kind)+"s", g.namespace, g.name)
}

// waitQuiet waits until Crossplane is done with the gateway. Others may go on.
func (g *gateway) waitQuiet() {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), 2*time.Minute)
	defer cancel()
	if err := g.c.WaitQuietIn(ctx, g.namespace); err != nil {
		g.t.Fatal(err)
	}
}

// example returns the spec of an example, as a gateway's.
func example(t *testing.T, c *harness.Cluster, name string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(c.Root, "example", name, "xr.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	o := struct {
		Spec map[string]any `json:"spec"`
	}{}
	if err := yaml.Unmarshal(b, &o); err != nil {
		t.Fatal(err)
	}
	if b, err = yaml.Marshal(o.Spec); err != nil {
		t.Fatal(err)
	}
	return string(b)
}
