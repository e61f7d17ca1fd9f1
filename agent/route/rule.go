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

// Preferences of our rules. They come before gluetun's, which are 98 to 101,
// but for the last one.
const (
	prefCluster     = 89
	prefToPeers     = 90
	prefTunnel      = 91
	prefUnreachable = 92
	prefOwn         = 102

	// prefGluetun is the preference of gluetun's rule that sends everything to
	// its tunnel.
	prefGluetun = 101
)

// Rule is one of our routing rules.
type Rule struct {
	Preference int
	// Device is the interface that packets come in by. Empty is any.
	Device string
	// Destination is a network. The zero value is any, of the family.
	Destination netip.Prefix
	IPv6        bool
	// Mark is the mark that packets have, or, with Unmarked, do not have. 0 is
	// any.
	Mark     uint32
	Unmarked bool
	// Table is the routing table. 0 answers that the destination is
	// unreachable.
	Table int
}

// TunnelRules returns the rules that keep peers' traffic in gluetun's tunnel:
// what comes from the device uses gluetun's table or ours, and where both are
// empty, because the tunnel is down, the destination is unreachable. The main
// table, which knows the pod's own way out, is used for the cluster's networks
// and for what goes to peers only.
//
// Where the main table leads into the tunnel, gluetun's other table knows the
// pod's own way out. Our own datagrams need it, too, where they have no source
// yet: those by which the gateway calls a peer.
func TunnelRules(device string, inside, cluster []netip.Prefix, t Tunnel) []Rule {
	var rules []Rule
	for _, p := range cluster {
		out := unix.RT_TABLE_MAIN
		if t.main(p.Addr().Is6()) {
			out = gluetunUplinkTable
		}
		rules = append(rules, Rule{Preference: prefCluster, Device: device, Destination: p, IPv6: p.Addr().Is6(), Table: out})
	}
	for _, p := range inside {
		rules = append(rules, Rule{Preference: prefToPeers, Destination: p, IPv6: p.Addr().Is6(), Table: unix.RT_TABLE_MAIN})
	}
	for _, ipv6 := range []bool{false, true} {
		rules = append(rules,
			Rule{Preference: prefTunnel, Device: device, IPv6: ipv6, Table: wireguard.FirewallMark},
			Rule{Preference: prefTunnel, Device: device, IPv6: ipv6, Table: tunnelTable},
			Rule{Preference: prefUnreachable, Device: device, IPv6: ipv6},
		)
		if t.main(ipv6) {
			rules = append(rules, Rule{Preference: prefOwn, IPv6: ipv6, Mark: wireguard.FirewallMark, Table: gluetunUplinkTable})
		}
	}
	return rules
}

// EnsureRules makes our rules exactly these. They stay when the device goes
// away: a device of the same name gets them again. A rule that is wanted twice is
// one: the kernel refuses the second.
func EnsureRules(want []Rule) error {
	for _, family := range both {
		all, err := listRules(family)
		if noFamily(err) {
			continue
		}
		if err != nil {
			return err
		}
		seen := map[Rule]bool{}
		missing := slices.DeleteFunc(slices.Clone(want), func(r Rule) bool {
			double := seen[r]
			seen[r] = true
			return double || r.family() != family
		})
		var stale []netlink.Rule
		for _, k := range all {
			if k.Protocol != protocol {
				continue
			}
			if i := slices.IndexFunc(missing, func(r Rule) bool { return r.is(k) }); i >= 0 {
				missing = slices.Delete(missing, i, i+1)
			} else {
				stale = append(stale, k)
			}
		}
		// New ones come first, so that there is no moment without.
		for _, r := range missing {
			if err := netlink.RuleAdd(r.netlink()); err != nil {
				return fmt.Errorf("cannot add rule %d: %w", r.Preference, err)
			}
		}
		for _, k := range stale {
			if k.Table == 0 {
				k.Type = unix.RTN_UNREACHABLE
			}
			if err := netlink.RuleDel(&k); err != nil {
				return fmt.Errorf("cannot delete rule %d: %w", k.Priority, err)
			}
		}
	}
	return nil
}

func (r Rule) family() int {
	if r.IPv6 {
		return netlink.FAMILY_V6
	}
	return netlink.FAMILY_V4
}

func (r Rule) netlink() *netlink.Rule {
	out := netlink.NewRule()
	out.Family, out.Priority, out.IifName, out.Table, out.Protocol = r.family(), r.Preference, r.Device, r.Table, protocol
	if r.Destination.IsValid() {
		out.Dst = ipnet.From(r.Destination)
	}
	out.Mark, out.Invert = r.Mark, r.Unmarked
	if r.Table == 0 {
		out.Type = unix.RTN_UNREACHABLE
	}
	return out
}

// is compares with a rule of the kernel. The library does not read back what a
// rule does where it names no table, and of ours those are the unreachable ones.
func (r Rule) is(k netlink.Rule) bool {
	return k.Priority == r.Preference && k.IifName == r.Device && ipnet.Prefix(k.Dst) == r.Destination && k.Table == r.Table &&
		k.Mark == r.Mark && k.Invert == r.Unmarked
}

// RemoveStaleRule deletes the rule that a killed gluetun leaves behind, and on
// which it fails when it starts again in the same pod. It does so only while
// the tunnel's device is not there: gluetun makes the device first, and its
// rule after. It returns whether there was one.
func RemoveStaleRule(tunnel string) (bool, error) {
	removed := false
	for _, family := range both {
		all, err := listRules(family)
		if noFamily(err) {
			continue
		}
		if err != nil {
			return removed, err
		}
		for _, k := range all {
			if k.Priority != prefGluetun || k.Table != wireguard.FirewallMark {
				continue
			}
			if link, err := findLink(tunnel); err != nil || link != nil {
				return removed, err
			}
			if err := netlink.RuleDel(&k); err != nil {
				return removed, fmt.Errorf("cannot delete stale rule %d: %w", prefGluetun, err)
			}
			removed = true
		}
	}
	return removed, nil
}
