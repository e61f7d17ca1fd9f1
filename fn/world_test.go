package fn

import (
	"encoding/base64"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/function-sdk-go/logging"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"sigs.k8s.io/yaml"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
)

// world is what Crossplane and a cluster know of one gateway, and do for it, as
// far as the function can tell.
type world struct {
	composite map[string]any
	objects   map[string]map[string]any // composed objects, by key
	nodes     []map[string]any
	// lacks are kinds that the cluster does not have. It is nil where Crossplane
	// is too old to tell.
	lacks map[string]bool
}

// newWorld has a gateway called home in the namespace vpn.
func newWorld(t *testing.T, spec string) *world {
	t.Helper()
	w := &world{
		composite: map[string]any{
			"apiVersion": "wireguardgateway.io/v1alpha1",
			"kind":       "WireguardGateway",
			"metadata":   map[string]any{"name": "home", "namespace": "vpn"},
		},
		lacks: map[string]bool{},
	}
	w.set(t, spec)
	return w
}

// set changes the gateway's spec as a whole.
func (w *world) set(t *testing.T, spec string) {
	t.Helper()
	s := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(spec), &s); err != nil {
		t.Fatal(err)
	}
	w.composite["spec"] = s
}

// run runs the function until its requirements are answered.
func (w *world) run(t *testing.T) *fnv1.RunFunctionResponse {
	t.Helper()
	f := New(logging.NewNopLogger(),
		WithClock(func() time.Time { return time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC) }),
		WithRandom(strings.NewReader(strings.Repeat("seed", 8))))
	var asked *fnv1.Requirements
	for range 5 {
		rsp, err := f.RunFunction(t.Context(), w.request(t, asked))
		if err != nil {
			t.Fatal(err)
		}
		if len(rsp.GetResults()) > 0 {
			t.Fatalf("want a quiet run, got %v", rsp.GetResults())
		}
		if proto.Equal(rsp.GetRequirements(), asked) {
			return rsp
		}
		if len(rsp.GetDesired().GetResources()) > 0 && asked == nil {
			t.Fatal("want nothing but requirements until they are answered, got desired resources")
		}
		asked = rsp.GetRequirements()
	}
	t.Fatal("the requirements do not settle")
	return nil
}

// request answers what was asked, if anything was.
func (w *world) request(t *testing.T, asked *fnv1.Requirements) *fnv1.RunFunctionRequest {
	t.Helper()
	req := &fnv1.RunFunctionRequest{
		Meta: &fnv1.RequestMeta{Capabilities: []fnv1.Capability{fnv1.Capability_CAPABILITY_CAPABILITIES, fnv1.Capability_CAPABILITY_REQUIRED_RESOURCES}},
		Observed: &fnv1.State{
			Composite: &fnv1.Resource{Resource: toStruct(t, w.composite)},
			Resources: map[string]*fnv1.Resource{},
		},
		RequiredResources: map[string]*fnv1.Resources{},
		RequiredSchemas:   map[string]*fnv1.Schema{},
	}
	if w.lacks != nil {
		req.Meta.Capabilities = append(req.Meta.Capabilities, fnv1.Capability_CAPABILITY_REQUIRED_SCHEMAS)
	}
	for key, o := range w.objects {
		req.Observed.Resources[key] = &fnv1.Resource{Resource: toStruct(t, o)}
	}
	for name, s := range asked.GetResources() {
		answer := &fnv1.Resources{}
		if s.GetKind() == "Node" {
			for _, n := range w.nodes {
				answer.Items = append(answer.Items, &fnv1.Resource{Resource: toStruct(t, n)})
			}
		}
		for _, o := range w.objects {
			if o["kind"] == s.GetKind() && o["metadata"].(map[string]any)["name"] == s.GetMatchName() {
				answer.Items = append(answer.Items, &fnv1.Resource{Resource: toStruct(t, o)})
			}
		}
		req.RequiredResources[name] = answer
	}
	for name, s := range asked.GetSchemas() {
		answer := &fnv1.Schema{}
		if !w.lacks[s.GetKind()] {
			answer.OpenapiV3 = toStruct(t, map[string]any{"type": "object"})
		}
		req.RequiredSchemas[name] = answer
	}
	return req
}

