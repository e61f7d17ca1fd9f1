package v1alpha1

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/xcrd"
	xpv1 "github.com/crossplane/crossplane/apis/v2/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"
)

// crds returns what Crossplane makes of our definitions, by kind.
func crds(t *testing.T) map[string]*extv1.CustomResourceDefinition {
	t.Helper()
	out := map[string]*extv1.CustomResourceDefinition{}
	for folder, claim := range map[string]bool{"configuration": false, "configuration-claim": true} {
		b, err := os.ReadFile(filepath.Join("../../package", folder, "definition.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		// Crossplane serves both versions of its own API from this one type.
		xrd := &xpv1.CompositeResourceDefinition{}
		xrd.SetUID("1")
		if err := yaml.UnmarshalStrict(b, xrd); err != nil {
			t.Fatal(err)
		}
		crd, err := xcrd.ForCompositeResource(xrd)
		if err != nil {
			t.Fatal(err)
		}
		out[folder+"/"+crd.Spec.Names.Kind] = crd
		if !claim {
			continue
		}
		crd, err = xcrd.ForCompositeResourceClaim(xrd)
		if err != nil {
			t.Fatal(err)
		}
		out[folder+"/"+crd.Spec.Names.Kind] = crd
	}
	return out
}

func internal(t *testing.T, crd *extv1.CustomResourceDefinition) *apiextensions.CustomResourceDefinition {
	t.Helper()
	crd = crd.DeepCopy()
	extv1.SetDefaults_CustomResourceDefinition(crd)
	extv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
	for i := range crd.Spec.Versions {
		if crd.Spec.Versions[i].Storage {
			crd.Status.StoredVersions = append(crd.Status.StoredVersions, crd.Spec.Versions[i].Name)
		}
	}
	in := &apiextensions.CustomResourceDefinition{}
	if err := extv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, in, nil); err != nil {
		t.Fatal(err)
	}
	return in
}

func TestDefinitionsAccepted(t *testing.T) {
	for kind, crd := range crds(t) {
		t.Run(kind, func(t *testing.T) {
			for _, err := range validation.ValidateCustomResourceDefinition(context.Background(), internal(t, crd)) {
				if len(err.Error()) > 600 {
					t.Errorf("%s %s", err.Field, err.Detail)
					continue
				}
				t.Error(err)
			}
		})
	}
}

func TestCosts(t *testing.T) {
	for kind, crd := range crds(t) {
		in := internal(t, crd)
		s := in.Spec.Validation.OpenAPIV3Schema
		env := environment.MustBaseEnvSet(version.MajorMinor(1, 30))
		ctx := validation.RootCELContext(s)
		var total uint64
		var walk func(path string, s *apiextensions.JSONSchemaProps, ctx *validation.CELSchemaContext)
		walk = func(path string, s *apiextensions.JSONSchemaProps, ctx *validation.CELSchemaContext) {
			if len(s.XValidations) > 0 {
				ss, err := structuralschema.NewStructural(s)
				if err != nil {
					t.Fatal(err)
				}
				res, err := cel.Compile(ss, model.SchemaDeclType(ss, path == ""), celconfig.PerCallLimit, env, cel.NewExpressionsEnvLoader())
				if err != nil {
					t.Fatal(err)
				}
				for i, r := range res {
					if r.Error != nil {
						t.Errorf("%s: %v", path, r.Error)
					}
					if r.MessageExpressionError != nil {
						t.Errorf("%s: %v", path, r.MessageExpressionError)
					}
					card := uint64(1)
					if ctx.MaxCardinality != nil {
						card = *ctx.MaxCardinality
					}
					c, m := r.MaxCost*card, r.MessageExpressionMaxCost
					total += c + m
					fmt.Printf("%-12s %10d %10d x%-8d %s[%d]\n", kind[:12], c, m, card, path, i)
				}
			}
			for n, p := range s.Properties {
				walk(path+"."+n, &p, ctx.ChildPropertyContext(&p, n))
			}
			if s.Items != nil {
				walk(path+"[]", s.Items.Schema, ctx.ChildItemsContext(s.Items.Schema))
			}
			if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
				walk(path+"{}", s.AdditionalProperties.Schema, ctx.ChildAdditionalPropertiesContext(s.AdditionalProperties.Schema))
			}
		}
		walk("", s, ctx)
		fmt.Println(kind, total)
	}
}
