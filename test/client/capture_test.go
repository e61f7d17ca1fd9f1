package client

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// capture notes what a pod sends, on the node's side of its interface.
type capture struct {
	mu      sync.Mutex
	packets []packet
}

// packet is what a captured packet says of itself.
type packet struct {
	proto            string // tcp, udp, icmp, icmp6, or what it is
	from, to         netip.Addr
	fromPort, toPort int
	kind             int // of ICMP
}

func (p packet) String() string {
	if p.fromPort != 0 {
		return fmt.Sprintf("%s %s:%d > %s:%d", p.proto, p.from, p.fromPort, p.to, p.toPort)
	}
	return fmt.Sprintf("%s/%d %s > %s", p.proto, p.kind, p.from, p.to)
}

// capture starts on an interface of the node.
func (h *host) capture(device string) *capture {
	h.T.Helper()
	c := &capture{}
	fd := -1
	var err error
	h.Within(func() {
		var link *net.Interface
		if link, err = net.InterfaceByName(device); err != nil {
			return
		}
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(htons(unix.ETH_P_ALL))); err != nil {
			return
		}
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
		_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100000})
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: link.Index})
	})
	if err != nil {
		h.T.Fatal(err)
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	h.T.Cleanup(func() { close(stop); <-stopped; _ = unix.Close(fd) })
	go func() {
		defer close(stopped)
		b := make([]byte, 1<<16)
		for {
			n, from, err := unix.Recvfrom(fd, b, 0)
			select {
			case <-stop:
				return
			default:
			}
			if err != nil {
				continue
			}
			if l, ok := from.(*unix.SockaddrLinklayer); !ok || l.Pkttype == unix.PACKET_OUTGOING {
				continue
			}
			p := parse(b[:n])
			c.mu.Lock()
			c.packets = append(c.packets, p)
			c.mu.Unlock()
		}
	}()
	return c
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

func parse(b []byte) packet {
	if len(b) < 14 {
		return packet{proto: "short"}
	}
	kind, b := binary.BigEndian.Uint16(b[12:]), b[14:]
	p := packet{}
	var proto byte
	switch {
	case kind == unix.ETH_P_ARP:
		return packet{proto: "arp"}
	case kind == unix.ETH_P_IP && len(b) >= 20:
		p.from, p.to = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20]))
		proto, b = b[9], b[int(b[0]&15)*4:]
	case kind == unix.ETH_P_IPV6 && len(b) >= 40:
		p.from, p.to = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
		proto, b = b[6], b[40:]
		if proto == 0 && len(b) >= 8 { // hop-by-hop options, of MLD
			proto, b = b[0], b[8:]
		}
	default:
		return packet{proto: fmt.Sprintf("ethertype %#x", kind)}
	}
	if len(b) < 4 {
		p.proto = fmt.Sprintf("protocol %d", proto)
		return p
	}
	switch proto {
	case unix.IPPROTO_TCP, unix.IPPROTO_UDP:
		p.proto = "tcp"
		if proto == unix.IPPROTO_UDP {
			p.proto = "udp"
		}
		p.fromPort, p.toPort = int(binary.BigEndian.Uint16(b)), int(binary.BigEndian.Uint16(b[2:]))
	case unix.IPPROTO_ICMP:
		p.proto, p.kind = "icmp", int(b[0])
	case unix.IPPROTO_ICMPV6:
		p.proto, p.kind = "icmp6", int(b[0])
	default:
		p.proto = fmt.Sprintf("protocol %d", proto)
	}
	return p
}

// isOwn tells that a packet is of the tunnel itself, or is needed to talk to
// the next hop.
func (p packet) isOwn() bool {
	switch p.proto {
	case "arp":
		return true
	case "udp":
		return p.fromPort == 51821 && p.toPort == 51820
	case "icmp":
		// The device's port is closed while there is no sidecar.
		return p.kind == 3 && slices.Contains([]string{endpoint4, gateway4}, p.to.String())
	case "icmp6":
		return slices.Contains([]int{131, 133, 135, 136, 143}, p.kind)
	default:
		return false
	}
}

func (p packet) isDNS() bool {
	return p.toPort == 53 && p.to == netip.MustParseAddr(nameserver4)
}

// reset forgets what was captured before, ends of connections included.
func (c *capture) reset() {
	time.Sleep(250 * time.Millisecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.packets = nil
}

// clear returns what left the pod outside the tunnel, but for the tunnel's own
// packets, the sidecar's questions to the nameserver, and what is allowed.
func (c *capture) clear(allowed ...func(packet) bool) []packet {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []packet
	for _, p := range c.packets {
		if !p.isOwn() && !p.isDNS() && !slices.ContainsFunc(allowed, func(f func(packet) bool) bool { return f(p) }) {
			out = append(out, p)
		}
	}
	return out
}

// count returns how many packets match.
func (c *capture) count(is func(packet) bool) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, p := range c.packets {
		if is(p) {
			n++
		}
	}
	return n
}

// sample is the first few of a list.
func sample(ps []packet) string {
	var out []string
	for _, p := range ps[:min(len(ps), 5)] {
		out = append(out, p.String())
	}
	return strings.Join(out, "\n")
}
