package node

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	node "github.com/wireguardgateway/function-wireguard-gateway/test/node/harness"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// listenPort is where gateways listen by default.
const listenPort = 51820

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

// sender is a pod that is watched.
type sender struct {
	name      string
	addresses []netip.Addr
	provider  netip.Addr
}

// leakWatch sees what pods send, on the node's side of their interfaces, from the
// first packet on.
type leakWatch struct {
	n  *node.Node
	fd int

	mu      sync.Mutex
	seen    map[packet]int
	senders map[int]sender
}

// watchLeaks starts to watch all pods.
func watchLeaks(t *testing.T, n *node.Node) *leakWatch {
	t.Helper()
	w := &leakWatch{n: n, seen: map[packet]int{}, senders: map[int]sender{}}
	var err error
	n.Do(func() {
		all := int(binary.NativeEndian.Uint16([]byte{unix.ETH_P_ALL >> 8, unix.ETH_P_ALL}))
		if w.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, all); err != nil {
			return
		}
		_ = unix.SetsockoptInt(w.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
		err = unix.SetsockoptTimeval(w.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100000})
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() {
		stop()
		<-done
		_ = unix.Close(w.fd)
	})
	go func() {
		defer close(done)
		b := make([]byte, 1<<16)
		for ctx.Err() == nil {
			size, from, err := unix.Recvfrom(w.fd, b, 0)
			l, ok := from.(*unix.SockaddrLinklayer)
			if err != nil || !ok || l.Pkttype == unix.PACKET_OUTGOING {
				continue
			}
			p := parsePacket(b[:size])
			p.device = l.Ifindex
			w.mu.Lock()
			w.seen[p]++
			w.mu.Unlock()
		}
	}()
	return w
}

// watch says whose gateway a pod is, which has to be said while it is there.
func (w *leakWatch) watch(ctx context.Context, g *gluetunGateway) error {
	p, err := g.pod(ctx)
	if err != nil {
		return err
	}
	index, err := hostDevice(w.n, p)
	if err != nil {
		return err
	}
	s := sender{name: p.Name, provider: netip.MustParseAddr(g.provider.Exit4)}
	for _, ip := range p.Status.PodIPs {
		a, err := netip.ParseAddr(ip.IP)
		if err != nil {
			return err
		}
		s.addresses = append(s.addresses, a)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.senders[index] = s
	return nil
}

// hostDevice returns the index of the node's side of a pod's interface.
func hostDevice(n *node.Node, p *corev1.Pod) (int, error) {
	pids, err := n.Processes(p, names.ContainerAgent)
	if err != nil || len(pids) == 0 {
		return 0, fmt.Errorf("cannot find the agent of %s: %w", p.Name, err)
	}
	ns, err := netns.GetFromPath(fmt.Sprintf("/proc/%d/ns/net", pids[0]))
	if err != nil {
		return 0, err
	}
	defer func() { _ = ns.Close() }()
	h, err := netlink.NewHandleAt(ns)
	if err != nil {
		return 0, err
	}
	defer h.Close()
	link, err := h.LinkByName("eth0")
	if err != nil {
		return 0, err
	}
	return link.Attrs().ParentIndex, nil
}

// withinPod runs a command line without quotes in the network of a pod.
func withinPod(ctx context.Context, n *node.Node, p *corev1.Pod, line string) (string, error) {
	pids, err := n.Processes(p, names.ContainerAgent)
	if err != nil || len(pids) == 0 {
		return "", fmt.Errorf("cannot find the agent of %s: %w", p.Name, err)
	}
	out, err := exec.CommandContext(ctx, "nsenter", append([]string{"-t", strconv.Itoa(pids[0]), "-n"}, strings.Fields(line)...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", line, err, out)
	}
	return string(out), err
}

// leaks returns what left the pods that are watched, and should not have. All that
// they sent are the packets of both tunnels, questions to the API server and the
// cluster's DNS, answers to probes, and what neighbours need.
func (w *leakWatch) leaks() (leaks []string, all int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p, count := range w.seen {
		s, ok := w.senders[p.device]
		if !ok {
			continue
		}
		all += count
		if !s.may(p) {
			leaks = append(leaks, fmt.Sprintf("%s: %s, %d times", s.name, p, count))
		}
	}
	slices.Sort(leaks)
	return leaks, all
}

var (
	apiServer   = netip.MustParseAddrPort("10.96.0.1:443")
	nameservice = netip.MustParseAddrPort("10.96.0.10:53")
)

// may tells whether a pod may send a packet around the tunnel.
func (s sender) may(p packet) bool {
	own := slices.Contains(s.addresses, p.from)
	to := netip.AddrPortFrom(p.to, uint16(p.toPort))
	switch p.proto {
	case "arp":
		return true
	case "icmp6":
		return slices.Contains([]int{131, 133, 135, 136, 143}, p.kind) || own && s.mayRefuse(p)
	case "icmp":
		return own && s.mayRefuse(p)
	case "udp":
		toProvider := p.to == s.provider && p.toPort == node.ProviderPort
		return own && (p.wireguard && (toProvider || p.fromPort == listenPort) || to == nameservice)
	case "tcp":
		return own && (to == apiServer || to == nameservice || p.fromPort == wireguard.HTTPPort)
	default:
		return false
	}
}

// mayRefuse tells whether an ICMP error says that a tunnel is not there to whom
// has sent to it.
func (s sender) mayRefuse(p packet) bool {
	return p.about == fmt.Sprintf("from %d", node.ProviderPort) && p.to == s.provider || p.about == fmt.Sprintf("to %d", listenPort)
}

// check holds that nothing has leaked since the last check.
func (w *leakWatch) check(t *testing.T, what string) {
	t.Helper()
	time.Sleep(300 * time.Millisecond) // for what is on its way to the watch
	leaks, all := w.leaks()
	stats, err := unix.GetsockoptTpacketStats(w.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case stats.Drops > 0:
		t.Errorf("%s: %d packets were not looked at", what, stats.Drops)
	case all == 0:
		t.Errorf("%s: nothing was seen, so this shows nothing", what)
	case len(leaks) > 0:
		t.Errorf("%s: packets around the tunnel:\n%s", what, strings.Join(leaks[:min(len(leaks), 10)], "\n"))
	}
	t.Logf("%s: of %d packets that left the pod, %d kinds went around the tunnel", what, all, len(leaks))
	w.forget()
}

// forget begins anew.
func (w *leakWatch) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.seen)
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
