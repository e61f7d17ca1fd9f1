package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
)

// answerTime is how long an answer may take.
const answerTime = 700 * time.Millisecond

// echo answers, by TCP and UDP of both families, with the address that it sees.
// It is a plain server: a socket of its own for UDP, that leaves the source of
// its answers to the kernel.
func (h *host) echo(port int) {
	h.T.Helper()
	var l net.Listener
	var p4, p6 net.PacketConn
	var e1, e2, e3 error
	h.Within(func() {
		l, e1 = net.Listen("tcp", fmt.Sprintf("[::]:%d", port))
		p4, e2 = net.ListenPacket("udp4", fmt.Sprintf("0.0.0.0:%d", port))
		p6, e3 = net.ListenPacket("udp6", fmt.Sprintf("[::]:%d", port))
	})
	if err := errors.Join(e1, e2, e3); err != nil {
		h.T.Fatal(err)
	}
	h.T.Cleanup(func() { _, _, _ = l.Close(), p4.Close(), p6.Close() })
	for _, p := range []net.PacketConn{p4, p6} {
		go func() {
			b := make([]byte, 1500)
			for {
				_, from, err := p.ReadFrom(b)
				if err != nil {
					if errors.Is(err, net.ErrClosed) {
						return
					}
					continue // an error of an earlier answer
				}
				_, _ = p.WriteTo([]byte(host4or6(from)), from)
			}
		}()
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = c.Close() }()
				lines := bufio.NewScanner(c)
				for lines.Scan() {
					if _, err := fmt.Fprintln(c, host4or6(c.RemoteAddr())); err != nil {
						return
					}
				}
			}()
		}
	}()
}

func host4or6(a net.Addr) string {
	p := netip.MustParseAddrPort(a.String())
	return p.Addr().Unmap().WithZone("").String()
}

// ask returns what an echo server sees: the sender's address, or why there is
// no answer. Marked, it sets a mark on what it sends.
func (h *host) ask(network, address string) string { return h.askMarked(network, address, 0) }

func (h *host) askMarked(network, address string, mark int) string {
	h.T.Helper()
	var c net.Conn
	var err error
	d := net.Dialer{Timeout: answerTime, Control: func(_, _ string, rc syscall.RawConn) error {
		if mark == 0 {
			return nil
		}
		var failure error
		_ = rc.Control(func(fd uintptr) { failure = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, mark) })
		return failure
	}}
	h.Within(func() { c, err = d.Dial(network, net.JoinHostPort(address, strconv.Itoa(echoPort))) })
	if err != nil {
		return reason(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(answerTime))
	if _, err := c.Write([]byte("x\n")); err != nil {
		return reason(err)
	}
	b := make([]byte, 100)
	n, err := c.Read(b)
	if err != nil {
		return reason(err)
	}
	return strings.TrimSpace(string(b[:n]))
}

func reason(err error) string {
	var ne net.Error
	if errors.As(err, &ne) && ne.Timeout() {
		return "timeout"
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	return err.Error()
}

// answered tells whether ask was answered.
func answered(s string) bool {
	_, err := netip.ParseAddr(s)
	return err == nil
}

// pings tells whether a ping is answered.
func (h *host) pings(address string) bool {
	h.T.Helper()
	_, err := h.Try("ping", "-n", "-c1", "-W1", address)
	return err == nil
}

// load is what an application sends to the internet all the time: datagrams and
// a long connection of both families, new connections, and pings.
type load struct {
	mu   sync.Mutex
	seen map[string]int // by protocol and what the other side saw
	sent int
	stop chan struct{}
	done sync.WaitGroup
	ping []*netns.Process
}

func (h *host) load() *load {
	h.T.Helper()
	l := &load{seen: map[string]int{}, stop: make(chan struct{})}
	for _, a := range []string{inet4, inet6} {
		family := "4"
		if strings.Contains(a, ":") {
			family = "6"
		}
		to := net.JoinHostPort(a, strconv.Itoa(echoPort))
		l.flow(h, "udp"+family, to, false)
		l.flow(h, "tcp"+family, to, false)
		l.flow(h, "tcp"+family, to, true)
		l.ping = append(l.ping, h.Start("ping", "-n", "-q", "-i0.2", a))
	}
	h.T.Cleanup(l.end)
	return l
}

// flow sends every 50 ms. An errand makes a new connection each time, anything
// else makes a new one only where the old one has ended.
func (l *load) flow(h *host, network, to string, errand bool) {
	name := network
	if errand {
		name += " new"
	}
	l.done.Go(func() {
		var c net.Conn
		defer func() {
			if c != nil {
				_ = c.Close()
			}
		}()
		b := make([]byte, 100)
		d := net.Dialer{Timeout: answerTime}
		ticker := time.NewTicker(50 * time.Millisecond)
		defer ticker.Stop()
		// The thread stays in the pod's network.
		_ = h.Here(func() {
			for {
				select {
				case <-l.stop:
					return
				case <-ticker.C:
				}
				var err error
				if c == nil {
					if c, err = d.Dial(network, to); err != nil {
						c = nil
						l.saw(name, reason(err))
						continue
					}
				}
				_ = c.SetDeadline(time.Now().Add(answerTime))
				n := 0
				if _, err = c.Write([]byte("x\n")); err == nil {
					n, err = c.Read(b)
				}
				if err != nil {
					l.saw(name, reason(err))
				} else {
					l.saw(name, strings.TrimSpace(string(b[:n])))
				}
				if errand || err != nil && strings.HasPrefix(network, "tcp") && reason(err) != "timeout" {
					_ = c.Close()
					c = nil
				}
			}
		})
	})
}

func (l *load) saw(name, what string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent++
	l.seen[name+" "+what]++
}

func (l *load) end() {
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.done.Wait()
	for _, p := range l.ping {
		p.Kill()
	}
}

// as returns how often the other side has seen an address.
func (l *load) as(addresses ...string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for k, v := range l.seen {
		if slices.Contains(addresses, k[strings.LastIndex(k, " ")+1:]) {
			n += v
		}
	}
	return n
}

func (l *load) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Sprint(l.seen)
}

// dialContext opens a connection from the host.
func (h *host) dialContext(ctx context.Context, network, address string) (c net.Conn, err error) {
	var d net.Dialer
	h.Within(func() { c, err = d.DialContext(ctx, network, address) })
	return c, err
}
