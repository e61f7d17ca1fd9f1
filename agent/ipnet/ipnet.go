// Package ipnet turns networks of net/netip into those of net, which the
// libraries that talk to the kernel use, and back.
package ipnet

import (
	"net"
	"net/netip"
)

// From returns the network of net.
func From(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// List returns the networks of net, in the same order.
func List(prefixes []netip.Prefix) []net.IPNet {
	var out []net.IPNet
	for _, p := range prefixes {
		out = append(out, *From(p))
	}
	return out
}

// Prefix returns the network of net/netip, and an invalid one for nil.
func Prefix(n *net.IPNet) netip.Prefix {
	if n == nil {
		return netip.Prefix{}
	}
	a, ok := netip.AddrFromSlice(n.IP)
	if !ok {
		return netip.Prefix{}
	}
	ones, _ := n.Mask.Size()
	return netip.PrefixFrom(a.Unmap(), ones)
}
