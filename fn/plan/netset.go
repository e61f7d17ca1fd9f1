package plan

import (
	"net/netip"
	"slices"
)

// netSet is a set of networks. To find one that contains another it looks up each
// prefix length in use, of which there are few.
type netSet struct {
	lengths []int // of prefixes in use, shortest first
	has     map[netip.Prefix]bool
}

func newNetSet() *netSet { return &netSet{has: map[netip.Prefix]bool{}} }

func (s *netSet) add(n netip.Prefix) {
	if i, known := slices.BinarySearch(s.lengths, n.Bits()); !known {
		s.lengths = slices.Insert(s.lengths, i, n.Bits())
	}
	s.has[n] = true
}

// contains tells whether all of a network is in one of those that were added.
func (s *netSet) contains(n netip.Prefix) bool {
	for _, bits := range s.lengths {
		if bits > n.Bits() {
			break
		}
		if s.has[netip.PrefixFrom(n.Addr(), bits).Masked()] {
			return true
		}
	}
	return false
}
