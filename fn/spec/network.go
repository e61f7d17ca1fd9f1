package spec

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// Pool is a network that tunnel addresses come from.
type Pool struct {
	Prefix netip.Prefix
}

// Server is the gateway's own address: the first host of the pool.
func (p Pool) Server() netip.Addr {
	return p.Prefix.Addr().Next()
}

// Last is the last address of the pool: the broadcast address, for IPv4.
func (p Pool) Last() netip.Addr {
	b := p.Prefix.Addr().AsSlice()
	for bit := p.Prefix.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 1 << (7 - bit%8)
	}
	last, _ := netip.AddrFromSlice(b)
	return last
}

// Assignable tells whether a peer may have the address, as far as the pool
// goes: it is in it, and neither the network's, the server's nor, for IPv4, the
// broadcast address.
func (p Pool) Assignable(a netip.Addr) bool {
	return p.Prefix.Contains(a) && a != p.Prefix.Addr() && a != p.Server() && (a.Is6() || a != p.Last())
}

// Range is a range of addresses of one family, both ends included.
type Range struct {
	First, Last netip.Addr
}

// Contains tells whether the address is in the range.
func (r Range) Contains(a netip.Addr) bool {
	return r.First.BitLen() == a.BitLen() && r.First.Compare(a) <= 0 && a.Compare(r.Last) <= 0
}

// DNS is what peers are told to resolve names with.
type DNS struct {
	Servers       []netip.Addr
	SearchDomains []string
}

func (p *parser) pools(root *field.Path, g *Gateway, st *v1alpha1.WireguardGatewayStatus) {
	errs := len(p.errs)
	v4, v6 := p.spec.PeerCIDR, p.spec.PeerCIDRv6
	if v4 == "" && v6 == "" {
		v4 = v1alpha1.DefaultPeerCIDR
	}
	if v4 == "" {
		for _, a := range st.Addresses {
			if ip, err := netip.ParseAddr(a); err == nil && ip.Is4() {
				p.errs = append(p.errs, field.Required(root.Child("peerCIDR"), fmt.Sprintf(
					"the gateway has the IPv4 address %s, which would go with only peerCIDRv6 set: set peerCIDR too, such as %s, or make a new gateway", a, v1alpha1.DefaultPeerCIDR)))
				break
			}
		}
	}
	if v4 != "" {
		p.pool(root.Child("peerCIDR"), v4, g, netip.Addr.Is4, "IPv4", 30)
	}
	if v6 != "" {
		p.pool(root.Child("peerCIDRv6"), v6, g, is6, "IPv6", 126)
	}
	p.poolsValid = len(p.errs) == errs

	for i, s := range p.spec.ReservedAddresses {
		at := root.Child("reservedAddresses").Index(i)
		r, ok := p.reserved(at, s)
		if !ok {
			continue
		}
		if slices.Contains(g.Reserved, r) {
			p.errs = append(p.errs, field.Duplicate(at, s))
		}
		g.Reserved = append(g.Reserved, r)
	}
}

// is6 excludes IPv6 forms of IPv4 addresses: they overlap with IPv4 pools.
func is6(a netip.Addr) bool { return a.Is6() && !a.Is4In6() }

func (p *parser) pool(path *field.Path, s string, g *Gateway, family func(netip.Addr) bool, familyName string, maxBits int) {
	n, ok := p.cidr(path, s)
	switch {
	case !ok:
	case !family(n.Addr()):
		p.refuse(path, s, "is no "+familyName+" network: peerCIDR is for IPv4, peerCIDRv6 for IPv6")
	case n.Bits() > maxBits:
		p.refuse(path, s, fmt.Sprintf("is too small: a pool is /%d or larger, so that there is room for the gateway and a peer", maxBits))
	case !n.Addr().IsGlobalUnicast() && n.Bits() > 0:
		p.refuse(path, s, "is a network of addresses that are not routed: name a private one, such as "+v1alpha1.DefaultPeerCIDR+" or fd00:8::/64")
	case n.Bits() == 0:
		p.refuse(path, s, "is everything: name a private network, such as "+v1alpha1.DefaultPeerCIDR+" or fd00:8::/64")
	default:
		g.Pools = append(g.Pools, Pool{Prefix: n})
	}
}

// cidr parses a network whose host bits are zero.
func (p *parser) cidr(path *field.Path, s string) (netip.Prefix, bool) {
	n, message := parseCIDR(s)
	if message != "" {
		p.refuse(path, s, message)
		return netip.Prefix{}, false
	}
	return n, true
}

