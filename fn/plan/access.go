package plan

import (
	"net/netip"
	"slices"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// withinLimits returns one list of access rules that accepts what both lists
// accept: the owner's limits, and the peer's own. Each of them ends in reject
// where it is not empty, and accepts everything where it is.
//
// The agent knows one list for each peer, in which the first rule that matches
// decides. So each limit is followed by what the peer's own rules say within
// it: what the limit matches is decided there, and goes no further.
func withinLimits(limits, own []wireguard.AccessRule) []wireguard.AccessRule {
	if len(limits) == 0 || len(own) == 0 {
		return slices.Concat(limits, own)
	}
	out := []wireguard.AccessRule{}
	for _, limit := range limits {
		if limit.Action == wireguard.Reject {
			out = append(out, limit)
			continue
		}
		out = append(out, narrowed(limit, own)...)
	}
	// What no limit matches is rejected, so a reject at the end says nothing:
	// but for the last one, since a list without rules would accept everything.
	last := len(out)
	for last > 1 && out[last-1].Action == wireguard.Reject {
		last--
	}
	return out[:last]
}

// narrowed returns what the peer's own rules say of the traffic that an
// accepting limit matches. The rest of that traffic is rejected.
func narrowed(limit wireguard.AccessRule, own []wireguard.AccessRule) []wireguard.AccessRule {
	var out []wireguard.AccessRule
	for _, rule := range own {
		both, ok := intersect(limit, rule)
		if !ok {
			continue
		}
		out = append(out, both)
		if covers(rule, limit) {
			return out
		}
	}
	// Rejects before the one that ends the block are part of it.
	for len(out) > 0 && out[len(out)-1].Action == wireguard.Reject {
		out = out[:len(out)-1]
	}
	end := limit
	end.Action = wireguard.Reject
	return append(out, end)
}

// intersect returns a rule that matches what both match, and does what the
// second does. There is none where they have nothing in common.
func intersect(a, b wireguard.AccessRule) (wireguard.AccessRule, bool) {
	out := wireguard.AccessRule{Action: b.Action}
	var networks, ports, protocols bool
	out.To.CIDR, networks = intersectNetworks(a.To.CIDR, b.To.CIDR)
	out.To.Ports, ports = intersectPorts(a.To.Ports, b.To.Ports)
	out.Protocol, protocols = intersectProtocols(a, b)
	return out, networks && ports && protocols
}

// intersectNetworks returns the smaller of two networks that overlap. The zero
// value is everything.
func intersectNetworks(a, b netip.Prefix) (netip.Prefix, bool) {
	switch {
	case !a.IsValid():
		return b, true
	case !b.IsValid():
		return a, true
	case !a.Overlaps(b):
		return netip.Prefix{}, false
	case a.Bits() > b.Bits():
		return a, true
	default:
		return b, true
	}
}

// intersectPorts returns the ports that are in both lists. An empty list is
// every port.
func intersectPorts(a, b []wireguard.PortRange) ([]wireguard.PortRange, bool) {
	if len(a) == 0 || len(b) == 0 {
		return slices.Concat(a, b), true
	}
	var out []wireguard.PortRange
	for _, x := range a {
		for _, y := range b {
			if r := (wireguard.PortRange{First: max(x.First, y.First), Last: min(x.Last, y.Last)}); r.First <= r.Last && !slices.Contains(out, r) {
				out = append(out, r)
			}
		}
	}
	return out, len(out) > 0
}

// intersectProtocols returns the protocol of what both rules match. Any with
// ports is TCP and UDP, so it has nothing in common with ICMP.
func intersectProtocols(a, b wireguard.AccessRule) (string, bool) {
	x, y := protocol(a), protocol(b)
	switch {
	case x == wireguard.ProtocolICMP && len(b.To.Ports) > 0, y == wireguard.ProtocolICMP && len(a.To.Ports) > 0:
		return "", false
	case x == wireguard.ProtocolAny:
		return y, true
	case y == wireguard.ProtocolAny, x == y:
		return x, true
	default:
		return "", false
	}
}

func protocol(r wireguard.AccessRule) string {
	if r.Protocol == "" {
		return wireguard.ProtocolAny
	}
	return r.Protocol
}

// covers tells whether the first rule matches all that the second matches. It
// may say no where it does: then a rule is written that nothing reaches.
func covers(a, b wireguard.AccessRule) bool {
	if c := a.To.CIDR; c.IsValid() && (!b.To.CIDR.IsValid() || c.Bits() > b.To.CIDR.Bits() || !c.Overlaps(b.To.CIDR)) {
		return false
	}
	if len(a.To.Ports) > 0 && !slices.Equal(a.To.Ports, b.To.Ports) {
		return false
	}
	return protocol(a) == wireguard.ProtocolAny || protocol(a) == protocol(b)
}
