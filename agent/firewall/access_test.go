package firewall

import (
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

func TestAccepts(t *testing.T) {
	rule := func(action, protocol, cidr string, ports ...wireguard.PortRange) wireguard.AccessRule {
		r := wireguard.AccessRule{Action: action, Protocol: protocol, To: wireguard.AccessDestination{Ports: ports}}
		if cidr != "" {
			r.To.CIDR = netip.MustParsePrefix(cidr)
		}
		return r
	}
	const accept, tcp, udp, icmp, each = wireguard.Accept, wireguard.ProtocolTCP, wireguard.ProtocolUDP, wireguard.ProtocolICMP, wireguard.ProtocolAny
	dns, web := wireguard.PortRange{First: 53, Last: 53}, wireguard.PortRange{First: 8000, Last: 8100}
	list := func(rules ...wireguard.AccessRule) []wireguard.AccessRule { return rules }
	cases := map[string]struct {
		reason   string
		list     []wireguard.AccessRule
		protocol uint8
		to       string
		want     bool
	}{
		"None":         {"without rules everything passes", nil, unix.IPPROTO_UDP, "192.0.2.1:53", true},
		"NoMatch":      {"a list ends in reject", list(rule(accept, "", "10.0.0.0/8")), unix.IPPROTO_UDP, "192.0.2.1:53", false},
		"Network":      {"of the destination", list(rule(accept, "", "10.0.0.0/8")), unix.IPPROTO_UDP, "10.1.2.3:53", true},
		"OtherFamily":  {"a network of one family is nothing of the other", list(rule(accept, "", "0.0.0.0/0")), unix.IPPROTO_UDP, "[2001:db8::1]:53", false},
		"First":        {"the first rule that matches decides", list(rule(wireguard.Reject, udp, ""), rule(accept, "", "")), unix.IPPROTO_UDP, "192.0.2.1:53", false},
		"FirstOther":   {"and only if it matches", list(rule(wireguard.Reject, udp, ""), rule(accept, "", "")), unix.IPPROTO_TCP, "192.0.2.1:53", true},
		"TCP":          {"TCP is no UDP", list(rule(accept, tcp, "")), unix.IPPROTO_UDP, "192.0.2.1:53", false},
		"Port":         {"a single one", list(rule(accept, udp, "", dns)), unix.IPPROTO_UDP, "192.0.2.1:53", true},
		"OtherPort":    {"none of them", list(rule(accept, udp, "", dns, web)), unix.IPPROTO_UDP, "192.0.2.1:54", false},
		"Range":        {"both ends included", list(rule(accept, tcp, "", dns, web)), unix.IPPROTO_TCP, "192.0.2.1:8100", true},
		"AnyPort":      {"ports of any protocol are TCP's and UDP's", list(rule(accept, each, "", dns)), unix.IPPROTO_UDP, "[2001:db8::1]:53", true},
		"AnyNoPort":    {"and no other's", list(rule(accept, each, "", wireguard.PortRange{First: 0, Last: 65535})), unix.IPPROTO_GRE, "192.0.2.1:0", false},
		"Any":          {"without ports any is any", list(rule(accept, each, "")), unix.IPPROTO_GRE, "192.0.2.1:0", true},
		"ICMP":         {"of IPv4", list(rule(accept, icmp, "")), unix.IPPROTO_ICMP, "192.0.2.1:0", true},
		"ICMPv6":       {"of IPv6", list(rule(accept, icmp, "")), unix.IPPROTO_ICMPV6, "[2001:db8::1]:0", true},
		"ICMPOfOthers": {"each with its own family only", list(rule(accept, icmp, "")), unix.IPPROTO_ICMP, "[2001:db8::1]:0", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := Accepts(tc.list, tc.protocol, netip.MustParseAddrPort(tc.to)); got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
}