// parseCIDR parses a network whose host bits are zero. The message says what is
// wrong with it, and is empty where nothing is.
func parseCIDR(s string) (netip.Prefix, string) {
	n, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		return netip.Prefix{}, "is no network: write address and prefix length, such as 10.8.0.0/24 or fd00:8::/64"
	case n.Addr().Is4In6():
		return netip.Prefix{}, "is an IPv4 network in IPv6 form: write it as IPv4"
	case n.Masked() != n:
		return netip.Prefix{}, "has host bits set: write " + n.Masked().String()
	}
	return n, ""
}

// cidrs parses networks, and returns each of them once: a list that the schema
// calls a set may have one in two spellings.
func (p *parser) cidrs(path *field.Path, ss []string) []netip.Prefix {
	var ns []netip.Prefix
	for i, s := range ss {
		if n, ok := p.cidr(path.Index(i), s); ok {
			ns = append(ns, n)
		}
	}
	return Distinct(ns)
}

// Distinct returns the networks of all lists in their order, each of them once:
// what they become, such as a routing rule, may be there once only.
func Distinct(lists ...[]netip.Prefix) []netip.Prefix {
	var out []netip.Prefix
	seen := map[netip.Prefix]bool{}
	for _, n := range slices.Concat(lists...) {
		if !seen[n] {
			seen[n] = true
			out = append(out, n)
		}
	}
	return out
}

func (p *parser) reserved(path *field.Path, s string) (Range, bool) {
	first, last, ranged := strings.Cut(s, "-")
	if !ranged {
		last = first
	}
	f, ok := p.address(path, s, first)
	if !ok {
		return Range{}, false
	}
	l, ok := p.address(path, s, last)
	switch {
	case !ok:
	case f.BitLen() != l.BitLen():
		p.refuse(path, s, "mixes IPv4 and IPv6: write a range of each")
	case l.Less(f):
		p.refuse(path, s, fmt.Sprintf("is upside down: write %s-%s", l, f))
	default:
		return Range{First: f, Last: l}, true
	}
	return Range{}, false
}

// address parses an address out of value, which is what the error quotes.
func (p *parser) address(path *field.Path, value, s string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(s)
	switch {
	case err != nil && strings.Contains(s, "/"):
		p.refuse(path, value, "is no single address: leave the prefix length out")
	case err != nil:
		p.refuse(path, value, "is no address: write an IPv4 or IPv6 address, such as 10.8.0.10 or fd00:8::10")
	case a.Zone() != "":
		p.refuse(path, value, "has a zone: write the address without it")
	case a.Is4In6():
		p.refuse(path, value, "is an IPv4 address in IPv6 form: write "+a.Unmap().String())
	default:
		return a, true
	}
	return netip.Addr{}, false
}

// maxMTU is that of networks with jumbo frames.
const maxMTU = 9000

func (p *parser) mtu(path *field.Path, g *Gateway) {
	m := deref(p.spec.MTU, v1alpha1.MTU{})
	direct := v1alpha1.DefaultMTU
	if p.spec.Gluetun != nil {
		direct = v1alpha1.DefaultMTUGluetun
	}
	g.MTU = defaulted(int(m.Direct), direct)
	g.TunnelMTU = defaulted(int(m.Tunnel), min(v1alpha1.DefaultMTUTunnel, g.MTU))
	p.mtuWithin(path.Child("direct"), g.MTU, g)
	p.mtuWithin(path.Child("tunnel"), g.TunnelMTU, g)
}

func (p *parser) mtuWithin(path *field.Path, mtu int, g *Gateway) {
	if len(g.Pools) > 0 && g.HasIPv6() && mtu >= wireguard.MinMTU && mtu < wireguard.MinMTUv6 {
		p.refuse(path, mtu, fmt.Sprintf("is below what IPv6 needs: use at least %d, or no peerCIDRv6", wireguard.MinMTUv6))
		return
	}
	p.between(path, mtu, wireguard.MinMTU, maxMTU)
}

func (p *parser) dns(path *field.Path, d *v1alpha1.DNS) *DNS {
	if d == nil {
		return nil
	}
	out := &DNS{}
	for i, s := range d.Servers {
		if a, ok := p.address(path.Child("servers").Index(i), s, s); ok {
			out.Servers = append(out.Servers, a)
		}
	}
	for i, s := range d.SearchDomains {
		if message := checkDomain(s); message != "" {
			p.refuse(path.Child("searchDomains").Index(i), s, message)
			continue
		}
		out.SearchDomains = append(out.SearchDomains, s)
	}
	return out
}
