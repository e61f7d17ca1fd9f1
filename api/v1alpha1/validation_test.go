package v1alpha1_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apiextensions-apiserver/pkg/registry/customresource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericapirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/yaml"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1/apitest"
)

// server treats objects of one kind as an API server does.
type server struct {
	kind       string
	namespaced bool
	structural *structuralschema.Structural
	strategy   strategy
}

// strategy is as much as we need of what the API server has for each kind.
type strategy interface {
	rest.RESTCreateStrategy
	rest.RESTUpdateStrategy
}

func newServer(t *testing.T, crd *extv1.CustomResourceDefinition) *server {
	t.Helper()
	in := internal(t, crd)
	v := in.Spec.Versions[0]
	s := &server{kind: in.Spec.Names.Kind, namespaced: crd.Spec.Scope == extv1.NamespaceScoped}
	props := in.Spec.Validation.OpenAPIV3Schema
	var err error
	if s.structural, err = structuralschema.NewStructural(props); err != nil {
		t.Fatal(err)
	}
	validator, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		t.Fatal(err)
	}
	status := props.Properties["status"]
	statusValidator, _, err := validation.NewSchemaValidator(&status)
	if err != nil {
		t.Fatal(err)
	}
	gvk := schema.GroupVersionKind{Group: in.Spec.Group, Version: v.Name, Kind: in.Spec.Names.Kind}
	s.strategy = customresource.NewStrategy(runtime.NewScheme(), s.namespaced, gvk,
		validator, statusValidator, s.structural, in.Spec.Subresources.Status, nil, nil)
	return s
}

// read prunes and defaults an object, and names the fields that it dropped.
func (s *server) read(object map[string]any) (*unstructured.Unstructured, []string) {
	u := &unstructured.Unstructured{Object: runtime.DeepCopyJSON(normalised(object))}
	u.SetKind(s.kind)
	if !s.namespaced {
		// This is how Crossplane names what it creates for a claim.
		u.SetName(u.GetName() + "-x7k2p")
		u.SetNamespace("")
	}
	dropped := pruning.PruneWithOptions(u.Object, s.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	defaulting.PruneNonNullableNullsWithoutDefaults(u.Object, s.structural)
	defaulting.Default(u.Object, s.structural)
	return u, dropped
}

// normalised has the number types that decoding JSON yields.
func normalised(object map[string]any) map[string]any {
	b, err := yaml.Marshal(object)
	if err != nil {
		panic(err)
	}
	b, err = yaml.YAMLToJSON(b)
	if err != nil {
		panic(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(b); err != nil {
		panic(err)
	}
	return u.Object
}

func (s *server) context(u *unstructured.Unstructured) context.Context {
	return genericapirequest.WithNamespace(context.Background(), u.GetNamespace())
}

// apply creates the object, or updates the old one if there is any.
func (s *server) apply(object, old map[string]any) (errs field.ErrorList, dropped []string) {
	u, dropped := s.read(object)
	if old == nil {
		return s.strategy.Validate(s.context(u), u), dropped
	}
	o, _ := s.read(old)
	o.SetResourceVersion("1")
	u.SetResourceVersion("1")
	return s.strategy.ValidateUpdate(s.context(u), u, o), dropped
}

// servers are those of gateways, one for each kind that they have.
func servers(t *testing.T) map[string]*server {
	t.Helper()
	out := map[string]*server{}
	for kind, crd := range crds(t) {
		if strings.HasSuffix(kind, v1alpha1.GatewayKind) {
			out[kind] = newServer(t, crd)
		}
	}
	return out
}

func TestInvalid(t *testing.T) {
	for flavour, s := range servers(t) {
		for _, c := range apitest.Invalid() {
			t.Run(flavour+"/"+c.Reason, func(t *testing.T) {
				if old := c.OldObject(); old != nil {
					if errs, _ := s.apply(old, nil); len(errs) > 0 {
						t.Fatalf("the old object is refused: %v", errs)
					}
				}
				errs, dropped := s.apply(c.Object(), c.OldObject())
				if len(dropped) > 0 {
					t.Errorf("unknown fields: %v", dropped)
				}
				for _, err := range errs {
					message := err.Error()
					if strings.Contains(message, "failed rule") || strings.Contains(message, "no such key") || strings.Contains(message, "evaluat") {
						t.Errorf("no message for people: %s", message)
					}
					if err.Field == c.Field && strings.Contains(message, c.Value) && strings.Contains(message, c.Says) {
						return
					}
				}
				t.Errorf("%s\n%s: want an error at %s with %q and %q, got %v", c.Reason, c.Spec, c.Field, c.Value, c.Says, errs)
			})
		}
	}
}

func TestValid(t *testing.T) {
	for flavour, s := range servers(t) {
		for _, c := range append(apitest.Valid(), apitest.FunctionOnly()...) {
			t.Run(flavour+"/"+c.Reason, func(t *testing.T) {
				errs, dropped := s.apply(c.Object(), c.OldObject())
				if len(dropped) > 0 {
					t.Errorf("unknown fields: %v", dropped)
				}
				for _, err := range errs {
					t.Errorf("%s\n%s: %v", c.Reason, c.Spec, err)
				}
			})
		}
	}
}

// Every example that is a gateway is one for the API server.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../example/*/xr.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("there is no example")
	}
	s := servers(t)["configuration/WireguardGateway"]
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for doc := range strings.SplitSeq(string(b), "\n---\n") {
				var object map[string]any
				if err := yaml.UnmarshalStrict([]byte(doc), &object); err != nil {
					t.Fatal(err)
				}
				if object == nil || object["kind"] != s.kind {
					continue
				}
				errs, dropped := s.apply(object, nil)
				for _, field := range dropped {
					t.Errorf("%s: unknown field %s", file, field)
				}
				for _, err := range errs {
					t.Errorf("%s: %v", file, err)
				}
			}
		})
	}
}
