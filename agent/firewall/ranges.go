package firewall

import (
	"cmp"
	"net/netip"
	"slices"
)

// network is a prefix and the chain that decides on what comes from it.
type network struct {
	prefix netip.Prefix
	chain  string
}

// interval is a run of addresses, both ends included, with one verdict.
type interval struct {
	first, last netip.Addr
	chain       string
}

// intervals turns networks, which may lie within each other, into the disjoint
// intervals that an nftables set needs. An address belongs to the smallest
// network that holds it, as on the device and in a routing table. Neighbours
// stay apart even with the same chain, so that a change to one network touches
// its own intervals only.
func intervals(networks []network) []interval {
	ns := slices.Clone(networks)
	slices.SortFunc(ns, func(a, b network) int {
		return cmp.Or(a.prefix.Addr().Compare(b.prefix.Addr()), cmp.Compare(a.prefix.Bits(), b.prefix.Bits()))
	})

	out := make([]interval, 0, len(ns))
	add := func(first, last netip.Addr, chain string) {
		out = append(out, interval{first: first, last: last, chain: chain})
	}

	// Two prefixes are apart or one holds the other, so the networks around
	// the present address are a stack, the smallest on top.
	type open struct {
		last  netip.Addr
		chain string
	}
	var stack []open
	var next netip.Addr // the first address that is not in out yet
	closeUpTo := func(limit netip.Addr) {
		for len(stack) > 0 {
			top := stack[len(stack)-1]
			if limit.IsValid() && !top.last.Less(limit) {
				return
			}
			if next.IsValid() && !top.last.Less(next) {
				add(next, top.last, top.chain)
				next = top.last.Next()
			}
			stack = stack[:len(stack)-1]
		}
	}
	for _, n := range ns {
		first, last := n.prefix.Addr(), lastOf(n.prefix)
		closeUpTo(first)
		if len(stack) > 0 && next.IsValid() && next.Less(first) {
			add(next, first.Prev(), stack[len(stack)-1].chain)
		}
		next = first
		stack = append(stack, open{last: last, chain: n.chain})
	}
	closeUpTo(netip.Addr{})
	return out
}

// lastOf returns the last address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := range b {
		switch host := 8*(i+1) - p.Bits(); {
		case host >= 8:
			b[i] = 0xff
		case host > 0:
			b[i] |= 0xff >> (8 - host)
		}
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}
