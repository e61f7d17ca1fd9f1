package packet

import (
	"encoding/hex"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Frames and what they are made of, in hex. Lengths and checksums are not looked
// at.
const (
	ethernet = "020000000001 020000000002 "
	ip4      = ethernet + "0800 " + bare4
	ip6      = ethernet + "86dd " + bare6
	arp      = ethernet + "0806 0001080006040001"
	lldp     = ethernet + "88cc 0207"
	vlan     = ethernet + "8100 45000000"

	// The protocol and the addresses follow.
	bare4 = "45000000 00004000 40"
	bare6 = "60000000 0000"

	from4to4 = "0000 0af4000a c0000201 "                                               // 10.244.0.10 to 192.0.2.1
	from6to6 = "40 fd000000000000000000000000000010 20010db8000000000000000000000001 " // fd00::10 to 2001:db8::1

	udpEcho      = "c350 0007 000c 0000 " // from 50000 to 7
	udpWireGuard = "ca6d ca6c 0028 0000 " // from 51821 to 51820
)

func frame(tb testing.TB, s string) []byte {
	tb.Helper()
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func TestParse(t *testing.T) {
	four := func(p Packet) Packet {
		p.From, p.To = netip.MustParseAddr("10.244.0.10"), netip.MustParseAddr("192.0.2.1")
		return p
	}
	six := func(p Packet) Packet {
		p.From, p.To = netip.MustParseAddr("fd00::10"), netip.MustParseAddr("2001:db8::1")
		return p
	}
	cases := map[string]struct {
		reason string
		frame  string
		want   Packet
		says   string
	}{
		"UDP": {
			"it has ports", ip4 + "11" + from4to4 + udpEcho + "68656c6c",
			four(Packet{Protocol: "udp", FromPort: 50000, ToPort: 7}), "udp 10.244.0.10:50000 > 192.0.2.1:7",
		},
		"TCP": {
			"so it has by the other family", ip6 + "06" + from6to6 + "c350 01bb 00000000",
			six(Packet{Protocol: "tcp", FromPort: 50000, ToPort: 443}), "tcp [fd00::10]:50000 > [2001:db8::1]:443",
		},
		"Options": {
			"ports come after the options of IPv4", strings.Replace(ip4, "45", "46", 1) + "11" + from4to4 + "94040000" + udpEcho,
			four(Packet{Protocol: "udp", FromPort: 50000, ToPort: 7}), "udp 10.244.0.10:50000 > 192.0.2.1:7",
		},
		"WireGuard": {
			"a handshake", ip4 + "11" + from4to4 + udpWireGuard + "01000000 12345678",
			four(Packet{Protocol: "udp", FromPort: 51821, ToPort: 51820, WireGuard: true}), "udp 10.244.0.10:51821 > 192.0.2.1:51820 of WireGuard",
		},
		"NotWireGuard": {
			"ports alone do not tell", ip4 + "11" + from4to4 + udpWireGuard + "05000000",
			four(Packet{Protocol: "udp", FromPort: 51821, ToPort: 51820}), "udp 10.244.0.10:51821 > 192.0.2.1:51820",
		},
		"NotWireGuardTCP": {
			"it is never in TCP", ip4 + "06" + from4to4 + udpWireGuard + "01000000",
			four(Packet{Protocol: "tcp", FromPort: 51821, ToPort: 51820}), "tcp 10.244.0.10:51821 > 192.0.2.1:51820",
		},
		"Echo": {
			"it has a type", ip4 + "01" + from4to4 + "08000000 00010001",
			four(Packet{Protocol: "icmp", Type: 8}), "icmp/8 10.244.0.10 > 192.0.2.1",
		},
		"Unreachable": {
			"an error has the ports that it is about", ip4 + "01" + from4to4 + "03030000 00000000" + bare4 + "11" + from4to4 + udpWireGuard,
			four(Packet{Protocol: "icmp", Type: 3, AboutFrom: 51821, AboutTo: 51820}), "icmp/3 10.244.0.10 > 192.0.2.1 about 51821 > 51820",
		},
		"Unreachable6": {
			"so it has by IPv6", ip6 + "3a" + from6to6 + "01040000 00000000" + bare6 + "11" + from6to6 + udpWireGuard,
			six(Packet{Protocol: "icmp6", Type: 1, AboutFrom: 51821, AboutTo: 51820}), "icmp6/1 fd00::10 > 2001:db8::1 about 51821 > 51820",
		},
		"UnreachableTCP": {
			"an error about something else has none", ip4 + "01" + from4to4 + "03030000 00000000" + bare4 + "06" + from4to4 + udpWireGuard,
			four(Packet{Protocol: "icmp", Type: 3}), "icmp/3 10.244.0.10 > 192.0.2.1",
		},
		"Neighbour": {
			"it has a type", ip6 + "3a" + from6to6 + "87000000 00000000",
			six(Packet{Protocol: "icmp6", Type: 135}), "icmp6/135 fd00::10 > 2001:db8::1",
		},
		"Group": {
			"a report of groups comes after options", ip6 + "00" + from6to6 + "3a00050200000000 8f000000 00000001",
			six(Packet{Protocol: "icmp6", Type: 143}), "icmp6/143 fd00::10 > 2001:db8::1",
		},
		"Other": {
			"another protocol is told by its number", ip4 + "84" + from4to4 + udpEcho,
			four(Packet{Protocol: "protocol 132"}), "protocol 132 10.244.0.10 > 192.0.2.1",
		},
		"ShortUDP": {
			"without its header it has no ports", ip4 + "11" + from4to4 + "c3500007",
			four(Packet{Protocol: "protocol 17"}), "protocol 17 10.244.0.10 > 192.0.2.1",
		},
		"ARP":        {"it has no addresses of IP", arp, Packet{Protocol: "arp"}, "arp"},
		"LLDP":       {"another ethertype is told by its number", lldp, Packet{Protocol: "ethertype 0x88cc"}, "ethertype 0x88cc"},
		"VLAN":       {"what follows is not IP, whatever it looks like", vlan, Packet{Protocol: "ethertype 0x8100"}, "ethertype 0x8100"},
		"ShortIP":    {"a header that is cut short has no addresses", ethernet + "0800 4500", Packet{Protocol: "ethertype 0x800"}, "ethertype 0x800"},
		"ShortFrame": {"nor has a frame", "0200", Packet{Protocol: "short"}, "short"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Parse(frame(t, tc.frame))
			if diff := cmp.Diff(tc.want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
			if got.String() != tc.says {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.says)
			}
		})
	}
}

// Whatever is captured, nothing panics, and what has ports has addresses.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		ip4 + "11" + from4to4 + udpWireGuard + "01000000", ip6 + "00" + from6to6 + "3a00050200000000 8f000000 00000001",
		ip4 + "01" + from4to4 + "03030000 00000000" + bare4 + "11" + from4to4 + udpWireGuard, arp,
	} {
		f.Add(frame(f, s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p := Parse(b)
		if hasPorts := p.Protocol == "tcp" || p.Protocol == "udp"; hasPorts && (!p.From.IsValid() || !p.To.IsValid()) {
			t.Errorf("%s has no addresses", p)
		}
		if p.WireGuard && p.Protocol != "udp" {
			t.Errorf("%s is not a datagram", p)
		}
	})
}
