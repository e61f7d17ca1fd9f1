package v1alpha1_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

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
	return serverOf(t, internal(t, crd))
}

func serverOf(t *testing.T, in *apiextensions.CustomResourceDefinition) *server {
	t.Helper()
	v := in.Spec.Versions[0]
	s := &server{kind: in.Spec.Names.Kind, namespaced: in.Spec.Scope == apiextensions.NamespaceScoped}
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
	return serversOf(t, v1alpha1.GatewayKind)
}

func serversOf(t *testing.T, user string) map[string]*server {
	t.Helper()
	out := map[string]*server{}
	for kind, crd := range crds(t) {
		if strings.HasSuffix(kind, user) {
			out[kind] = newServer(t, crd)
		}
	}
	return out
}

// kinds are those that users create, with what must be accepted and refused of
// them.
var kinds = map[string]struct{ valid, invalid []apitest.Case }{
	v1alpha1.GatewayKind: {append(apitest.Valid(), apitest.FunctionOnly()...), apitest.Invalid()},
	v1alpha1.PeerKind:    {apitest.ValidPeers(), apitest.InvalidPeers()},
}

func TestInvalid(t *testing.T) {
	for kind, specs := range kinds {
		for flavour, s := range serversOf(t, kind) {
			for _, c := range specs.invalid {
				t.Run(flavour+"/"+c.Reason, func(t *testing.T) { checkInvalid(t, s, c) })
			}
		}
	}
}

func checkInvalid(t *testing.T, s *server, c apitest.Case) {
	t.Helper()
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
		if strings.Contains(err.Detail, "failed rule") || strings.Contains(err.Detail, "rule evaluation error") {
			t.Errorf("no message for people: %v", err)
		}
	}
	if !refused(errs, c) {
		t.Errorf("%s\n%s: want an error at %s with %q and %q, got %v", c.Reason, c.Spec, c.Field, c.Value, c.Says, errs)
	}
}

// refused tells whether one of the errors is what the case wants.
func refused(errs field.ErrorList, c apitest.Case) bool {
	for _, err := range errs {
		if m := err.Error(); err.Field == c.Field && strings.Contains(m, c.Value) && strings.Contains(m, c.Says) {
			return true
		}
	}
	return false
}

// Without any one of the rules, some case would get through, or be refused
// without the words that help.
func TestEveryRuleIsNeeded(t *testing.T) {
	for kind, specs := range kinds {
		t.Run(kind, func(t *testing.T) { checkRules(t, kind, specs.invalid) })
	}
}

func checkRules(t *testing.T, kind string, invalid []apitest.Case) {
	t.Helper()
	whole := internal(t, crds(t)["configuration/"+kind])
	for n := 0; ; n++ {
		in := whole.DeepCopy()
		left := n
		rule := cutRule(in.Spec.Validation.OpenAPIV3Schema, &left)
		if rule == "" {
			if n == 0 {
				t.Fatal("there are no rules")
			}
			return
		}
		s := serverOf(t, in)
		if !slices.ContainsFunc(invalid, func(c apitest.Case) bool {
			errs, _ := s.apply(c.Object(), c.OldObject())
			return !refused(errs, c)
		}) {
			t.Errorf("no case needs the rule %q", rule)
		}
	}
}

// cutRule cuts out the rule of the given number, counted from 0, and returns
// it, or nothing if there are not so many.
func cutRule(s *apiextensions.JSONSchemaProps, n *int) string {
	if *n < len(s.XValidations) {
		rule := s.XValidations[*n].Rule
		s.XValidations = slices.Delete(s.XValidations, *n, *n+1)
		return rule
	}
	*n -= len(s.XValidations)
	for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
		p := s.Properties[name]
		if rule := cutRule(&p, n); rule != "" {
			s.Properties[name] = p
			return rule
		}
	}
	if s.Items != nil {
		return cutRule(s.Items.Schema, n)
	}
	return ""
}

