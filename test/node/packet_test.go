package node

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// packet is what a captured packet says of itself.
type packet struct {
	device           int // of the node, the other end of the pod's interface
	proto            string
	from, to         netip.Addr
	fromPort, toPort int
	kind             int    // of ICMP
	about            string // what an ICMP error is about, without addresses of its own
	wireguard        bool   // is a message of WireGuard
}

func (p packet) String() string {
	return fmt.Sprintf("%s/%d %s:%d > %s:%d %s", p.proto, p.kind, p.from, p.fromPort, p.to, p.toPort, p.about)
}

func parsePacket(b []byte) packet {
	if len(b) < 14 {
		return packet{proto: "short"}
	}
	kind := binary.BigEndian.Uint16(b[12:])
	if kind == unix.ETH_P_ARP {
		return packet{proto: "arp"}
	}
	p, ok := parseIP(b[14:])
	if !ok {
		p.proto = fmt.Sprintf("ethertype %#x", kind)
	}
	return p
}

func parseIP(b []byte) (p packet, ok bool) {
	if len(b) == 0 {
		return p, false
	}
	var proto byte
	switch version := b[0] >> 4; {
	case version == 4 && len(b) >= 20:
		p.from, p.to = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		proto, b = b[9], b[min(len(b), int(b[0]&15)*4):]
	case version == 6 && len(b) >= 40:
		p.from, p.to = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
		proto, b = b[6], b[40:]
		if proto == unix.IPPROTO_HOPOPTS && len(b) >= 8 {
			proto, b = b[0], b[8:]
		}
	default:
		return p, false
	}
	p.proto = map[byte]string{unix.IPPROTO_TCP: "tcp", unix.IPPROTO_UDP: "udp", unix.IPPROTO_ICMP: "icmp", unix.IPPROTO_ICMPV6: "icmp6"}[proto]
	if p.proto == "" || len(b) < 8 {
		p.proto = fmt.Sprintf("protocol %d", proto)
		return p, true
	}
	switch p.proto {
	case "tcp", "udp":
		p.fromPort, p.toPort = int(binary.BigEndian.Uint16(b)), int(binary.BigEndian.Uint16(b[2:]))
		p.wireguard = len(b) >= 12 && b[8] >= 1 && b[8] <= 4 && b[9] == 0 && b[10] == 0 && b[11] == 0
	default:
		p.kind = int(b[0])
		if q, ok := parseIP(b[8:]); ok && q.proto == "udp" {
			p.about = fmt.Sprintf("from %d", q.fromPort)
			if q.toPort == listenPort {
				p.about = fmt.Sprintf("to %d", listenPort)
			}
		}
	}
	return p, true
}
