package fn

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
)

// status returns all of the gateway's status. A field that is not returned any
// more is removed.
func status(g *plan.Gateway, o *observed) v1alpha1.WireguardGatewayStatus {
	s := v1alpha1.WireguardGatewayStatus{
		ActivePeers: int64(g.Active()),
		Endpoints: &v1alpha1.Endpoints{
			Direct:   g.Endpoints.Direct.String(),
			Internal: g.Endpoints.Internal.String(),
			Tunnel:   g.Endpoints.Tunnel,
		},
	}
	// The gateway is held to having a seed once its public key stands here, and to
	// the one whose ID does. So it has to be the one in the cluster: of two that are
	// generated at the same time, the API server refuses one.
	if !g.Keys.Fleeting {
		s.PublicKey = g.Keys.Public.String()
	}
	if !g.Keys.Generated && !g.Keys.Fleeting {
		s.SeedID = g.Keys.Seed.ID()
	}
	for _, a := range g.Addresses {
		s.Addresses = append(s.Addresses, a.Addr().String())
	}
	s.Egress = egressStatus(g, o)
	// An agent that is not ready still has pods.
	if o.report != nil && (!o.report.Ready || !o.unavailable()) {
		s.InjectedPods = int64(o.report.InjectedPods)
	}
	s.Peers = make([]v1alpha1.PeerStatus, 0, len(g.Peers)+len(g.PodClasses))
	for i := range g.Peers {
		s.Peers = append(s.Peers, peerStatus(g, &g.Peers[i]))
	}
	for i := range g.PodClasses {
		c := &g.PodClasses[i]
		s.Peers = append(s.Peers, v1alpha1.PeerStatus{
			Name: c.Name, Namespace: c.Namespace, Pods: true, State: c.State, Reason: c.Reason, Message: c.Message,
		})
	}
	slices.SortStableFunc(s.Peers, func(a, b v1alpha1.PeerStatus) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	return s
}

func peerStatus(g *plan.Gateway, p *plan.Peer) v1alpha1.PeerStatus {
	s := v1alpha1.PeerStatus{
		Name:      p.Name,
		Namespace: p.Namespace,
		Addresses: addressStrings(p.Addresses),
		State:     p.State,
		Reason:    p.Reason,
		Message:   p.Message,
	}
	if !p.PublicKey.IsZero() {
		s.PublicKey = p.PublicKey.String()
	}
	if p.State == v1alpha1.PeerRejected {
		return s
	}
	for _, r := range p.Routes {
		s.Routes = append(s.Routes, r.String())
	}
	s.SecretName = names.Peer(g.Name, p.Name)
	if p.Attached {
		s.SecretName = names.PeerConfig(p.Name)
	}
	return s
}

func addressStrings(ips []netip.Addr) []string {
	var ss []string
	for _, ip := range ips {
		ss = append(ss, ip.String())
	}
	return ss
}
