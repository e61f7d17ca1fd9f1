package dataplane

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
)

// sessionPort is the server's for connections that are never made again.
const sessionPort = 445

// session is a TCP connection that is under way whatever happens, and is never
// made again.
type session struct {
	from, to string
	answered atomic.Int64 // when something came back last, in nanoseconds since 1970
	ended    chan struct{}
	err      error // why it has ended
}

// sessions are of one host, by both families.
type sessions []*session

// patient makes TCP try again each second, for minutes, so that connections go
// on soon after a long fault. Kernels before 6.15 wait longer each time, which
// the tests can do too.
func (h *host) patient() {
	h.T.Helper()
	h.Sysctl("net.ipv4.tcp_retries2=200")
	_, _ = h.Try("sysctl", "-qw", "net.ipv4.tcp_rto_max_ms=1000")
}

// sessions opens connections to an echo port of the server. They are kept alive,
// since the gateway forgets its NAT with the tunnel's device: what the server
// sends alone, and is not answered, does not find the peer any more.
func (h *host) sessions(port int) sessions {
	h.T.Helper()
	var out sessions
	for _, a := range []string{server4, server6} {
		c, err := h.dial("tcp", net.JoinHostPort(a, strconv.Itoa(port)))
		if err != nil {
			h.T.Fatal(err)
		}
		h.T.Cleanup(func() { _ = c.Close() })
		alive := net.KeepAliveConfig{Enable: true, Idle: time.Second, Interval: time.Second, Count: 120}
		if err := c.(*net.TCPConn).SetKeepAliveConfig(alive); err != nil {
			h.T.Fatal(err)
		}
		s := &session{from: h.Name, to: a, ended: make(chan struct{})}
		go s.run(c)
		out = append(out, s)
	}
	return out
}

// run sends a number, and the next one when it is back.
func (s *session) run(c net.Conn) {
	defer close(s.ended)
	sent, back := make([]byte, 8), make([]byte, 8)
	for n := uint64(1); ; n++ {
		binary.BigEndian.PutUint64(sent, n)
		if _, s.err = c.Write(sent); s.err != nil {
			return
		}
		if _, s.err = io.ReadFull(c, back); s.err != nil {
			return
		}
		if got := binary.BigEndian.Uint64(back); got != n {
			s.err = fmt.Errorf("%d came back as %d", n, got)
			return
		}
		s.answered.Store(time.Now().UnixNano())
		time.Sleep(10 * time.Millisecond)
	}
}

// last returns when something came back last. It fails the test where the
// connection has ended.
func (s *session) last(t *testing.T, step string) time.Time {
	t.Helper()
	select {
	case <-s.ended:
		t.Fatalf("%s: the connection from %s to %s has ended: %v", step, s.from, s.to, s.err)
	default:
	}
	return time.Unix(0, s.answered.Load())
}

// goOn waits until something comes back on each, and says how long that took
// since a moment.
func (ss sessions) goOn(t *testing.T, since time.Time, step string) {
	t.Helper()
	now := time.Now()
	for _, s := range ss {
		netns.WaitFor(t, limit, step, func() error {
			if last := s.last(t, step); last.Before(now) {
				return fmt.Errorf("nothing from %s to %s since %s", s.from, s.to, last)
			}
			return nil
		})
	}
	t.Logf("%s: the connections of %s went on after %s", step, ss[0].from, time.Since(since).Round(10*time.Millisecond))
}

// stand waits until nothing has come back on any for a while. They are still
// there then.
func (ss sessions) stand(t *testing.T, step string) {
	t.Helper()
	const quiet = 400 * time.Millisecond
	for _, s := range ss {
		netns.WaitFor(t, limit, step, func() error {
			if last := s.last(t, step); time.Since(last) < quiet {
				return fmt.Errorf("something came back from %s to %s at %s", s.to, s.from, last)
			}
			return nil
		})
	}
}
