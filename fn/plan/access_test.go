package plan

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// packet is the traffic that rules are judged by. ICMP has no port.
type packet struct {
	protocol string
	to       netip.Addr
	port     uint16
}

// matches says what a rule means, in the words of its documentation.
func matches(r wireguard.AccessRule, p packet) bool {
	if r.To.CIDR.IsValid() && !r.To.CIDR.Contains(p.to) {
		return false
	}
	if r.Protocol != "" && r.Protocol != wireguard.ProtocolAny && r.Protocol != p.protocol {
		return false
	}
	if len(r.To.Ports) == 0 {
		return true
	}
	hasPort := p.protocol == wireguard.ProtocolTCP || p.protocol == wireguard.ProtocolUDP
	return hasPort && slices.ContainsFunc(r.To.Ports, func(o wireguard.PortRange) bool { return o.First <= p.port && p.port <= o.Last })
}

// accepts says what a list means: the first rule that matches decides, and a
// list that is not empty ends in reject.
func accepts(list []wireguard.AccessRule, p packet) bool {
	for _, r := range list {
		if matches(r, p) {
			return r.Action == wireguard.Accept
		}
	}
	return len(list) == 0
}

// One list decides on every packet as the two do one after the other.
func TestWithinLimitsAcceptsWhatBothAccept(t *testing.T) {
	const rounds = 20000
	random := rand.New(rand.NewPCG(1, 2))
	for range rounds {
		limits, own := randomList(random), randomList(random)
		both := withinLimits(limits, own)
		for _, p := range packets {
			want := accepts(limits, p) && accepts(own, p)
			if got := accepts(both, p); got != want {
				t.Fatalf("limits %v\nown %v\nmade %v\n%v: want accepted %t, got %t", limits, own, both, p, want, got)
			}
		}
		for _, r := range both {
			// The agent would take it for all of ICMP.
			if r.Protocol == wireguard.ProtocolICMP && len(r.To.Ports) > 0 {
				t.Fatalf("limits %v\nown %v\nmade %v: ICMP has no ports", limits, own, both)
			}
		}
		if most := max(len(limits)*(len(own)+1), len(own)); len(both) > most {
			t.Fatalf("limits %v\nown %v\nmade %v: want at most %d rules", limits, own, both, most)
		}
	}
}

// Nested, disjoint and equal networks of both families, and ports at the ends
// of the ranges and beside them.
var (
	networks = []string{"", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.1.2.3/32", "192.168.0.0/16", "fd00::/16", "fd00:1::/32", "::/0", "0.0.0.0/0"}
	hosts    = []string{"10.1.2.3", "10.1.2.4", "10.1.9.9", "10.9.9.9", "192.168.1.1", "203.0.113.9", "fd00:1::9", "fd00:2::9", "2001:db8::1"}
	ranges   = []wireguard.PortRange{{First: 53, Last: 53}, {First: 80, Last: 443}, {First: 100, Last: 200}, {First: 443, Last: 443}, {First: 443, Last: 65535}, {First: 1, Last: 80}}
	ports    = []uint16{1, 53, 80, 81, 100, 150, 200, 201, 443, 444, 65535}
	packets  = allPackets()
)

func allPackets() []packet {
	var ps []packet
	for _, h := range hosts {
		to := netip.MustParseAddr(h)
		for _, protocol := range []string{wireguard.ProtocolTCP, wireguard.ProtocolUDP} {
			for _, port := range ports {
				ps = append(ps, packet{protocol, to, port})
			}
		}
		ps = append(ps, packet{wireguard.ProtocolICMP, to, 0}, packet{"GRE", to, 0})
	}
	return ps
}

func randomList(r *rand.Rand) []wireguard.AccessRule {
	var list []wireguard.AccessRule
	for range r.IntN(5) {
		rule := wireguard.AccessRule{
			Action:   []string{wireguard.Accept, wireguard.Reject}[r.IntN(2)],
			Protocol: []string{"", wireguard.ProtocolAny, wireguard.ProtocolTCP, wireguard.ProtocolUDP, wireguard.ProtocolICMP}[r.IntN(5)],
		}
		if n := networks[r.IntN(len(networks))]; n != "" {
			rule.To.CIDR = netip.MustParsePrefix(n)
		}
		if rule.Protocol != wireguard.ProtocolICMP {
			for range r.IntN(3) {
				rule.To.Ports = append(rule.To.Ports, ranges[r.IntN(len(ranges))])
			}
		}
		list = append(list, rule)
	}
	return list
}

func TestWithinLimits(t *testing.T) {
	to := func(action, protocol, cidr string, ports ...wireguard.PortRange) wireguard.AccessRule {
		r := wireguard.AccessRule{Action: action, Protocol: protocol, To: wireguard.AccessDestination{Ports: ports}}
		if cidr != "" {
			r.To.CIDR = netip.MustParsePrefix(cidr)
		}
		return r
	}
	https := wireguard.PortRange{First: 443, Last: 443}
	type rules = []wireguard.AccessRule
	cases := map[string]struct {
		reason            string
		limits, own, want rules
	}{
		"NoLimits": {
			reason: "where the owner sets no limits the peer's own rules stand as they are",
			own:    rules{to("Accept", "TCP", "10.1.0.0/16")},
			want:   rules{to("Accept", "TCP", "10.1.0.0/16")},
		},
		"NoOwnRules": {
			reason: "a peer without rules may go where the owner lets it",
			limits: rules{to("Accept", "Any", "10.0.0.0/8")},
			want:   rules{to("Accept", "Any", "10.0.0.0/8")},
		},
		"Wider": {
			reason: "a peer that asks for everything gets what the owner lets it",
			limits: rules{to("Accept", "TCP", "10.0.0.0/8", https)},
			own:    rules{to("Accept", "Any", "")},
			want:   rules{to("Accept", "TCP", "10.0.0.0/8", https)},
		},
		"Narrower": {
			reason: "a peer may be stricter than the owner",
			limits: rules{to("Accept", "Any", "10.0.0.0/8")},
			own:    rules{to("Accept", "TCP", "10.1.2.0/24", https)},
			want:   rules{to("Accept", "TCP", "10.1.2.0/24", https)},
		},
		"Disjoint": {
			reason: "what the owner does not let through stays out, and the list is not left empty, which would let everything through",
			limits: rules{to("Accept", "Any", "10.0.0.0/8")},
			own:    rules{to("Accept", "Any", "192.168.0.0/16")},
			want:   rules{to("Reject", "Any", "10.0.0.0/8")},
		},
		"OwnerRejectsFirst": {
			reason: "an exception of the owner's comes before what the peer accepts",
			limits: rules{to("Reject", "Any", "10.1.0.0/16"), to("Accept", "Any", "")},
			own:    rules{to("Accept", "Any", "10.0.0.0/8")},
			want:   rules{to("Reject", "Any", "10.1.0.0/16"), to("Accept", "Any", "10.0.0.0/8")},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, withinLimits(tc.limits, tc.own), cmpopts.EquateComparable(netip.Prefix{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func (p packet) String() string { return fmt.Sprintf("%s to %s port %d", p.protocol, p.to, p.port) }
