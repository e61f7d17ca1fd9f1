package plan

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// peerKeys derives or reads the keys of every peer. Each public key is a
// multiplication on the curve, and together they are most of what a large
// gateway costs, so all processors share them.
func (g *Gateway) peerKeys(secrets map[string]map[string][]byte) {
	wg := sync.WaitGroup{}
	for peers := range slices.Chunk(g.Peers, len(g.Peers)/runtime.GOMAXPROCS(0)+1) {
		wg.Go(func() {
			for i := range peers {
				g.keysOf(&peers[i], secrets)
			}
		})
	}
	wg.Wait()
}

func (g *Gateway) keysOf(p *Peer, secrets map[string]map[string][]byte) {
	switch {
	case p.Peer.PublicKey != nil:
		p.PublicKey = *p.Peer.PublicKey
	case p.Peer.PrivateKey.Name != "":
		k, ok := p.secretKey(secrets, p.Peer.PrivateKey, "private key")
		if !ok {
			return
		}
		p.PrivateKey, p.PublicKey = &k, k.Public()
	default:
		k := g.Keys.Seed.PeerKey(p.Namespace, p.Name, p.KeyRotation)
		p.PrivateKey, p.PublicKey = &k, k.Public()
	}

	switch {
	case !p.Preshared:
	case p.Peer.PresharedKey.Name != "":
		if k, ok := p.secretKey(secrets, p.Peer.PresharedKey, "preshared key"); ok {
			p.PresharedKey = &k
		}
	default:
		k := g.Keys.Seed.PresharedKey(p.Namespace, p.Name, p.KeyRotation)
		p.PresharedKey = &k
	}
}

// secretKey reads a key of the user's own, and rejects the peer where it is not
// there or no key.
func (p *Peer) secretKey(secrets map[string]map[string][]byte, at spec.SecretKey, what string) (wireguard.Key, bool) {
	data, ok := secrets[at.Name]
	if !ok {
		p.reject(v1alpha1.ReasonSecretMissing, fmt.Sprintf("there is no Secret %q, which holds the %s of peer %q: create it", at.Name, what, p.Name))
		return wireguard.Key{}, false
	}
	value, ok := data[at.Key]
	if !ok {
		p.reject(v1alpha1.ReasonSecretMissing, fmt.Sprintf("the Secret %q has no key %q, which holds the %s of peer %q: add it", at.Name, at.Key, what, p.Name))
		return wireguard.Key{}, false
	}
	k, err := wireguard.ParseKey(string(value))
	if err == nil && k.IsZero() {
		err = errors.New("a key cannot be all zeros")
	}
	if err != nil {
		p.reject(v1alpha1.ReasonInvalidKey, fmt.Sprintf("the Secret %q holds no %s of peer %q under the key %q: %s", at.Name, what, p.Name, at.Key, err))
		return wireguard.Key{}, false
	}
	return k, true
}

// distinctKeys rejects peers whose public key another has: the device knows
// peers by it.
func (g *Gateway) distinctKeys(before before) {
	owner := map[wireguard.Key]string{}
	for _, p := range g.settledFirst(before, before.hadKey) {
		if p.PublicKey == g.Keys.Public {
			p.reject(v1alpha1.ReasonDuplicatePublicKey, fmt.Sprintf("the public key of peer %q is the gateway's own: use that of the peer's device", p.title()))
			continue
		}
		if other, ok := owner[p.PublicKey]; ok {
			p.reject(v1alpha1.ReasonDuplicatePublicKey, fmt.Sprintf("peers %q and %q have the same public key: every device needs a key of its own", p.title(), other))
			continue
		}
		owner[p.PublicKey] = p.title()
	}
}

// settledFirst returns the peers that are not rejected so far: those that had
// what they ask for, then those that were served without it, then the others.
func (g *Gateway) settledFirst(before before, had func(*Peer) bool) []*Peer {
	var settled, served, others []*Peer
	for i := range g.Peers {
		p := &g.Peers[i]
		switch {
		case p.State == v1alpha1.PeerRejected:
		case had(p):
			settled = append(settled, p)
		case before.served(p.ID()):
			served = append(served, p)
		default:
			others = append(others, p)
		}
	}
	return slices.Concat(settled, served, others)
}

