package client

import (
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wireguardgateway/function-wireguard-gateway/test/packet"
)

// capture notes what a pod sends, on the node's side of its interface.
type capture struct {
	mu      sync.Mutex
	packets []packet.Packet
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
			p := packet.Parse(b[:n])
			c.mu.Lock()
			c.packets = append(c.packets, p)
			c.mu.Unlock()
		}
	}()
	return c
}

func htons(v uint16) uint16 { return v<<8 | v>>8 }

// isOwn tells that a packet is of the tunnel itself, or is needed to talk to
// the next hop.
func isOwn(p packet.Packet) bool {
	switch p.Protocol {
	case "arp":
		return true
	case "udp":
		return p.FromPort == 51821 && p.ToPort == 51820
	case "icmp":
		// The device's port is closed while there is no sidecar.
		return p.Type == 3 && slices.Contains([]string{endpoint4, gateway4}, p.To.String())
	case "icmp6":
		return slices.Contains([]uint8{131, 133, 135, 136, 143}, p.Type)
	default:
		return false
	}
}

func isDNS(p packet.Packet) bool {
	return p.ToPort == 53 && p.To == netip.MustParseAddr(nameserver4)
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
func (c *capture) clear(allowed ...func(packet.Packet) bool) []packet.Packet {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []packet.Packet
	for _, p := range c.packets {
		if !isOwn(p) && !isDNS(p) && !slices.ContainsFunc(allowed, func(f func(packet.Packet) bool) bool { return f(p) }) {
			out = append(out, p)
		}
	}
	return out
}

// count returns how many packets match.
func (c *capture) count(is func(packet.Packet) bool) int {
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
func sample(ps []packet.Packet) string {
	var out []string
	for _, p := range ps[:min(len(ps), 5)] {
		out = append(out, p.String())
	}
	return strings.Join(out, "\n")
}
