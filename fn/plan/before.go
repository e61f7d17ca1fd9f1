package plan

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// before is what peers had until now. Who had something keeps it: a newcomer
// never displaces anyone.
type before struct {
	addresses map[string][]netip.Addr
	keys      map[string]string         // public keys of peers that were served, empty for classes of pods
	routes    map[string][]netip.Prefix // routes of peers that were on the device
	announced map[string][]netip.Prefix // routes of peers that were served, on the device or not
	limits    *string                   // by which the sizes came about, nil where that is not known
	sizes     map[string]int            // of peers and classes of pods that were in the configuration, in bytes and without addresses; 0 where it was lost
}

// before reads it from the status and from the configuration that was composed
// last, so that either of them can be lost. A configuration that cannot be read
// is as good as none. Without both, hashes bring nearly all addresses back.
func (in *Inputs) before() before {
	config, err := wireguard.DecodeGatewayConfig(in.ObservedConfig)
	if err != nil {
		config = wireguard.GatewayConfig{}
	}
	b := before{
		addresses: make(map[string][]netip.Addr, len(in.Status.Peers)),
		keys:      make(map[string]string, len(in.Status.Peers)),
		routes:    map[string][]netip.Prefix{},
		announced: map[string][]netip.Prefix{},
		sizes:     make(map[string]int, len(config.Peers)),
	}
	if err == nil {
		b.limits = &config.Limits
	}
	maps.Copy(b.addresses, config.Reservations)
	for i := range config.Peers {
		p := &config.Peers[i]
		b.keys[id(p.Namespace, p.Name)] = p.PublicKey.String()
		b.sizes[id(p.Namespace, p.Name)] = deviceSize(*p)
		if len(p.Routes) > 0 {
			b.routes[id(p.Namespace, p.Name)] = p.Routes
			b.announced[id(p.Namespace, p.Name)] = p.Routes
		}
	}
	for i := range config.PodClasses {
		c := &config.PodClasses[i]
		b.keys[id(c.Namespace, c.Name)] = ""
		b.sizes[id(c.Namespace, c.Name)] = size(*c)
	}
	for i := range in.Status.Peers {
		p := &in.Status.Peers[i]
		if ips := parseAddresses(p.Addresses); len(ips) > 0 {
			b.addresses[id(p.Namespace, p.Name)] = ips
		}
		if p.State != v1alpha1.PeerRejected {
			b.keys[id(p.Namespace, p.Name)] = p.PublicKey
			b.announced[id(p.Namespace, p.Name)] = slices.Concat(b.announced[id(p.Namespace, p.Name)], parsePrefixes(p.Routes))
		}
		// A configuration that was lost is no reason to take anything from anybody.
		if _, ok := b.sizes[id(p.Namespace, p.Name)]; !ok && p.State == v1alpha1.PeerActive {
			b.sizes[id(p.Namespace, p.Name)] = 0
			b.routes[id(p.Namespace, p.Name)] = parsePrefixes(p.Routes)
		}
	}
	return b
}

func parseAddresses(ss []string) []netip.Addr {
	ips := make([]netip.Addr, 0, len(ss))
	for _, s := range ss {
		if ip, err := netip.ParseAddr(s); err == nil {
			ips = append(ips, ip)
		}
	}
	return ips
}

func parsePrefixes(ss []string) []netip.Prefix {
	ns := make([]netip.Prefix, 0, len(ss))
	for _, s := range ss {
		if n, err := netip.ParsePrefix(s); err == nil {
			ns = append(ns, n)
		}
	}
	return ns
}

// served tells whether the peer was not rejected.
func (b before) served(id string) bool {
	_, ok := b.keys[id]
	return ok
}

// hadKey tells whether the peer was served with the key that it has now.
func (b before) hadKey(p *Peer) bool {
	return b.keys[p.ID()] == p.PublicKey.String()
}

// keptRoutes are the networks that were behind the peer and still are: where a
// route became wider or narrower, the part that is common to both.
func (b before) keptRoutes(p *Peer) []netip.Prefix {
	var kept []netip.Prefix
	for _, had := range b.routes[p.ID()] {
		for _, r := range p.Routes {
			switch {
			case !r.Overlaps(had):
			case r.Bits() < had.Bits():
				kept = append(kept, had)
			default:
				kept = append(kept, r)
			}
		}
	}
	return kept
}

// announcedAll tells whether the peer had all of its routes before, on the device
// or not.
func (b before) announcedAll(p *Peer) bool {
	had := b.announced[p.ID()]
	return !slices.ContainsFunc(p.Routes, func(r netip.Prefix) bool { return !slices.Contains(had, r) })
}

// rank is how early a peer or a class of pods is served that takes so many bytes
// of the configuration. More tells that it asks for more routes than it had.
func (b before) rank(id string, size int, more bool) int {
	switch {
	case !b.served(id):
		return rankNew
	case more, size > b.sizes[id]:
		return rankServed
	default:
		return rankHas
	}
}
