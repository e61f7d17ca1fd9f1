package render_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

	"github.com/wireguardgateway/function-wireguard-gateway/fn/offline"
)

// definition treats objects of one kind as an API server does that has its
// definition.
type definition struct {
	structural *structuralschema.Structural
	strategy   rest.RESTCreateStrategy
}

// gatewayDefinitions are those of the release of the Gateway API that we use.
func gatewayDefinitions(t testing.TB) map[string]*definition {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api").Output()
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(strings.TrimSpace(string(out)), "config", "crd", "standard")
	return map[string]*definition{
		"HTTPRoute": readDefinition(t, filepath.Join(folder, "gateway.networking.k8s.io_httproutes.yaml"), "v1"),
		"UDPRoute":  readDefinition(t, filepath.Join(folder, "gateway.networking.k8s.io_udproutes.yaml"), "v1"),
	}
}

func readDefinition(t testing.TB, file, version string) *definition {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	crd := &extv1.CustomResourceDefinition{}
	if err := yaml.Unmarshal(b, crd); err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(crd.Spec.Versions, func(v extv1.CustomResourceDefinitionVersion) bool { return v.Name == version })
	if i < 0 || !crd.Spec.Versions[i].Served {
		t.Fatalf("%s does not serve %s", file, version)
	}
	internal := &apiextensions.JSONSchemaProps{}
	if err := extv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(crd.Spec.Versions[i].Schema.OpenAPIV3Schema, internal, nil); err != nil {
		t.Fatal(err)
	}
	d := &definition{}
	if d.structural, err = structuralschema.NewStructural(internal); err != nil {
		t.Fatal(err)
	}
	validator, _, err := validation.NewSchemaValidator(internal)
	if err != nil {
		t.Fatal(err)
	}
	d.strategy = customresource.NewStrategy(runtime.NewScheme(), true,
		schema.GroupVersionKind{Group: crd.Spec.Group, Version: version, Kind: crd.Spec.Names.Kind},
		validator, validator, d.structural, nil, nil, nil)
	return d
}

// refuse tells what is wrong with an object: what the schema or its rules
// refuse, what they would drop, and what they would add to a list that is
// atomic. Such a list is owned as a whole, so what is added would be taken away
// with each apply.
func (d *definition) refuse(t testing.TB, object map[string]any) (bad []string) {
	t.Helper()
	u := &unstructured.Unstructured{Object: asJSON(t, object)}
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
		for key, v := range before {
			p, ok := s.Properties[key]
			if !ok {
				continue // metadata, which is not the schema's
			}
			bad = append(bad, defaulted(path+"."+key, &p, v, after.(map[string]any)[key])...)
		}
	case []any:
		if kind := s.XListType; kind == nil || *kind == "atomic" {
			if diff := cmp.Diff(before, after); diff != "" {
				bad = append(bad, fmt.Sprintf("%s is atomic and changed by defaults: -, +:\n%s", path, diff))
			}
			return bad
		}
		for i, v := range before {
			bad = append(bad, defaulted(fmt.Sprintf("%s[%d]", path, i), s.Items, v, after.([]any)[i])...)
		}
	}
	return bad
}

// asJSON returns a copy with the number types that an API server reads.
func asJSON(t testing.TB, object map[string]any) map[string]any {
	t.Helper()
	b, err := (&unstructured.Unstructured{Object: object}).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(b); err != nil {
		t.Fatal(err)
	}
	return u.Object
}

// routes are gateways beside those of testdata, with what only routes have.
var routes = map[string]string{
	"Listeners":   `{tunnel: {}, gateway: {hostname: a.example.com, parentRefs: [{name: a, namespace: b, sectionName: c}, {name: a, namespace: b, sectionName: d}, {name: e, sectionName: f, port: 443}]}}`,
	"OtherParent": `{tunnel: {pathPrefix: A.b_c~d-e}, gateway: {hostname: a.example.com, parentRefs: [{name: mesh, kind: Service, group: ""}], annotations: {a: b}}}`,
	"UDP":         `{listenPort: 443, gateway: {hostname: a.example.com, udpRoute: {enabled: true, port: 1, parentRefs: [{name: a}, {name: b, namespace: c, sectionName: d, port: 65535}]}}}`,
	"LongName":    `{tunnel: {}, gateway: {hostname: ` + strings.Repeat("a.", 126) + `a, parentRefs: [{name: a}], udpRoute: {enabled: true, parentRefs: [{name: a}]}}}`,
}

