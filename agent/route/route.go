// Package route keeps what the kernel has to know of the gateway's device
// besides WireGuard: addresses, routes, rules and forwarding. All of it goes
// through rtnetlink, for which CAP_NET_ADMIN is enough.
package route

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/ipnet"
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

func familyOf(a netip.Addr) int {
	if a.Is4() {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}

// everything returns the network of all addresses of a family.
func everything(family int) netip.Prefix {
	if family == netlink.FAMILY_V6 {
		return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
}

// isDefault tells whether a route is that to everything.
func isDefault(r netlink.Route) bool {
	d := ipnet.Prefix(r.Dst)
	return !d.IsValid() || d.Bits() == 0
}

// listRoutes returns the routes of a family that the filter lets through. There
// are none where the kernel does not have the family.
func listRoutes(family int, filter *netlink.Route, mask uint64) ([]netlink.Route, error) {
	routes, err := uninterrupted(func() ([]netlink.Route, error) { return netlink.RouteListFiltered(family, filter, mask) })
	if noFamily(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot list routes: %w", err)
	}
	return routes, nil
}

// listRules returns the rules of a family. Where the kernel does not have the
// family, noFamily tells so of the error: no rule can be added then.
func listRules(family int) ([]netlink.Rule, error) {
	rules, err := uninterrupted(func() ([]netlink.Rule, error) { return netlink.RuleList(family) })
	if err != nil {
		return nil, fmt.Errorf("cannot list rules: %w", err)
	}
	return rules, nil
}

// listAddresses returns the addresses of both families.
func listAddresses(link netlink.Link) ([]netlink.Addr, error) {
	all, err := uninterrupted(func() ([]netlink.Addr, error) { return netlink.AddrList(link, netlink.FAMILY_ALL) })
	if err != nil {
		return nil, fmt.Errorf("cannot list addresses of %s: %w", link.Attrs().Name, err)
	}
	return all, nil
}

// uninterrupted makes a list anew where it has changed meanwhile: a part of it
// may be missing.
func uninterrupted[T any](list func() ([]T, error)) ([]T, error) {
	for attempts := 5; ; attempts-- {
		out, err := list()
		if attempts == 1 || !errors.Is(err, netlink.ErrDumpInterrupted) {
			return out, err
		}
	}
}

// noFamily tells that the kernel does not have the family, as with IPv6
// switched off.
func noFamily(err error) bool {
	return errors.Is(err, unix.EAFNOSUPPORT) || errors.Is(err, unix.EOPNOTSUPP)
}
