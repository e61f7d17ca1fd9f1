package render_test

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/offline"
	"github.com/wireguardgateway/function-wireguard-gateway/test/crd"
)

// gatewayDefinitions are those of the release of the Gateway API that we use.
func gatewayDefinitions(tb testing.TB) map[string]*crd.Definition {
	tb.Helper()
	folder := filepath.Join(crd.Folder(tb, "sigs.k8s.io/gateway-api"), "config", "crd", "standard")
	return map[string]*crd.Definition{
		"HTTPRoute": crd.Read(tb, filepath.Join(folder, "gateway.networking.k8s.io_httproutes.yaml"), "v1"),
		"UDPRoute":  crd.Read(tb, filepath.Join(folder, "gateway.networking.k8s.io_udproutes.yaml"), "v1"),
	}
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
				for _, why := range d.Refuse(t, o.Object) {
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
			bad := definitions[o["kind"].(string)].Refuse(t, o)
			if !slices.ContainsFunc(bad, func(s string) bool { return strings.Contains(s, tc.says) }) {
				t.Errorf("want it refused for %q, got %q", tc.says, bad)
			}
		})
	}
}