// peerConfigs settles what stands in the configurations of each peer. It ends
// early where narrow ones are more than any response holds: together, they may be
// more than what memory holds.
func (g *Gateway) peerConfigs() error {
	sites := g.sites()
	networks := 0
	for i := range g.Peers {
		p := &g.Peers[i]
		if p.State == v1alpha1.PeerRejected || p.Attached {
			continue
		}
		g.configure(p, sites)
		if networks += len(p.AllowedIPs); networks*len("::/0, ") > MaxResponse {
			return &ConditionError{ConditionSpecValid, v1alpha1.ReasonTooLarge, fmt.Sprintf(
				"spec.peers: Too many: peers with allowedIPs get the routes of others, of which each has some of %d, and Crossplane accepts %d bytes: let fewer of them have allowedIPs, or use fewer and wider routes",
				len(sites), MaxResponse)}
		}
	}
	return nil
}

// configure settles what stands in the configurations of one peer.
func (g *Gateway) configure(p *Peer, sites []site) {
	p.AllowedIPs = g.everything()
	if len(p.Peer.AllowedIPs) > 0 {
		p.AllowedIPs = g.narrow(p, sites)
	}
	p.DNS = g.peerDNS(p)
	p.MTU = capped(g.MTU, p.Peer.MTU)
	p.Direct = g.Endpoints.Direct.String()
	if p.Advertised.Host != "" {
		p.Direct = HostPort{Host: p.Advertised.Host, Port: cmp.Or(p.Advertised.Port, g.Endpoints.directPort)}.String()
	}
}

func (g *Gateway) everything() []netip.Prefix {
	ns := make([]netip.Prefix, len(g.Pools))
	for i, pool := range g.Pools {
		ns[i] = netip.PrefixFrom(zero(pool.Prefix.Addr()), 0)
	}
	return ns
}

func zero(family netip.Addr) netip.Addr {
	if family.Is4() {
		return netip.IPv4Unspecified()
	}
	return netip.IPv6Unspecified()
}

// site is a network behind a peer.
type site struct {
	peer *Peer
	net  netip.Prefix
}

func (g *Gateway) sites() []site {
	var ss []site
	for i := range g.Peers {
		if g.Peers[i].State == v1alpha1.PeerRejected {
			continue
		}
		for _, r := range g.Peers[i].Routes {
			ss = append(ss, site{peer: &g.Peers[i], net: r})
		}
	}
	return ss
}

// narrow returns the networks that the user names, and, where peers may reach
// each other, the networks that they are in: a client drops what it does not
// expect from the tunnel.
func (g *Gateway) narrow(p *Peer, sites []site) []netip.Prefix {
	if !g.PeerToPeer {
		return p.Peer.AllowedIPs
	}
	ns := slices.Clone(p.Peer.AllowedIPs)
	have := newNetSet()
	for _, n := range ns {
		have.add(n)
	}
	add := func(n netip.Prefix) {
		if !have.contains(n) {
			have.add(n)
			ns = append(ns, n)
		}
	}
	for _, pool := range g.Pools {
		add(pool.Prefix)
	}
	for _, s := range sites {
		if s.peer != p {
			add(s.net)
		}
	}
	return ns
}

// peerDNS returns servers, then search domains. Without servers there is
// nothing to search. Servers that the user names stand as they are; of those
// that nobody named, only what the client reaches through its tunnel: a query
// to another would get no answer, or leave beside the VPN.
func (g *Gateway) peerDNS(p *Peer) []string {
	d := p.Peer.DNS
	if d == nil {
		d = g.DNS
	}
	servers := slices.DeleteFunc(g.defaultServers(), func(s netip.Addr) bool {
		return !slices.ContainsFunc(p.AllowedIPs, func(n netip.Prefix) bool { return n.Contains(s) })
	})
	var domains []string
	if d != nil {
		domains = d.SearchDomains
		if len(d.Servers) > 0 {
			servers = d.Servers
		}
	}
	if len(servers) == 0 {
		return nil
	}
	out := make([]string, 0, len(servers)+len(domains))
	for _, s := range servers {
		out = append(out, s.String())
	}
	return append(out, domains...)
}

func (g *Gateway) defaultServers() []netip.Addr {
	// gluetun's resolver listens on all addresses of the pod. Through the
	// server's own in the tunnel, no query leaves but through the VPN.
	if g.Gluetun != nil {
		servers := make([]netip.Addr, len(g.Pools))
		for i, pool := range g.Pools {
			servers[i] = pool.Server()
		}
		return servers
	}
	if g.Platform.ClusterDNS.IsValid() {
		return []netip.Addr{g.Platform.ClusterDNS}
	}
	return nil
}

// capped returns the smaller of both. A cap of 0 is none.
func capped(v, limit int) int {
	if limit == 0 {
		return v
	}
	return min(v, limit)
}
