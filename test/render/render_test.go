// Package render renders and validates the examples with the real CLI and Crossplane's own engine,
// against the function as it is served. It is a module of its own because it needs both of them
// built, which takes minutes the first time.
package render

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const repository = "../.."

// always are the resources that a gateway is made of, the seed only where it brings none. Crossplane
// knows them by these keys: one that is renamed is deleted and created again in every cluster.
var always = []string{"config", "deployment", "role", "role-binding", "seed", "service", "service-account", "status"}

type object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name            string            `json:"name"`
		Namespace       string            `json:"namespace"`
		Annotations     map[string]string `json:"annotations"`
		OwnerReferences []struct {
			Kind string `json:"kind"`
			Name string `json:"name"`
		} `json:"ownerReferences"`
	} `json:"metadata"`
	Spec struct {
		Keys struct {
			SeedSecretRef *struct{} `json:"seedSecretRef"`
		} `json:"keys"`
	} `json:"spec"`
	Status struct {
		Conditions []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

func examples(t *testing.T) []string {
	t.Helper()

	found, err := filepath.Glob(filepath.Join(repository, "example", "*", "xr.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	if len(found) == 0 {
		t.Fatal("want examples, got none")
	}

	return found
}

func TestRender(t *testing.T) {
	for _, file := range examples(t) {
		example := filepath.Dir(file)

		t.Run(filepath.Base(example), func(t *testing.T) {
			objects := parse(t, run(t, "./render.sh", example))
			if len(objects) < 2 {
				t.Fatalf("want a composite resource and what it is made of, got %+v", objects)
			}

			xr, composed := objects[0], objects[1:]

			conditions := map[string]string{}
			for _, condition := range xr.Status.Conditions {
				conditions[condition.Type] = condition.Status
			}

			// The engine adds this one itself when the whole pipeline went through.
			if conditions["Synced"] != "True" {
				t.Errorf("want a composite resource that is synced, got conditions %v", conditions)
			}

			var keys []string

			for _, o := range composed {
				key := o.Metadata.Annotations[keyAnnotation]
				keys = append(keys, key)

				if o.Metadata.Namespace != xr.Metadata.Namespace {
					t.Errorf("%s: want namespace %q, got %q", key, xr.Metadata.Namespace, o.Metadata.Namespace)
				}

				if len(o.Metadata.OwnerReferences) != 1 || o.Metadata.OwnerReferences[0].Name != xr.Metadata.Name {
					t.Errorf("%s: want %s as only owner, got %+v", key, xr.Metadata.Name, o.Metadata.OwnerReferences)
				}
			}

			if xr.Kind != "WireguardGateway" {
				return
			}

			want := slices.Clone(always)
			if xr.Spec.Keys.SeedSecretRef != nil {
				want = slices.DeleteFunc(want, func(key string) bool { return key == "seed" })
			}

			slices.Sort(keys)

			got := slices.DeleteFunc(keys, func(key string) bool { return !slices.Contains(always, key) })
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("resources of every gateway: -want, +got:\n%s", diff)
			}
		})
	}
}

// TestValidate runs the examples through the schema and the rules that the API server enforces.
// Rendering does neither.
func TestValidate(t *testing.T) {
	run(t, filepath.Join(repository, "tools", "build.sh"), "crossplane")

	definition := filepath.Join(repository, "package", "configuration", "definition.yaml")

	for _, file := range examples(t) {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			// Without an image the CLI takes the schemas that it is given, and downloads none.
			run(t, filepath.Join(repository, "_output", "bin", "crossplane"),
				"resource", "validate", definition, file, "--crossplane-image=")
		})
	}
}

func run(t *testing.T, name string, args ...string) []byte {
	t.Helper()

	var stdout, stderr bytes.Buffer

	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr

	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", cmd, err, stdout.Bytes(), stderr.Bytes())
	}

	return stdout.Bytes()
}

func parse(t *testing.T, stream []byte) []object {
	t.Helper()

	return documents[object](t, stream)
}

// documents reads a stream of YAML documents.
func documents[T any](t *testing.T, stream []byte) []T {
	t.Helper()

	var out []T

	for document := range strings.SplitSeq("\n"+string(stream), "\n---\n") {
		if strings.TrimSpace(document) == "" {
			continue
		}

		var o T
		if err := yaml.Unmarshal([]byte(document), &o); err != nil {
			t.Fatal(err)
		}

		out = append(out, o)
	}

	return out
}
