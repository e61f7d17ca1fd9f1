package controlplane

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/crossplane/function-sdk-go/logging"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wireguardgateway/function-wireguard-gateway/fn"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/test/controlplane/harness"
)

// forgetful is a function that sees nothing of what there was, as where two
// reconciles of a new gateway race: each of its calls generates a seed.
type forgetful struct {
	fnv1.UnimplementedFunctionRunnerServiceServer

	function *fn.Function
}

func (f *forgetful) RunFunction(ctx context.Context, req *fnv1.RunFunctionRequest) (*fnv1.RunFunctionResponse, error) {
	delete(req.GetObserved().GetResources(), names.KeySeed)
	if s := req.GetRequiredResources()["seed"]; s != nil {
		s.Items = nil
	}
	delete(req.GetObserved().GetComposite().GetResource().GetFields(), "status")
	return f.function.RunFunction(ctx, req)
}

// TestSecondSeed has a second seed composed. The API server refuses it, since the
// first is immutable, and the next reconcile brings every key back.
func TestSecondSeed(t *testing.T) {
	c := shared(t)
	g := newGateway(t, c, example(t, c, "minimal"))
	g.waitReady()
	g.waitQuiet()
	keys, seed := g.keys(), g.composed()[names.KeySeed]

	// One who holds all rights is refused as well.
	other := object("v1", "Secret", g.namespace, names.Seed(g.name))
	other.Object["data"] = map[string]any{names.DataSeed: "eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHg="}
	err := c.Apply(t.Context(), other)
	if !apierrors.IsInvalid(errors.Unwrap(err)) || !strings.Contains(err.Error(), "immutable") {
		t.Errorf("want the second seed refused, got %v", err)
	}

	t.Run("composed", func(t *testing.T) {
		c.ReplaceFunction(t, &forgetful{function: fn.New(logging.NewNopLogger())})
		g.poke()
		g.eventually("a warning", func() error {
			if now := g.composed()[names.KeyConfig]; now == nil {
				return errors.New("no configuration")
			}
			return warned(t, g, "immutable")
		})
		if diff := cmp.Diff(identity(seed), identity(g.composed()[names.KeySeed])); diff != "" {
			t.Errorf("the seed changed:\n%s", diff)
		}
	})
	g.poke()
	g.eventually("the keys to come back", func() error {
		if diff := cmp.Diff(keys, g.keys()); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
	g.waitReady()
}

// warned returns an error while no event of the gateway says something.
func warned(t *testing.T, g *gateway, says string) error {
	t.Helper()
	l := &unstructured.UnstructuredList{}
	l.SetAPIVersion("v1")
	l.SetKind("EventList")
	if err := g.c.Client.List(t.Context(), l, client.InNamespace(g.namespace)); err != nil {
		return err
	}
	var all []string
	for _, e := range l.Items {
		message, _, _ := unstructured.NestedString(e.Object, "message")
		if strings.Contains(message, says) {
			return nil
		}
		all = append(all, message)
	}
	return fmt.Errorf("no event says %q, but %q", says, all)
}

// TestConfusableNames runs gateways side by side whose names end in what we add
// to names. None takes an object of another.
func TestConfusableNames(t *testing.T) {
	t.Parallel()
	c := shared(t)
	namespace := newNamespace(t, c, "confusable-")
	owner := map[string]string{}
	for _, name := range []string{"home", "home-wireguard", "home-wireguard-tunnel", "home-tunnel"} {
		g := newGatewayIn(t, c, namespace, name, example(t, c, "websocket"))
		g.waitReady()
		for key, o := range g.composed() {
			id := o.GetKind() + " " + o.GetName()
			if other, taken := owner[id]; taken {
				t.Errorf("%s is composed by %s and by %s", id, other, name)
			}
			owner[id] = name
			if ref := o.GetOwnerReferences(); len(ref) != 1 || ref[0].Name != name {
				t.Errorf("%s of %s has owners %v", key, name, ref)
			}
		}
	}
	t.Logf("%d objects, each with one owner", len(owner))
}

// TestNamesTaken creates a gateway where every name that it uses is taken: by
// objects that another controls. It touches none of them, and says which.
func TestNamesTaken(t *testing.T) {
	t.Parallel()
	c := shared(t)
	g := newGateway(t, c, example(t, c, "full"))
	g.waitReady()
	composed := g.composed()

	namespace := newNamespace(t, c, "taken-")
	owner := object("v1", "ConfigMap", namespace, "another-owner")
	if err := c.Client.Create(t.Context(), owner); err != nil {
		t.Fatal(err)
	}
	before := map[string]*unstructured.Unstructured{}
	for key, o := range composed {
		taken := stranger(o, namespace)
		taken.Object["metadata"].(map[string]any)["ownerReferences"] = []any{map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "name": owner.GetName(), "uid": string(owner.GetUID()), "controller": true,
		}}
		if err := c.Client.Create(t.Context(), taken); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		before[key] = taken
	}
	// A seed of another's is no seed of ours: it would be read, so it is left out.
	if err := c.Client.Delete(t.Context(), before[names.KeySeed].DeepCopy()); err != nil {
		t.Fatal(err)
	}
	delete(before, names.KeySeed)

	g2 := newGatewayIn(t, c, namespace, "home", example(t, c, "full"))
	g2.waitCondition("Ready", "False", "Creating")
	g2.poke()
	g2.waitQuiet()
	for key, o := range before {
		now, err := c.Get(t.Context(), o.GetAPIVersion(), o.GetKind(), namespace, o.GetName())
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(content(o), content(now)); diff != "" {
			t.Errorf("%s was changed:\n%s", key, diff)
		}
	}
	message := fmt.Sprint(harness.Condition(g2.get(), "Ready")["message"])
	if !strings.Contains(message, "Unready resources") {
		t.Errorf("the gateway says: %s", message)
	}
	if err := warned(t, g2, "Only one reference can have Controller set to true"); err != nil {
		t.Error(err)
	}
	t.Logf("%d objects of another left alone. The gateway says: %s", len(before), message)
}

// stranger is an object of the same kind and name that has nothing to do with
// ours.
func stranger(o *unstructured.Unstructured, namespace string) *unstructured.Unstructured {
	s := object(o.GetAPIVersion(), o.GetKind(), namespace, o.GetName())
	s.SetLabels(map[string]string{"app": "stranger"})
	other := map[string]any{"app": "stranger"}
	switch o.GetKind() {
	case "Deployment":
		s.Object["spec"] = map[string]any{"replicas": int64(0), "selector": map[string]any{"matchLabels": other}, "template": map[string]any{
			"metadata": map[string]any{"labels": other},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "a", "image": "example.com/a"}}},
		}}
	case "Service":
		s.Object["spec"] = map[string]any{"selector": other, "ports": []any{map[string]any{"port": int64(80), "protocol": "TCP"}}}
	case "RoleBinding":
		s.Object["roleRef"] = map[string]any{"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "stranger"}
	case "NetworkPolicy":
		s.Object["spec"] = map[string]any{"podSelector": map[string]any{"matchLabels": other}}
	case "PodDisruptionBudget":
		s.Object["spec"] = map[string]any{"maxUnavailable": int64(1), "selector": map[string]any{"matchLabels": other}}
	case "HTTPRoute":
		s.Object["spec"] = map[string]any{"hostnames": []any{"stranger.example.com"}}
	case "PodMonitor":
		s.Object["spec"] = map[string]any{"selector": map[string]any{}}
	case "Secret", "ConfigMap":
		s.Object["data"] = map[string]any{"stranger": "c3RyYW5nZXI="}
	}
	return s
}

