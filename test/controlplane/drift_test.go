package controlplane

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/test/controlplane/harness"
)

// content is what Crossplane and the API server decide of an object, without
// what changes with every write.
func content(o *unstructured.Unstructured) map[string]any {
	if o == nil {
		return nil
	}
	m := o.DeepCopy().Object
	delete(m, "status")
	metadata, _ := m["metadata"].(map[string]any)
	for _, field := range []string{"resourceVersion", "generation", "managedFields", "uid", "creationTimestamp"} {
		delete(metadata, field)
	}
	if o.GetKind() == "Service" {
		spec, _ := m["spec"].(map[string]any)
		delete(spec, "clusterIP")
		delete(spec, "clusterIPs")
		delete(spec, "healthCheckNodePort")
		ports, _ := spec["ports"].([]any)
		for _, p := range ports {
			delete(p.(map[string]any), "nodePort")
		}
	}
	if o.GetKind() == "Deployment" {
		annotations, _ := metadata["annotations"].(map[string]any)
		delete(annotations, "deployment.kubernetes.io/revision")
	}
	return m
}

// waitContent waits until the object of a key is as it was.
func (g *gateway) waitContent(key string, want *unstructured.Unstructured, check func(*unstructured.Unstructured) error) {
	g.t.Helper()
	g.eventually(key+" to be restored", func() error {
		o, err := g.c.Get(g.t.Context(), want.GetAPIVersion(), want.GetKind(), want.GetNamespace(), want.GetName())
		if err != nil {
			return err
		}
		if diff := cmp.Diff(content(want), content(o)); diff != "" {
			return errors.New(diff)
		}
		return check(o)
	})
}

// TestDrift edits and deletes every composed object, as a user with kubectl
// would. Each comes back as it was, without a change of the spec, and no key
// changes. Each is that of another gateway, so that all are waited for at once.
//
// On average it takes 25 to 48 events of the circuit breaker to create a gateway, 7
// to undo two edits, and 10 to 17 to restore an object: its deletion, its creation,
// and two for each of the four writes with which Crossplane notes that the gateway
// is not ready, and ready again. Where it reads its own writes late, Crossplane
// repeats them. That has taken up to 46 for one object.
func TestDrift(t *testing.T) {
	c := shared(t)
	f := newFleet(t, c, len(fullKeys))
	before := waitQuiet(t, c)
	f.apply(example(t, c, "full"))
	for _, g := range f {
		g.waitReady()
	}
	created := waitQuiet(t, c)
	keys, objects := map[string]string{}, map[string]*unstructured.Unstructured{}
	for i, key := range fullKeys {
		keys[key], objects[key] = f[i].keys(), f[i].composed()[key]
	}
	same := func(t *testing.T) {
		t.Helper()
		for i, key := range fullKeys {
			f[i].waitReady()
			if diff := cmp.Diff(keys[key], f[i].keys()); diff != "" {
				t.Errorf("%s: %s", key, diff)
			}
		}
	}

	t.Run("edited", func(t *testing.T) {
		edits := 0
		for _, part := range []string{"metadata", ""} {
			for _, key := range fullKeys {
				if edit(t, c, key, objects[key], part) {
					edits++
				}
			}
			for i, key := range fullKeys {
				f[i].waitContent(key, objects[key], func(*unstructured.Unstructured) error { return nil })
			}
		}
		same(t)
		t.Logf("%d edits undone", edits)
	})
	edited := waitQuiet(t, c)

	t.Run("deleted", func(t *testing.T) {
		start, restored := time.Now(), 0
		for _, key := range fullKeys {
			if key == names.KeySeed {
				continue
			}
			if err := c.Client.Delete(t.Context(), objects[key].DeepCopy()); err != nil {
				t.Fatal(err)
			}
			restored++
		}
		for i, key := range fullKeys {
			f[i].waitContent(key, objects[key], func(o *unstructured.Unstructured) error {
				if key != names.KeySeed && o.GetUID() == objects[key].GetUID() {
					return errors.New("not deleted yet")
				}
				return nil
			})
		}
		same(t)
		t.Logf("%d objects restored within %v", restored, time.Since(start).Round(time.Millisecond))
	})
	after := waitQuiet(t, c)
	cost := func(what string, from, to harness.Metrics) int {
		return checkEvents(t, what, to.BreakerEvents-from.BreakerEvents, len(f))
	}
	t.Logf("events of one gateway's breaker: created %d, edited %d, deleted %d, all %d", cost("created", before, created),
		cost("edited", created, edited), cost("deleted", edited, after), cost("all", before, after))

	t.Run("deleted together", func(t *testing.T) { testDeletedTogether(t, f[0]) })
}

