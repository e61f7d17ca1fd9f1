package v1alpha1_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	extv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/input/v1beta1"
)

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
