package render_test

import (
	"fmt"
	"strings"
	"testing"

	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1/apitest"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/offline"
)

// runCase renders a gateway of the tables that the schema is tested with, after
// its old spec if it has one.
func runCase(tb testing.TB, c apitest.Case) outcome {
	tb.Helper()
	in := offline.Request{Composite: &unstructured.Unstructured{Object: clone(tb, c.Object())}}
	if old := c.OldObject(); old != nil {
		before := run(tb, offline.Request{Composite: &unstructured.Unstructured{Object: clone(tb, old)}})
		in.Composite.Object["status"] = before.rsp.GetDesired().GetComposite().GetResource().AsMap()["status"]
		// Its seed is there by now.
		seed := &unstructured.Unstructured{Object: reconciled(tb, before).GetObserved().GetResources()["seed"].GetResource().AsMap()}
		in.Observed, in.Required = []*unstructured.Unstructured{seed}, []*unstructured.Unstructured{seed}
	}
	return run(tb, in)
}

func isFatal(o outcome, field, value string) (bad []string) {
	if !o.fatal() {
		return []string{"it is not Fatal"}
	}
	c := o.rsp.GetConditions()[0]
	if c.GetType() != "SpecValid" || c.GetStatus() != fnv1.Status_STATUS_CONDITION_FALSE {
		bad = append(bad, fmt.Sprintf("SpecValid is %s", c.GetStatus()))
	}
	message := o.rsp.GetResults()[len(o.rsp.GetResults())-1].GetMessage()
	if message != c.GetMessage() {
		bad = append(bad, fmt.Sprintf("the result says %q, and the condition %q", message, c.GetMessage()))
	}
	for _, s := range []string{field, value} {
		// A value is quoted as it would be in Go, so that line breaks are seen.
		if !strings.Contains(message, s) && !strings.Contains(message, strings.Trim(fmt.Sprintf("%q", s), `"`)) {
			bad = append(bad, fmt.Sprintf("%q is not in the message: %s", s, message))
		}
	}
	if strings.ContainsAny(message, "\n\r\x00") {
		bad = append(bad, "the message has line breaks in it")
	}
	return bad
}

// TestBadInput: what the schema refuses the function refuses, too, and what the
// schema cannot. There is one clear error, and nothing is removed.
func TestBadInput(t *testing.T) {
	for i, c := range append(apitest.Invalid(), apitest.FunctionOnly()...) {
		t.Run(fmt.Sprintf("%d %s", i, c.Reason), func(t *testing.T) {
			o := runCase(t, c)
			if c.SchemaOnly {
				report(t, "good input", checkers["1 all or nothing"](t, o))
				return
			}
			value := c.Value
			if notComposed(o) {
				value = ""
			}
			// The schema may name the whole where the function names the part.
			report(t, "bad input", isFatal(o, "", value))
			for _, name := range []string{"1 all or nothing", "6 no secrets", "8 quiet", "8 conditions"} {
				report(t, name, checkers[name](t, o))
			}
		})
	}
}

// notComposed tells whether the function refuses a whole block for now.
func notComposed(o outcome) bool {
	return o.fatal() && strings.Contains(o.rsp.GetResults()[0].GetMessage(), "does not compose")
}

// TestGoodInput: what the schema takes the function takes, too.
func TestGoodInput(t *testing.T) {
	for i, c := range apitest.Valid() {
		t.Run(fmt.Sprintf("%d %s", i, c.Reason), func(t *testing.T) {
			o := runCase(t, c)
			if notComposed(o) {
				return
			}
			for _, r := range o.rsp.GetResults() {
				if strings.Contains(c.Spec, "seedSecretRef") && strings.Contains(r.GetMessage(), "seedSecretRef") {
					continue // There is no such Secret here.
				}
				t.Errorf("%s\nwant no result, got %s", c.Spec, r.GetMessage())
			}
		})
	}
}

