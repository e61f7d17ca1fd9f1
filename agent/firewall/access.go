package firewall

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"slices"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/config"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// accessChains returns the chain that decides on each peer's traffic, in the
// order of the peers, and the chains. Peers with the same rules share one: its
// name is a hash of them.
func accessChains(c *config.Config) ([]string, []chain) {
	all := c.All()
	names := make([]string, len(all))
	known := map[string]bool{}
	var chains []chain
	for i, p := range all {
		if len(p.Access) == 0 {
			names[i] = acceptChain
			continue
		}
		name := accessName(p.Access)
		names[i] = name
		if !known[name] {
			known[name] = true
			chains = append(chains, chain{name: name, hashed: true, rules: accessRules(p.Access)})
		}
	}
	return names, chains
}

func accessName(rules []wireguard.AccessRule) string {
	// Access rules hold strings, numbers and addresses only, so that they
	// always encode.
	b, err := json.Marshal(rules)
	if err != nil {
		panic(err)
	}
	h := sha256.Sum256(b)
	return "access-" + hex.EncodeToString(h[:8])
}

// accessRules translates a peer's list, in its order. What no rule matches is
// rejected.
func accessRules(list []wireguard.AccessRule) []rule {
	var rules []rule
	for _, a := range list {
		verdict := accept
		if a.Action == wireguard.Reject {
			verdict = reject
		}
		for _, m := range protocolMatches(a) {
			rules = append(rules, match(daddr(a.To.CIDR), m, verdict()))
		}
	}
	return append(rules, match(reject()))
}

// protocolMatches returns one match for each protocol and port range of a
// rule.
func protocolMatches(a wireguard.AccessRule) [][]expr.Any {
	var protos []byte
	switch a.Protocol {
	case wireguard.ProtocolTCP:
		protos = []byte{unix.IPPROTO_TCP}
	case wireguard.ProtocolUDP:
		protos = []byte{unix.IPPROTO_UDP}
	case wireguard.ProtocolICMP:
		// Each with its own family only: ICMP inside IPv6 is no ping.
		return [][]expr.Any{
			match(family(true), l4proto(unix.IPPROTO_ICMP)),
			match(family(false), l4proto(unix.IPPROTO_ICMPV6)),
		}
	default:
		if len(a.To.Ports) == 0 {
			return [][]expr.Any{nil}
		}
		protos = []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP}
	}
	var out [][]expr.Any
	for _, proto := range protos {
		if len(a.To.Ports) == 0 {
			out = append(out, l4proto(proto))
		}
		for _, r := range a.To.Ports {
			out = append(out, match(l4proto(proto), dport(expr.CmpOpEq, r)))
		}
	}
	return out
}

// Accepts tells whether a peer's list lets it open a connection, as the rules
// that it is translated to do.
func Accepts(list []wireguard.AccessRule, protocol uint8, to netip.AddrPort) bool {
	for _, a := range list {
		if (!a.To.CIDR.IsValid() || a.To.CIDR.Contains(to.Addr())) && matches(a, protocol, to) {
			return a.Action == wireguard.Accept
		}
	}
	return len(list) == 0
}

func matches(a wireguard.AccessRule, protocol uint8, to netip.AddrPort) bool {
	switch a.Protocol {
	case wireguard.ProtocolICMP:
		return to.Addr().Is4() && protocol == unix.IPPROTO_ICMP || to.Addr().Is6() && protocol == unix.IPPROTO_ICMPV6
	case wireguard.ProtocolTCP:
		if protocol != unix.IPPROTO_TCP {
			return false
		}
	case wireguard.ProtocolUDP:
		if protocol != unix.IPPROTO_UDP {
			return false
		}
	}
	if len(a.To.Ports) == 0 {
		return true
	}
	return (protocol == unix.IPPROTO_TCP || protocol == unix.IPPROTO_UDP) &&
		slices.ContainsFunc(a.To.Ports, func(r wireguard.PortRange) bool { return r.First <= to.Port() && to.Port() <= r.Last })
}
