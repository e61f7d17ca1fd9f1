package controlplane

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1/apitest"
	"github.com/wireguardgateway/function-wireguard-gateway/test/controlplane/harness"
)

// applyFunc applies an object, or tries to, and returns what a user is told.
type applyFunc func(t *testing.T, c *harness.Cluster, object map[string]any, dryRun bool) error

// kubectlApply is what users do.
func kubectlApply(t *testing.T, c *harness.Cluster, object map[string]any, dryRun bool) error {
	t.Helper()
	b, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"apply", "-f", "-"}
	if dryRun {
		args = append(args, "--dry-run=server")
	}
	cmd := c.Command(t.Context(), "kubectl", args...)
	cmd.Stdin = strings.NewReader(string(b))
	out, err := c.Output(cmd)
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

// clientApply is the same for the API server, without the program. It is faster.
func clientApply(t *testing.T, c *harness.Cluster, object map[string]any, dryRun bool) error {
	t.Helper()
	b, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	o, old := &unstructured.Unstructured{}, &unstructured.Unstructured{}
	if err := o.UnmarshalJSON(b); err != nil {
		t.Fatal(err)
	}
	var dry []client.CreateOption
	var dryUpdate []client.UpdateOption
	if dryRun {
		dry, dryUpdate = append(dry, client.DryRunAll), append(dryUpdate, client.DryRunAll)
	}
	old.SetGroupVersionKind(o.GroupVersionKind())
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		err := c.Client.Get(t.Context(), client.ObjectKeyFromObject(o), old)
		switch {
		case apierrors.IsNotFound(err):
			return c.Client.Create(t.Context(), o.DeepCopy(), dry...)
		case err != nil:
			return err
		}
		o.SetResourceVersion(old.GetResourceVersion())
		return c.Client.Update(t.Context(), o.DeepCopy(), dryUpdate...)
	})
}

// checkSchema applies all that must be refused, and all that must be accepted.
func checkSchema(t *testing.T, c *harness.Cluster, apply applyFunc) {
	t.Helper()
	needsNamespace(t, c, apitest.Namespace)
	invalid := append(apitest.Invalid(), apitest.InvalidPeers()...)
	for _, tc := range invalid {
		remove := applyOld(t, c, apply, tc)
		err := apply(t, c, tc.Object(), true)
		remove()
		switch {
		case err == nil:
			t.Errorf("%s: accepted\n%s", tc.Reason, tc.Spec)
		case !strings.Contains(err.Error(), tc.Field), !strings.Contains(err.Error(), tc.Value), !strings.Contains(err.Error(), tc.Says):
			t.Errorf("%s: the message names not all of %q, %q and %q:\n%v", tc.Reason, tc.Field, tc.Value, tc.Says, err)
		}
	}
	valid := append(apitest.Valid(), apitest.ValidPeers()...)
	for _, tc := range valid {
		remove := applyOld(t, c, apply, tc)
		if err := apply(t, c, tc.Object(), true); err != nil {
			t.Errorf("%s: %v\n%s", tc.Reason, err, tc.Spec)
		}
		remove()
	}
	files, err := filepath.Glob(filepath.Join(c.Root, "example", "*", "xr.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		objects, err := harness.ReadObjects(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			needsNamespace(t, c, o.GetNamespace())
			if err := apply(t, c, o.Object, true); err != nil {
				t.Errorf("%s: %v", file, err)
			}
		}
	}
	t.Logf("%d specs refused, each with its message; %d accepted, and %d examples", len(invalid), len(valid), len(files))
}

func needsNamespace(t *testing.T, c *harness.Cluster, name string) {
	t.Helper()
	if err := c.ApplyYAML(t.Context(), "{apiVersion: v1, kind: Namespace, metadata: {name: "+name+"}}"); err != nil {
		t.Fatal(err)
	}
}

// applyOld creates what a case replaces, where it replaces anything. Crossplane
// leaves it alone.
func applyOld(t *testing.T, c *harness.Cluster, apply applyFunc, tc apitest.Case) (remove func()) {
	t.Helper()
	object := tc.OldObject()
	if object == nil {
		return func() {}
	}
	o := &unstructured.Unstructured{Object: object}
	o.SetAnnotations(map[string]string{"crossplane.io/paused": "true"})
	if err := apply(t, c, object, false); err != nil {
		t.Fatalf("%s: the old object is refused: %v", tc.Reason, err)
	}
	return func() {
		// Paused, Crossplane would not let it go.
		if err := c.MergePatch(t.Context(), o, `{"metadata":{"annotations":null,"finalizers":null}}`); err != nil {
			t.Error(err)
		}
		if err := c.Client.Delete(t.Context(), o); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
		c.Eventually(t, "the old object to go", func() error {
			return gone(c.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o))
		})
	}
}

func TestSchema(t *testing.T) {
	t.Parallel()
	c := shared(t)
	checkSchema(t, c, kubectlApply)
	checkDefinition(t, c, "wireguardgateways.wireguardgateway.io")
}

// checkDefinition has the API server say what it thinks of a definition: one
// whose schema is not structural, or whose rules cost too much, is not served.
func checkDefinition(t *testing.T, c *harness.Cluster, name string) {
	t.Helper()
	o, err := c.Get(t.Context(), "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", name)
	if err != nil {
		t.Fatal(err)
	}
	if err := harness.HasCondition(o, "Established", "True", ""); err != nil {
		t.Error(err)
	}
	for _, complaint := range []string{"NonStructuralSchema", "Terminating"} {
		if condition := harness.Condition(o, complaint); condition != nil && condition["status"] == "True" {
			t.Errorf("%s: %v", complaint, condition["message"])
		}
	}
}
