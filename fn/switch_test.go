package fn

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
)

// switched is what every mode of the test has beside its own: fields that only
// some types of Service know stay in the spec throughout.
const switched = `
peerCIDR: 10.8.0.0/24
peerCIDRv6: fd00:8::/64
peers:
  - {name: laptop, presharedKey: {generate: true}}
  - {name: phone}
gateway:
  hostname: vpn.example.com
  parentRefs: [{name: public, namespace: ingress, sectionName: https}]
  udpRoute:
    enabled: %t
    parentRefs: [{name: public, namespace: ingress, sectionName: wireguard}]
    port: 4433
service:
  type: %s
  loadBalancerIP: 203.0.113.9
  loadBalancerClass: example.com/class
  loadBalancerSourceRanges: [198.51.100.0/24]
  annotations: {service.beta.kubernetes.io/load-balancer-source-ranges: 198.51.100.0/24}
  externalTrafficPolicy: Local
  nodePort: %d
  healthCheckPort: 9000
%s
`

// serviceFields are those that belong to some types of Service only.
var serviceFields = []string{"loadBalancerIP", "loadBalancerClass", "loadBalancerSourceRanges", "externalTrafficPolicy"}

// TestSwitchingExposure leads one gateway through every way in and back again.
func TestSwitchingExposure(t *testing.T) {
	own := append(slices.Clone(base), "peer-phone")
	slices.Sort(own)
	with := func(more ...string) []string {
		all := slices.Concat(own, more)
		slices.Sort(all)
		return all
	}
	plain, tunnel := []string{"direct.conf", "internal.conf"}, []string{"direct.conf", "internal.conf", "tunnel.conf"}
	modes := []struct {
		name, spec string
		keys       []string
		fields     []string // of the Service, out of serviceFields
		nodePort   float64
		ports      int
		endpoint   string
		configs    []string
	}{
		{"LoadBalancer", fmt.Sprintf(switched, false, "LoadBalancer", 0, ""), with(), serviceFields, 0, 2, "203.0.113.80:51820", plain},
		{"NodePort", fmt.Sprintf(switched, false, "NodePort", 31820, ""), with(), []string{"externalTrafficPolicy"}, 31820, 1, "198.51.100.7:31820", plain},
		{"NodePortAllocated", fmt.Sprintf(switched, false, "NodePort", 0, ""), with(), []string{"externalTrafficPolicy"}, 0, 1, "198.51.100.7:30123", plain},
		{"ClusterIP", fmt.Sprintf(switched, false, "ClusterIP", 31820, ""), with(), nil, 0, 1, "", []string{"internal.conf"}},
		{"UDPRoute", fmt.Sprintf(switched, true, "ClusterIP", 0, ""), with(names.KeyUDPRoute), nil, 0, 1, "vpn.example.com:4433", plain},
		{"Tunnel", fmt.Sprintf(switched, false, "LoadBalancer", 0, "tunnel: {}"), with(names.KeyHTTPRoute, names.KeyTunnelService), serviceFields, 0, 2, "203.0.113.80:51820", tunnel},
		{"TunnelOnly", fmt.Sprintf(switched, false, "ClusterIP", 0, "tunnel: {}"), with(names.KeyHTTPRoute, names.KeyTunnelService), nil, 0, 1, "", []string{"internal.conf", "tunnel.conf"}},
		{"Everything", fmt.Sprintf(switched, true, "NodePort", 31820, "tunnel: {}\nnetworkPolicy: {enabled: true}"), with(names.KeyHTTPRoute, names.KeyTunnelService, names.KeyUDPRoute, names.KeyNetworkPolicy), []string{"externalTrafficPolicy"}, 31820, 1, "vpn.example.com:4433", tunnel},
	}
	// There, and back the same way, so that each is reached from another.
	order := []int{0, 1, 2, 3, 4, 5, 6, 7, 5, 3, 1, 4, 6, 0}

	w := newWorld(t, modes[0].spec)
	w.nodes = []map[string]any{{
		"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": "node-1"},
		"status": map[string]any{
			"addresses":  []any{map[string]any{"type": "ExternalIP", "address": "198.51.100.7"}},
			"conditions": []any{map[string]any{"type": "Ready", "status": "True"}},
		},
	}}
	var (
		first    map[int]map[string]string // what each mode looked like when it was reached first
		identity string                    // keys and addresses
	)
	first = map[int]map[string]string{}
	for _, i := range order {
		m := modes[i]
		w.set(t, m.spec)
		rsp := w.reconcile(t)
		got := desired(t, rsp)
		if diff := cmp.Diff(m.keys, keys(got)); diff != "" {
			t.Errorf("%s: keys: -want, +got:\n%s", m.name, diff)
		}
		checkService(t, m.name, rsp, m.fields, m.nodePort, m.ports)
		for _, peer := range []string{"laptop", "phone"} {
			configs := data(t, rsp, "peer-"+peer)
			if diff := cmp.Diff(m.configs, keys(configs)); diff != "" {
				t.Errorf("%s: configurations of %s: -want, +got:\n%s", m.name, peer, diff)
			}
			if e := line(configs["direct.conf"], "Endpoint"); e != m.endpoint {
				t.Errorf("%s: want the endpoint %q, got %q", m.name, m.endpoint, e)
			}
		}
		if id := identityOf(t, rsp); identity == "" {
			identity = id
		} else if diff := cmp.Diff(identity, id); diff != "" {
			t.Errorf("%s: keys and addresses: -before, +after:\n%s", m.name, diff)
		}
		if first[i] == nil {
			first[i] = got
		} else if diff := cmp.Diff(first[i], got); diff != "" {
			t.Errorf("%s: the same mode again: -first, +now:\n%s", m.name, diff)
		}
	}
	// A restart of the pod drops every client for a moment: only what runs in
	// it may be a reason.
	for i, m := range modes {
		other := 0
		if strings.Contains(m.spec, "tunnel: {}") {
			other = 5
		}
		if diff := cmp.Diff(first[other][names.KeyDeployment], first[i][names.KeyDeployment]); diff != "" {
			t.Errorf("%s and %s: the pod is restarted for nothing: -, +:\n%s", modes[other].name, m.name, diff)
		}
		if diff := cmp.Diff(first[0][names.KeyConfig], first[i][names.KeyConfig]); diff != "" {
			t.Errorf("%s: the agent's configuration changes with the way in: -, +:\n%s", m.name, diff)
		}
	}
}

