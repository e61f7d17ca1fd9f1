package v1alpha1_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/xcrd"
	xpv1 "github.com/crossplane/crossplane/apis/v2/apiextensions/v1"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	"sigs.k8s.io/yaml"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
)

const packages = "../../package"

func readText(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{packages}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func readYAML(t *testing.T, into any, path ...string) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(readText(t, path...)), into); err != nil {
		t.Fatal(err)
	}
}

// definitions reads those of a flavour. Crossplane serves both versions of its
// own API from this one type.
func definitions(t *testing.T, flavour string) []*xpv1.CompositeResourceDefinition {
	t.Helper()
	var all []*xpv1.CompositeResourceDefinition
	for doc := range strings.SplitSeq(readText(t, flavour, "definition.yaml"), "\n---\n") {
		xrd := &xpv1.CompositeResourceDefinition{}
		if err := yaml.UnmarshalStrict([]byte(doc), xrd); err != nil {
			t.Fatal(err)
		}
		if xrd.Kind == "" {
			continue
		}
		xrd.SetUID("1")
		all = append(all, xrd)
	}
	return all
}

// gatewayDefinition is that of gateways.
func gatewayDefinition(t *testing.T, flavour string) *xpv1.CompositeResourceDefinition {
	t.Helper()
	for _, xrd := range definitions(t, flavour) {
		if strings.HasSuffix(xrd.Spec.Names.Kind, v1alpha1.GatewayKind) {
			return xrd
		}
	}
	t.Fatalf("%s defines no gateway", flavour)
	return nil
}

// crds returns what Crossplane makes of our definitions, by flavour and kind.
func crds(t *testing.T) map[string]*extv1.CustomResourceDefinition {
	t.Helper()
	out := map[string]*extv1.CustomResourceDefinition{}
	for _, flavour := range []string{"configuration", "configuration-claim"} {
		for _, xrd := range definitions(t, flavour) {
			crd, err := xcrd.ForCompositeResource(xrd)
			if err != nil {
				t.Fatal(err)
			}
			out[flavour+"/"+crd.Spec.Names.Kind] = crd
			if xrd.Spec.ClaimNames == nil {
				continue
			}
			if crd, err = xcrd.ForCompositeResourceClaim(xrd); err != nil {
				t.Fatal(err)
			}
			out[flavour+"/"+crd.Spec.Names.Kind] = crd
		}
	}
	return out
}

// internal returns a definition as the API server holds it.
func internal(t *testing.T, crd *extv1.CustomResourceDefinition) *apiextensions.CustomResourceDefinition {
	t.Helper()
	crd = crd.DeepCopy()
	extv1.SetDefaults_CustomResourceDefinition(crd)
	extv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
	for _, v := range crd.Spec.Versions {
		crd.Status.StoredVersions = append(crd.Status.StoredVersions, v.Name)
	}
	in := &apiextensions.CustomResourceDefinition{}
	if err := extv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd, in, nil); err != nil {
		t.Fatal(err)
	}
	return in
}

// An API server takes the definitions. It refuses schemas that are not
// structural, rules that do not compile, and such that cost too much.
func TestDefinitionsAreAccepted(t *testing.T) {
	for kind, crd := range crds(t) {
		t.Run(kind, func(t *testing.T) {
			for _, err := range validation.ValidateCustomResourceDefinition(context.Background(), internal(t, crd)) {
				t.Errorf("%s: %s", err.Field, err.Detail)
			}
		})
	}
}

func TestFlavours(t *testing.T) {
	namespaced, claim := gatewayDefinition(t, "configuration"), gatewayDefinition(t, "configuration-claim")
	type flavour struct {
		APIVersion, Name, Scope, Kind, Plural string
		Claim                                 *extv1.CustomResourceDefinitionNames
	}
	of := func(x *xpv1.CompositeResourceDefinition) flavour {
		return flavour{x.APIVersion, x.Name, string(*x.Spec.Scope), x.Spec.Names.Kind, x.Spec.Names.Plural, x.Spec.ClaimNames}
	}
	names := extv1.CustomResourceDefinitionNames{Kind: v1alpha1.GatewayKind, Plural: "wireguardgateways", ShortNames: []string{"wgw"}}
	want := []flavour{
		{"apiextensions.crossplane.io/v2", "wireguardgateways.wireguardgateway.io", "Namespaced", v1alpha1.GatewayKind, "wireguardgateways", nil},
		{"apiextensions.crossplane.io/v1", "xwireguardgateways.wireguardgateway.io", "LegacyCluster", v1alpha1.CompositeGatewayKind, "xwireguardgateways", &names},
	}
	if diff := cmp.Diff(want, []flavour{of(namespaced), of(claim)}); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if diff := cmp.Diff(names.ShortNames, namespaced.Spec.Names.ShortNames); diff != "" {
		t.Errorf("short names, -want +got:\n%s", diff)
	}

	// Both are made of the same types.
	specs := map[string]string{}
	for _, f := range []string{"configuration", "configuration-claim"} {
		for _, n := range gatewaySchema(t, f) {
			if n.path == ".spec" {
				b, err := json.Marshal(n.schema)
				if err != nil {
					t.Fatal(err)
				}
				specs[f] = string(b)
			}
		}
	}
	if specs["configuration"] != specs["configuration-claim"] {
		t.Error("the flavours have different specs")
	}
}

// A name that fits a claim fits what Crossplane creates for it. Crossplane
// gives claims the schema of what they claim; a rule holds them to what is left
// of it.
func TestNameLengths(t *testing.T) {
	for kind, crd := range crds(t) {
		want := int64(v1alpha1.MaxNameLength)
		if strings.HasPrefix(kind, "configuration-claim/") {
			want += int64(len("-x7k2p"))
		}
		if got := *crd.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["metadata"].Properties["name"].MaxLength; got != want {
			t.Errorf("%s: names may have %d characters, want %d", kind, got, want)
		}
	}
}
