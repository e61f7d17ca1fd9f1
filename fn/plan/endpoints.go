package plan

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
)

// HostPort is where something listens. The zero value is not known.
type HostPort struct {
	Host string
	Port int
}

// String joins host and port, with brackets around IPv6 addresses. It is empty
// where either is not known.
func (h HostPort) String() string {
	if h.Host == "" || h.Port == 0 {
		return ""
	}
	return spec.JoinHostPort(h.Host, h.Port)
}

// Endpoints are where clients reach the gateway.
type Endpoints struct {
	Direct   HostPort
	Internal HostPort
	// Tunnel is the URL of the WebSocket's server, empty where there is no
	// tunnel.
	Tunnel string

	// Awaited says what the direct endpoint is waiting for, where it is not
	// known.
	Awaited string
	// Hint says why the direct endpoint may not answer, though it is known.
	Hint string

	// directPort is the port of the direct endpoint, which is known before its
	// host.
	directPort int
}

func (g *Gateway) endpoints(in Inputs) Endpoints {
	e := Endpoints{
		Internal: HostPort{
			Host: fmt.Sprintf("%s.%s.svc.%s", names.Workload(g.Name), g.Namespace, g.Platform.ClusterDomain),
			Port: g.ListenPort,
		},
	}
	if g.Tunnel != nil {
		e.Tunnel = "wss://" + g.GatewayAPI.Hostname
	}
	e.directPort = g.directPort(in.ObservedService)
	e.Direct, e.Awaited = g.direct(in, e.directPort)
	if g.Endpoint.Host == "" && len(in.Nodes) > 0 && g.answersLocally() && len(g.answering(in.Nodes)) > 1 {
		e.Hint = "With spec.service.externalTrafficPolicy Local only the node that has the pod answers: choose one by spec.pod.nodeSelector, or set spec.endpoint.host."
	}
	return e
}

// directPort is the user's, else the node port of a NodePort Service, else the
// one that the gateway listens on. 0 is a node port that is not allocated yet.
func (g *Gateway) directPort(service *corev1.Service) int {
	switch {
	case g.Endpoint.Port != 0:
		return g.Endpoint.Port
	case g.Endpoint.Host == "" && g.GatewayAPI.UDPRoute != nil:
		return g.GatewayAPI.UDPRoute.Port
	case g.Service.Type == v1alpha1.ServiceNodePort:
		return nodePort(g, service)
	default:
		return g.ListenPort
	}
}

// direct returns the first endpoint that is known of, or else what is awaited.
func (g *Gateway) direct(in Inputs, port int) (e HostPort, awaited string) {
	switch {
	case port == 0:
		return HostPort{}, "the node port of the Service to be allocated"
	case g.Endpoint.Host != "":
		return HostPort{Host: g.Endpoint.Host, Port: port}, ""
	case g.GatewayAPI.UDPRoute != nil:
		return HostPort{Host: g.GatewayAPI.Hostname, Port: port}, ""
	case g.Service.Type == v1alpha1.ServiceLoadBalancer:
		host := ingressHost(in.ObservedService)
		if host == "" {
			return HostPort{}, "a load balancer to give the Service an address; on clusters without one, set spec.endpoint.host or another spec.service.type"
		}
		return HostPort{Host: host, Port: port}, ""
	case g.Service.Type == v1alpha1.ServiceNodePort:
		host := nodeAddress(g.answering(in.Nodes), g.families(in.ObservedService))
		if host == "" {
			return HostPort{}, "a node that is ready and has an address of the Service's IP family; set spec.endpoint.host to name one yourself"
		}
		return HostPort{Host: host, Port: port}, ""
	default:
		return HostPort{}, ""
	}
}

func nodePort(g *Gateway, service *corev1.Service) int {
	if g.Service.NodePort != 0 {
		return int(g.Service.NodePort)
	}
	if service == nil || service.Spec.Type != corev1.ServiceTypeNodePort {
		return 0
	}
	for _, p := range service.Spec.Ports {
		if p.Name == spec.PortNameWireGuard {
			return int(p.NodePort)
		}
	}
	return 0
}

func ingressHost(service *corev1.Service) string {
	if service == nil || service.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return ""
	}
	for _, i := range service.Status.LoadBalancer.Ingress {
		if host := cmp.Or(i.IP, i.Hostname); host != "" {
			return host
		}
	}
	return ""
}

// answersLocally tells whether only the node that has the pod answers.
func (g *Gateway) answersLocally() bool {
	return g.Service.ExternalTrafficPolicy == string(corev1.ServiceExternalTrafficPolicyLocal)
}

// answering are the nodes that may answer, whether they are ready or not.
func (g *Gateway) answering(nodes []corev1.Node) []corev1.Node {
	if !g.answersLocally() {
		return nodes
	}
	chosen := labels.SelectorFromSet(g.Pod.NodeSelector)
	return slices.DeleteFunc(slices.Clone(nodes), func(n corev1.Node) bool { return !chosen.Matches(labels.Set(n.Labels)) })
}

// families are those that the Service has: the API server knows, once it exists.
func (g *Gateway) families(service *corev1.Service) []corev1.IPFamily {
	if service != nil && len(service.Spec.IPFamilies) > 0 {
		return service.Spec.IPFamilies
	}
	var out []corev1.IPFamily
	for _, f := range g.Service.IPFamilies {
		out = append(out, corev1.IPFamily(f))
	}
	return out
}

// nodeAddress returns an external address of a ready node, else an internal
// one, of one of the families if there are any. Nodes are sorted, so that the
// answer stays the same.
func nodeAddress(nodes []corev1.Node, families []corev1.IPFamily) string {
	for _, kind := range []corev1.NodeAddressType{corev1.NodeExternalIP, corev1.NodeInternalIP} {
		var found []string
		for i := range nodes {
			if !nodeReady(&nodes[i]) {
				continue
			}
			for _, a := range nodes[i].Status.Addresses {
				if a.Type == kind && a.Address != "" && isOf(a.Address, families) {
					found = append(found, a.Address)
					break
				}
			}
		}
		if len(found) > 0 {
			return slices.Min(found)
		}
	}
	return ""
}

// isOf tells whether an address is of one of the families. Where there are none,
// nobody knows better.
func isOf(address string, families []corev1.IPFamily) bool {
	family := corev1.IPv4Protocol
	if ip, err := netip.ParseAddr(address); err == nil && ip.Is6() {
		family = corev1.IPv6Protocol
	}
	return len(families) == 0 || slices.Contains(families, family)
}

func nodeReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