func checkService(t *testing.T, mode string, rsp *fnv1.RunFunctionResponse, fields []string, nodePort float64, ports int) {
	t.Helper()
	service := rsp.GetDesired().GetResources()[names.KeyService].GetResource().AsMap()
	s := service["spec"].(map[string]any)
	// The API server refuses the annotation where it refuses the field.
	annotations, _ := service["metadata"].(map[string]any)["annotations"].(map[string]any)
	if _, ok := annotations[corev1.AnnotationLoadBalancerSourceRangesKey]; ok != slices.Contains(fields, "loadBalancerSourceRanges") {
		t.Errorf("%s: want the annotation of the Service to be %t, got %t", mode, !ok, ok)
	}
	for _, f := range serviceFields {
		if _, ok := s[f]; ok != slices.Contains(fields, f) {
			t.Errorf("%s: want %s in the Service to be %t, got %t", mode, f, !ok, ok)
		}
	}
	all := s["ports"].([]any)
	if len(all) != ports {
		t.Errorf("%s: want %d ports, got %v", mode, ports, all)
	}
	got, _ := all[0].(map[string]any)["nodePort"].(float64)
	if got != nodePort {
		t.Errorf("%s: want the node port %v, got %v", mode, nodePort, got)
	}
}

// identityOf returns what every client depends on: keys and addresses of both
// sides.
func identityOf(t *testing.T, rsp *fnv1.RunFunctionResponse) string {
	t.Helper()
	b := &strings.Builder{}
	fmt.Fprintln(b, data(t, rsp, names.KeySeed))
	status := rsp.GetDesired().GetComposite().GetResource().AsMap()["status"].(map[string]any)
	for _, field := range []string{"publicKey", "seedID", "addresses", "peers"} {
		fmt.Fprintf(b, "%s: %s\n", field, toJSON(t, status[field]))
	}
	for _, peer := range []string{"laptop", "phone"} {
		for name, conf := range data(t, rsp, "peer-"+peer) {
			// Every flavour has the same.
			if !strings.HasSuffix(name, ".conf") || name == "internal.conf" {
				continue
			}
			internal := data(t, rsp, "peer-"+peer)["internal.conf"]
			for _, key := range []string{"PrivateKey", "Address", "PublicKey", "PresharedKey", "AllowedIPs"} {
				if line(conf, key) != line(internal, key) {
					t.Errorf("%s of %s: want the %s of internal.conf, %q, got %q", name, peer, key, line(internal, key), line(conf, key))
				}
			}
		}
		for _, key := range []string{"PrivateKey", "Address", "PublicKey", "PresharedKey", "AllowedIPs"} {
			fmt.Fprintln(b, peer, key, line(data(t, rsp, "peer-"+peer)["internal.conf"], key))
		}
	}
	return b.String()
}

// line returns the value of a key in a configuration.
func line(conf, key string) string {
	for l := range strings.Lines(conf) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(l), key+" = "); ok {
			return value
		}
	}
	return ""
}

