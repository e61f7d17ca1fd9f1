package route

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/ipnet"
)

// Network is an address that the pod has by itself, with the prefix length of
// the network around it.
type Network struct {
	netip.Prefix
	Device string
}

// Networks returns those of devices, the other ends of point-to-point links too.
// A device that is not there has none.
func Networks(devices ...string) ([]Network, error) {
	var out []Network
	for _, device := range devices {
		link, err := findLink(device)
		if err != nil {
			return nil, err
		}
		if link == nil {
			continue
		}
		all, err := addresses(link)
		if err != nil {
			return nil, err
		}
		for _, a := range all {
			for _, n := range []*net.IPNet{a.IPNet, a.Peer} {
				if p := ipnet.Prefix(n); p.IsValid() {
					out = append(out, Network{p, device})
				}
			}
		}
	}
	return out, nil
}

// Unrouted is a network that could not be routed into the device, and why.
type Unrouted struct {
	Network netip.Prefix
	Reason  string
}

// EnsureRoutes routes these networks into the device, besides those of its
// addresses, and no others. It returns those that it cannot route, which keep no
// other from its route: a route that somebody else has to the same network is
// not ours to replace, and a device may have no IPv6.
func EnsureRoutes(device string, want []netip.Prefix) ([]Unrouted, error) {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return nil, fmt.Errorf("cannot find %s: %w", device, err)
	}
	var have []netip.Prefix
	for _, family := range both {
		filter := &netlink.Route{LinkIndex: link.Attrs().Index, Table: unix.RT_TABLE_MAIN, Protocol: protocol}
		routes, err := listRoutes(family, filter, netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
		if err != nil {
			return nil, err
		}
		for _, r := range routes {
			p := ipnet.Prefix(r.Dst)
			if slices.Contains(want, p) {
				have = append(have, p)
			} else if err := netlink.RouteDel(&r); err != nil {
				return nil, fmt.Errorf("cannot delete route to %s: %w", p, err)
			}
		}
	}
	var unrouted []Unrouted
	for _, p := range want {
		if slices.Contains(have, p) {
			continue
		}
		r := &netlink.Route{
			LinkIndex: link.Attrs().Index, Dst: ipnet.From(p), Scope: netlink.SCOPE_LINK,
			Table: unix.RT_TABLE_MAIN, Protocol: protocol, Family: familyOf(p.Addr()),
		}
		switch err := netlink.RouteAdd(r); {
		case err == nil:
		case errors.Is(err, unix.EEXIST):
			unrouted = append(unrouted, Unrouted{p, "the pod has another route to it"})
		case cannotRoute(p.Addr(), err):
			unrouted = append(unrouted, Unrouted{p, device + " has no IPv6"})
		default:
			return nil, fmt.Errorf("cannot route %s to %s: %w", p, device, err)
		}
	}
	return unrouted, nil
}
