package route

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/ipnet"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// Uplink is the pod's own way out.
type Uplink struct {
	// IPv4 and IPv6 name the interface of each family's default route. Empty
	// where there is none.
	IPv4, IPv6 string
	// Addresses are those of both interfaces.
	Addresses []netip.Addr
	// MTU is the smaller of both, in bytes, and 0 where there is none.
	MTU int
}

// FindUplink reads the default routes of the main table. It does not ask the
// kernel which way a packet would go: with gluetun in the pod the answer would
// be its tunnel. The devices given are never the uplink.
func FindUplink(except ...string) (Uplink, error) {
	u := Uplink{}
	for _, family := range both {
		link, err := defaultLink(family, except)
		if err != nil {
			return Uplink{}, err
		}
		if link == nil {
			continue
		}
		name := link.Attrs().Name
		if family == netlink.FAMILY_V4 {
			u.IPv4 = name
		} else {
			u.IPv6 = name
		}
		if mtu := link.Attrs().MTU; u.MTU == 0 || mtu < u.MTU {
			u.MTU = mtu
		}
		if family == netlink.FAMILY_V6 && u.IPv6 == u.IPv4 {
			continue
		}
		addresses, err := listAddresses(link)
		if err != nil {
			return Uplink{}, err
		}
		for _, a := range addresses {
			if p := ipnet.Prefix(a.IPNet); p.IsValid() && !p.Addr().IsLinkLocalUnicast() {
				u.Addresses = append(u.Addresses, p.Addr())
			}
		}
	}
	return u, nil
}

// defaultLink returns the link of the default route with the best metric.
func defaultLink(family int, except []string) (netlink.Link, error) {
	routes, err := listRoutes(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, err
	}
	best, index := -1, 0
	for _, r := range routes {
		if !isDefault(r) || r.Type != unix.RTN_UNICAST {
			continue
		}
		i := r.LinkIndex
		if i == 0 && len(r.MultiPath) > 0 {
			i = r.MultiPath[0].LinkIndex
		}
		if i == 0 || best >= 0 && r.Priority >= best {
			continue
		}
		link, err := netlink.LinkByIndex(i)
		if err != nil || slices.Contains(except, link.Attrs().Name) {
			// It went away between the two requests, which brings an event of
			// its own.
			continue
		}
		best, index = r.Priority, i
	}
	if index == 0 {
		return nil, nil
	}
	link, err := netlink.LinkByIndex(index)
	if err != nil {
		return nil, fmt.Errorf("cannot find interface of the default route: %w", err)
	}
	return link, nil
}

// DeviceMTU returns the MTU for our device, in bytes: the configured one, or
// less where the uplink is smaller, but never less than the family needs.
func (u Uplink) DeviceMTU(configured int, ipv6 bool) int {
	mtu := configured
	if u.MTU > 0 {
		mtu = min(mtu, u.MTU-wireguard.Overhead)
	}
	if ipv6 {
		return max(mtu, wireguard.MinMTUv6)
	}
	return max(mtu, wireguard.MinMTU)
}
