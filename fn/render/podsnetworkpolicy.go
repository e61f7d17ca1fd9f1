package render

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// dnsPort is where names are resolved.
const dnsPort = 53

// podsNetworkPolicy lets pods reach their gateway, the cluster's resolvers, what
// leaves beside the tunnel, and what their user adds; nothing else.
//
// Most networks judge where a packet goes once the address of a Service is
// translated, some before. So it names the gateway's pods, and beside them the
// addresses of Services.
func podsNetworkPolicy(peer *spec.WireguardPeer, gatewayPort int) *networkingv1.NetworkPolicy {
	everywhere := networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{}}
	egress := make([]networkingv1.NetworkPolicyEgressRule, 0, len(peer.Pods.AllowEgress)+3)
	if gatewayPort != 0 {
		to := append([]networkingv1.NetworkPolicyPeer{{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: peer.GatewayNamespace}},
			PodSelector:       &metav1.LabelSelector{MatchLabels: names.Selector(peer.GatewayName)},
		}}, blocks(peer.Platform.ServiceCIDRs)...)
		egress = append(egress, networkingv1.NetworkPolicyEgressRule{
			To:    to,
			Ports: []networkingv1.NetworkPolicyPort{policyPort(corev1.ProtocolUDP, gatewayPort)},
		})
	}
	dns := []networkingv1.NetworkPolicyPeer{everywhere}
	if a := peer.Platform.ClusterDNS; a.IsValid() {
		dns = append(dns, blocks([]netip.Prefix{netip.PrefixFrom(a, a.BitLen())})...)
	}
	egress = append(egress, networkingv1.NetworkPolicyEgressRule{
		To:    dns,
		Ports: []networkingv1.NetworkPolicyPort{policyPort(corev1.ProtocolUDP, dnsPort), policyPort(corev1.ProtocolTCP, dnsPort)},
	})
	if bypass := plan.BypassCIDRs(peer); len(bypass) > 0 {
		to := blocks(bypass)
		if bypassesPods(peer) {
			to = append(to, everywhere)
		}
		egress = append(egress, networkingv1.NetworkPolicyEgressRule{To: to})
	}
	return &networkingv1.NetworkPolicy{
		ObjectMeta: peerMeta(peer, names.Pods(peer.Name)),
		Spec: networkingv1.NetworkPolicySpec{
			PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{wireguard.PeerLabel: peer.Name}},
			PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
			Egress:      append(egress, peer.Pods.AllowEgress...),
		},
	}
}

func blocks(ns []netip.Prefix) []networkingv1.NetworkPolicyPeer {
	out := make([]networkingv1.NetworkPolicyPeer, 0, len(ns))
	for _, n := range ns {
		out = append(out, networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: n.String()}})
	}
	return out
}

// bypassesPods tells whether the cluster's pods are reached beside the tunnel. A
// network that knows pods by what they are, and not by their addresses, has to
// be told so.
func bypassesPods(peer *spec.WireguardPeer) bool {
	bypass := plan.BypassCIDRs(peer)
	return slices.ContainsFunc(peer.Platform.PodCIDRs, func(pods netip.Prefix) bool {
		return slices.ContainsFunc(bypass, func(n netip.Prefix) bool { return n.Bits() <= pods.Bits() && n.Overlaps(pods) })
	})
}