// TestRoutesAccepted holds that the Gateway API takes every route that is
// rendered, as it is.
func TestRoutesAccepted(t *testing.T) {
	definitions := gatewayDefinitions(t)
	seen := map[string]int{}
	check := func(t *testing.T, in offline.Request) {
		t.Helper()
		for _, o := range offline.Composed(in.Composite, run(t, in).rsp) {
			if d := definitions[o.GetKind()]; d != nil {
				seen[o.GetKind()]++
				for _, why := range d.refuse(t, o.Object) {
					t.Errorf("%s: %s", o.GetKind(), why)
				}
			}
		}
	}
	for _, c := range cases(t) {
		t.Run(c.name, func(t *testing.T) { check(t, c.in) })
	}
	for name, spec := range routes {
		t.Run(name, func(t *testing.T) {
			xr := &unstructured.Unstructured{Object: map[string]any{}}
			if err := yaml.Unmarshal([]byte(`{apiVersion: wireguardgateway.io/v1alpha1, kind: WireguardGateway, metadata: {name: `+strings.Repeat("g", 40)+`, namespace: vpn}, spec: `+spec+`}`), &xr.Object); err != nil {
				t.Fatal(err)
			}
			before := seen["HTTPRoute"] + seen["UDPRoute"]
			check(t, offline.Request{Composite: xr})
			if seen["HTTPRoute"]+seen["UDPRoute"] == before {
				t.Error("want a route, got none")
			}
		})
	}
	if seen["HTTPRoute"] < 3 || seen["UDPRoute"] < 3 {
		t.Errorf("want routes of both kinds, got %v", seen)
	}
}

// TestRoutesRefused holds that the check above can fail.
func TestRoutesRefused(t *testing.T) {
	definitions := gatewayDefinitions(t)
	c := caseNamed(t, "gateway-api")
	rsp := c.run(t).rsp
	first := func(o map[string]any, path ...string) map[string]any {
		for _, p := range path {
			switch v := o[p].(type) {
			case map[string]any:
				o = v
			case []any:
				o = v[0].(map[string]any)
			}
		}
		return o
	}
	for name, tc := range map[string]struct {
		key    string
		says   string
		breaks func(o map[string]any)
	}{
		"Weight":    {"http-route", ".spec.rules is atomic", func(o map[string]any) { delete(first(o, "spec", "rules", "backendRefs"), "weight") }},
		"WeightUDP": {"udp-route", ".spec.rules is atomic", func(o map[string]any) { delete(first(o, "spec", "rules", "backendRefs"), "weight") }},
		"Group":     {"http-route", ".spec.parentRefs is atomic", func(o map[string]any) { delete(first(o, "spec", "parentRefs"), "group") }},
		"Kind":      {"udp-route", ".spec.rules is atomic", func(o map[string]any) { delete(first(o, "spec", "rules", "backendRefs"), "kind") }},
		"MatchType": {"http-route", ".spec.rules is atomic", func(o map[string]any) { delete(first(o, "spec", "rules", "matches", "path"), "type") }},
		"Unknown":   {"http-route", "unknown field spec.hostname", func(o map[string]any) { first(o, "spec")["hostname"] = "a" }},
		"Hostname":  {"http-route", "spec.hostnames[0]", func(o map[string]any) { first(o, "spec")["hostnames"] = []any{"A.example.com"} }},
		"Timeout":   {"http-route", "timeouts.request", func(o map[string]any) { first(o, "spec", "rules", "timeouts")["request"] = "0" }},
		"Twice": {"http-route", "sectionName must be", func(o map[string]any) {
			l := first(o, "spec")
			l["parentRefs"] = append(l["parentRefs"].([]any), l["parentRefs"].([]any)[0])
		}},
		"NoPort":     {"udp-route", "Must have port for Service reference", func(o map[string]any) { delete(first(o, "spec", "rules", "backendRefs"), "port") }},
		"DoubleDash": {"http-route", "must not contain", func(o map[string]any) { first(o, "spec", "rules", "matches", "path")["value"] = "/a//b" }},
	} {
		t.Run(name, func(t *testing.T) {
			o := rsp.GetDesired().GetResources()[tc.key].GetResource().AsMap()
			o["metadata"].(map[string]any)["namespace"] = "vpn"
			tc.breaks(o)
			bad := definitions[o["kind"].(string)].refuse(t, o)
			if !slices.ContainsFunc(bad, func(s string) bool { return strings.Contains(s, tc.says) }) {
				t.Errorf("want it refused for %q, got %q", tc.says, bad)
			}
		})
	}
}
