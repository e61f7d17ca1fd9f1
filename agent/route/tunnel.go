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
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

const (
	// tunnelTable leads peers into a tunnel of OpenVPN's. gluetun's own table
	// has no route then, and stays gluetun's: it fails on a route that is there
	// already.
	tunnelTable = podTable + 1

	// gluetunUplinkTable is where gluetun keeps the pod's own default routes,
	// for what has the pod's address as source.
	gluetunUplinkTable = 200
)

// Tunnel is how gluetun leads into its tunnel. For WireGuard it has a table and
// a rule of its own. OpenVPN instead puts routes of half the internet each into
// the main table, which then is the pod's own way out no longer.
type Tunnel struct {
	// Index is that of the tunnel's device, and 0 while nothing leads into it.
	Index int
	// mainIPv4 and mainIPv6 tell that it is the main table that leads into it.
	mainIPv4, mainIPv6 bool

	// networks are those of the device's addresses, where no table of gluetun's
	// leads into it.
	networks []netip.Prefix
}

// Clash returns a network of the tunnel that overlaps with one of these in such a
// way that either does not work, and an invalid one where none does. The server
// of an OpenVPN chooses the network. Where its address is in one of these, OpenVPN
// routes by the gateway's device what it means for its own. A wider network in
// which it is elsewhere does no harm.
func (t Tunnel) Clash(own []netip.Prefix) netip.Prefix {
	for _, n := range t.networks {
		if slices.ContainsFunc(own, func(o netip.Prefix) bool {
			return n.Overlaps(o) && (n.Bits() >= o.Bits() || !t.main(n.Addr().Is6()))
		}) {
			return n
		}
	}
	return netip.Prefix{}
}

// main tells whether the main table leads a family into the tunnel.
func (t Tunnel) main(ipv6 bool) bool {
	if ipv6 {
		return t.mainIPv6
	}
	return t.mainIPv4
}

// FindTunnel looks which way gluetun leads into the device. One that is not up
// is none.
func FindTunnel(device string) (Tunnel, error) {
	link, err := findLink(device)
	if err != nil || link == nil || link.Attrs().Flags&net.FlagUp == 0 {
		return Tunnel{}, err
	}
	index := link.Attrs().Index
	routes, err := routesBy(index)
	if err != nil {
		return Tunnel{}, err
	}
	if slices.ContainsFunc(routes, func(r netlink.Route) bool { return r.Table == wireguard.FirewallMark && isDefault(r) }) {
		return Tunnel{Index: index}, nil
	}
	t := Tunnel{}
	for _, r := range routes {
		// Those of the kernel lead to the tunnel's own network only.
		if r.Table != unix.RT_TABLE_MAIN || r.Protocol == unix.RTPROT_KERNEL {
			continue
		}
		t.Index = index
		if r.Family == netlink.FAMILY_V6 {
			t.mainIPv6 = true
		} else {
			t.mainIPv4 = true
		}
	}
	all, err := addresses(link)
	if err != nil {
		return Tunnel{}, err
	}
	for _, a := range all {
		if p := ipnet.Prefix(a.IPNet).Masked(); !p.IsSingleIP() {
			t.networks = append(t.networks, p)
		}
	}
	return t, nil
}

// routesBy returns the routes of all tables that lead by a device. There may be
// many by others, so the list is made once.
func routesBy(index int) ([]netlink.Route, error) {
	var out []netlink.Route
	for _, family := range both {
		routes, err := listRoutes(family, &netlink.Route{LinkIndex: index}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_OIF)
		if err != nil {
			return nil, err
		}
		out = append(out, routes...)
	}
	return out, nil
}

// EnsureTunnelRoutes routes everything of tunnelTable into the tunnel, of the
// families that the main table leads there, and nothing of others. The kernel
// takes the routes away with the device.
func EnsureTunnelRoutes(t Tunnel) error {
	for _, family := range both {
		filter := &netlink.Route{Table: tunnelTable, Protocol: protocol}
		routes, err := listRoutes(family, filter, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
		if err != nil {
			return err
		}
		missing := t.main(family == netlink.FAMILY_V6)
		for _, r := range routes {
			if missing && r.LinkIndex == t.Index && isDefault(r) {
				missing = false
			} else if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("cannot delete route of the tunnel: %w", err)
			}
		}
		if !missing {
			continue
		}
		r := &netlink.Route{
			LinkIndex: t.Index, Dst: ipnet.From(everything(family)), Scope: netlink.SCOPE_LINK,
			Table: tunnelTable, Protocol: protocol, Family: family,
		}
		if err := netlink.RouteReplace(r); err != nil && !isGone(err) {
			return fmt.Errorf("cannot route everything to the tunnel: %w", err)
		}
	}
	return nil
}

// isGone tells that a device went away or down meanwhile, which brings an event
// of its own.
func isGone(err error) bool {
	return errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENETDOWN)
}
