package spec

import (
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
)

// WireguardPeer is a WireguardPeer that was read and found valid, as far as it
// can be without its gateway.
type WireguardPeer struct {
	Name      string
	Namespace string
	Platform  Platform
	// ClusterScoped tells that the composite resource has no namespace of its
	// own, so that composed objects must name theirs.
	ClusterScoped bool

	GatewayName      string
	GatewayNamespace string
	// PrivateKey names the client's own in the peer's namespace, or nothing.
	// The rest of a client is for ParseClient to read, within its gateway.
	PrivateKey SecretKey
	Pods       *Pods // nil for a client
}

// clientPath is where the settings of a WireguardPeer's client stand.
func clientPath() *field.Path { return field.NewPath("spec", "client") }

// ParsePeer reads a WireguardPeer of the given name, as its user knows it.
// What of it must fit the gateway is for ParseClient to say.
func ParsePeer(name, namespace string, s *v1alpha1.WireguardPeerSpec, platform Platform) (*WireguardPeer, field.ErrorList) {
	p := &parser{}
	root := field.NewPath("spec")
	out := &WireguardPeer{
		Name:             name,
		Namespace:        namespace,
		Platform:         platform,
		GatewayName:      s.GatewayRef.Name,
		GatewayNamespace: defaulted(s.GatewayRef.Namespace, namespace),
	}
	p.name(field.NewPath("metadata", "name"), name)
	p.gatewayName(root.Child("gatewayRef", "name"), s.GatewayRef.Name)
	if len(validation.IsDNS1123Label(out.GatewayNamespace)) > 0 {
		p.refuse(root.Child("gatewayRef", "namespace"), s.GatewayRef.Namespace, "is no name of a namespace")
	}
	if s.Client != nil && s.Pods != nil {
		p.errs = append(p.errs, field.Forbidden(root.Child("pods"), "cannot go together with client: make a WireguardPeer for each"))
	}
	if s.Client != nil {
		out.PrivateKey = p.ownedClient(clientPath(), s.Client, &Gateway{Platform: platform}).PrivateKey
	}
	if s.Pods != nil {
		out.Pods = p.pods(root.Child("pods"), s.Pods, platform)
	}
	return out, p.errs
}

// ParseForPeers reads of a gateway what its WireguardPeers depend on. What only
// the gateway's own pod is made of is left alone, and so are its inline peers.
func ParseForPeers(name, namespace string, s *v1alpha1.WireguardGatewaySpec, st *v1alpha1.WireguardGatewayStatus, platform Platform) (*Gateway, field.ErrorList) {
	shared := *s
	shared.Peers, shared.Pod, shared.Resources, shared.Monitoring = nil, nil, nil, nil
	shared.InitContainers, shared.ExtraContainers, shared.Volumes = nil, nil, nil
	return Parse(name, namespace, &shared, st, platform)
}

// ParseClient reads the settings of a WireguardPeer as those of a client of the
// gateway. Of two peers with the same settings, one inline, it returns the same.
func ParseClient(name, namespace string, in *v1alpha1.Client, g *Gateway) (Peer, field.ErrorList) {
	p := &parser{}
	out := p.ownedClient(clientPath(), in, g)
	out.Namespace, out.Name = namespace, name
	return out, p.errs
}

// ownedClient reads a client that belongs to a namespace of its own.
func (p *parser) ownedClient(path *field.Path, in *v1alpha1.Client, g *Gateway) Peer {
	if in.PresharedKey != nil && in.PresharedKey.SecretRef != nil {
		p.errs = append(p.errs, field.Forbidden(path.Child("presharedKey", "secretRef"),
			"the gateway reads no Secrets of other namespaces: use generate: true"))
	}
	out := p.client(path, in, g)
	out.PresharedKey = SecretKey{}
	return out
}
