package route

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// Forget makes the kernel forget every connection of these addresses. Who has
// one of them next would get the answers to the one before: the kernel still
// knows whom it has to pass them on to.
func Forget(addresses []netip.Addr) error {
	if len(addresses) == 0 {
		return nil
	}
	f := flowsOf{}
	for _, a := range addresses {
		f[a] = true
	}
	const attempts = 5
	for _, family := range both {
		var err error
		for range attempts {
			// A table that changes meanwhile may not be read in full.
			_, err = netlink.ConntrackDeleteFilters(netlink.ConntrackTable, netlink.InetFamily(family), f)
			if !errors.Is(err, netlink.ErrDumpInterrupted) {
				break
			}
		}
		if err != nil && !noFamily(err) {
			return fmt.Errorf("cannot delete connections: %w", err)
		}
	}
	return nil
}

// flowsOf matches connections of addresses, in either direction.
type flowsOf map[netip.Addr]bool

// MatchConntrackFlow implements netlink.CustomConntrackFilter.
func (f flowsOf) MatchConntrackFlow(flow *netlink.ConntrackFlow) bool {
	for _, ip := range []net.IP{flow.Forward.SrcIP, flow.Forward.DstIP, flow.Reverse.SrcIP, flow.Reverse.DstIP} {
		if a, ok := netip.AddrFromSlice(ip); ok && f[a.Unmap()] {
			return true
		}
	}
	return false
}
