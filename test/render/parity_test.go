package render

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// keyAnnotation names a resource among those that a composite resource is made of.
const keyAnnotation = "crossplane.io/composition-resource-name"

// TestParity shows that what `function render` prints is what Crossplane's own engine makes of each
// example. Both are given the same seed, since that of a new gateway is random.
func TestParity(t *testing.T) {
	for _, file := range examples(t) {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			example := withSeed(t, filepath.Dir(file))

			theirs := composed(t, run(t, "./render.sh", example))
			ours := composed(t, run(t, filepath.Join(repository, "_output", "bin", "function"), "render",
				filepath.Join(example, "xr.yaml"),
				"--required", filepath.Join(example, "required.yaml"),
				"--composition", compositionOf(t, file)))

			if len(theirs) == 0 {
				t.Fatal("want composed resources, got none")
			}

			if diff := cmp.Diff(theirs, ours); diff != "" {
				t.Errorf("-what the engine applies, +what is printed:\n%s", diff)
			}
		})
	}
}

// withSeed copies an example, and adds the seed to what its gateway can read.
func withSeed(t *testing.T, example string) string {
	t.Helper()

	dir := t.TempDir()

	xr, err := os.ReadFile(filepath.Join(example, "xr.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	required, err := os.ReadFile(filepath.Join(example, "required.yaml"))
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}

	gateway := parse(t, xr)[0].Metadata
	seed := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{7}, 32))
	required = fmt.Appendf(required, `
---
apiVersion: v1
kind: Secret
metadata: {name: %s-wireguard.seed, namespace: %s}
data: {seed: %s}
`, gateway.Name, gateway.Namespace, seed)

	for name, content := range map[string][]byte{"xr.yaml": xr, "required.yaml": required} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}

	return dir
}

// composed returns the objects of a stream that the composite resource is made of, by key and
// without what only Crossplane adds.
func composed(t *testing.T, stream []byte) map[string]map[string]any {
	t.Helper()

	objects := map[string]map[string]any{}

	for _, o := range documents[map[string]any](t, stream) {
		metadata, _ := o["metadata"].(map[string]any)
		annotations, _ := metadata["annotations"].(map[string]any)

		key, ok := annotations[keyAnnotation].(string)
		if !ok {
			continue
		}

		delete(metadata, "ownerReferences")
		delete(metadata, "generateName")

		if labels, ok := metadata["labels"].(map[string]any); ok {
			delete(labels, "crossplane.io/composite")
		}

		// The engine makes up a UID for the composite resource, which an attachment depends on.
		if data, ok := o["data"].(map[string]any); ok && key == "attachment" {
			delete(data, "uid")
			delete(data, "mac")
		}

		objects[key] = o
	}

	return objects
}

var kindOf = regexp.MustCompile(`(?m)^kind: (\w+)$`)

// compositionOf finds the composition for the kind that an example is of.
func compositionOf(t *testing.T, xr string) string {
	t.Helper()

	b, err := os.ReadFile(xr)
	if err != nil {
		t.Fatal(err)
	}

	kind := kindOf.FindSubmatch(b)
	if kind == nil {
		t.Fatalf("%s has no kind", xr)
	}

	files, err := filepath.Glob(filepath.Join(repository, "package", "configuration", "composition*.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	for _, file := range files {
		composition, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}

		if bytes.Contains(composition, fmt.Appendf(nil, "\n    kind: %s\n", kind[1])) {
			return file
		}
	}

	t.Fatalf("no composition for %s", kind[1])

	return ""
}
