package injection

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wireguardgateway/function-wireguard-gateway/test/packet"
)

// capture has seen every packet that a pod has sent on its interface.
type capture struct {
	mu      sync.Mutex
	packets map[packet.Packet]int
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
	c := &capture{packets: map[packet.Packet]int{}}
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
		p := packet.Parse(b[:n])
		c.mu.Lock()
		c.packets[p]++
		c.mu.Unlock()
	}
}

// seen returns what was captured since the last call, after what is on its way
// has arrived.
func (c *capture) seen() map[packet.Packet]int {
	time.Sleep(150 * time.Millisecond)
	c.mu.Lock()
	defer c.mu.Unlock()
	out := c.packets
	c.packets = map[packet.Packet]int{}
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
func (w wall) leaks(packets map[packet.Packet]int) leaks {
	out := leaks{}
	for p, n := range packets {
		if !w.allows(p) {
			out[p] = n
		}
	}
	return out
}

func (w wall) allows(p packet.Packet) bool {
	switch {
	case p.Protocol == "arp":
		return true
	case p.Protocol == "icmp6" && (p.Type >= 133 && p.Type <= 136 || p.Type == 143 || p.Type >= 130 && p.Type <= 132):
		return true // neighbours, routers and groups
	case p.Protocol == "udp" && p.FromPort == w.device && p.ToPort == w.port:
		return w.inBypass(p.To) // the gateway's
	case p.Protocol == "udp" && slices.Contains(w.to, netip.AddrPortFrom(p.To, p.ToPort)):
		return true
	case w.inBypass(p.To):
		return slices.Contains(w.own, p.From)
	default:
		return slices.Contains(w.own, p.From) && slices.Contains(w.inbound, netip.AddrPortFrom(p.To, p.FromPort))
	}
}

func (w wall) inBypass(a netip.Addr) bool {
	return slices.ContainsFunc(w.bypass, func(b netip.Prefix) bool { return b.Contains(a) })
}

// leaks are packets that left outside of the tunnel, and how many of each.
type leaks map[packet.Packet]int

// families counts those of IPv4 and those of IPv6.
func (l leaks) families() (four, six int) {
	for p, n := range l {
		if p.To.Is4() {
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