// testDeletedTogether deletes everything but the seed at once.
func testDeletedTogether(t *testing.T, g *gateway) {
	t.Helper()
	c := g.c
	before := waitQuiet(t, c)
	keys, objects := g.keys(), g.composed()
	start := time.Now()
	for key, o := range objects {
		if key == names.KeySeed {
			continue
		}
		if err := c.Client.Delete(t.Context(), o.DeepCopy()); err != nil {
			t.Fatal(err)
		}
	}
	for key, o := range objects {
		g.waitContent(key, o, func(*unstructured.Unstructured) error { return nil })
	}
	g.waitReady()
	took := time.Since(start)
	if diff := cmp.Diff(keys, g.keys()); diff != "" {
		t.Error(diff)
	}
	after := waitQuiet(t, c)
	events := checkEvents(t, "deleted together", after.BreakerEvents-before.BreakerEvents, 1)
	t.Logf("%d objects restored in %v, by %d reconciles and %d events of the breaker", len(objects)-1, took.Round(time.Millisecond),
		after.Reconciles-before.Reconciles, events)
}

// edit changes one field that Crossplane owns. It is false where there is none
// that may be changed.
func edit(t *testing.T, c *harness.Cluster, key string, o *unstructured.Unstructured, part string) bool {
	t.Helper()
	patch := editOwned(t, o, part)
	if patch == nil {
		return false
	}
	b, err := json.Marshal(patch)
	if err != nil {
		t.Fatal(err)
	}
	edited := o.DeepCopy()
	if err := c.Client.Patch(t.Context(), edited, client.RawPatch("application/merge-patch+json", b), client.FieldOwner("kubectl-edit")); err != nil {
		// The seed is immutable.
		if key == names.KeySeed && strings.Contains(err.Error(), "immutable") {
			return false
		}
		t.Fatalf("%s: %v", b, err)
	}
	if edited.GetResourceVersion() == o.GetResourceVersion() {
		t.Errorf("%s: %s changes nothing", key, b)
	}
	return true
}

// editOwned returns a merge patch that changes one field which Crossplane owns:
// a label, or the first field outside of the metadata. It is nil where there is
// none.
func editOwned(t *testing.T, o *unstructured.Unstructured, part string) map[string]any {
	t.Helper()
	if part == "metadata" {
		return map[string]any{"metadata": map[string]any{"labels": map[string]any{names.LabelInstance: "edited"}}}
	}
	owned := map[string]any{}
	for _, m := range o.GetManagedFields() {
		if m.Operation == metav1.ManagedFieldsOperationApply && strings.HasPrefix(m.Manager, "apiextensions.crossplane.io/composed") {
			if err := json.Unmarshal(m.FieldsV1.GetRawBytes(), &owned); err != nil {
				t.Fatal(err)
			}
		}
	}
	delete(owned, "f:metadata")
	// The API server lets nobody change these.
	delete(owned, "f:roleRef")
	delete(owned, "f:immutable")
	if spec, ok := owned["f:spec"].(map[string]any); ok {
		delete(spec, "f:selector")
		// Another type of Service would lose fields that others own.
		delete(spec, "f:type")
	}
	return editFirst(owned, o.Object)
}

func editFirst(owned map[string]any, live map[string]any) map[string]any {
	for _, name := range slices.Sorted(maps.Keys(owned)) {
		field := strings.TrimPrefix(name, "f:")
		if field == name {
			continue // An item of a list.
		}
		switch v := live[field].(type) {
		case map[string]any:
			children, _ := owned[name].(map[string]any)
			if p := editFirst(children, v); p != nil {
				return map[string]any{field: p}
			}
		case string:
			if _, err := base64.StdEncoding.DecodeString(v); err == nil && len(v)%4 == 0 {
				return map[string]any{field: base64.StdEncoding.EncodeToString([]byte("edited"))}
			}
			if field != "externalTrafficPolicy" && field != "ipFamilyPolicy" {
				return map[string]any{field: "192.0.2.1"}
			}
		case int64:
			return map[string]any{field: v + 1}
		case bool:
			return map[string]any{field: !v}
		case []any:
			if children, _ := owned[name].(map[string]any); len(children) == 0 {
				return map[string]any{field: nil}
			}
		}
	}
	return nil
}