func TestValid(t *testing.T) {
	for kind, specs := range kinds {
		for flavour, s := range serversOf(t, kind) {
			for _, c := range specs.valid {
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
}

// The API server stops counting at some cost, and refuses what it has not
// checked by then. The largest gateways that fit into etcd cost less.
func TestLargestGateways(t *testing.T) {
	s := servers(t)["configuration/WireguardGateway"]
	pools := map[string]any{"peerCIDR": "10.0.0.0/12", "peerCIDRv6": "fd00:8::/64"}
	peers := func(n int, peer func(i int) map[string]any) map[string]any {
		spec := maps.Clone(pools)
		list := make([]any, n)
		for i := range list {
			p := peer(i)
			p["name"] = fmt.Sprintf("peer-%d", i)
			list[i] = p
		}
		spec["peers"] = list
		return spec
	}
	list := func(n int, format string, first int) []any {
		l := make([]any, n)
		for i := range l {
			l[i] = fmt.Sprintf(format, (first+i)/256, (first+i)%256)
		}
		return l
	}
	for reason, spec := range map[string]map[string]any{
		"as many peers as there may be, with all that they usually have": peers(2000, func(i int) map[string]any {
			return map[string]any{
				"publicKey":    "hLkY5xO+1mFhPYYVIoSEEGuTjEXHQJmlLuDo2UDW2yE=",
				"presharedKey": map[string]any{"generate": true},
				"addresses":    []any{fmt.Sprintf("10.1.%d.%d", i/256, i%256), fmt.Sprintf("fd00:8::1:%x", i)},
				"allowedIPs":   []any{"10.42.0.0/16", "10.43.0.0/16", "fd00:43::/64"},
				"dns":          map[string]any{"servers": []any{"10.43.0.10"}, "searchDomains": []any{"example.com"}},
				"access":       []any{map[string]any{"action": "Accept", "protocol": "TCP", "to": map[string]any{"cidr": "10.43.0.0/16", "ports": []any{"443"}}}},
			}
		}),
		"sites with many networks": peers(250, func(i int) map[string]any {
			return map[string]any{
				"endpoint":           fmt.Sprintf("site-%d.example.com:51820", i),
				"advertisedEndpoint": map[string]any{"host": "vpn.example.com"},
				"allowedIPs":         list(64, "172.16.%d.%d/32", 64*i),
				"routes":             list(32, "192.168.%d.%d/32", 32*i),
			}
		}),
		"as many peers as there may be, each with a site": peers(2000, func(i int) map[string]any {
			return map[string]any{"endpoint": fmt.Sprintf("site-%d.example.com:51820", i), "routes": list(4, "192.168.%d.%d/32", 4*i)}
		}),
		"as many rules as there may be": peers(400, func(i int) map[string]any {
			rules := make([]any, 32)
			for j := range rules {
				rules[j] = map[string]any{"action": "Accept", "to": map[string]any{"cidr": fmt.Sprintf("10.43.%d.%d/32", i%256, j), "ports": []any{"443", "8000-8100"}}}
			}
			return map[string]any{"access": rules}
		}),
	} {
		t.Run(reason, func(t *testing.T) {
			c := apitest.Case{Spec: "{}"}
			object := c.Object()
			object["spec"] = spec
			b, err := json.Marshal(object)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d bytes", len(b))
			if errs, _ := s.apply(object, nil); len(errs) > 0 {
				t.Error(errs[0])
			}
		})
	}
}

// Every example is one for the API server.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../example/*/xr.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, beside := range []string{"gateway", "other"} {
		more, err := filepath.Glob("../../example/*/" + beside + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	if len(files) == 0 {
		t.Fatal("there is no example")
	}
	servers := map[string]*server{}
	for kind := range kinds {
		servers[kind] = serversOf(t, kind)["configuration/"+kind]
	}
	for _, file := range files {
		t.Run(filepath.Base(filepath.Dir(file))+"/"+filepath.Base(file), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for doc := range strings.SplitSeq(string(b), "\n---\n") {
				var object map[string]any
				if err := yaml.UnmarshalStrict([]byte(doc), &object); err != nil {
					t.Fatal(err)
				}
				s := servers[fmt.Sprint(object["kind"])]
				if s == nil {
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
