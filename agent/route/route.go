// Package route keeps what the kernel has to know of the gateway's device
// besides WireGuard: addresses, routes, rules and forwarding. All of it goes
// through rtnetlink, for which CAP_NET_ADMIN is enough.
package route

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// protocol marks the routes and rules that are ours, so that no other is ever
// removed. The number is not in use (see /etc/iproute2/rt_protos).
const protocol = 86

// both lists the families.
var both = []int{netlink.FAMILY_V4, netlink.FAMILY_V6}

// findLink returns nil where there is no link of this name.
func findLink(name string) (netlink.Link, error) {
	link, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot look for %s: %w", name, err)
	}
	return link, nil
}

func familyOf(p netip.Prefix) int {
	if p.Addr().Is4() {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// prefixOf returns an invalid prefix for nil.
func prefixOf(n *net.IPNet) netip.Prefix {
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

// noFamily tells that the kernel does not have the family, as with IPv6
// switched off.
func noFamily(err error) bool {
	return errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP)
}
