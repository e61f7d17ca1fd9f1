package injection

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// packet is what a capture tells of a packet, whose like are counted together.
type packet struct {
	protocol     string // udp, tcp, icmp, icmp6, or what else it is
	source       netip.Addr
	destination  netip.Addr
	sport, dport uint16 // of icmp the type
}

func (p packet) String() string {
	return fmt.Sprintf("%s %s -> %s", p.protocol, netip.AddrPortFrom(p.source, p.sport), netip.AddrPortFrom(p.destination, p.dport))
}

// capture has seen every packet that a pod has sent on its interface.
type capture struct {
	mu      sync.Mutex
	packets map[packet]int
}

// capture begins to look at what comes out of a pod, at the node's end of its
// link.
func (n *node) capture(port string) (*capture, error) {
	l, err := n.LinkByName(port)
	if err != nil {
		return nil, err
	}
	fd := -1
	n.do(func() {
		// Without a protocol nothing is captured, of any interface, before it is bound.
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return
		}
		err = errors.Join(
			unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20),
			unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: l.Attrs().Index}),
		)
	})
	if err != nil {
		return nil, fmt.Errorf("cannot capture at %s: %w", port, err)
	}
	c := &capture{packets: map[packet]int{}}
	go c.read(fd)
	return c, nil
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// read goes on until the link is gone.
func (c *capture) read(fd int) {
	defer func() { _ = unix.Close(fd) }()
	b := make([]byte, 256)
	for {
		n, from, err := unix.Recvfrom(fd, b, 0)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return
		}
		// What the node sends to the pod comes by here, too.
		if ll, ok := from.(*unix.SockaddrLinklayer); !ok || ll.Pkttype == unix.PACKET_OUTGOING {
			continue
		}
		p := parse(b[:n])
		c.mu.Lock()
		c.packets[p]++
		c.mu.Unlock()
	}
}

// parse reads an Ethernet frame.
func parse(b []byte) packet {
	const ethernet, ipv4, ipv6 = 14, 20, 40
	var (
		p       packet
		next    byte
		payload []byte
	)
	if len(b) < ethernet {
		return packet{protocol: "short"}
	}
	switch kind := binary.BigEndian.Uint16(b[12:]); {
	case kind == unix.ETH_P_IP && len(b) >= ethernet+ipv4:
		b = b[ethernet:]
		p.source, p.destination = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
		next, payload = b[9], b[min(len(b), int(b[0]&0xf)*4):]
	case kind == unix.ETH_P_IPV6 && len(b) >= ethernet+ipv6:
		b = b[ethernet:]
		p.source, p.destination = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
		next, payload = b[6], b[ipv6:]
		if next == unix.IPPROTO_HOPOPTS && len(payload) >= 8 { // of MLD
			next, payload = payload[0], payload[8:]
		}
	case kind == unix.ETH_P_ARP:
		p.protocol = "arp"
		return p
	default:
		p.protocol = fmt.Sprintf("ethernet %#x", kind)
		return p
	}
	if len(payload) < 4 {
		p.protocol = fmt.Sprintf("protocol %d", next)
		return p
	}
	switch next {
	case unix.IPPROTO_UDP, unix.IPPROTO_TCP:
		p.protocol = map[byte]string{unix.IPPROTO_UDP: "udp", unix.IPPROTO_TCP: "tcp"}[next]
		p.sport, p.dport = binary.BigEndian.Uint16(payload), binary.BigEndian.Uint16(payload[2:])
	case unix.IPPROTO_ICMP:
		p.protocol, p.dport = "icmp", uint16(payload[0])
	case unix.IPPROTO_ICMPV6:
		p.protocol, p.dport = "icmp6", uint16(payload[0])
	default:
		p.protocol = fmt.Sprintf("protocol %d", next)
	}
	return p
}

// seen returns what was captured since the last call, after what is on its way
// has arrived.
func (c *capture) seen() map[packet]int {
	time.Sleep(150 * time.Millisecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.packets
	c.packets = map[packet]int{}
	return out
}

// wall says what may leave a pod outside of the tunnel.
type wall struct {
	own     []netip.Addr
	bypass  []netip.Prefix
	inbound []netip.AddrPort // who came in, and the port of the pod that it came to
	to      []netip.AddrPort // where else it sends datagrams
	// port is that of the gateway's Service, device that of the pod's own.
	port, device uint16
}

// leaks returns what the wall should have kept in.
func (w wall) leaks(packets map[packet]int) leaks {
	out := leaks{}
	for p, n := range packets {
		if !w.allows(p) {
			out[p] = n
		}
	}
	return out
}

func (w wall) allows(p packet) bool {
	switch {
	case p.protocol == "arp":
		return true
	case p.protocol == "icmp6" && (p.dport >= 133 && p.dport <= 136 || p.dport == 143 || p.dport >= 130 && p.dport <= 132):
		return true // neighbours, routers and groups
	case p.protocol == "udp" && p.sport == w.device && p.dport == w.port:
		return w.inBypass(p.destination) // the gateway's
	case p.protocol == "udp" && slices.Contains(w.to, netip.AddrPortFrom(p.destination, p.dport)):
		return true
	case w.inBypass(p.destination):
		return slices.Contains(w.own, p.source)
	default:
		return slices.Contains(w.own, p.source) && slices.Contains(w.inbound, netip.AddrPortFrom(p.destination, p.sport))
	}
}

func (w wall) inBypass(a netip.Addr) bool {
	return slices.ContainsFunc(w.bypass, func(b netip.Prefix) bool { return b.Contains(a) })
}

// leaks are packets that left outside of the tunnel, and how many of each.
type leaks map[packet]int

// families counts those of IPv4 and those of IPv6.
func (l leaks) families() (four, six int) {
	for p, n := range l {
		if p.destination.Is4() {
			four += n
		} else {
			six += n
		}
	}
	return four, six
}

func (l leaks) String() string {
	var lines []string
	for p, n := range maps.All(l) {
		lines = append(lines, fmt.Sprintf("%d of %s", n, p))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}
