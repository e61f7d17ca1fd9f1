package plan

import (
	"encoding/json"
	"net/netip"
	"slices"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// PodClass is a WireguardPeer whose pods join its gateway by a label.
type PodClass struct {
	wireguard.PodClass

	State   string
	Reason  string
	Message string
}

// ID names a class of pods among the peers of all namespaces.
func (c *PodClass) ID() string { return id(c.Namespace, c.Name) }

func (c *PodClass) reject(reason, message string) {
	if c.State == v1alpha1.PeerRejected {
		return
	}
	c.State, c.Reason, c.Message = v1alpha1.PeerRejected, reason, message
}

// attachPods adds a class of pods. It takes nothing that inline peers have, and
// has no addresses that the gateway would give it.
func (g *Gateway) attachPods(a *attached, inline map[string]bool) {
	c := PodClass{State: v1alpha1.PeerActive, PodClass: wireguard.PodClass{
		Namespace: a.Namespace,
		Name:      a.Name,
		Key:       g.Keys.Seed.PodClassKey(a.Namespace, a.Name),
		Access:    g.Consent.Limits.Access,
	}}
	switch {
	case inline[c.ID()]:
		c.reject(v1alpha1.ReasonDuplicateName, duplicateName(c.Name))
	case g.Pod.HostNetwork:
		// What the agent does to the addresses of pods would hold for all traffic
		// between the node and these pods.
		c.reject(v1alpha1.ReasonInvalid,
			"pods cannot join a gateway with spec.pod.hostNetwork, whose routes and firewall would be those of its node: ask its owner to leave it out, or use another gateway")
	case g.Gluetun != nil && len(g.Gluetun.OutboundSubnets) == 0:
		c.reject(v1alpha1.ReasonInvalid,
			"pods cannot join a gateway that does not see them, since gluetun keeps its agent from the API server: name the cluster's Service networks as serviceCIDRs in the function's input, or in the gateway's spec.gluetun.outboundSubnets")
	}
	g.PodClasses = append(g.PodClasses, c)
}

// Pods is what the pods of a WireguardPeer will be. They are rejected where the
// gateway rejects them.
type Pods struct {
	// Gateway is the pods' view of their gateway.
	Gateway    *Gateway
	Attachment *wireguard.Attachment
	Enrolment  wireguard.Enrolment
	// Taken tells that the gateway knows of the pods.
	Taken bool

	State   string
	Reason  string
	Message string
}

// NewPods makes the plan of a WireguardPeer's pods. The error is a
// *ConditionError.
func NewPods(in PeerInputs) (*Pods, error) {
	keys, err := in.keys()
	if err != nil {
		return nil, err
	}
	g := &Gateway{Gateway: in.Gateway, Keys: keys}
	g.Endpoints = in.endpoints(g)
	p := &Pods{
		Gateway: g,
		State:   v1alpha1.PeerActive,
		Enrolment: wireguard.Enrolment{
			Gateway:             id(g.Namespace, g.Name),
			GatewayPublicKey:    keys.Public,
			Endpoint:            g.Endpoints.Internal.String(),
			ClassKey:            keys.Seed.PodClassKey(in.Peer.Namespace, in.Peer.Name),
			MTU:                 g.MTU,
			BypassCIDRs:         BypassCIDRs(in.Peer),
			Implementation:      in.Peer.Pods.Implementation,
			PersistentKeepalive: g.Keepalive,
		},
	}
	settings, err := json.Marshal(struct {
		Pods bool `json:"pods"`
	}{true})
	if err != nil {
		// A boolean always encodes.
		panic(err)
	}
	p.Attachment = in.attachmentOf(settings)

	entry := in.podsEntry()
	p.Taken = entry != nil && entry.State == v1alpha1.PeerActive
	switch {
	case in.Gateway.Namespace == in.Peer.Namespace && slices.Contains(in.Inline, in.Peer.Name):
		p.State, p.Reason, p.Message = v1alpha1.PeerRejected, v1alpha1.ReasonDuplicateName, duplicateName(in.Peer.Name)
	case entry != nil && entry.State == v1alpha1.PeerRejected:
		p.State, p.Reason, p.Message = v1alpha1.PeerRejected, entry.Reason, entry.Message
	}
	return p, nil
}

// BypassCIDRs are the networks that the pods of a WireguardPeer reach directly:
// the cluster's own where its user names none, without doubles. Nodes are not
// among them, since through them leads more than the cluster.
func BypassCIDRs(p *spec.WireguardPeer) []netip.Prefix {
	if len(p.Pods.BypassCIDRs) > 0 {
		return p.Pods.BypassCIDRs
	}
	return spec.Distinct(p.Platform.PodCIDRs, p.Platform.ServiceCIDRs)
}

// podsEntry is what the gateway says of the class of pods, nil where it says
// nothing yet. A client that had the same namespace and name is another.
func (in *PeerInputs) podsEntry() *v1alpha1.PeerStatus {
	for i := range in.GatewayStatus.Peers {
		if e := &in.GatewayStatus.Peers[i]; e.Pods && e.Namespace == in.Peer.Namespace && e.Name == in.Peer.Name {
			return e
		}
	}
	return nil
}