// reconcile runs the function and applies what it returns, until nothing
// changes any more, and returns what it said last.
func (w *world) reconcile(t *testing.T) *fnv1.RunFunctionResponse {
	t.Helper()
	for range 4 {
		rsp := w.run(t)
		before, status := w.objects, w.composite["status"]
		w.objects = map[string]map[string]any{}
		for key, r := range rsp.GetDesired().GetResources() {
			w.objects[key] = r.GetResource().AsMap()
			controllers(w.objects[key])
		}
		w.composite["status"] = rsp.GetDesired().GetComposite().GetResource().AsMap()["status"]
		if equalJSON(t, before, w.objects) && equalJSON(t, status, w.composite["status"]) {
			return rsp
		}
	}
	t.Fatal("the gateway does not settle")
	return nil
}

// controllers do what those of a cluster do to an object: a Service gets what
// its type promises.
func controllers(o map[string]any) {
	o["metadata"].(map[string]any)["namespace"] = "vpn"
	if o["kind"] != "Service" {
		return
	}
	spec := o["spec"].(map[string]any)
	switch spec["type"] {
	case "LoadBalancer":
		o["status"] = map[string]any{"loadBalancer": map[string]any{"ingress": []any{map[string]any{"ip": "203.0.113.80"}}}}
	case "NodePort":
		port := spec["ports"].([]any)[0].(map[string]any)
		if _, ok := port["nodePort"]; !ok {
			port["nodePort"] = 30123.0
		}
	}
}

func toStruct(t *testing.T, m map[string]any) *structpb.Struct {
	t.Helper()
	s, err := structpb.NewStruct(m)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func equalJSON(t *testing.T, a, b any) bool {
	t.Helper()
	return string(toJSON(t, a)) == string(toJSON(t, b))
}

func toJSON(t *testing.T, v any) []byte {
	t.Helper()
	b, err := yaml.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// desired returns the desired resources as YAML, by key.
func desired(t *testing.T, rsp *fnv1.RunFunctionResponse) map[string]string {
	t.Helper()
	out := map[string]string{}
	for key, r := range rsp.GetDesired().GetResources() {
		out[key] = string(toJSON(t, r.GetResource().AsMap()))
	}
	return out
}

func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func without(all []string, some ...string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(s string) bool { return slices.Contains(some, s) })
}

// data returns the data of a desired Secret in the clear.
func data(t *testing.T, rsp *fnv1.RunFunctionResponse, key string) map[string]string {
	t.Helper()
	out := map[string]string{}
	m, _ := rsp.GetDesired().GetResources()[key].GetResource().AsMap()["data"].(map[string]any)
	for k, v := range m {
		b, err := base64.StdEncoding.DecodeString(v.(string))
		if err != nil {
			t.Fatal(err)
		}
		out[k] = string(b)
	}
	return out
}

// conditionOf returns a condition as its status, reason and message.
func conditionOf(rsp *fnv1.RunFunctionResponse, name string) (status fnv1.Status, reason, message string) {
	for _, c := range rsp.GetConditions() {
		if c.GetType() == name {
			return c.GetStatus(), c.GetReason(), c.GetMessage()
		}
	}
	return fnv1.Status_STATUS_CONDITION_UNSPECIFIED, "", ""
}

// base are the keys of a gateway with one peer called laptop and no feature.
var base = []string{
	names.KeyConfig, names.KeyDeployment, "peer-laptop", names.KeyRole, names.KeyRoleBinding,
	names.KeySeed, names.KeyService, names.KeyServiceAccount, names.KeyStatus,
}
