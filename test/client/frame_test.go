package client

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// A process with CAP_NET_RAW can hand whole frames to an interface, past all
// rules for packets. They do not leave either.
func TestFrames(t *testing.T) {
	w := newWorld(t)
	s := up(t, w, enrolment())
	send := func() int {
		t.Helper()
		w.leaks.reset()
		for _, mark := range []int{0, wireguard.FirewallMark, wireguard.TunnelMark} {
			w.app.frame(mark)
		}
		time.Sleep(100 * time.Millisecond)
		return len(w.leaks.clear())
	}
	if n := send(); n != 0 {
		t.Errorf("%d frames left", n)
	}
	if m := w.app.seenMark(); m != 0 {
		t.Errorf("a packet socket sees the mark %#x, with which frames can leave", m)
	}
	// Another interface is guarded as soon as it is there.
	w.node.Run(fmt.Sprintf("ip link add n-net1 type veth peer name net1 netns %d", w.app.PID))
	w.app.Run("ip link set net1 up")
	netns.WaitFor(t, limit, "the other interface", func() error {
		return want(w.app.Run("nft list ruleset"), `device "net1"`)
	})
	w.app.Run("nft delete table netdev " + wireguard.LockdownTable)
	netns.WaitFor(t, limit, "the guard", func() error {
		return want(w.app.Run("nft list ruleset"), `device "eth0"`)
	})
	w.app.Run("ip link del net1")
	w.expectSeen("guarded", seenGateway4, gateway6)
	s.freeze()
	w.app.Run("nft delete table netdev " + wireguard.LockdownTable)
	if n := send(); n != 3 {
		t.Errorf("%d of 3 frames left without guard, so the test shows nothing", n)
	}
}

// seenMark returns the mark that a packet socket sees on what leaves by the
// interface. Its filter can read the mark, and tell it by how much of a packet
// it takes: a socket for each byte.
func (h *host) seenMark() uint32 {
	h.T.Helper()
	const offset = -0x1000 + 20 // SKF_AD_OFF + SKF_AD_MARK
	sockets := make([]int, 4)
	var conn net.Conn
	var err error
	h.Within(func() {
		var link *net.Interface
		if link, err = net.InterfaceByName("eth0"); err != nil {
			return
		}
		for i := range sockets {
			if sockets[i], err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
				return
			}
			filter := []unix.SockFilter{
				{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 1<<32 + offset},
				{Code: unix.BPF_ALU | unix.BPF_RSH | unix.BPF_K, K: uint32(8 * i)},
				{Code: unix.BPF_ALU | unix.BPF_AND | unix.BPF_K, K: 0xff},
				{Code: unix.BPF_ALU | unix.BPF_ADD | unix.BPF_K, K: 1}, // 0 takes no packet at all
				{Code: unix.BPF_RET | unix.BPF_A},
			}
			err = errors.Join(
				unix.SetsockoptSockFprog(sockets[i], unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}),
				unix.SetsockoptTimeval(sockets[i], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(limit.Seconds())}),
				unix.Bind(sockets[i], &unix.SockaddrLinklayer{Protocol: htons(unix.ETH_P_ALL), Ifindex: link.Index}),
			)
			if err != nil {
				return
			}
		}
		conn, err = net.Dial("udp", net.JoinHostPort(inet4, "9"))
	})
	if err != nil {
		h.T.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	// It leaves as a datagram of the tunnel, longer than any byte is great.
	if _, err := conn.Write(make([]byte, 1000)); err != nil {
		h.T.Fatal(err)
	}
	mark := uint32(0)
	for i, fd := range sockets {
		for {
			n, from, err := unix.Recvfrom(fd, make([]byte, 2048), 0)
			if err != nil {
				h.T.Fatal(err)
			}
			if l, ok := from.(*unix.SockaddrLinklayer); ok && l.Pkttype == unix.PACKET_OUTGOING {
				mark |= uint32(n-1) << (8 * i)
				break
			}
		}
		_ = unix.Close(fd)
	}
	return mark
}

// frame sends a UDP datagram to the internet as a frame of our own.
func (h *host) frame(mark int) {
	h.T.Helper()
	address := strings.Fields(h.Run("cat /sys/class/net/eth0/address"))[0]
	var err error
	h.Within(func() {
		var link *net.Interface
		if link, err = net.InterfaceByName("eth0"); err != nil {
			return
		}
		var fd int
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return
		}
		defer func() { _ = unix.Close(fd) }()
		if err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, mark); err != nil {
			return
		}
		own, _ := net.ParseMAC(address)
		b := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, own...)
		b = append(b, 8, 0, 0x45, 0, 0, 29, 0, 0, 0, 0, 64, 17, 0, 0)
		b = append(append(b, netip.MustParseAddr(app4).AsSlice()...), netip.MustParseAddr(inet4).AsSlice()...)
		b = append(b, 0x30, 0x39, 0x1f, 0x90, 0, 9, 0, 0, 'x')
		err = unix.Sendto(fd, b, 0, &unix.SockaddrLinklayer{Ifindex: link.Index, Protocol: htons(unix.ETH_P_IP)})
	})
	// A full queue is how the kernel says that the guard has dropped it.
	if err != nil && !errors.Is(err, unix.ENOBUFS) {
		h.T.Fatal(err)
	}
}