// TestFeatures switches each feature on, to something else, and off again.
func TestFeatures(t *testing.T) {
	const gateway = `
gateway:
  hostname: vpn.example.com
  parentRefs: [{name: public, namespace: ingress}]
`
	cases := map[string]struct {
		why     string
		on      string
		other   string   // the same feature, set differently
		adds    []string // keys
		changes []string // keys of what is there without the feature too
		differs []string // keys of what its setting changes
	}{
		"Tunnel": {
			"A container, a Service, a route, and a configuration for those who can use it.",
			`tunnel: {}` + gateway, `tunnel: {pathPrefix: other}` + gateway,
			[]string{names.KeyHTTPRoute, names.KeyTunnelService},
			[]string{names.KeyDeployment, "peer-laptop"},
			[]string{names.KeyDeployment, names.KeyHTTPRoute, "peer-laptop"},
		},
		"UDPRoute": {
			"A route, and the endpoint that it gives.",
			`gateway: {hostname: vpn.example.com, udpRoute: {enabled: true, parentRefs: [{name: public}]}}`,
			`gateway: {hostname: vpn.example.com, udpRoute: {enabled: true, parentRefs: [{name: public}], port: 443}}`,
			[]string{names.KeyUDPRoute},
			[]string{"peer-laptop"},
			[]string{"peer-laptop"},
		},
		"NetworkPolicy": {
			"It follows the port.", `networkPolicy: {enabled: true}`, "networkPolicy: {enabled: true}\nlistenPort: 443",
			[]string{names.KeyNetworkPolicy},
			nil,
			[]string{names.KeyNetworkPolicy, names.KeyConfig, names.KeyDeployment, names.KeyService, "peer-laptop"},
		},
		"PodDisruptionBudget": {
			"There is nothing to set.", `podDisruptionBudget: {enabled: true}`, "podDisruptionBudget: {enabled: true}",
			[]string{names.KeyPDB},
			nil, nil,
		},
		"PodMonitor": {
			"Labels and interval are the user's.", `monitoring: {podMonitor: {enabled: true}}`, `monitoring: {podMonitor: {enabled: true, interval: 1m, labels: {a: b}}}`,
			[]string{names.KeyPodMonitor},
			nil,
			[]string{names.KeyPodMonitor},
		},
		"HealthCheckPort": {
			"It is a port of the Service.", `service: {healthCheckPort: 9000}`, `service: {healthCheckPort: 9001}`,
			nil,
			[]string{names.KeyService},
			[]string{names.KeyService},
		},
		"Containers": {
			"They are in the pod.", `extraContainers: [{name: a, image: i}]`, `extraContainers: [{name: a, image: j}]`,
			nil,
			[]string{names.KeyDeployment},
			[]string{names.KeyDeployment},
		},
		"Scheduling": {
			"It is the pod's.", `pod: {tolerations: [{operator: Exists}], nodeSelector: {a: b}, labels: {c: d}}`, `pod: {priorityClassName: high}`,
			nil,
			[]string{names.KeyDeployment},
			[]string{names.KeyDeployment},
		},
		"Annotations": {
			"They are the Service's.", `service: {annotations: {a: b}, labels: {c: d}}`, `service: {annotations: {a: c}}`,
			nil,
			[]string{names.KeyService},
			[]string{names.KeyService},
		},
		"QRCode": {
			"It is in the peer's Secret.", `peers: [{name: laptop, qrCode: true}]`, `peers: [{name: laptop, qrCode: true, mtu: 1300}]`,
			nil,
			[]string{"peer-laptop"},
			[]string{"peer-laptop"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			spec := func(s string) string {
				if strings.Contains(s, "peers:") {
					return s
				}
				return "peers: [{name: laptop}]\n" + s
			}
			w := newWorld(t, spec(""))
			off := desired(t, w.reconcile(t))
			if diff := cmp.Diff(base, keys(off)); diff != "" {
				t.Fatalf("without features: -want, +got:\n%s", diff)
			}

			w.set(t, spec(tc.on))
			on := desired(t, w.reconcile(t))
			want := slices.Concat(base, tc.adds)
			slices.Sort(want)
			if diff := cmp.Diff(want, keys(on)); diff != "" {
				t.Errorf("%s\non: -want, +got:\n%s", tc.why, diff)
			}
			if diff := cmp.Diff(tc.changes, changed(off, on)); diff != "" {
				t.Errorf("%s\nchanged by switching it on: -want, +got:\n%s", tc.why, diff)
			}

			w.set(t, spec(tc.other))
			other := desired(t, w.reconcile(t))
			slices.Sort(tc.differs)
			if diff := cmp.Diff(tc.differs, changed(on, other)); diff != "" {
				t.Errorf("%s\nchanged by another setting: -want, +got:\n%s", tc.why, diff)
			}

			w.set(t, spec(""))
			if diff := cmp.Diff(off, desired(t, w.reconcile(t))); diff != "" {
				t.Errorf("%s\noff again: -before, +after:\n%s", tc.why, diff)
			}
		})
	}
}

