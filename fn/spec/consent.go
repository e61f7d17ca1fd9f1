package spec

import (
	"maps"
	"net/netip"
	"slices"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// Consent is whose WireguardPeers may attach to a gateway, and what they must
// stay within.
type Consent struct {
	From     string
	Names    []string
	Selector map[string]string
	Limits   Limits

	namespace string // the gateway's own
}

// Limits are what the owner of a gateway imposes on every WireguardPeer.
type Limits struct {
	Access []wireguard.AccessRule
	Routes []netip.Prefix
}

// ParseConsent reads whose WireguardPeers may attach to a gateway of the given
// namespace. Both sides judge by it: the gateway all WireguardPeers, and each
// WireguardPeer itself.
func ParseConsent(namespace string, in *v1alpha1.AllowedPeerNamespaces) (Consent, field.ErrorList) {
	p := &parser{}
	return p.consent(field.NewPath("spec", "allowedPeerNamespaces"), namespace, in), p.errs
}

func (p *parser) consent(path *field.Path, namespace string, in *v1alpha1.AllowedPeerNamespaces) Consent {
	c := Consent{From: v1alpha1.DefaultAllowedPeersFrom, namespace: namespace}
	if in == nil {
		return c
	}
	c.From, c.Names = defaulted(in.From, c.From), in.Names
	if in.Selector != nil {
		c.Selector = in.Selector.MatchLabels
	}
	p.oneOf(path.Child("from"), c.From, v1alpha1.AllowedPeersSame, v1alpha1.AllowedPeersAll, v1alpha1.AllowedPeersSelector, v1alpha1.AllowedPeersNames)
	// Names beside another from would look as if they did something. And nothing
	// matches a selector without labels, which reads as if everything did.
	switch named := c.From == v1alpha1.AllowedPeersNames; {
	case named && len(c.Names) == 0:
		p.errs = append(p.errs, field.Required(path.Child("names"), "list the namespaces that from: Names allows, or use from: Same"))
	case !named && len(c.Names) > 0:
		p.errs = append(p.errs, field.Forbidden(path.Child("names"), "goes with from: Names only: set that, or leave names out"))
	}
	switch selected := c.From == v1alpha1.AllowedPeersSelector; {
	case selected && len(c.Selector) == 0:
		p.errs = append(p.errs, field.Required(path.Child("selector", "matchLabels"), "name at least one label of the namespaces that are allowed, or use from: All"))
	case !selected && in.Selector != nil && len(c.Selector) > 0:
		p.errs = append(p.errs, field.Forbidden(path.Child("selector"), "goes with from: Selector only: set that, or leave selector out"))
	}
	for i, n := range c.Names {
		if len(validation.IsDNS1123Label(n)) > 0 {
			p.refuse(path.Child("names").Index(i), n, "is no name of a namespace")
		}
	}
	p.labels(path.Child("selector", "matchLabels"), c.Selector)
	if l := in.Limits; l != nil {
		c.Limits.Access = p.access(path.Child("limits", "access"), l.Access)
		c.Limits.Routes = p.cidrs(path.Child("limits", "routes"), l.Routes)
	}
	return c
}

// Allows tells whether WireguardPeers of a namespace may attach. The labels are
// the namespace's, and matter with a selector only.
func (c Consent) Allows(namespace string, labels map[string]string) bool {
	switch c.From {
	case v1alpha1.AllowedPeersAll:
		return true
	case v1alpha1.AllowedPeersNames:
		return slices.Contains(c.Names, namespace)
	case v1alpha1.AllowedPeersSelector:
		for k, v := range c.Selector {
			if have, ok := labels[k]; !ok || have != v {
				return false
			}
		}
		return len(c.Selector) > 0
	default:
		return namespace == c.namespace
	}
}

// ByLabels returns the labels by which namespaces are allowed, nil where they are
// not allowed by labels.
func (c Consent) ByLabels() map[string]string {
	if c.From != v1alpha1.AllowedPeersSelector {
		return nil
	}
	return maps.Clone(c.Selector)
}

// Within tells whether a network is within one that WireguardPeers may
// announce.
func (l Limits) Within(n netip.Prefix) bool {
	return slices.ContainsFunc(l.Routes, func(r netip.Prefix) bool { return r.Bits() <= n.Bits() && r.Overlaps(n) })
}
