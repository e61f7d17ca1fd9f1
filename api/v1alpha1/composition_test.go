package v1alpha1_test

import (
	"encoding/json"
	"strings"
	"testing"

	xpv1 "github.com/crossplane/crossplane/apis/v2/apiextensions/v1"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/input/v1beta1"
)

// A Composition names the function as Crossplane does when it installs the
// function as a dependency of the same package: after the repository, without
// the registry. And there is one for each kind.
func TestCompositions(t *testing.T) {
	for _, flavour := range []string{"configuration", "configuration-claim"} {
		t.Run(flavour, func(t *testing.T) {
			var configuration struct {
				Spec struct {
					DependsOn []struct {
						Kind, Package string
					}
				}
			}
			if err := yaml.Unmarshal([]byte(readText(t, flavour, "crossplane.yaml")), &configuration); err != nil {
				t.Fatal(err)
			}
			if d := configuration.Spec.DependsOn; len(d) != 1 || d[0].Kind != "Function" {
				t.Fatalf("want one function to depend on, got %v", d)
			}
			_, repository, _ := strings.Cut(configuration.Spec.DependsOn[0].Package, "/")
			function := strings.ReplaceAll(repository, "/", "-")

			// Of several that it could take, Crossplane takes any, unless one is the default.
			want, got := map[string]xpv1.TypeReference{}, map[string]xpv1.TypeReference{}
			for _, xrd := range definitions(t, flavour) {
				if xrd.Spec.DefaultCompositionRef == nil {
					t.Fatalf("%s has no default", xrd.Name)
				}
				want[xrd.Spec.DefaultCompositionRef.Name] = xpv1.TypeReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: xrd.Spec.Names.Kind}
			}
			var inputs []string
			for _, file := range []string{"composition.yaml", "composition-peer.yaml"} {
				c := &xpv1.Composition{}
				readYAML(t, c, flavour, file)
				got[c.Name] = c.Spec.CompositeTypeRef
				if len(c.Spec.Pipeline) != 1 {
					t.Fatalf("%s: want one step, got %d", c.Name, len(c.Spec.Pipeline))
				}
				step := c.Spec.Pipeline[0]
				if step.FunctionRef.Name != function {
					t.Errorf("%s: the function is called %q, Crossplane installs it as %q", c.Name, step.FunctionRef.Name, function)
				}
				checkInput(t, step.Input.Raw)
				inputs = append(inputs, string(step.Input.Raw))
			}
			// A peer's configurations follow from the same defaults as its gateway.
			if diff := cmp.Diff(inputs[0], inputs[1]); diff != "" {
				t.Errorf("inputs, -gateway's +peer's:\n%s", diff)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("kinds, -want +got:\n%s", diff)
			}
		})
	}
}

// checkInput makes sure that an input shows every field, and no other.
func checkInput(t *testing.T, raw []byte) {
	t.Helper()
	if err := yaml.UnmarshalStrict(raw, &v1beta1.Input{}); err != nil {
		t.Error(err)
	}
	var shown map[string]any
	if err := json.Unmarshal(raw, &shown); err != nil {
		t.Fatal(err)
	}
	for _, n := range inputSchema(t) {
		if !strings.HasPrefix(n.path, ".spec.") || strings.HasSuffix(n.path, "[]") {
			continue
		}
		if _, found, err := unstructured.NestedFieldNoCopy(shown, strings.Split(n.path, ".")[1:]...); err != nil || !found {
			t.Errorf("the input does not show %s", n.path)
		}
	}
}
