package node

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	node "github.com/wireguardgateway/function-wireguard-gateway/test/node/harness"
)

// waitReply sends to the site's echo until it answers, and returns when.
func waitReply(t *testing.T, c *node.Client, site string) time.Time {
	t.Helper()
	conn, err := c.Dial(t.Context(), "udp", net.JoinHostPort(site, node.EchoPort))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	b := make([]byte, 8)
	for limit := time.Now().Add(time.Minute); time.Now().Before(limit); {
		_, _ = conn.Write(b)
		_ = conn.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		if _, err := conn.Read(b); err == nil {
			return time.Now()
		}
	}
	// How far it came.
	for _, line := range []string{"ip route get " + site, "wg show"} {
		words := strings.Fields(line)
		out, err := c.Output(exec.CommandContext(t.Context(), words[0], words[1:]...))
		t.Logf("on the client, %s: %v\n%s", line, err, out)
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		out, err := started.node.Output(started.node.Command(t.Context(), "conntrack", "-L", "-f", family, "-p", "udp"))
		t.Logf("connections of the node: %v\n%s", err, out)
	}
	t.Fatalf("%s did not answer %s within a minute", site, conn.LocalAddr())
	return time.Time{}
}

// flow is traffic of a client to a host, over UDP and in one TCP connection.
type flow struct {
	conn, stream net.Conn
	stop         context.CancelFunc
	done         sync.WaitGroup

	mu       sync.Mutex
	sent     int
	answered map[uint64]bool
	last     time.Time
	silence  time.Duration // the longest time without an answer
	slowest  time.Duration // the longest round trip in the TCP connection
	asked    time.Time     // when the present one began
	broken   error         // how the TCP connection ended
}

// pace is how often a flow sends.
const pace = 10 * time.Millisecond

// startFlow starts traffic to a host that echoes.
func startFlow(t *testing.T, c *node.Client, host string) *flow {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	f := &flow{answered: map[uint64]bool{}, last: time.Now(), stop: stop}
	var err error
	echo := net.JoinHostPort(host, node.EchoPort)
	if f.conn, err = c.Dial(t.Context(), "udp", echo); err != nil {
		t.Fatal(err)
	}
	if f.stream, err = c.Dial(t.Context(), "tcp", echo); err != nil {
		t.Fatal(err)
	}
	f.done.Go(func() { f.send(ctx) })
	f.done.Go(f.receive)
	f.done.Go(func() { f.talk(ctx) })
	t.Cleanup(func() { f.end() })
	return f
}

func (f *flow) send(ctx context.Context) {
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	b := make([]byte, 8)
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		f.mu.Lock()
		f.sent++
		binary.BigEndian.PutUint64(b, uint64(f.sent))
		f.mu.Unlock()
		_, _ = f.conn.Write(b)
	}
}

func (f *flow) receive() {
	b := make([]byte, 8)
	for {
		_, err := io.ReadFull(f.conn, b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // It is what routers say while there is no way.
		}
		f.mu.Lock()
		f.answered[binary.BigEndian.Uint64(b)] = true
		f.silence = max(f.silence, time.Since(f.last))
		f.last = time.Now()
		f.mu.Unlock()
	}
}

func (f *flow) talk(ctx context.Context) {
	b := make([]byte, 8)
	for ctx.Err() == nil {
		start := time.Now()
		f.mu.Lock()
		f.asked = start
		f.mu.Unlock()
		_, err := f.stream.Write(b)
		if err == nil {
			_, err = io.ReadFull(f.stream, b)
		}
		f.mu.Lock()
		if ctx.Err() == nil {
			f.slowest = max(f.slowest, time.Since(start))
			f.broken = err
			f.asked = time.Time{}
		}
		f.mu.Unlock()
		if err != nil {
			return
		}
		time.Sleep(pace)
	}
}

// report is what a client noticed.
type report struct {
	Sent, Lost       int
	Silence, Slowest time.Duration
	Broken           error
}

// and returns what was noticed in two flows at a time.
func (r report) and(o report) report {
	return report{
		Sent: r.Sent + o.Sent, Lost: r.Lost + o.Lost,
		Silence: max(r.Silence, o.Silence), Slowest: max(r.Slowest, o.Slowest),
		Broken: errors.Join(r.Broken, o.Broken),
	}
}

// now returns what was noticed so far. What was sent in the last second may
// still be on its way.
func (f *flow) now() report {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := report{Sent: max(0, f.sent-int(time.Second/pace)), Silence: max(f.silence, time.Since(f.last)), Slowest: f.slowest, Broken: f.broken}
	if !f.asked.IsZero() {
		r.Slowest = max(r.Slowest, time.Since(f.asked))
	}
	for i := range r.Sent {
		if !f.answered[uint64(i+1)] {
			r.Lost++
		}
	}
	r.Silence, r.Slowest = r.Silence.Round(time.Millisecond), r.Slowest.Round(time.Millisecond)
	return r
}

// quietSince returns for how long there was no answer.
func (f *flow) quietSince() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return time.Since(f.last)
}

func (f *flow) end() report {
	r := f.now()
	f.stop()
	_ = f.conn.Close()
	_ = f.stream.Close()
	f.done.Wait()
	return r
}
