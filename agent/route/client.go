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

// Preferences of the rules of a pod that joins a gateway.
const (
	prefAnswers = 99
	prefBypass  = 101
	prefAll     = 102
)

// clientTable is the routing table that leads into the tunnel of a pod that
// joins a gateway. The device's own datagrams, which have its number as mark,
// skip it.
const clientTable = wireguard.FirewallMark

// ClientRules returns the rules of a pod with these addresses. Everything goes
// by clientTable, but for the bypass networks, and for what is marked as an
// answer to something that came in from outside. No rule says that a destination
// is unreachable: while there is no tunnel, answers need the main table until
// they have their mark. What must not leave then, the lockdown stops.
func ClientRules(pod []netip.Addr, bypass []netip.Prefix) []Rule {
	var rules []Rule
	for _, ipv6 := range families(pod) {
		rules = append(rules, Rule{Preference: prefAnswers, IPv6: ipv6, Mark: wireguard.TunnelMark, Table: clientTable})
		for _, p := range bypass {
			if p.Addr().Is6() == ipv6 {
				rules = append(rules, Rule{Preference: prefBypass, IPv6: ipv6, Destination: p, Table: unix.RT_TABLE_MAIN})
			}
		}
		rules = append(rules, Rule{Preference: prefAll, IPv6: ipv6, Mark: wireguard.FirewallMark, Unmarked: true, Table: clientTable})
	}
	return rules
}

// families returns false for IPv4 and true for IPv6, as far as there are such
// addresses.
func families(addresses []netip.Addr) []bool {
	var out []bool
	for _, ipv6 := range []bool{false, true} {
		if slices.ContainsFunc(addresses, func(a netip.Addr) bool { return a.Is6() == ipv6 }) {
			out = append(out, ipv6)
		}
	}
	return out
}

// EnsureClientRoutes routes all of clientTable into the device, which needs no
// address of its own: each family leaves with the pod's. It returns whether it
// had to change anything.
func EnsureClientRoutes(device string, pod []netip.Addr) (bool, error) {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return false, fmt.Errorf("cannot find %s: %w", device, err)
	}
	changed := false
	for _, source := range pod {
		family := familyOf(source)
		routes, err := listRoutes(family, &netlink.Route{Table: clientTable}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return changed, err
		}
		if slices.ContainsFunc(routes, func(r netlink.Route) bool {
			return r.LinkIndex == link.Attrs().Index && isDefault(r) && r.Src.Equal(net.IP(source.AsSlice()))
		}) {
			continue
		}
		r := &netlink.Route{
			LinkIndex: link.Attrs().Index, Dst: ipnet.From(everything(family)), Src: source.AsSlice(),
			Table: clientTable, Protocol: protocol, Family: family,
		}
		if err := netlink.RouteReplace(r); err != nil {
			return changed, fmt.Errorf("cannot route everything to %s: %w", device, err)
		}
		changed = true
	}
	return changed, nil
}

// EnsureUnnumbered keeps the kernel from giving the device a link-local
// address. It belongs before the device is up.
func EnsureUnnumbered(device string) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("cannot find %s: %w", device, err)
	}
	const none = 1 // IN6_ADDR_GEN_MODE_NONE
	if err := netlink.LinkSetIP6AddrGenMode(link, none); err != nil && !noFamily(err) && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("cannot keep addresses off %s: %w", device, err)
	}
	return nil
}

// Interfaces returns the names of the interfaces that are up, except lo, and
// which of them no other is built on: those that packets are routed to.
func Interfaces() (up, top []string, err error) {
	links, err := uninterrupted(netlink.LinkList)
	if err != nil {
		return nil, nil, fmt.Errorf("cannot list interfaces: %w", err)
	}
	lower := map[int]bool{}
	for _, l := range links {
		if l.Attrs().NetNsID < 0 { // else its parent is in another namespace
			lower[l.Attrs().ParentIndex] = true
		}
		if l.Attrs().MasterIndex != 0 {
			lower[l.Attrs().Index] = true
		}
	}
	for _, l := range links {
		a := l.Attrs()
		if a.Flags&net.FlagUp == 0 || a.Flags&net.FlagLoopback != 0 {
			continue
		}
		up = append(up, a.Name)
		if !lower[a.Index] {
			top = append(top, a.Name)
		}
	}
	return up, top, nil
}
