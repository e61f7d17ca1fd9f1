package v1alpha1_test

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crossplane/crossplane-runtime/v2/pkg/xcrd"
	xpv1 "github.com/crossplane/crossplane/apis/v2/apiextensions/v1"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/version"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
	"sigs.k8s.io/yaml"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/input/v1beta1"
)

const packages = "../../package"

// oldest are the rules that the oldest supported Kubernetes, 1.31, takes in new
// definitions: those of the release before, so that it can be rolled back.
var oldest = version.MajorMinor(1, 30)

func readYAML(t *testing.T, into any, path ...string) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{packages}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(b, into); err != nil {
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

// node is one schema within a schema. The path is that of the values that it
// describes.
type node struct {
	path   string
	schema *apiextensions.JSONSchemaProps
	cel    *validation.CELSchemaContext
}

// nodes returns all schemas within a schema, parents first.
func nodes(n node) []node {
	all := []node{n}
	for _, name := range slices.Sorted(maps.Keys(n.schema.Properties)) {
		p := n.schema.Properties[name]
		all = append(all, nodes(node{path: n.path + "." + name, schema: &p, cel: n.cel.ChildPropertyContext(&p, name)})...)
	}
	if n.schema.Items != nil {
		p := n.schema.Items.Schema
		all = append(all, nodes(node{path: n.path + "[]", schema: p, cel: n.cel.ChildItemsContext(p)})...)
	}
	if n.schema.AdditionalProperties != nil && n.schema.AdditionalProperties.Schema != nil {
		p := n.schema.AdditionalProperties.Schema
		all = append(all, nodes(node{path: n.path + "{}", schema: p, cel: n.cel.ChildAdditionalPropertiesContext(p)})...)
	}
	return all
}

func schemaOf(t *testing.T, crd *extv1.CustomResourceDefinition) []node {
	t.Helper()
	root := internal(t, crd).Spec.Validation.OpenAPIV3Schema
	return nodes(node{schema: root, cel: validation.RootCELContext(root)})
}

// gatewaySchema is the schema as we wrote it, before Crossplane adds to it.
func gatewaySchema(t *testing.T, flavour string) []node {
	t.Helper()
	return parseSchema(t, gatewayDefinition(t, flavour).Spec.Versions[0].Schema.OpenAPIV3Schema.Raw)
}

func parseSchema(t *testing.T, raw []byte) []node {
	t.Helper()
	external := &extv1.JSONSchemaProps{}
	if err := json.Unmarshal(raw, external); err != nil {
		t.Fatal(err)
	}
	root := &apiextensions.JSONSchemaProps{}
	if err := extv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(external, root, nil); err != nil {
		t.Fatal(err)
	}
	return nodes(node{schema: root, cel: validation.RootCELContext(root)})
}

func inputSchema(t *testing.T) []node {
	t.Helper()
	crd := &extv1.CustomResourceDefinition{}
	readYAML(t, crd, "function", "input", "wireguard.fn.crossplane.io_inputs.yaml")
	raw, err := json.Marshal(crd.Spec.Versions[0].Schema.OpenAPIV3Schema)
	if err != nil {
		t.Fatal(err)
	}
	return parseSchema(t, raw)
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

// The oldest supported Kubernetes knows every function that rules call. And
// there is room left in what all rules together may cost.
func TestRules(t *testing.T) {
	env := environment.MustBaseEnvSet(oldest)
	for kind, crd := range crds(t) {
		t.Run(kind, func(t *testing.T) {
			var rules int
			var total, dearest uint64
			for _, n := range schemaOf(t, crd) {
				if len(n.schema.XValidations) == 0 {
					continue
				}
				s, err := structuralschema.NewStructural(n.schema)
				if err != nil {
					t.Fatal(err)
				}
				results, err := cel.Compile(s, model.SchemaDeclType(s, n.path == ""), celconfig.PerCallLimit, env, cel.NewExpressionsEnvLoader())
				if err != nil {
					t.Fatal(err)
				}
				for i, r := range results {
					rules++
					rule := n.schema.XValidations[i]
					if r.Error != nil || r.MessageExpressionError != nil {
						t.Errorf("%s: Kubernetes 1.31 does not compile %q: %v %v", n.path, rule.Rule, r.Error, r.MessageExpressionError)
					}
					if rule.Message == "" {
						t.Errorf("%s: %q has no message for when the other one cannot be had", n.path, rule.Rule)
					}
					// Kubernetes 1.31 panics where it meets a format that is no literal.
					if strings.Contains(strings.ReplaceAll(rule.MessageExpression, "'.format(", ""), ".format(") {
						t.Errorf("%s: the format of a message is not a literal: %s", n.path, rule.MessageExpression)
					}
					cost := r.MaxCost
					if n.cel.MaxCardinality != nil {
						cost *= *n.cel.MaxCardinality
					}
					total += cost + r.MessageExpressionMaxCost
					dearest = max(dearest, cost, r.MessageExpressionMaxCost)
				}
			}
			t.Logf("%d rules cost %d of %d, the dearest %d of %d",
				rules, total, validation.StaticEstimatedCRDCostLimit, dearest, validation.StaticEstimatedCostLimit)
			if total > validation.StaticEstimatedCRDCostLimit/2 {
				t.Errorf("all rules together may cost %d, more than half of what is allowed: a small change would break", total)
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

// Every field says what it is, and every list how long it may be: costs of
// rules are multiplied by it.
func TestFieldsAreDescribedAndBounded(t *testing.T) {
	schemas := map[string][]node{"input": inputSchema(t)}
	for _, xrd := range definitions(t, "configuration") {
		schemas[xrd.Spec.Names.Kind] = parseSchema(t, xrd.Spec.Versions[0].Schema.OpenAPIV3Schema.Raw)
	}
	for name, schema := range schemas {
		t.Run(name, func(t *testing.T) {
			for _, n := range schema {
				if n.path == "" || strings.HasPrefix(n.path, ".metadata") {
					continue
				}
				named := !strings.HasSuffix(n.path, "[]") && !strings.HasSuffix(n.path, "{}")
				if named && n.schema.Description == "" {
					t.Errorf("%s has no description", n.path)
				}
				if n.schema.Type == "array" && n.schema.MaxItems == nil {
					t.Errorf("%s has no maximum of items", n.path)
				}
				inSpec := strings.HasPrefix(n.path, ".spec") && name != "input"
				if inSpec && n.schema.AdditionalProperties != nil && n.schema.MaxProperties == nil {
					t.Errorf("%s has no maximum of properties", n.path)
				}
				if inSpec && n.schema.Type == "array" && n.schema.XListType == nil {
					t.Errorf("%s does not say how lists are merged", n.path)
				}
				unbounded := n.schema.MaxLength == nil && len(n.schema.Enum) == 0 && n.schema.Format == "" && !strings.HasSuffix(n.path, "{}")
				if inSpec && n.schema.Type == "string" && unbounded {
					t.Errorf("%s has no maximum of characters", n.path)
				}
			}
		})
	}
}

// Values of Kubernetes' own types are objects, and nothing else is said of
// them: their schemas would take more room than ours.
func TestObjectsOfKubernetesAreOpen(t *testing.T) {
	yes := true
	open := &apiextensions.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &yes}
	named := open.DeepCopy()
	named.Required = []string{"name"}
	want := map[string]*apiextensions.JSONSchemaProps{
		".spec.resources":                       open,
		".spec.tunnel.resources":                open,
		".spec.gluetun.resources":               open,
		".spec.pod.affinity":                    open,
		".spec.pod.tolerations[]":               open,
		".spec.pod.topologySpreadConstraints[]": open,
		".spec.initContainers[]":                named,
		".spec.extraContainers[]":               named,
		".spec.volumes[]":                       named,
	}
	got := map[string]*apiextensions.JSONSchemaProps{}
	for _, n := range gatewaySchema(t, "configuration") {
		if n.schema.XPreserveUnknownFields != nil {
			s := n.schema.DeepCopy()
			s.Description, s.Properties = "", nil
			got[n.path] = s
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// The function fills in defaults too, where an object did not pass an API
// server. Both must be the same.
func TestDefaults(t *testing.T) {
	want := map[string]any{
		".spec.allowedPeerNamespaces.from":                     "Same",
		".spec.allowedPeerNamespaces.limits.access[].protocol": "Any",
		".spec.gateway.udpRoute.port":                          v1alpha1.DefaultUDPRoutePort,
		".spec.gluetun.type":                                   "wireguard",
		".spec.implementation":                                 v1alpha1.DefaultImplementation,
		".spec.ipForwarding":                                   v1alpha1.DefaultIPForwarding,
		".spec.keys.seedSecretRef.key":                         v1alpha1.DefaultSeedKey,
		".spec.listenPort":                                     v1alpha1.DefaultListenPort,
		".spec.monitoring.podMonitor.interval":                 v1alpha1.DefaultPodMonitorInterval,
		".spec.peers[].access[].protocol":                      "Any",
		".spec.peers[].presharedKey.secretRef.key":             v1alpha1.DefaultPresharedKeyKey,
		".spec.peers[].privateKeySecretRef.key":                v1alpha1.DefaultPrivateKeyKey,
		".spec.persistentKeepalive":                            v1alpha1.DefaultPersistentKeepalive,
		".spec.pod.terminationGracePeriodSeconds":              v1alpha1.DefaultTerminationGracePeriodSeconds,
		".spec.service.type":                                   v1alpha1.DefaultServiceType,
		".spec.tunnel.type":                                    v1alpha1.DefaultTunnelType,
	}
	if diff := cmp.Diff(asJSON(t, want), asJSON(t, defaults(gatewaySchema(t, "configuration")))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	want = map[string]any{
		".spec.imagePullPolicy": v1beta1.DefaultImagePullPolicy,
		".spec.clusterDomain":   v1beta1.DefaultClusterDomain,
		".spec.ttl":             "1m",
	}
	if diff := cmp.Diff(asJSON(t, want), asJSON(t, defaults(inputSchema(t)))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func defaults(schema []node) map[string]any {
	got := map[string]any{}
	for _, n := range schema {
		if n.schema.Default != nil {
			got[n.path] = *n.schema.Default
		}
	}
	return got
}

func asJSON(t *testing.T, in map[string]any) map[string]any {
	t.Helper()
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// A Composition names the function as Crossplane does when it installs the
// function as a dependency of the same package: after the repository, without
// the registry. And there is one for each kind.
func TestCompositions(t *testing.T) {
	for _, flavour := range []string{"configuration", "configuration-claim"} {
		t.Run(flavour, func(t *testing.T) {
			var configuration struct {
				Spec struct {
					DependsOn []struct {
						Kind, Package string
					}
				}
			}
			if err := yaml.Unmarshal([]byte(readText(t, flavour, "crossplane.yaml")), &configuration); err != nil {
				t.Fatal(err)
			}
			if d := configuration.Spec.DependsOn; len(d) != 1 || d[0].Kind != "Function" {
				t.Fatalf("want one function to depend on, got %v", d)
			}
			_, repository, _ := strings.Cut(configuration.Spec.DependsOn[0].Package, "/")
			function := strings.ReplaceAll(repository, "/", "-")

			// Of several that it could take, Crossplane takes any, unless one is the default.
			want, got := map[string]xpv1.TypeReference{}, map[string]xpv1.TypeReference{}
			for _, xrd := range definitions(t, flavour) {
				if xrd.Spec.DefaultCompositionRef == nil {
					t.Fatalf("%s has no default", xrd.Name)
				}
				want[xrd.Spec.DefaultCompositionRef.Name] = xpv1.TypeReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: xrd.Spec.Names.Kind}
			}
			var inputs []string
			for _, file := range []string{"composition.yaml", "composition-peer.yaml"} {
				c := &xpv1.Composition{}
				if err := yaml.UnmarshalStrict([]byte(readText(t, flavour, file)), c); err != nil {
					t.Fatal(err)
				}
				got[c.Name] = c.Spec.CompositeTypeRef
				if len(c.Spec.Pipeline) != 1 {
					t.Fatalf("%s: want one step, got %d", c.Name, len(c.Spec.Pipeline))
				}
				step := c.Spec.Pipeline[0]
				if step.FunctionRef.Name != function {
					t.Errorf("%s: the function is called %q, Crossplane installs it as %q", c.Name, step.FunctionRef.Name, function)
				}
				checkInput(t, step.Input.Raw)
				inputs = append(inputs, string(step.Input.Raw))
			}
			// A peer's configurations follow from the same defaults as its gateway.
			if diff := cmp.Diff(inputs[0], inputs[1]); diff != "" {
				t.Errorf("inputs, -gateway's +peer's:\n%s", diff)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("kinds, -want +got:\n%s", diff)
			}
		})
	}
}

// checkInput makes sure that an input shows every field, and no other.
func checkInput(t *testing.T, raw []byte) {
	t.Helper()
	if err := yaml.UnmarshalStrict(raw, &v1beta1.Input{}); err != nil {
		t.Error(err)
	}
	var shown map[string]any
	if err := json.Unmarshal(raw, &shown); err != nil {
		t.Fatal(err)
	}
	for _, n := range inputSchema(t) {
		if !strings.HasPrefix(n.path, ".spec.") || strings.HasSuffix(n.path, "[]") {
			continue
		}
		if _, found, err := unstructured.NestedFieldNoCopy(shown, strings.Split(n.path, ".")[1:]...); err != nil || !found {
			t.Errorf("the input does not show %s", n.path)
		}
	}
}

func readText(t *testing.T, path ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(append([]string{packages}, path...)...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