// TestBadInputOfFunction are what no schema can say, or none sees.
func TestBadInputOfFunction(t *testing.T) {
	gateway := func(spec string) map[string]any { return apitest.Case{Spec: spec}.Object() }
	with := func(o map[string]any, field string, v any) map[string]any {
		o[field] = v
		return o
	}
	cases := map[string]struct {
		reason       string
		composite    map[string]any
		field, value string
	}{
		"RouteInPods":     {"The platform knows of pods, not the schema.", gateway(`peers: [{name: a, routes: [10.42.3.0/24]}]`), "spec.peers[0].routes[0]", "10.42.3.0/24"},
		"RouteOfNodes":    {"The platform knows of nodes, not the schema.", gateway(`peers: [{name: a, routes: [192.0.2.0/25]}]`), "spec.peers[0].routes[0]", "192.0.2.0/25"},
		"RouteInServices": {"The platform knows of Services, not the schema.", gateway(`peers: [{name: a, routes: [10.0.0.0/9]}]`), "spec.peers[0].routes[0]", "10.0.0.0/9"},
		"IPv4Dropped":     {"The gateway has IPv4 addresses.", gateway(`peerCIDRv6: "fd00::/64"`), "spec.peerCIDR", "10.8.0.1"},
		"ContainerField":  {"The API server would drop it without a word.", gateway(`extraContainers: [{name: a, image: b, comand: [c]}]`), "spec.extraContainers[0]", "comand"},
		"DeepField":       {"Deep down, too.", gateway(`extraContainers: [{name: a, image: b, securityContext: {capabilities: {ad: [c]}}}]`), "spec.extraContainers[0]", "securityContext.capabilities.ad"},
		"VolumeField":     {"In volumes, too.", gateway(`volumes: [{name: a, emptydir: {}}]`), "spec.volumes[0]", "emptydir"},
		"TolerationField": {"In tolerations, too.", gateway(`pod: {tolerations: [{kee: a}]}`), "spec.pod.tolerations[0]", "kee"},
		"AffinityField":   {"In affinity, too.", gateway(`pod: {affinity: {nodeAfinity: {}}}`), "spec.pod.affinity", "nodeAfinity"},
		"ResourceField":   {"In resources, too.", gateway(`resources: {limit: {cpu: 1}}`), "spec.resources", "limit"},
		"ContainerType":   {"A type is part of the schema of Kubernetes.", gateway(`extraContainers: [{name: a, image: b, command: c}]`), "spec.extraContainers[0]", "command"},
		"ContainerTwice":  {"Names are taken once in a pod.", gateway(`{initContainers: [{name: a, image: b}], extraContainers: [{name: a, image: b}]}`), "spec.extraContainers[0].name", `"a"`},
		"ContainerOurs":   {"The agent is ours.", gateway(`extraContainers: [{name: agent, image: b}]`), "spec.extraContainers[0].name", "agent"},
		"EnvTwice":        {"Server-side apply fails on it.", gateway(`extraContainers: [{name: a, image: b, env: [{name: C, value: d}, {name: C}]}]`), "spec.extraContainers[0].env[1].name", `"C"`},
		"PortTaken":       {"All containers share one network.", gateway(`extraContainers: [{name: a, image: b, ports: [{containerPort: 51820, protocol: UDP}]}]`), "spec.extraContainers[0].ports[0].containerPort", "51820"},
		"PortHealth":      {"The agent's is taken.", gateway(`extraContainers: [{name: a, image: b, ports: [{containerPort: 9586}]}]`), "spec.extraContainers[0].ports[0].containerPort", "9586"},
		"PortNameTaken":   {"Names of ports are taken once in a pod.", gateway(`extraContainers: [{name: a, image: b, ports: [{containerPort: 80, name: http}]}]`), "spec.extraContainers[0].ports[0].name", "http"},
		"NoVolume":        {"There is no such volume.", gateway(`extraContainers: [{name: a, image: b, volumeMounts: [{name: c, mountPath: /c}]}]`), "spec.extraContainers[0].volumeMounts[0].name", `"c"`},
		"OwnVolume":       {"The configuration is the agent's alone.", gateway(`extraContainers: [{name: a, image: b, volumeMounts: [{name: config, mountPath: /c}]}]`), "spec.extraContainers[0].volumeMounts[0].name", "config"},
		"SeedMounted":     {"The seed is mounted nowhere.", gateway(`volumes: [{name: a, secret: {secretName: home-wireguard.seed}}]`), "spec.volumes[0].secret.secretName", "home-wireguard.seed"},
		"SeedProjected":   {"The seed is mounted nowhere.", gateway(`volumes: [{name: a, projected: {sources: [{secret: {name: home-wireguard.config}}]}}]`), "spec.volumes[0].projected.sources[0].secret.name", "home-wireguard.config"},
		"SeedInEnv":       {"Nor is it in an environment.", gateway(`extraContainers: [{name: a, image: b, env: [{name: C, valueFrom: {secretKeyRef: {name: home-wireguard.seed, key: seed}}}]}]`), "spec.extraContainers[0].env[0].valueFrom.secretKeyRef.name", "home-wireguard.seed"},
		"SysctlOnHost":    {"The kubelet sets no sysctls of the node.", gateway(`{ipForwarding: PodSysctl, pod: {hostNetwork: true}}`), "spec.ipForwarding", "PodSysctl"},
		"OwnLabel":        {"Selectors depend on it.", gateway(`pod: {labels: {app.kubernetes.io/name: mine}}`), "spec.pod.labels[app.kubernetes.io/name]", ""},
		"Time":            {"A time has a form.", gateway(`peers: [{name: a}, {name: b, expiresAt: tomorrow}]`), "spec.peers[1].expiresAt", "tomorrow"},
		"Type":            {"A number is no string.", gateway(`listenPort: "51820"`), "spec.listenPort", "string"},
		"TypeInList":      {"A list is no name.", gateway(`peers: [{name: [a]}]`), "spec.peers", "array"},
		"Fraction":        {"Ports have no fractions.", gateway(`listenPort: 51820.5`), "spec.listenPort", "51820.5"},
		"VolumeNameType":  {"A number is no name.", gateway(`volumes: [{name: 7}]`), "spec.volumes", "number"},
		"Version":         {"Another version is another API.", with(gateway(`{}`), "apiVersion", "wireguardgateway.io/v2"), "", "wireguardgateway.io/v2"},
		"Kind":            {"Another kind is not ours.", with(gateway(`{}`), "kind", "Bucket"), "", "Bucket"},
		"NoNamespace":     {"A gateway lives in a namespace.", with(gateway(`{}`), "metadata", map[string]any{"name": "home"}), "metadata.namespace", ""},
		"NoClaim":         {"A composite resource without a claim has no namespace to compose in.", with(with(gateway(`{}`), "kind", "XWireguardGateway"), "metadata", map[string]any{"name": "home"}), "", "claim"},
		"Nothing":         {"Nothing is not ours.", map[string]any{}, "", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := caseNamed(t, "steady-state").in
			in.Composite = &unstructured.Unstructured{Object: clone(t, tc.composite)}
			in.Composite.Object["status"] = map[string]any{"addresses": []any{"10.8.0.1"}}
			in.Input = input(t, `{"podCIDRs": ["10.42.0.0/16"], "serviceCIDRs": ["10.43.0.0/16"], "nodeCIDRs": ["192.0.2.0/24"]}`)
			first := run(t, in)
			for _, o := range []outcome{first, again(t, withEarlier(t, first.req))} {
				if bad := isFatal(o, tc.field, tc.value); len(bad) > 0 {
					t.Errorf("%s", tc.reason)
					report(t, "bad input", bad)
				}
				for _, name := range []string{"1 all or nothing", "6 no secrets", "8 quiet", "8 conditions"} {
					report(t, name, checkers[name](t, o))
				}
			}
		})
	}
}

// TestBadPlatform: the input of the function is judged, too.
func TestBadPlatform(t *testing.T) {
	for in, want := range map[string]string{
		`{"podCIDRs": ["10.42.0.1/16"]}`: `input.spec.podCIDRs[0]: Invalid value: "10.42.0.1/16"`,
		`{"clusterDNS": "kube-dns"}`:     `input.spec.clusterDNS: Invalid value: "kube-dns"`,
		`{"ttl": "-1m"}`:                 `input.spec.ttl`,
		`{"ttl": "soon"}`:                `soon`,
		`{"podCDIRs": []}`:               `podCDIRs`,
	} {
		c := caseNamed(t, "steady-state").in
		c.Input = input(t, in)
		report(t, "bad platform "+in, isFatal(run(t, c), want, ""))
	}
}

func input(tb testing.TB, spec string) *unstructured.Unstructured {
	tb.Helper()
	s := &structpb.Struct{}
	if err := s.UnmarshalJSON([]byte(spec)); err != nil {
		tb.Fatal(err)
	}
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "wireguard.fn.crossplane.io/v1beta1", "kind": "Input", "spec": s.AsMap()}}
}
