package render

import (
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// Labels that Cilium gives to what it knows of a pod.
const (
	ciliumNamespace       = "k8s:io.kubernetes.pod.namespace"
	ciliumNamespaceLabels = "k8s:io.cilium.k8s.namespace.labels."
)

// ciliumNetworkPolicy says the same as podsNetworkPolicy, for Cilium: it knows pods
// by their labels, and matches none by its address. The kind has few fields and its
// Go types many dependencies, so it is written out.
func ciliumNetworkPolicy(peer *spec.WireguardPeer, gatewayPort int) *unstructured.Unstructured {
	everywhere := map[string]any{"matchExpressions": []any{map[string]any{"key": ciliumNamespace, "operator": "Exists"}}}
	var egress []any
	if gatewayPort != 0 {
		to := map[string]any{"toEndpoints": []any{map[string]any{"matchLabels": anyMap(withLabel(names.Selector(peer.GatewayName), ciliumNamespace, peer.GatewayNamespace))}}}
		to["toPorts"] = ciliumPorts([2]string{strconv.Itoa(gatewayPort), "UDP"})
		egress = append(egress, to)
	}
	dns := ciliumPorts([2]string{strconv.Itoa(dnsPort), "UDP"}, [2]string{strconv.Itoa(dnsPort), "TCP"})
	egress = append(egress, map[string]any{"toEndpoints": []any{everywhere}, "toPorts": dns})
	if a := peer.Platform.ClusterDNS; a.IsValid() {
		egress = append(egress, map[string]any{"toCIDR": []any{a.String() + "/" + strconv.Itoa(a.BitLen())}, "toPorts": dns})
	}
	if bypass := plan.BypassCIDRs(peer); len(bypass) > 0 {
		cidrs := make([]any, 0, len(bypass))
		for _, n := range bypass {
			cidrs = append(cidrs, n.String())
		}
		egress = append(egress, map[string]any{"toCIDR": cidrs})
	}
	if bypassesPods(peer) {
		egress = append(egress, map[string]any{"toEndpoints": []any{everywhere}})
	}
	for i := range peer.Pods.AllowEgress {
		egress = append(egress, ciliumRules(&peer.Pods.AllowEgress[i])...)
	}
	o := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{
			"endpointSelector": map[string]any{"matchLabels": map[string]any{wireguard.PeerLabel: peer.Name}},
			"egress":           egress,
		},
	}}
	setMeta(o, peerMeta(peer, names.Pods(peer.Name)))
	return o
}

func ciliumPorts(ports ...[2]string) []any {
	out := make([]any, 0, len(ports))
	for _, p := range ports {
		out = append(out, map[string]any{"port": p[0], "protocol": p[1]})
	}
	return []any{map[string]any{"ports": out}}
}

// ciliumRules translates a rule, as Cilium itself does for a NetworkPolicy. It may
// become several, since a rule of Cilium's holds destinations of one sort only.
func ciliumRules(r *networkingv1.NetworkPolicyEgressRule) []any {
	var endpoints, cidrs []any
	for i := range r.To {
		if to := &r.To[i]; to.IPBlock != nil {
			cidrs = append(cidrs, ciliumBlock(to.IPBlock))
		} else {
			endpoints = append(endpoints, ciliumEndpoint(to))
		}
	}
	var out []any
	add := func(key string, destinations []any) {
		if len(destinations) == 0 {
			return
		}
		rule := map[string]any{key: destinations}
		if ports := ciliumPortsOf(r.Ports); len(ports) > 0 {
			rule["toPorts"] = ports
		}
		out = append(out, rule)
	}
	if len(r.To) == 0 {
		add("toEntities", []any{"all"})
	}
	add("toEndpoints", endpoints)
	add("toCIDRSet", cidrs)
	return out
}

// ciliumPortsOf returns a list for each port, since a list of Cilium's holds at
// most 40.
func ciliumPortsOf(ports []networkingv1.NetworkPolicyPort) []any {
	out := make([]any, 0, len(ports))
	for _, p := range ports {
		// Port 0 is every port.
		port := map[string]any{"port": "0", "protocol": string(corev1.ProtocolTCP)}
		if p.Protocol != nil {
			port["protocol"] = string(*p.Protocol)
		}
		if p.Port != nil {
			port["port"] = p.Port.String()
		}
		if p.EndPort != nil {
			port["endPort"] = int64(*p.EndPort)
		}
		out = append(out, map[string]any{"ports": []any{port}})
	}
	return out
}

func ciliumBlock(b *networkingv1.IPBlock) map[string]any {
	out := map[string]any{"cidr": b.CIDR}
	if len(b.Except) > 0 {
		except := make([]any, 0, len(b.Except))
		for _, e := range b.Except {
			except = append(except, e)
		}
		out["except"] = except
	}
	return out
}

// ciliumEndpoint selects pods. Without a selector of namespaces, they are in the
// policy's own.
func ciliumEndpoint(p *networkingv1.NetworkPolicyPeer) map[string]any {
	labels, expressions := map[string]string{}, []any{}
	add := func(s *metav1.LabelSelector, prefix string) {
		for k, v := range s.MatchLabels {
			labels[prefix+k] = v
		}
		for _, e := range s.MatchExpressions {
			x := map[string]any{"key": prefix + e.Key, "operator": string(e.Operator)}
			if len(e.Values) > 0 {
				values := make([]any, 0, len(e.Values))
				for _, v := range e.Values {
					values = append(values, v)
				}
				x["values"] = values
			}
			expressions = append(expressions, x)
		}
	}
	if s := p.PodSelector; s != nil {
		add(s, "k8s:")
	}
	if s := p.NamespaceSelector; s != nil {
		add(s, ciliumNamespaceLabels)
		if len(s.MatchLabels) == 0 && len(s.MatchExpressions) == 0 {
			expressions = append(expressions, map[string]any{"key": ciliumNamespace, "operator": "Exists"})
		}
	}
	out := map[string]any{}
	if len(labels) > 0 {
		out["matchLabels"] = anyMap(labels)
	}
	if len(expressions) > 0 {
		out["matchExpressions"] = expressions
	}
	return out
}

func withLabel(labels map[string]string, key, value string) map[string]string {
	out := maps.Clone(labels)
	out[key] = value
	return out
}
