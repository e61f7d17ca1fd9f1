// Package crd tells whether an API server takes an object, by the definition of
// its kind and without a server.
package crd

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/yaml"
)

// Folder returns where the module of a requirement is. Definitions ship beside
// the code that they are for.
func Folder(tb testing.TB, module string) string {
	tb.Helper()
	out, err := exec.CommandContext(tb.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		tb.Fatal(err)
	}
	if dir := strings.TrimSpace(string(out)); dir != "" {
		return dir
	}
	tb.Fatalf("%s is not downloaded", module)
	return ""
}

// Definition treats objects of one kind as an API server does that has its
// definition.
type Definition struct {
	structural *structuralschema.Structural
	strategy   rest.RESTCreateStrategy
}

// Read reads a file with the definition of one kind, and takes the given version
// of it.
func Read(tb testing.TB, file, version string) *Definition {
	tb.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	crd := &extv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(b, crd); err != nil {
		tb.Fatal(err)
	}
	i := slices.IndexFunc(crd.Spec.Versions, func(v extv1.CustomResourceDefinitionVersion) bool { return v.Name == version })
	if i < 0 || !crd.Spec.Versions[i].Served {
		tb.Fatalf("%s does not serve %s", file, version)
	}
	internal := &apiextensions.JSONSchemaProps{}
	if err := extv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[i].Schema.OpenAPIV3Schema, internal, nil); err != nil {
		tb.Fatal(err)
	}
	d := &Definition{}
	if d.structural, err = structuralschema.NewStructural(internal); err != nil {
		tb.Fatal(err)
	}
	validator, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		tb.Fatal(err)
	}
	d.strategy = customresource.NewStrategy(runtime.NewScheme(), true,
		schema.GroupVersionKind{Group: crd.Spec.Group, Version: version, Kind: crd.Spec.Names.Kind},
		validator, validator, d.structural, nil, nil, nil)
	return d
}

// Refuse tells what is wrong with an object: what the schema or its rules
// refuse, what they would drop, and what they would add to a list that is
// atomic. Such a list is owned as a whole, so what is added would be taken away
// with each apply.
func (d *Definition) Refuse(tb testing.TB, object map[string]any) (bad []string) {
	tb.Helper()
	u := &unstructured.Unstructured{Object: asJSON(tb, object)}
	for _, dropped := range pruning.PruneWithOptions(u.Object, d.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		bad = append(bad, "unknown field "+dropped)
	}
	before := u.DeepCopy()
	defaulting.Default(u.Object, d.structural)
	bad = append(bad, defaulted("", d.structural, before.Object, u.Object)...)
	ctx := genericapirequest.WithNamespace(context.Background(), u.GetNamespace())
	for _, err := range d.strategy.Validate(ctx, u) {
		bad = append(bad, err.Error())
	}
	return bad
}

// defaulted tells which atomic lists differ.
func defaulted(path string, s *structuralschema.Structural, before, after any) (bad []string) {
	switch before := before.(type) {
	case map[string]any:
		after, _ := after.(map[string]any)
		for key, v := range before {
			// Metadata is not the schema's.
			if p, ok := s.Properties[key]; ok {
				bad = append(bad, defaulted(path+"."+key, &p, v, after[key])...)
			}
		}
	case []any:
		if kind := s.XListType; kind == nil || *kind == "atomic" {
			if diff := cmp.Diff(before, after); diff != "" {
				bad = append(bad, fmt.Sprintf("%s is atomic and changed by defaults: -, +:\n%s", path, diff))
			}
			return bad
		}
		after, _ := after.([]any)
		for i, v := range before {
			bad = append(bad, defaulted(fmt.Sprintf("%s[%d]", path, i), s.Items, v, after[i])...)
		}
	}
	return bad
}

// asJSON returns a copy with the number types that an API server reads.
func asJSON(tb testing.TB, object map[string]any) map[string]any {
	tb.Helper()
	b, err := (&unstructured.Unstructured{Object: object}).MarshalJSON()
	if err != nil {
		tb.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(b); err != nil {
		tb.Fatal(err)
	}
	return u.Object
}
