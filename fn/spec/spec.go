// Package spec reads what the user and the platform wrote: it turns the API's
// strings into typed values, fills in defaults, and refuses what cannot be
// meant. Every error names the field, the value and the way out. The schema
// refuses most of it before; here it is refused again, for objects that did not
// pass an API server, and for what a schema cannot say.
package spec

import (
	"net/netip"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// Gateway is a WireguardGateway that was read and found valid.
type Gateway struct {
	Name      string
	Namespace string
	Platform  Platform
	// ClusterScoped tells that the composite resource has no namespace of its
	// own, so that composed objects must name theirs.
	ClusterScoped bool

	Pools          []Pool // IPv4 before IPv6
	Reserved       []Range
	ListenPort     int
	Keepalive      int // seconds; 0 is none
	MTU            int // of the device, and of direct and internal configurations
	TunnelMTU      int
	DNS            *DNS // nil where the user names no servers
	PeerToPeer     bool
	IPForwarding   string
	Implementation string

	Endpoint   Endpoint
	Service    v1alpha1.Service
	GatewayAPI GatewayAPI
	Tunnel     *Tunnel  // nil where there is none
	Gluetun    *Gluetun // nil where there is none

	Peers   []Peer
	Consent Consent
	Keys    Keys
	Pod     Pod

	NetworkPolicy       bool
	PodDisruptionBudget bool
	PodMonitor          *PodMonitor // nil where there is none
}

// HasIPv6 tells whether there is an IPv6 pool.
func (g *Gateway) HasIPv6() bool {
	return g.Pools[len(g.Pools)-1].Prefix.Addr().Is6()
}

// Endpoint is what the user wants advertised. The zero values are unset.
type Endpoint struct {
	Host string // without brackets
	Port int
}

// Parse reads a gateway of the given name. The status matters where what the
// user wrote is refused for what the gateway already is.
func Parse(name, namespace string, s *v1alpha1.WireguardGatewaySpec, st *v1alpha1.WireguardGatewayStatus, platform Platform) (*Gateway, field.ErrorList) {
	p := &parser{spec: s}
	root := field.NewPath("spec")

	g := &Gateway{
		Name:           name,
		Namespace:      namespace,
		Platform:       platform,
		ListenPort:     defaulted(int(s.ListenPort), v1alpha1.DefaultListenPort),
		Keepalive:      int(deref(s.PersistentKeepalive, v1alpha1.DefaultPersistentKeepalive)),
		PeerToPeer:     s.PeerToPeer,
		IPForwarding:   defaulted(s.IPForwarding, v1alpha1.DefaultIPForwarding),
		Implementation: defaulted(s.Implementation, v1alpha1.DefaultImplementation),
	}
	p.gatewayName(field.NewPath("metadata", "name"), name)
	p.pools(root, g, st)
	p.listenPort(root.Child("listenPort"), g)
	p.between(root.Child("persistentKeepalive"), g.Keepalive, 0, wireguard.MaxKeepalive)
	p.oneOf(root.Child("ipForwarding"), g.IPForwarding, v1alpha1.IPForwardingAuto, v1alpha1.IPForwardingPodSysctl, v1alpha1.IPForwardingInitContainer, v1alpha1.IPForwardingNone)
	p.oneOf(root.Child("implementation"), g.Implementation, wireguard.ImplementationAuto, wireguard.ImplementationKernel, wireguard.ImplementationUserspace)
	p.mtu(root.Child("mtu"), g)
	g.DNS = p.dns(root.Child("dns"), s.DNS)
	p.endpoint(root.Child("endpoint"), g)
	p.service(root.Child("service"), g)
	p.gatewayAPI(root.Child("gateway"), g)
	p.tunnel(root.Child("tunnel"), g)
	p.keys(root.Child("keys"), g)
	g.Consent = p.consent(root.Child("allowedPeerNamespaces"), namespace, s.AllowedPeerNamespaces)
	p.pod(root, g)
	p.gluetun(root.Child("gluetun"), g)
	g.NetworkPolicy = deref(s.NetworkPolicy, v1alpha1.Toggle{}).Enabled
	g.PodDisruptionBudget = deref(s.PodDisruptionBudget, v1alpha1.Toggle{}).Enabled
	p.podMonitor(root.Child("monitoring"), g)
	if p.poolsValid {
		p.peers(root.Child("peers"), g)
	}
	return g, p.errs
}

// parser collects the errors of one object, so that the user sees them all.
type parser struct {
	spec *v1alpha1.WireguardGatewaySpec
	errs field.ErrorList
	// poolsValid tells whether what depends on the pools can be judged.
	poolsValid bool
}

func (p *parser) refuse(path *field.Path, value any, message string) {
	p.errs = append(p.errs, field.Invalid(path, value, message))
}

func defaulted[T comparable](v, d T) T {
	var zero T
	if v == zero {
		return d
	}
	return v
}

func deref[T any](v *T, d T) T {
	if v == nil {
		return d
	}
	return *v
}

// overlap returns the first of the networks that overlaps with n.
func overlap(n netip.Prefix, with []netip.Prefix) (netip.Prefix, bool) {
	for _, w := range with {
		if w.Overlaps(n) {
			return w, true
		}
	}
	return netip.Prefix{}, false
}