// seedSecret returns the gateway's seed, as a backup would hold it.
func (g *gateway) seedSecret() []byte {
	g.t.Helper()
	return g.secret(names.Seed(g.name))[names.DataSeed]
}

// loseSeed deletes the seed, and returns what the gateway says then. Nothing else
// may change.
func (g *gateway) loseSeed() (message string) {
	g.t.Helper()
	g.waitQuiet()
	objects := g.composed()
	delete(objects, names.KeySeed)
	seed := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace, Name: names.Seed(g.name)}}
	if err := g.c.Client.Delete(g.t.Context(), seed); err != nil {
		g.t.Fatal(err)
	}
	g.waitCondition("KeysReady", "False", "SeedMissing")
	g.poke()
	for key, o := range objects {
		now, err := g.c.Get(g.t.Context(), o.GetAPIVersion(), o.GetKind(), o.GetNamespace(), o.GetName())
		if err != nil {
			g.t.Fatal(err)
		}
		if diff := cmp.Diff(identity(o), identity(now)); diff != "" {
			g.t.Errorf("%s changed when the seed was lost:\n%s", key, diff)
		}
	}
	if err := gone(g.c.Client.Get(g.t.Context(), client.ObjectKeyFromObject(seed), seed)); err != nil {
		g.t.Errorf("the seed: %v", err)
	}
	message, _ = harness.Condition(g.get(), "KeysReady")["message"].(string)
	return message
}

// createSeed creates a Secret with a seed, with kubectl.
func (g *gateway) createSeed(name string, seed []byte, annotation string) {
	g.t.Helper()
	metadata := map[string]any{"namespace": g.namespace, "name": name}
	if key, value, ok := strings.Cut(annotation, ": "); ok {
		metadata["annotations"] = map[string]any{key: value}
	}
	b, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": map[string]any{names.DataSeed: seed}})
	if err != nil {
		g.t.Fatal(err)
	}
	cmd := g.c.Command(g.t.Context(), "kubectl", "create", "-f", "-")
	cmd.Stdin = strings.NewReader(string(b))
	if out, err := g.c.Output(cmd); err != nil {
		g.t.Fatalf("%v: %s", err, out)
	}
}

