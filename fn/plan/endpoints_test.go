package plan

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func node(name string, ready corev1.ConditionStatus, addresses ...corev1.NodeAddress) corev1.Node {
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse}, {Type: corev1.NodeReady, Status: ready}},
			Addresses:  addresses,
		},
	}
}

func internalIP(ip string) corev1.NodeAddress {
	return corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip}
}

func external(ip string) corev1.NodeAddress {
	return corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: ip}
}

func service(kind corev1.ServiceType, nodePort int32, ingress ...corev1.LoadBalancerIngress) *corev1.Service {
	return &corev1.Service{
		Spec: corev1.ServiceSpec{Type: kind, Ports: []corev1.ServicePort{
			{Name: "http", Port: 9586, NodePort: 32000},
			{Name: "wireguard", Port: 51820, NodePort: nodePort},
		}},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: ingress}},
	}
}

func TestEndpoints(t *testing.T) {
	const (
		lb       = corev1.ServiceTypeLoadBalancer
		np       = corev1.ServiceTypeNodePort
		internal = "home-wireguard.vpn.svc.cluster.local:51820"
	)
	udpRoute := `gateway: {hostname: gw.example.com, udpRoute: {enabled: true, port: 443, parentRefs: [{name: public}]}}`
	ip := corev1.LoadBalancerIngress{IP: "203.0.113.9"}
	ip6 := corev1.LoadBalancerIngress{IP: "2001:db8::9"}
	name := corev1.LoadBalancerIngress{Hostname: "lb.example.com"}
	nodes := []corev1.Node{
		node("c", corev1.ConditionFalse, external("192.0.2.1"), internalIP("10.0.0.1")),
		node("b", corev1.ConditionTrue, internalIP("10.0.0.3"), external("198.51.100.3")),
		node("a", corev1.ConditionTrue, internalIP("10.0.0.2"), external("198.51.100.2"), external("2001:db8::2")),
	}
	families := func(s *corev1.Service, f ...corev1.IPFamily) *corev1.Service {
		s.Spec.IPFamilies = f
		return s
	}
	dual := []corev1.Node{node("a", corev1.ConditionTrue, internalIP("10.0.0.2"), internalIP("fd00::2"), external("2001:db8::2"))}
	labelled := func(name, ip string) corev1.Node {
		n := node(name, corev1.ConditionTrue, external(ip))
		n.Labels = map[string]string{"vpn": name}
		return n
	}
	two := []corev1.Node{labelled("a", "198.51.100.1"), labelled("b", "198.51.100.2")}
	type want struct {
		Direct, Internal string
		Awaits           bool
	}
	cases := map[string]struct {
		reason  string
		spec    string
		service *corev1.Service
		nodes   []corev1.Node
		want    want
	}{
		"LoadBalancerFirst":     {"Nothing is there yet.", `{}`, nil, nil, want{"", internal, true}},
		"LoadBalancerWaiting":   {"It has no address yet.", `{}`, service(lb, 31820), nil, want{"", internal, true}},
		"LoadBalancerIP":        {"Its address is the endpoint.", `{}`, service(lb, 31820, ip), nil, want{"203.0.113.9:51820", internal, false}},
		"LoadBalancerIPv6":      {"IPv6 stands in brackets.", `{}`, service(lb, 31820, ip6), nil, want{"[2001:db8::9]:51820", internal, false}},
		"LoadBalancerHostname":  {"Some have a name.", `{}`, service(lb, 31820, name), nil, want{"lb.example.com:51820", internal, false}},
		"LoadBalancerTwo":       {"The first is the one.", `{}`, service(lb, 31820, name, ip), nil, want{"lb.example.com:51820", internal, false}},
		"LoadBalancerEmpty":     {"An entry without address is none.", `{}`, service(lb, 31820, corev1.LoadBalancerIngress{}, ip), nil, want{"203.0.113.9:51820", internal, false}},
		"LoadBalancerPort":      {"The advertised port is set by itself.", `{endpoint: {port: 443}}`, service(lb, 31820, ip), nil, want{"203.0.113.9:443", internal, false}},
		"LoadBalancerOldType":   {"An ingress of another type is a remnant.", `{}`, service(np, 31820, ip), nil, want{"", internal, true}},
		"Host":                  {"What the user says comes first.", `{endpoint: {host: vpn.example.com}}`, service(lb, 31820, ip), nil, want{"vpn.example.com:51820", internal, false}},
		"HostAndPort":           {"Both are said.", `{endpoint: {host: vpn.example.com, port: 443}}`, nil, nil, want{"vpn.example.com:443", internal, false}},
		"HostIPv6":              {"IPv6 stands in brackets, once.", `{endpoint: {host: "[2001:DB8::1]"}}`, nil, nil, want{"[2001:db8::1]:51820", internal, false}},
		"HostBeforeUDPRoute":    {"What the user says comes first.", `{endpoint: {host: vpn.example.com}, ` + udpRoute + `}`, nil, nil, want{"vpn.example.com:51820", internal, false}},
		"UDPRoute":              {"The Gateway is the way in.", `{` + udpRoute + `}`, service(lb, 31820, ip), nil, want{"gw.example.com:443", internal, false}},
		"UDPRouteNodePort":      {"The Gateway is the way in.", `{service: {type: NodePort}, ` + udpRoute + `}`, nil, nil, want{"gw.example.com:443", internal, false}},
		"ListenPort":            {"All endpoints follow the port.", `{listenPort: 4500, endpoint: {host: vpn.example.com}}`, nil, nil, want{"vpn.example.com:4500", "home-wireguard.vpn.svc.cluster.local:4500", false}},
		"NodePort":              {"A ready node's external address, the least.", `{service: {type: NodePort}}`, service(np, 31820), nodes, want{"198.51.100.2:31820", internal, false}},
		"NodePortAsked":         {"A port that is asked for is known at once.", `{service: {type: NodePort, nodePort: 31000}}`, nil, nodes, want{"198.51.100.2:31000", internal, false}},
		"NodePortPending":       {"The port is not allocated yet.", `{service: {type: NodePort}}`, nil, nodes, want{"", internal, true}},
		"NodePortOldType":       {"A load balancer's node port may change with the type.", `{service: {type: NodePort}}`, service(lb, 31820), nodes, want{"", internal, true}},
		"NodePortNoNode":        {"Nobody is ready.", `{service: {type: NodePort}}`, service(np, 31820), nodes[:1], want{"", internal, true}},
		"NodePortInternal":      {"An internal address is better than none.", `{service: {type: NodePort}}`, service(np, 31820), []corev1.Node{node("b", corev1.ConditionTrue, internalIP("10.0.0.3")), node("a", corev1.ConditionTrue, internalIP("10.0.0.2"))}, want{"10.0.0.2:31820", internal, false}},
		"NodePortOneExternal":   {"External comes first, wherever it is.", `{service: {type: NodePort}}`, service(np, 31820), []corev1.Node{node("a", corev1.ConditionTrue, internalIP("10.0.0.2")), node("b", corev1.ConditionTrue, external("198.51.100.3"))}, want{"198.51.100.3:31820", internal, false}},
		"NodePortIPv6":          {"IPv6 stands in brackets.", `{service: {type: NodePort}}`, service(np, 31820), []corev1.Node{node("a", corev1.ConditionTrue, external("2001:db8::2"))}, want{"[2001:db8::2]:31820", internal, false}},
		"NodePortUnknown":       {"A node of unknown state is not ready.", `{service: {type: NodePort}}`, service(np, 31820), []corev1.Node{node("a", corev1.ConditionUnknown, external("198.51.100.3"))}, want{"", internal, true}},
		"NodePortFamily":        {"A node drops what comes by a family that the Service does not have.", `{service: {type: NodePort}}`, families(service(np, 31820), corev1.IPv4Protocol), dual, want{"10.0.0.2:31820", internal, false}},
		"NodePortFamilyIPv6":    {"So it does the other way round.", `{service: {type: NodePort, ipFamilies: [IPv6]}}`, families(service(np, 31820), corev1.IPv6Protocol), dual, want{"[2001:db8::2]:31820", internal, false}},
		"NodePortFamilySecond":  {"The first address of a node may be of the other family.", `{service: {type: NodePort}}`, families(service(np, 31820), corev1.IPv6Protocol), []corev1.Node{node("a", corev1.ConditionTrue, internalIP("10.0.0.2"), internalIP("fd00::2"))}, want{"[fd00::2]:31820", internal, false}},
		"NodePortFamilyMissing": {"No node has an address of the Service's family.", `{service: {type: NodePort}}`, families(service(np, 31820), corev1.IPv6Protocol), nodes[:2], want{"", internal, true}},
		"NodePortLocal":         {"Only the node that has the pod takes it in.", `{service: {type: NodePort, externalTrafficPolicy: Local}, pod: {nodeSelector: {vpn: b}}}`, service(np, 31820), two, want{"198.51.100.2:31820", internal, false}},
		"NodePortCluster":       {"Every node takes it in, wherever the pod is.", `{service: {type: NodePort}, pod: {nodeSelector: {vpn: b}}}`, service(np, 31820), two, want{"198.51.100.1:31820", internal, false}},
		"NodePortHost":          {"The port is the node's all the same.", `{service: {type: NodePort}, endpoint: {host: vpn.example.com}}`, service(np, 31820), nil, want{"vpn.example.com:31820", internal, false}},
		"NodePortHostPending":   {"A name without port is no endpoint.", `{service: {type: NodePort}, endpoint: {host: vpn.example.com}}`, nil, nil, want{"", internal, true}},
		"NodePortHostAndPort":   {"Nothing is awaited.", `{service: {type: NodePort}, endpoint: {host: vpn.example.com, port: 443}}`, nil, nil, want{"vpn.example.com:443", internal, false}},
		"ClusterIP":             {"It is reached from within only, and that is as it should be.", `{service: {type: ClusterIP}}`, service(corev1.ServiceTypeClusterIP, 0), nil, want{"", internal, false}},
		"ClusterIPHost":         {"Something in front of it may lead there.", `{service: {type: ClusterIP}, endpoint: {host: vpn.example.com}}`, nil, nil, want{"vpn.example.com:51820", internal, false}},
		"ClusterIPOldIngress":   {"An ingress of another type is a remnant.", `{service: {type: ClusterIP}}`, service(lb, 0, ip), nil, want{"", internal, false}},
		"NodePortNodesReversed": {"The order of nodes does not matter.", `{service: {type: NodePort}}`, service(np, 31820), []corev1.Node{nodes[2], nodes[1], nodes[0]}, want{"198.51.100.2:31820", internal, false}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := inputs(t, tc.spec)
			in.ObservedService, in.Nodes = tc.service, tc.nodes
			e := planned(t, in).Endpoints
			if diff := cmp.Diff(tc.want, want{e.Direct.String(), e.Internal.String(), e.Awaited != ""}); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// Where the pod may be on any of several nodes, of which one alone answers, the
// user is told so.
func TestLocalNodePort(t *testing.T) {
	some := []corev1.Node{node("a", corev1.ConditionTrue, external("198.51.100.1")), node("b", corev1.ConditionFalse, external("198.51.100.2"))}
	for name, tc := range map[string]struct {
		reason string
		spec   string
		nodes  []corev1.Node
		want   bool
	}{
		"Several": {"the pod may come to another", `{service: {type: NodePort, externalTrafficPolicy: Local}}`, some, true},
		"One":     {"there is no other", `{service: {type: NodePort, externalTrafficPolicy: Local}}`, some[:1], false},
		"Host":    {"the user knows better", `{service: {type: NodePort, externalTrafficPolicy: Local}, endpoint: {host: vpn.example.com}}`, some, false},
		"Cluster": {"all of them answer", `{service: {type: NodePort}}`, some, false},
	} {
		t.Run(name, func(t *testing.T) {
			in := inputs(t, tc.spec)
			in.ObservedService, in.Nodes = service(corev1.ServiceTypeNodePort, 31820), tc.nodes
			if e := planned(t, in).Endpoints; (e.Hint != "") != tc.want {
				t.Errorf("%s: want a hint: %t, got %q", tc.reason, tc.want, e.Hint)
			}
		})
	}
}

func TestClusterDomain(t *testing.T) {
	g := planned(t, inputsOn(t, `{}`, `{clusterDomain: k8s.lan}`))
	if got := g.Endpoints.Internal.String(); got != "home-wireguard.vpn.svc.k8s.lan:51820" {
		t.Errorf("want the domain of the platform, got %s", got)
	}
}

func TestTunnelEndpoint(t *testing.T) {
	g := planned(t, inputs(t, `{tunnel: {}, gateway: {hostname: gw.example.com, parentRefs: [{name: public}]}}`))
	if got := g.Endpoints.Tunnel; got != "wss://gw.example.com" {
		t.Errorf("want wss://gw.example.com, got %s", got)
	}
	if got := planned(t, inputs(t, `{gateway: {hostname: gw.example.com, parentRefs: [{name: public}]}}`)).Endpoints.Tunnel; got != "" {
		t.Errorf("without a tunnel there is no endpoint of it, got %s", got)
	}
}

// TestTunnelPathPrefix holds that a prefix with a dash in front is no option of
// its own.
func TestTunnelPathPrefix(t *testing.T) {
	g := planned(t, inputs(t, `{tunnel: {pathPrefix: -ws}, gateway: {hostname: gw.example.com, parentRefs: [{name: public}]}, peers: [{name: a}]}`))
	if start := strings.Join(g.TunnelConfig(&g.Peers[0]).PreUp, "\n"); !strings.Contains(start, " --http-upgrade-path-prefix='-ws' ") {
		t.Errorf("want the option and its value in one argument, got\n%s", start)
	}
}

func TestAdvertisedEndpoint(t *testing.T) {
	cases := map[string]struct {
		reason  string
		spec    string
		service *corev1.Service
		want    string
	}{
		"HostAndPort": {"The peer's own view comes first.", `{endpoint: {host: vpn.example.com}, peers: [{name: a, advertisedEndpoint: {host: site-b.example.com, port: 443}}]}`, nil, "site-b.example.com:443"},
		"Host":        {"The port is the gateway's.", `{endpoint: {host: vpn.example.com, port: 4500}, peers: [{name: a, advertisedEndpoint: {host: 10.0.0.1}}]}`, nil, "10.0.0.1:4500"},
		"NothingElse": {"The peer's is known before the gateway's is.", `{peers: [{name: a, advertisedEndpoint: {host: "2001:db8::1"}}]}`, nil, "[2001:db8::1]:51820"},
		"NodePort":    {"The port is the node's.", `{service: {type: NodePort}, peers: [{name: a, advertisedEndpoint: {host: 10.0.0.1}}]}`, service(corev1.ServiceTypeNodePort, 31820), "10.0.0.1:31820"},
		"NoPort":      {"The node port is not known yet.", `{service: {type: NodePort}, peers: [{name: a, advertisedEndpoint: {host: 10.0.0.1}}]}`, nil, ""},
		"None":        {"The gateway's is every other peer's.", `{endpoint: {host: vpn.example.com}, peers: [{name: a}]}`, nil, "vpn.example.com:51820"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := inputs(t, tc.spec)
			in.ObservedService = tc.service
			if got := planned(t, in).Peers[0].Direct; got != tc.want {
				t.Errorf("%s\nwant %q, got %q", tc.reason, tc.want, got)
			}
		})
	}
}
