package spec

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/input/v1beta1"
)

func parsePeer(t *testing.T, name, s string) (*WireguardPeer, []string) {
	t.Helper()
	platform, errs := ParsePlatform(*fromYAML[v1beta1.InputSpec](t, testInput))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	p, errs := ParsePeer(name, "apps", fromYAML[v1alpha1.WireguardPeerSpec](t, s), platform)
	var messages []string
	for _, e := range errs {
		messages = append(messages, e.Error())
	}
	return p, messages
}

func TestParsePeer(t *testing.T) {
	cases := map[string]struct {
		reason string
		spec   string
		want   WireguardPeer
	}{
		"Smallest": {
			reason: "a peer that says nothing is a client of a gateway in its own namespace",
			spec:   `{gatewayRef: {name: home}}`,
			want:   WireguardPeer{GatewayName: "home", GatewayNamespace: "apps"},
		},
		"OwnKey": {
			reason: "the key's default is that of inline peers",
			spec:   `{gatewayRef: {name: home, namespace: vpn}, client: {privateKeySecretRef: {name: media}}}`,
			want:   WireguardPeer{GatewayName: "home", GatewayNamespace: "vpn", PrivateKey: SecretKey{"media", "privateKey"}},
		},
		"NotJudgedYet": {
			reason: "whether an address is in a pool, the gateway has to say",
			spec:   `{gatewayRef: {name: home}, client: {addresses: [10.9.0.4], mtu: 600, routes: [10.8.0.0/24]}}`,
			want:   WireguardPeer{GatewayName: "home", GatewayNamespace: "apps"},
		},
		"Pods": {
			reason: "what pods say is read, a network in two spellings once, and Auto decided by the platform",
			spec:   `{gatewayRef: {name: home}, pods: {bypassCIDRs: ["fd00::/64", "fd00:0::/64"], resources: {limits: {memory: 32Mi}}, allowEgress: [{ports: [{port: 53}]}]}}`,
			want: WireguardPeer{GatewayName: "home", GatewayNamespace: "apps", Pods: &Pods{
				BypassCIDRs: []netip.Prefix{netip.MustParsePrefix("fd00::/64")}, Implementation: "Auto", NetworkPolicy: "Kubernetes",
			}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, errs := parsePeer(t, "media", tc.spec)
			if len(errs) > 0 {
				t.Fatalf("%s: want it accepted, got %q", tc.reason, errs)
			}
			got.Platform = Platform{}
			tc.want.Name, tc.want.Namespace = "media", "apps"
			if tc.want.Pods != nil {
				tc.want.Pods.Resources, tc.want.Pods.AllowEgress = got.Pods.Resources, got.Pods.AllowEgress
			}
			if diff := cmp.Diff(&tc.want, got, netTypes); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestParsePeerRefused(t *testing.T) {
	egress := func(rule string) string { return `{gatewayRef: {name: home}, pods: {allowEgress: [` + rule + `]}}` }
	cases := map[string]struct {
		reason string
		name   string
		spec   string
		field  string
		says   string
	}{
		"LongName":         {"names of objects are made of it", strings.Repeat("a", 41), `{gatewayRef: {name: home}}`, "metadata.name", "40"},
		"DottedName":       {"dots keep the names of objects apart", "a.b", `{gatewayRef: {name: home}}`, "metadata.name", "a.b"},
		"NoGateway":        {"there is no default gateway", "media", `{gatewayRef: {name: ""}}`, "spec.gatewayRef.name", "DNS label"},
		"GatewayNamespace": {"no namespace has such a name", "media", `{gatewayRef: {name: home, namespace: a.b}}`, "spec.gatewayRef.namespace", "a.b"},
		"Both":             {"one object is one thing", "media", `{gatewayRef: {name: home}, client: {}, pods: {}}`, "spec.pods", "for each"},
		"PresharedSecret":  {"the gateway reads no Secrets of other namespaces", "media", `{gatewayRef: {name: home}, client: {presharedKey: {secretRef: {name: psk}}}}`, "spec.client.presharedKey.secretRef", "generate: true"},
		"BrokenClient":     {"a client is read as an inline peer is", "media", `{gatewayRef: {name: home}, client: {publicKey: x}}`, "spec.client.publicKey", "wg pubkey"},
		"RouteOfCluster":   {"what every gateway refuses is refused at once", "media", `{gatewayRef: {name: home}, client: {routes: [10.42.1.0/24]}}`, "spec.client.routes[0]", "10.42.0.0/16"},
		"PodsImage":        {"a broken image would stop every pod", "media", `{gatewayRef: {name: home}, pods: {image: "a b"}}`, "spec.pods.image", "a b"},
		"PodsBypass":       {"host bits are a mistake", "media", `{gatewayRef: {name: home}, pods: {bypassCIDRs: [10.42.0.1/16]}}`, "spec.pods.bypassCIDRs[0]", "10.42.0.0/16"},
		"PodsBypassAll":    {"nothing would be left for the tunnel", "media", `{gatewayRef: {name: home}, pods: {bypassCIDRs: ["::/0"]}}`, "spec.pods.bypassCIDRs[0]", "name the networks of the cluster"},
		"PodsBypassLast":   {"the item is named as the user counts", "media", `{gatewayRef: {name: home}, pods: {bypassCIDRs: [10.42.0.0/16, 10.42.0.0/16, 0.0.0.0/0]}}`, "spec.pods.bypassCIDRs[2]", "name the networks of the cluster"},
		"PodsClaims":       {"a claim is a pod's own", "media", `{gatewayRef: {name: home}, pods: {resources: {claims: [{name: gpu}]}}}`, "spec.pods.resources.claims", "leave them out"},
		"PodsNoResource":   {"Kubernetes knows no such resource", "media", `{gatewayRef: {name: home}, pods: {resources: {requests: {gpu: 1}}}}`, "spec.pods.resources.requests[gpu]", "example.com/tun"},
		"PodsQuota":        {"this is a resource of quotas", "media", `{gatewayRef: {name: home}, pods: {resources: {limits: {requests.example.com/tun: 1}}}}`, "spec.pods.resources.limits[requests.example.com/tun]", "no resource of a container"},
		"PodsNegative":     {"nobody has less than nothing", "media", `{gatewayRef: {name: home}, pods: {resources: {limits: {memory: -1}}}}`, "spec.pods.resources.limits[memory]", "negative"},
		"PodsOverLimit":    {"every pod would be refused for it", "media", `{gatewayRef: {name: home}, pods: {resources: {requests: {cpu: 20m}, limits: {cpu: 10m}}}}`, "spec.pods.resources.requests[cpu]", "limit of 10m"},
		"PodsShared":       {"a device cannot be promised twice", "media", `{gatewayRef: {name: home}, pods: {resources: {requests: {example.com/tun: 1}}}}`, "spec.pods.resources.requests[example.com/tun]", "set both"},
		"PodsHalf":         {"there is no half of a device", "media", `{gatewayRef: {name: home}, pods: {resources: {limits: {example.com/tun: 500m}}}}`, "spec.pods.resources.limits[example.com/tun]", "whole number"},
		"PodsHugePages":    {"Kubernetes wants cpu or memory beside them", "media", `{gatewayRef: {name: home}, pods: {resources: {limits: {hugepages-2Mi: 2Mi}}}}`, "spec.pods.resources.limits[hugepages-2Mi]", "set one of them"},
		"PodsPolicy":       {"a type that nobody knows would be taken for none", "media", `{gatewayRef: {name: home}, pods: {networkPolicy: {type: Calico}}}`, "spec.pods.networkPolicy.type", "Calico"},
		"PodsEgress":       {"a misspelt rule would close what it is to open", "media", `{gatewayRef: {name: home}, pods: {allowEgress: [{port: 53}]}}`, "spec.pods.allowEgress[0]", "port"},
		"EgressNowhere":    {"a destination that is none would be none to the API server", "media", egress(`{to: [{}]}`), "spec.pods.allowEgress[0].to[0]", `leave to out`},
		"EgressCIDR":       {"it is a network", "media", egress(`{to: [{ipBlock: {cidr: nonsense}}]}`), "spec.pods.allowEgress[0].to[0].ipBlock.cidr", `"nonsense": is no network`},
		"EgressNoCIDR":     {"a block has one", "media", egress(`{to: [{ipBlock: {}}]}`), "spec.pods.allowEgress[0].to[0].ipBlock.cidr", `is no network`},
		"EgressHostBits":   {"host bits are a mistake", "media", egress(`{to: [{ipBlock: {cidr: 10.0.0.1/8}}]}`), "spec.pods.allowEgress[0].to[0].ipBlock.cidr", `write 10.0.0.0/8`},
		"EgressMapped":     {"it is IPv4", "media", egress(`{to: [{ipBlock: {cidr: "::ffff:10.0.0.0/104"}}]}`), "spec.pods.allowEgress[0].to[0].ipBlock.cidr", `write it as IPv4`},
		"EgressPadded":     {"some read it as octal", "media", egress(`{to: [{ipBlock: {cidr: 010.0.0.0/8}}]}`), "spec.pods.allowEgress[0].to[0].ipBlock.cidr", `is no network`},
		"EgressExcept":     {"there is nothing to take out", "media", egress(`{to: [{ipBlock: {cidr: 10.0.0.0/8, except: [192.168.0.0/16]}}]}`), "spec.pods.allowEgress[0].to[0].ipBlock.except[0]", `a smaller network within 10.0.0.0/8`},
		"EgressExceptAll":  {"nothing would be left", "media", egress(`{to: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.0.0/8]}}]}`), "spec.pods.allowEgress[0].to[0].ipBlock.except[0]", `a smaller network within 10.0.0.0/8`},
		"EgressExceptBits": {"host bits are a mistake", "media", egress(`{to: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.1/16]}}]}`), "spec.pods.allowEgress[0].to[0].ipBlock.except[0]", `write 10.1.0.0/16`},
		"EgressBoth":       {"a block and pods are two destinations", "media", egress(`{to: [{ipBlock: {cidr: 10.0.0.0/8}, podSelector: {}}]}`), "spec.pods.allowEgress[0].to[0]", `an item each`},
		"EgressPodLabel":   {"no pod has such a label", "media", egress(`{to: [{podSelector: {matchLabels: {"a b": c}}}]}`), "spec.pods.allowEgress[0].to[0].podSelector.matchLabels", `a b`},
		"EgressNamespace":  {"In has to say what", "media", egress(`{to: [{namespaceSelector: {matchExpressions: [{key: team, operator: In}]}}]}`), "spec.pods.allowEgress[0].to[0].namespaceSelector.matchExpressions[0].values", `must be specified`},
		"EgressPort0":      {"Cilium takes it for every port", "media", egress(`{ports: [{port: 0}]}`), "spec.pods.allowEgress[0].ports[0].port", `0: is out of range: use 1 to 65535`},
		"EgressPort":       {"a port has 16 bits", "media", egress(`{ports: [{port: 65536}]}`), "spec.pods.allowEgress[0].ports[0].port", `65536: is out of range`},
		"EgressPortText":   {"a number in quotes is a name", "media", egress(`{ports: [{port: "80"}]}`), "spec.pods.allowEgress[0].ports[0].port", `without quotes`},
		"EgressPortName":   {"it is a name of a port", "media", egress(`{ports: [{port: Web}]}`), "spec.pods.allowEgress[0].ports[0].port", `lower case`},
		"EgressProtocol":   {"they are in capitals", "media", egress(`{ports: [{port: 80, protocol: tcp}]}`), "spec.pods.allowEgress[0].ports[0].protocol", `"tcp": supported values: "TCP"`},
		"EgressUpsideDown": {"a range has its end at the end", "media", egress(`{ports: [{port: 90, endPort: 80}]}`), "spec.pods.allowEgress[0].ports[0].endPort", `80: is below port: write port 80 and endPort 90`},
		"EgressEnd":        {"a port has 16 bits", "media", egress(`{ports: [{port: 90, endPort: 65536}]}`), "spec.pods.allowEgress[0].ports[0].endPort", `65536: is out of range`},
		"EgressEndOfName":  {"a name has no range", "media", egress(`{ports: [{port: web, endPort: 80}]}`), "spec.pods.allowEgress[0].ports[0].endPort", `as a number`},
		"EgressEndAlone":   {"a range has a beginning", "media", egress(`{ports: [{endPort: 80}]}`), "spec.pods.allowEgress[0].ports[0].endPort", `as a number`},
		"PodsResources":    {"a misspelt limit would be none", "media", `{gatewayRef: {name: home}, pods: {resources: {limit: {}}}}`, "spec.pods.resources", "limit"},
		"PodsImplement":    {"there are two, and the choice between them", "media", `{gatewayRef: {name: home}, pods: {implementation: Go}}`, "spec.pods.implementation", "Go"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, errs := parsePeer(t, tc.name, tc.spec)
			for _, e := range errs {
				if strings.HasPrefix(e, tc.field+":") && strings.Contains(e, tc.says) {
					return
				}
			}
			t.Errorf("%s: want an error at %s with %q, got %q", tc.reason, tc.field, tc.says, errs)
		})
	}
}

func TestParsePodsPolicy(t *testing.T) {
	cases := map[string]struct {
		reason, policy string
		cilium         bool
		want           string
	}{
		"Auto":       {"most networks know the plain kind", "Auto", false, "Kubernetes"},
		"AutoCilium": {"the platform says that the network is Cilium's", "Auto", true, "Cilium"},
		"Kubernetes": {"Cilium knows the plain kind too", "Kubernetes", true, "Kubernetes"},
		"Cilium":     {"the user knows better", "Cilium", false, "Cilium"},
		"None":       {"somebody else makes it", "None", true, "None"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p, errs := ParsePeer("media", "apps", fromYAML[v1alpha1.WireguardPeerSpec](t, `{gatewayRef: {name: home}, pods: {networkPolicy: {type: `+tc.policy+`}}}`), Platform{Cilium: tc.cilium})
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			if got := p.Pods.NetworkPolicy; got != tc.want {
				t.Errorf("%s: want %s, got %s", tc.reason, tc.want, got)
			}
		})
	}
}

// Every rule that the API server takes can be added to the network policy, as it
// stands.
func TestParsePodsEgress(t *testing.T) {
	const rules = `[{}, {to: [{podSelector: {}}, {namespaceSelector: {}}, {namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchExpressions: [{key: app, operator: NotIn, values: [a]}]}}]},
		{to: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16]}}, {ipBlock: {cidr: "FD00:0::/8"}}, {ipBlock: {cidr: 0.0.0.0/0}}]},
		{ports: [{}, {port: 1}, {port: 65535, protocol: SCTP}, {port: web, protocol: UDP}, {port: 80, endPort: 80}, {port: 80, endPort: 90, protocol: TCP}]}]`
	p, errs := parsePeer(t, "media", `{gatewayRef: {name: home}, pods: {allowEgress: `+rules+`}}`)
	if len(errs) > 0 {
		t.Fatalf("want them accepted, got %q", errs)
	}
	want := *fromYAML[[]networkingv1.NetworkPolicyEgressRule](t, rules)
	if diff := cmp.Diff(want, p.Pods.AllowEgress); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// Every resource that the API server takes can be given to the sidecar.
func TestParsePodsResources(t *testing.T) {
	_, errs := parsePeer(t, "media", `{gatewayRef: {name: home}, pods: {resources: {
		requests: {cpu: 10m, memory: 32Mi, ephemeral-storage: 1Mi, hugepages-2Mi: 4Mi, example.com/tun: 1},
		limits: {cpu: "1", memory: 32Mi, hugepages-2Mi: 4Mi, example.com/tun: 1}}}}`)
	if len(errs) > 0 {
		t.Errorf("want them accepted, got %q", errs)
	}
}

// A WireguardPeer and an inline peer with the same settings are the same
// client, but for whose they are.
func TestParseClientIsInlinePeer(t *testing.T) {
	const settings = `publicKey: ` + validKey + `
presharedKey: {generate: true}
addresses: [10.8.0.50]
allowedIPs: [10.43.0.0/16]
routes: [192.168.50.0/24]
endpoint: 198.51.100.9:51820
persistentKeepalive: 15
dns: {servers: [9.9.9.9]}
mtu: 1280
advertisedEndpoint: {host: "[2001:db8::1]", port: 443}
disabled: true
expiresAt: "2027-01-01T01:00:00+01:00"
access: [{action: Accept, to: {cidr: 10.43.0.20/32, ports: ["443"]}, protocol: TCP}]
keyRotation: 3
qrCode: true
`
	g := accepted(t, "peers:\n- name: media\n  "+strings.ReplaceAll(strings.TrimSpace(settings), "\n", "\n  "))
	got, errs := ParseClient("media", "apps", fromYAML[v1alpha1.Client](t, settings), g)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	want := g.Peers[0]
	want.Namespace = "apps"
	if diff := cmp.Diff(want, got, netTypes); diff != "" {
		t.Errorf("-inline, +WireguardPeer:\n%s", diff)
	}
}

func TestParseClientRefused(t *testing.T) {
	g := accepted(t, `{peerCIDR: 10.8.0.0/24, peerCIDRv6: "fd00:8::/64", reservedAddresses: [10.8.0.9]}`)
	cases := map[string]struct{ reason, client, field, says string }{
		"OutsidePool": {"the gateway has other addresses", `{addresses: [10.9.0.4]}`, "addresses[0]", "10.8.0.0/24"},
		"Reserved":    {"the owner keeps it", `{addresses: [10.8.0.9]}`, "addresses[0]", "reservedAddresses"},
		"Server":      {"it is the gateway's own", `{addresses: [10.8.0.1]}`, "addresses[0]", "10.8.0.0/24"},
		"RouteOfPool": {"it would take other peers' traffic", `{routes: [10.8.0.128/25]}`, "routes[0]", "10.8.0.0/24"},
		"MTU":         {"IPv6 needs more", `{mtu: 600}`, "mtu", "1280"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, errs := ParseClient("media", "apps", fromYAML[v1alpha1.Client](t, tc.client), g)
			for _, e := range errs {
				if e.Field == "spec.client."+tc.field && strings.Contains(e.Error(), tc.says) {
					return
				}
			}
			t.Errorf("%s: want an error at %s with %q, got %v", tc.reason, tc.field, tc.says, errs)
		})
	}
}
