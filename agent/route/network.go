package route

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// EnsureRoutes routes exactly these networks into the device, besides those of
// its addresses. A route that somebody else has to the same network is an
// error: it is not ours to replace.
func EnsureRoutes(device string, want []netip.Prefix) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("cannot find %s: %w", device, err)
	}
	var have []netip.Prefix
	for _, family := range both {
		filter := &netlink.Route{LinkIndex: link.Attrs().Index, Table: unix.RT_TABLE_MAIN, Protocol: protocol}
		routes, err := netlink.RouteListFiltered(family, filter, netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
		if noFamily(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("cannot list routes: %w", err)
		}
		for _, r := range routes {
			p := prefixOf(r.Dst)
			if slices.Contains(want, p) {
				have = append(have, p)
			} else if err := netlink.RouteDel(&r); err != nil {
				return fmt.Errorf("cannot delete route to %s: %w", p, err)
			}
		}
	}
	for _, p := range want {
		if slices.Contains(have, p) {
			continue
		}
		r := &netlink.Route{
			LinkIndex: link.Attrs().Index, Dst: ipNet(p), Scope: netlink.SCOPE_LINK,
			Table: unix.RT_TABLE_MAIN, Protocol: protocol, Family: familyOf(p),
		}
		if err := netlink.RouteAdd(r); err != nil {
			return fmt.Errorf("cannot route %s to %s: %w", p, device, err)
		}
	}
	return nil
}