// TestNamesTakenByNobody is the same with objects that nobody controls.
// Crossplane takes such an object over, keeps what is in it beside our own
// fields, and deletes it with the gateway. The documentation says so.
func TestNamesTakenByNobody(t *testing.T) {
	t.Parallel()
	c := shared(t)
	namespace := newNamespace(t, c, "adopted-")
	const key = names.KeyConfig
	taken := object("v1", "Secret", namespace, names.Config("home"))
	taken.Object["data"] = map[string]any{"stranger": "c3RyYW5nZXI="}
	if err := c.Client.Create(t.Context(), taken); err != nil {
		t.Fatal(err)
	}
	g := newGatewayIn(t, c, namespace, "home", example(t, c, "minimal"))
	// Where a first attempt failed before it came to this object, Crossplane finds
	// it without its annotation the next time, and stops until somebody adds that.
	g.eventually("the object to be taken over", func() error {
		o := g.get()
		if message := fmt.Sprint(harness.Condition(o, "Synced")["message"]); strings.Contains(message, "without required \""+keyAnnotation) {
			t.Log(message)
			return c.MergePatch(t.Context(), taken, `{"metadata":{"annotations":{"`+keyAnnotation+`":"`+key+`"}}}`)
		}
		return harness.HasCondition(o, "Ready", "True", "")
	})
	now := g.composed()[key]
	data, _, _ := unstructured.NestedMap(now.Object, "data")
	if now.GetUID() != taken.GetUID() || data["stranger"] == nil || !slices.ContainsFunc(now.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.Name == "home" }) {
		t.Errorf("the object was not taken over: %v, owners %v", data, now.GetOwnerReferences())
	}
}
