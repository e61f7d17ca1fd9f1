package route

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/ipnet"
)

const (
	// podTable has a route to each pod, and nothing else. A pod has the same
	// address inside the tunnel and outside, so that the main table would lead
	// to it in the clear.
	podTable = 51821

	// prefToPods comes before our other rules: an address of a pod is one of the
	// cluster's too.
	prefToPods = 88

	// prefWithoutIPv6 comes before what leads anywhere.
	prefWithoutIPv6 = 87
)

// WithoutIPv6 returns the rule of a gateway that forwards no IPv6, for pods that
// have it. The kernel would drop what they send without a word, and programs that
// try IPv6 first would wait.
func WithoutIPv6(device string) Rule {
	return Rule{Preference: prefWithoutIPv6, Device: device, IPv6: true}
}

// PodRules return the rules that send to pods by the tunnel all but our own
// datagrams, and the answers to those that pods sent around it.
func PodRules(mark uint32) []Rule {
	var rules []Rule
	for _, ipv6 := range []bool{false, true} {
		rules = append(rules, Rule{Preference: prefToPods, Mark: mark, Unmarked: true, IPv6: ipv6, Table: podTable})
	}
	return rules
}

// Block discards what is sent to these addresses of pods, so that it finds no
// other way.
func Block(addresses []netip.Addr) error {
	for _, a := range addresses {
		r := podRoute(a)
		r.Type = unix.RTN_BLACKHOLE
		if err := netlink.RouteReplace(r); err != nil && !cannotRoute(a, err) {
			return fmt.Errorf("cannot block %s: %w", a, err)
		}
	}
	return nil
}

// EnsurePodRoutes routes exactly these addresses of pods into the device, and
// blocks no other.
func EnsurePodRoutes(device string, want []netip.Addr) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("cannot find %s: %w", device, err)
	}
	index := link.Attrs().Index
	missing := make(map[netip.Addr]bool, len(want))
	for _, a := range want {
		missing[a] = true
	}
	have, err := podRoutes()
	if err != nil {
		return err
	}
	for _, r := range have {
		a := ipnet.Prefix(r.Dst).Addr()
		switch {
		case missing[a] && r.LinkIndex == index && r.Type == unix.RTN_UNICAST:
			delete(missing, a)
		case missing[a]: // It is replaced.
		default:
			if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
				return fmt.Errorf("cannot delete route to %s: %w", a, err)
			}
		}
	}
	for _, a := range want {
		if !missing[a] {
			continue
		}
		r := podRoute(a)
		r.LinkIndex, r.Scope = index, netlink.SCOPE_LINK
		if err := netlink.RouteReplace(r); err != nil && !cannotRoute(a, err) {
			return fmt.Errorf("cannot route %s to %s: %w", a, device, err)
		}
	}
	return nil
}

// RemovePodRoutes deletes all routes to pods.
func RemovePodRoutes() error {
	have, err := podRoutes()
	if err != nil {
		return err
	}
	for _, r := range have {
		if err := netlink.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("cannot delete route to %s: %w", ipnet.Prefix(r.Dst), err)
		}
	}
	return nil
}

func podRoute(a netip.Addr) *netlink.Route {
	p := netip.PrefixFrom(a, a.BitLen())
	return &netlink.Route{Dst: ipnet.From(p), Table: podTable, Protocol: protocol, Family: familyOf(a)}
}

func podRoutes() ([]netlink.Route, error) {
	var out []netlink.Route
	for _, family := range both {
		filter := &netlink.Route{Table: podTable, Protocol: protocol}
		routes, err := listRoutes(family, filter, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_PROTOCOL)
		if err != nil {
			return nil, err
		}
		out = append(out, routes...)
	}
	return out, nil
}

// cannotRoute tells that the kernel has IPv6 switched off: for good, by the sysctl
// (EACCES), or because the device's MTU is below the least that IPv6 runs on
// (ENODEV). Nothing is sent to the address then.
func cannotRoute(a netip.Addr, err error) bool {
	return a.Is6() && (noFamily(err) || errors.Is(err, unix.EACCES) || errors.Is(err, unix.ENODEV))
}