// TestSeedLost deletes the seed. No key is replaced, and both ways back that the
// message tells lead there.
func TestSeedLost(t *testing.T) {
	t.Parallel()
	c := shared(t)
	spec := example(t, c, "minimal")

	t.Run("restored under another name", func(t *testing.T) {
		t.Parallel()
		g := newGateway(t, c, spec)
		g.waitReady()
		keys, backup := g.keys(), g.seedSecret()
		message := g.loseSeed()
		if !strings.Contains(message, "spec.keys.seedSecretRef") {
			t.Fatalf("the message names no reference: %s", message)
		}
		g.createSeed("backup", backup, "")
		g.apply(spec + "\nkeys: {seedSecretRef: {name: backup}}\n")
		g.waitReady()
		if diff := cmp.Diff(keys, g.keys()); diff != "" {
			t.Error(diff)
		}
		t.Log(message)
	})

	t.Run("restored under its own name", func(t *testing.T) {
		t.Parallel()
		g := newGateway(t, c, spec)
		g.waitReady()
		keys, backup := g.keys(), g.seedSecret()
		message := g.loseSeed()
		annotation := regexp.MustCompile(`annotation (\S+: \S+) `).FindStringSubmatch(message)
		if annotation == nil {
			t.Fatalf("the message names no annotation: %s", message)
		}
		g.createSeed(names.Seed(g.name), backup, annotation[1])
		g.waitReady()
		if diff := cmp.Diff(keys, g.keys()); diff != "" {
			t.Error(diff)
		}
		seed := g.composed()[names.KeySeed]
		if immutable, _, _ := unstructured.NestedBool(seed.Object, "immutable"); !immutable || len(seed.GetOwnerReferences()) != 1 {
			t.Errorf("the restored seed is immutable: %v, its owners are %v", immutable, seed.GetOwnerReferences())
		}
	})

	t.Run("gateway created again", func(t *testing.T) {
		t.Parallel()
		g := newGateway(t, c, spec)
		g.waitReady()
		keys, backup := g.keys(), g.seedSecret()
		if err := c.Client.Delete(t.Context(), g.object()); err != nil {
			t.Fatal(err)
		}
		g.eventually("everything to be removed", func() error {
			if left := leftovers(t, c, g.namespace); len(left) > 0 {
				return errors.New(strings.Join(left, ", "))
			}
			o := g.object()
			return gone(c.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		})
		g.createSeed("backup", backup, "")
		g.apply(spec + "\nkeys: {seedSecretRef: {name: backup}}\n")
		g.waitReady()
		if diff := cmp.Diff(keys, g.keys()); diff != "" {
			t.Error(diff)
		}
	})
}

// TestCreatedAgain deletes a gateway and creates it again at once. However long
// garbage collection takes for the former one's seed, the new one has one in the
// end.
func TestCreatedAgain(t *testing.T) {
	t.Parallel()
	c := shared(t)
	spec := example(t, c, "minimal")
	g := newGateway(t, c, spec)
	g.waitReady()
	seed := g.composed()[names.KeySeed]
	const hold = `{"metadata":{"finalizers":%s}}`
	if err := c.MergePatch(t.Context(), seed, fmt.Sprintf(hold, `["wireguardgateway.io/test"]`)); err != nil {
		t.Fatal(err)
	}
	if err := c.Client.Delete(t.Context(), g.object()); err != nil {
		t.Fatal(err)
	}
	g.eventually("the gateway to be gone", func() error {
		o := g.object()
		return gone(c.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o))
	})
	// As garbage collection does, which may take half a minute to know of a new kind.
	if err := c.Client.Delete(t.Context(), seed); err != nil {
		t.Fatal(err)
	}
	g.apply(spec)
	g.waitCondition("KeysReady", "True", "")
	if s := g.status(); s.PublicKey != "" || s.SeedID != "" {
		t.Errorf("the gateway is held to a seed that goes: %s, %s", s.PublicKey, s.SeedID)
	}
	if err := c.MergePatch(t.Context(), seed, fmt.Sprintf(hold, "null")); err != nil {
		t.Fatal(err)
	}
	g.eventually("the gateway to have a seed that stays", func() error {
		now := g.composed()[names.KeySeed]
		if now == nil || now.GetUID() == seed.GetUID() || g.status().SeedID == "" {
			return errors.New("it has none")
		}
		return nil
	})
	g.waitReady()
}

// TestSeedReferenced sets keys.seedSecretRef on a gateway that runs. Its own seed
// stays, so that no copy is ever lost.
func TestSeedReferenced(t *testing.T) {
	t.Parallel()
	c := shared(t)
	spec := example(t, c, "minimal")
	g := newGateway(t, c, spec)
	g.waitReady()
	keys, seed := g.keys(), g.composed()[names.KeySeed]

	g.createSeed("same", g.seedSecret(), "")
	g.apply(spec + "\nkeys: {seedSecretRef: {name: same}}\n")
	g.waitReady()
	if diff := cmp.Diff(keys, g.keys()); diff != "" {
		t.Error(diff)
	}

	g.createSeed("other", []byte(strings.Repeat("x", 32)), "")
	g.apply(spec + "\nkeys: {seedSecretRef: {name: other}}\n")
	g.waitCondition("KeysReady", "False", "SeedMismatch")
	if diff := cmp.Diff(keys, g.keys()); diff != "" {
		t.Error(diff)
	}
	message := fmt.Sprint(harness.Condition(g.get(), "KeysReady")["message"])
	accept := regexp.MustCompile(`acceptSeed to (\S+) `).FindStringSubmatch(message)
	if accept == nil {
		t.Fatalf("the message names no ID to accept: %s", message)
	}
	g.apply(spec + "\nkeys: {seedSecretRef: {name: other}, acceptSeed: \"" + accept[1] + "\"}\n")
	g.waitReady()
	if g.keys() == keys {
		t.Error("the accepted seed is not used")
	}
	if diff := cmp.Diff(identity(seed), identity(g.composed()[names.KeySeed])); diff != "" {
		t.Errorf("the gateway's own seed changed:\n%s", diff)
	}
}
