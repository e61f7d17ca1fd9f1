package offline

import (
	"bufio"
	"bytes"
	"io"
	"os"

	"github.com/crossplane/function-sdk-go/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// ReadObjects reads a file of YAML documents, one object each. The items of a
// List, as `kubectl get -o yaml` prints it, are read as if they stood alone.
func ReadObjects(path string) ([]*unstructured.Unstructured, error) {
	b, err := os.ReadFile(path) //nolint:gosec // The user names the file.
	if err != nil {
		return nil, errors.Wrap(err, "cannot read objects")
	}
	var out []*unstructured.Unstructured
	for r := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(b))); ; {
		doc, err := r.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, errors.Wrapf(err, "cannot read %s", path)
		}
		m := map[string]any{}
		if err := yaml.Unmarshal(doc, &m); err != nil {
			return nil, errors.Wrapf(err, "cannot read %s", path)
		}
		if len(m) == 0 {
			continue
		}
		o := &unstructured.Unstructured{Object: m}
		if !o.IsList() {
			out = append(out, o)
			continue
		}
		l, err := o.ToList()
		if err != nil {
			return nil, errors.Wrapf(err, "cannot read %s", path)
		}
		for i := range l.Items {
			out = append(out, &l.Items[i])
		}
	}
}

// ReadObject reads a file of one object.
func ReadObject(path string) (*unstructured.Unstructured, error) {
	os, err := ReadObjects(path)
	if err != nil {
		return nil, err
	}
	if len(os) != 1 {
		return nil, errors.Errorf("%s has %d objects, and needs one", path, len(os))
	}
	return os[0], nil
}

// InputOf returns the input of a Composition's first step, nil where it has
// none.
func InputOf(composition *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	steps, _, err := unstructured.NestedSlice(composition.Object, "spec", "pipeline")
	if err != nil {
		return nil, errors.Wrap(err, "cannot read the Composition's pipeline")
	}
	if len(steps) == 0 {
		return nil, errors.New("the Composition has no pipeline")
	}
	step, ok := steps[0].(map[string]any)
	if !ok {
		return nil, errors.New("cannot read the Composition's first step")
	}
	in, ok := step["input"].(map[string]any)
	if !ok {
		return nil, nil //nolint:nilnil // The input is optional.
	}
	return &unstructured.Unstructured{Object: in}, nil
}
