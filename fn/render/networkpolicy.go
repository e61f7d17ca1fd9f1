package render

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// networkPolicy lets in what the gateway serves: WireGuard, probes and metrics,
// and the tunnel where there is one.
func networkPolicy(g *plan.Gateway) *networkingv1.NetworkPolicy {
	ports := []networkingv1.NetworkPolicyPort{
		policyPort(corev1.ProtocolUDP, g.ListenPort),
		policyPort(corev1.ProtocolTCP, wireguard.HTTPPort),
	}
	if g.Tunnel != nil {
		ports = append(ports, policyPort(corev1.ProtocolTCP, spec.TunnelPort))
	}
	return &networkingv1.NetworkPolicy{
		ObjectMeta: meta(g, names.Workload(g.Name)),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: names.Selector(g.Name)},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress:     []networkingv1.NetworkPolicyIngressRule{{Ports: ports}},
		},
	}
}

// policyPort is one port in a rule of a NetworkPolicy.
func policyPort(protocol corev1.Protocol, port int) networkingv1.NetworkPolicyPort {
	return networkingv1.NetworkPolicyPort{Protocol: new(protocol), Port: new(intstr.FromInt32(int32(port)))}
}
