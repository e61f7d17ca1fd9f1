// Package packet reads what a packet socket captures. What packets may leave
// where is for each test to say.
package packet

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Packet is what a captured packet says of itself. Those of the same kind are
// equal, so that they can be counted together.
type Packet struct {
	// Protocol is tcp, udp, icmp, icmp6 or arp, or says what else it is.
	Protocol         string
	From, To         netip.Addr
	FromPort, ToPort uint16 // of TCP and UDP
	Type             uint8  // of ICMP
	// AboutFrom and AboutTo are the ports of the UDP datagram that an ICMP error
	// is about.
	AboutFrom, AboutTo uint16
	// WireGuard tells that a UDP datagram looks like a message of WireGuard.
	WireGuard bool
}

func (p Packet) String() string {
	if !p.From.IsValid() {
		return p.Protocol
	}
	s := fmt.Sprintf("%s %s > %s", p.Protocol, p.From, p.To)
	switch p.Protocol {
	case "tcp", "udp":
		s = fmt.Sprintf("%s %s > %s", p.Protocol, netip.AddrPortFrom(p.From, p.FromPort), netip.AddrPortFrom(p.To, p.ToPort))
	case "icmp", "icmp6":
		s = fmt.Sprintf("%s/%d %s > %s", p.Protocol, p.Type, p.From, p.To)
	}
	if p.AboutFrom != 0 || p.AboutTo != 0 {
		s += fmt.Sprintf(" about %d > %d", p.AboutFrom, p.AboutTo)
	}
	if p.WireGuard {
		s += " of WireGuard"
	}
	return s
}

// Parse reads an Ethernet frame, which may be cut short behind the headers.
func Parse(frame []byte) Packet {
	const header = 14
	if len(frame) < header {
		return Packet{Protocol: "short"}
	}
	kind := binary.BigEndian.Uint16(frame[12:])
	switch kind {
	case unix.ETH_P_ARP:
		return Packet{Protocol: "arp"}
	case unix.ETH_P_IP, unix.ETH_P_IPV6:
		if p, ok := parseIP(frame[header:]); ok {
			return p
		}
	}
	return Packet{Protocol: fmt.Sprintf("ethertype %#x", kind)}
}

// parseIP reads a packet of either family. The packet that an ICMP error is
// about begins like any other.
func parseIP(b []byte) (p Packet, ok bool) {
	const ipv4, ipv6, options, transport = 20, 40, 8, 8
	if len(b) == 0 {
		return p, false
	}
	var next byte
	switch version := b[0] >> 4; {
	case version == 4 && len(b) >= ipv4:
		p.From, p.To = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
		next, b = b[9], b[min(len(b), int(b[0]&0xf)*4):]
	case version == 6 && len(b) >= ipv6:
		p.From, p.To = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
		next, b = b[6], b[ipv6:]
		if next == unix.IPPROTO_HOPOPTS && len(b) >= options { // of MLD
			next, b = b[0], b[options:]
		}
	default:
		return p, false
	}
	p.Protocol = map[byte]string{
		unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp", unix.IPPROTO_ICMP: "icmp", unix.IPPROTO_ICMPV6: "icmp6",
	}[next]
	if p.Protocol == "" || len(b) < transport {
		p.Protocol = fmt.Sprintf("protocol %d", next)
		return p, true
	}
	switch p.Protocol {
	case "tcp", "udp":
		p.FromPort, p.ToPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
		p.WireGuard = p.Protocol == "udp" && isWireGuard(b[transport:])
	default:
		p.Type = b[0]
		if about, ok := parseIP(b[transport:]); ok && about.Protocol == "udp" {
			p.AboutFrom, p.AboutTo = about.FromPort, about.ToPort
		}
	}
	return p, true
}

// isWireGuard tells whether a datagram begins with one of the four types of
// messages, and the zeros that follow it.
func isWireGuard(b []byte) bool {
	return len(b) >= 4 && b[0] >= 1 && b[0] <= 4 && b[1] == 0 && b[2] == 0 && b[3] == 0
}
