package controlplane

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crossplane/function-sdk-go/logging"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/wireguardgateway/function-wireguard-gateway/fn"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/offline"
	"github.com/wireguardgateway/function-wireguard-gateway/test/controlplane/harness"
)

var record = flag.Bool("record-release", false, "write what this version composes to testdata/upgrade, at a release")

// upgraded is the namespace of gateways that an earlier version composed. Keys
// are derived from it, so it never changes.
const upgraded = "upgraded"

// releases are the versions whose gateways are kept in testdata/upgrade.
var releases = []string{"v0.1.0"}

// upgradedExamples are the gateways that are kept of each.
var upgradedExamples = []string{"full", "gluetun"}

// TestUpgrade installs gateways as earlier versions composed them, and has this
// version reconcile them. No object is replaced, no key or address changes, and
// no pod restarts.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	c := shared(t)
	if *record {
		recordRelease(t, c, releases[len(releases)-1])
	}
	for _, release := range releases {
		for _, name := range upgradedExamples {
			t.Run(release+"/"+name, func(t *testing.T) { testUpgrade(t, c, release, name) })
		}
	}
}

// recordRelease writes the composite resource with its status, and all that is
// composed for it, of a gateway whose seed is known.
func recordRelease(t *testing.T, c *harness.Cluster, release string) {
	t.Helper()
	composition, err := offline.ReadObject(filepath.Join(c.Root, "package", "configuration", "composition.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range upgradedExamples {
		xr, err := offline.ReadObject(filepath.Join(c.Root, "example", name, "xr.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		xr.SetNamespace(upgraded)
		seed := object("v1", "Secret", upgraded, names.Seed(xr.GetName()))
		seed.SetAnnotations(map[string]string{keyAnnotation: names.KeySeed})
		seed.Object["data"] = map[string]any{names.DataSeed: "c2VlZHNlZWRzZWVkc2VlZHNlZWRzZWVkc2VlZHNlZWQ="}
		req := offline.Request{Composite: xr, Observed: []*unstructured.Unstructured{seed}, Required: []*unstructured.Unstructured{seed}}
		if req.Input, err = offline.InputOf(composition); err != nil {
			t.Fatal(err)
		}
		rsp, err := offline.Run(t.Context(), fn.New(logging.NewNopLogger()), req)
		if err != nil {
			t.Fatal(err)
		}
		xr.Object["status"] = rsp.GetDesired().GetComposite().GetResource().AsMap()["status"]
		b := &bytes.Buffer{}
		for _, o := range append([]*unstructured.Unstructured{xr}, offline.Composed(xr, rsp)...) {
			doc, err := yaml.Marshal(o.Object)
			if err != nil {
				t.Fatal(err)
			}
			fmt.Fprintf(b, "---\n%s", doc)
		}
		file := filepath.Join("testdata", "upgrade", release, name+".yaml")
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func testUpgrade(t *testing.T, c *harness.Cluster, release, name string) {
	t.Helper()
	// Crossplane names its field manager after the composite resource. A gateway
	// of the same name shows how.
	model := newGateway(t, c, "{endpoint: {host: vpn.example.com}}")
	model.waitReady()
	managers := map[string]string{}
	for _, o := range model.composed() {
		for _, m := range o.GetManagedFields() {
			if strings.HasPrefix(m.Manager, "apiextensions.crossplane.io/composed") {
				managers[m.Manager] = m.Manager
			}
		}
	}
	if len(managers) != 1 {
		t.Fatalf("Crossplane has the field managers %v, want one", managers)
	}
	manager := slices.Collect(maps.Keys(managers))[0]

	objects, err := harness.ReadObjects(filepath.Join("testdata", "upgrade", release, name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	xr, composed := objects[0], objects[1:]
	if err := c.Client.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: upgraded}}); client.IgnoreAlreadyExists(err) != nil {
		t.Fatal(err)
	}
	status := xr.Object["status"]

	g := trackGateway(t, c, upgraded, xr.GetName())
	// Paused, Crossplane waits until all is there.
	paused := xr.DeepCopy()
	delete(paused.Object, "status")
	paused.SetAnnotations(map[string]string{"crossplane.io/paused": "true"})
	if err := c.Apply(t.Context(), paused); err != nil {
		t.Fatal(err)
	}
	owner := g.get()
	before := map[string]*unstructured.Unstructured{}
	var refs []any
	for _, o := range composed {
		o.SetNamespace(upgraded)
		o.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(owner, owner.GroupVersionKind())})
		labels := o.GetLabels()
		labels["crossplane.io/composite"] = owner.GetName()
		o.SetLabels(labels)
		key := o.GetAnnotations()[keyAnnotation]
		if err := applyAs(t, c, o, manager); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
		before[key] = o
		refs = append(refs, map[string]any{"apiVersion": o.GetAPIVersion(), "kind": o.GetKind(), "name": o.GetName()})
	}
	const composite = "apiextensions.crossplane.io/composite"
	withRefs := g.object()
	withRefs.Object["spec"] = map[string]any{"crossplane": map[string]any{"resourceRefs": refs}}
	if err := applyAs(t, c, withRefs, composite); err != nil {
		t.Fatal(err)
	}
	withStatus := g.object()
	withStatus.Object["status"] = status
	if err := c.Client.Status().Patch(t.Context(), withStatus, client.Apply, client.ForceOwnership, client.FieldOwner(composite)); err != nil { //nolint:staticcheck // Takes any object.
		t.Fatal(err)
	}
	keys := g.keys()
	if err := c.MergePatch(t.Context(), g.object(), `{"metadata":{"annotations":{"crossplane.io/paused":null}}}`); err != nil {
		t.Fatal(err)
	}

	g.waitReady()
	g.waitQuiet()
	after := g.composed()
	if diff := cmp.Diff(slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after))); diff != "" {
		t.Errorf("other objects are composed:\n%s", diff)
	}
	for key, o := range before {
		if after[key].GetUID() != o.GetUID() {
			t.Errorf("%s was replaced", key)
		}
	}
	if diff := cmp.Diff(keys, g.keys()); diff != "" {
		t.Error(diff)
	}
	if d := after[names.KeyDeployment]; d.GetGeneration() != before[names.KeyDeployment].GetGeneration() {
		t.Errorf("the pod restarts:\n%s", cmp.Diff(content(before[names.KeyDeployment]), content(d)))
	}
	t.Logf("%d objects of %s taken over, none replaced", len(before), release)
}

// applyAs applies an object as another field manager, and reads what became of
// it.
func applyAs(t *testing.T, c *harness.Cluster, o *unstructured.Unstructured, manager string) error {
	t.Helper()
	return c.Client.Patch(t.Context(), o, client.Apply, client.ForceOwnership, client.FieldOwner(manager)) //nolint:staticcheck // Takes any object.
}