// changed returns the keys of what is in both and differs.
func changed(a, b map[string]string) []string {
	var out []string
	for _, key := range keys(a) {
		if other, ok := b[key]; ok && other != a[key] {
			out = append(out, key)
		}
	}
	return out
}

// TestContainerOrder holds what the API says of the order: our sysctls before
// the user's init containers, and the agent before the user's containers.
func TestContainerOrder(t *testing.T) {
	w := newWorld(t, `
peers: [{name: laptop}]
peerCIDRv6: fd00:8::/64
tunnel: {}
gateway: {hostname: vpn.example.com, parentRefs: [{name: public}]}
initContainers: [{name: z, image: i}, {name: a, image: i}]
extraContainers: [{name: x, image: i}, {name: b, image: i}]
`)
	pod := w.reconcile(t).GetDesired().GetResources()[names.KeyDeployment].GetResource().AsMap()["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
	for list, want := range map[string][]string{
		"initContainers": {"sysctl", "z", "a"},
		"containers":     {"agent", "wstunnel", "x", "b"},
	} {
		var got []string
		for _, c := range pod[list].([]any) {
			got = append(got, c.(map[string]any)["name"].(string))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want, +got:\n%s", list, diff)
		}
	}
}

// TestUDPRouteEndpoint holds that one port is advertised, and that nodes are not
// looked at where their addresses do not matter: each of their heartbeats would
// be an event.
func TestUDPRouteEndpoint(t *testing.T) {
	const spec = `
peers: [{name: laptop}, {name: elsewhere, advertisedEndpoint: {host: b.example.com}}]
service: {type: NodePort}
gateway: {hostname: a.example.com, udpRoute: {enabled: true, port: 4433, parentRefs: [{name: public}]}}
`
	for name, tc := range map[string]struct{ spec, port string }{
		"Listener": {spec, "4433"},
		"Before":   {spec + "endpoint: {port: 443}\n", "443"},
	} {
		t.Run(name, func(t *testing.T) {
			rsp := newWorld(t, tc.spec).reconcile(t)
			for peer, host := range map[string]string{"laptop": "a.example.com", "elsewhere": "b.example.com"} {
				if got := line(data(t, rsp, "peer-"+peer)["direct.conf"], "Endpoint"); got != host+":"+tc.port {
					t.Errorf("%s: want %s:%s, got %s", peer, host, tc.port, got)
				}
			}
			for what, s := range rsp.GetRequirements().GetResources() {
				if s.GetKind() == "Node" {
					t.Errorf("want no nodes required, got %s", what)
				}
			}
		})
	}
}

// TestNetworkPolicy holds that a gateway lets in what it serves and what asks
// for its health, and nothing else: the user's containers have policies of
// their own.
func TestNetworkPolicy(t *testing.T) {
	const policy = `
peers: [{name: laptop}]
networkPolicy: {enabled: true}
extraContainers: [{name: a, image: i, ports: [{containerPort: 80}]}]
`
	for name, tc := range map[string]struct {
		spec string
		want []string
	}{
		"Plain":  {policy, []string{"UDP 51820", "TCP 9586"}},
		"Port":   {policy + "listenPort: 443\n", []string{"UDP 443", "TCP 9586"}},
		"Tunnel": {policy + "tunnel: {}\ngateway: {hostname: vpn.example.com, parentRefs: [{name: public}]}\n", []string{"UDP 51820", "TCP 9586", "TCP 8080"}},
		"Route":  {policy + "gateway: {hostname: vpn.example.com, udpRoute: {enabled: true, parentRefs: [{name: public}]}}\n", []string{"UDP 51820", "TCP 9586"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newWorld(t, tc.spec).reconcile(t).GetDesired().GetResources()[names.KeyNetworkPolicy].GetResource().AsMap()["spec"].(map[string]any)
			if diff := cmp.Diff([]any{"Ingress"}, s["policyTypes"]); diff != "" {
				t.Errorf("kinds of traffic: -want, +got:\n%s", diff)
			}
			rules := s["ingress"].([]any)
			if len(rules) != 1 {
				t.Fatalf("want one rule, got %v", rules)
			}
			var got []string
			for _, p := range rules[0].(map[string]any)["ports"].([]any) {
				p := p.(map[string]any)
				got = append(got, fmt.Sprint(p["protocol"], " ", p["port"]))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("ports: -want, +got:\n%s", diff)
			}
		})
	}
}
