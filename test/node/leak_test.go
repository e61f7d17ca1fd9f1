package node

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
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
	"github.com/wireguardgateway/function-wireguard-gateway/test/packet"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// listenPort is where gateways listen by default.
const listenPort = 51820

// sender is a pod that is watched.
type sender struct {
	name      string
	addresses []netip.Addr
	provider  netip.Addr
}

// sent is a packet that a pod has sent.
type sent struct {
	packet.Packet

	device int // of the node, the other end of the pod's interface
}

// leakWatch sees what pods send, on the node's side of their interfaces, from the
// first packet on.
type leakWatch struct {
	n  *node.Node
	fd int

	mu      sync.Mutex
	seen    map[sent]int
	senders map[int]sender
}

// watchLeaks starts to watch all pods.
func watchLeaks(t *testing.T, n *node.Node) *leakWatch {
	t.Helper()
	w := &leakWatch{n: n, seen: map[sent]int{}, senders: map[int]sender{}}
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
			p := sent{Packet: packet.Parse(b[:size]), device: l.Ifindex}
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
	index, err := hostDevice(w.n, p, names.ContainerAgent)
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

// aProcess returns a process of a pod's container.
func aProcess(n *node.Node, p *corev1.Pod, container string) (int, error) {
	pids, err := n.Processes(p, container)
	if err == nil && len(pids) == 0 {
		err = errors.New("it has none")
	}
	if err != nil {
		return 0, fmt.Errorf("cannot find a process of %s in %s: %w", container, p.Name, err)
	}
	return pids[0], nil
}

// hostDevice returns the index of the node's side of a pod's interface.
func hostDevice(n *node.Node, p *corev1.Pod, container string) (int, error) {
	pid, err := aProcess(n, p, container)
	if err != nil {
		return 0, err
	}
	ns, err := netns.GetFromPid(pid)
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
		if !s.may(p.Packet) {
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
func (s sender) may(p packet.Packet) bool {
	own := slices.Contains(s.addresses, p.From)
	to := netip.AddrPortFrom(p.To, p.ToPort)
	switch p.Protocol {
	case "arp":
		return true
	case "icmp6":
		return slices.Contains([]uint8{131, 133, 135, 136, 143}, p.Type) || own && s.mayRefuse(p)
	case "icmp":
		return own && s.mayRefuse(p)
	case "udp":
		toProvider := p.To == s.provider && p.ToPort == node.ProviderPort
		return own && (p.WireGuard && (toProvider || p.FromPort == listenPort) || to == nameservice)
	case "tcp":
		return own && (to == apiServer || to == nameservice || p.FromPort == wireguard.HTTPPort)
	default:
		return false
	}
}

// mayRefuse tells whether an ICMP error says that a tunnel is not there to whom
// has sent to it.
func (s sender) mayRefuse(p packet.Packet) bool {
	return p.AboutFrom == node.ProviderPort && p.To == s.provider || p.AboutTo == listenPort
}

// from returns what came from a device of the node, and how often.
func (w *leakWatch) from(device int) map[packet.Packet]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[packet.Packet]int{}
	for p, count := range w.seen {
		if p.device == device {
			out[p.Packet] = count
		}
	}
	return out
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
