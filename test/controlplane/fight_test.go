package controlplane

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
)

// policies are two that many clusters have: one takes every image from a mirror,
// one adds a sidecar and a label. They act in namespaces that bear a label.
const policies = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: mirror-images}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {mutated: "true"}}
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}]
  failurePolicy: Fail
  reinvocationPolicy: IfNeeded
  mutations:
    - patchType: ApplyConfiguration
      applyConfiguration:
        expression: >
          Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{
            containers: object.spec.template.spec.containers.map(c, Object.spec.template.spec.containers{
              name: c.name, image: c.image.startsWith("mirror.example.com/") ? c.image : "mirror.example.com/" + c.image})}}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: inject-sidecar}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {mutated: "true"}}
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}]
  failurePolicy: Fail
  reinvocationPolicy: IfNeeded
  mutations:
    - patchType: ApplyConfiguration
      applyConfiguration:
        expression: >
          Object{metadata: Object.metadata{labels: {"injected": "true"}},
            spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{
              containers: [Object.spec.template.spec.containers{name: "injected", image: "mirror.example.com/sidecar"}]}}}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: mirror-images}
spec: {policyName: mirror-images}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: inject-sidecar}
spec: {policyName: inject-sidecar}
`

// TestNoFights runs a gateway where others change what we compose. It becomes
// ready, what they added stays, and nobody writes again and again.
func TestNoFights(t *testing.T) {
	t.Parallel()
	c := shared(t)
	namespace := newNamespace(t, c, "mutated-")
	if err := c.MergePatch(t.Context(), object("v1", "Namespace", "", namespace), `{"metadata":{"labels":{"mutated":"true"}}}`); err != nil {
		t.Fatal(err)
	}
	if err := c.ApplyYAML(t.Context(), policies); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, name := range []string{"mirror-images", "inject-sidecar"} {
			for _, kind := range []string{"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"} {
				if err := c.Client.Delete(context.WithoutCancel(t.Context()), object("admissionregistration.k8s.io/v1", kind, "", name)); err != nil {
					t.Error(err)
				}
			}
		}
	})
	// The API server takes up a policy in its own time.
	c.Eventually(t, "the policies to act", func() error {
		d := object("apps/v1", "Deployment", namespace, "probe")
		d.Object["spec"] = map[string]any{
			"selector": map[string]any{"matchLabels": map[string]any{"a": "b"}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": map[string]any{"a": "b"}},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "a", "image": "b"}}},
			},
		}
		if err := c.Client.Create(t.Context(), d, client.DryRunAll); err != nil {
			return err
		}
		if s := text(t, d); !strings.Contains(s, `"mirror.example.com/b"`) || !strings.Contains(s, `"injected"`) {
			return errors.New(s)
		}
		return nil
	})

	g := newGatewayIn(t, c, namespace, "home", example(t, c, "websocket"))
	g.waitReady()
	// A controller that annotates Services, as those of load balancers do.
	service := g.composed()[names.KeyService]
	if err := c.Client.Patch(t.Context(), service, client.RawPatch("application/merge-patch+json",
		[]byte(`{"metadata":{"annotations":{"example.com/load-balancer":"1"},"finalizers":["example.com/load-balancer"]}}`)), client.FieldOwner("controller")); err != nil {
		t.Fatal(err)
	}
	figures, err := g.checkIdle(5)
	if err != nil {
		t.Error(err)
	}
	t.Log(figures)
	g.waitReady()

	deployment := g.composed()[names.KeyDeployment]
	containers, _, _ := unstructured.NestedSlice(deployment.Object, "spec", "template", "spec", "containers")
	images := map[string]any{}
	for _, c := range containers {
		m, _ := c.(map[string]any)
		images[fmt.Sprint(m["name"])] = m["image"]
	}
	if got := slices.Sorted(maps.Keys(images)); !slices.Equal(got, []string{"agent", "injected", "wstunnel"}) {
		t.Errorf("the containers are %v", got)
	}
	for name, image := range images {
		if !strings.HasPrefix(fmt.Sprint(image), "mirror.example.com/") {
			t.Errorf("container %s has image %v", name, image)
		}
	}
	if deployment.GetLabels()["injected"] != "true" {
		t.Error("the label that was added is gone")
	}
	service = g.composed()[names.KeyService]
	if service.GetAnnotations()["example.com/load-balancer"] != "1" {
		t.Error("the annotation that was added is gone")
	}
	// The controller lets go of its Service, or it could not be deleted.
	if err := c.MergePatch(t.Context(), service, `{"metadata":{"finalizers":null}}`); err != nil {
		t.Fatal(err)
	}
}

func object(apiVersion, kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}
