package netns

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Beacon sends a datagram every 10 ms, and notes when each answer comes.
type Beacon struct {
	conn net.Conn
	stop func()
	done sync.WaitGroup

	mu      sync.Mutex
	sent    int
	answers []time.Time
}

// Beacon starts sending from the host to a port that echoes. It ends with the
// test at the latest.
func (h *Host) Beacon(address string, port int) *Beacon {
	h.T.Helper()
	b := &Beacon{}
	var err error
	h.Within(func() { b.conn, err = net.Dial("udp", net.JoinHostPort(address, strconv.Itoa(port))) })
	if err != nil {
		h.T.Fatal(err)
	}
	stop := make(chan struct{})
	b.stop = sync.OnceFunc(func() { close(stop) })
	h.T.Cleanup(func() { b.stop(); _ = b.conn.Close() })
	go b.receive()
	b.done.Go(func() { b.send(stop) })
	return b
}

func (b *Beacon) send(stop <-chan struct{}) {
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-stop:
			return
		case <-ticker.C:
			_, _ = b.conn.Write([]byte("beacon\n"))
			b.mu.Lock()
			b.sent++
			b.mu.Unlock()
		}
	}
}

func (b *Beacon) receive() {
	buffer := make([]byte, 100)
	for {
		switch _, err := b.conn.Read(buffer); {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // unreachable for the moment
			time.Sleep(time.Millisecond)
		default:
			b.mu.Lock()
			b.answers = append(b.answers, time.Now())
			b.mu.Unlock()
		}
	}
}

// Answered waits for an answer after a moment.
func (b *Beacon) Answered(t *testing.T, after time.Time) {
	t.Helper()
	WaitFor(t, Limit, "an answer", func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if n := len(b.answers); n == 0 || b.answers[n-1].Before(after) {
			return fmt.Errorf("%d answers, none since %s", n, time.Since(after))
		}
		return nil
	})
}

// End stops the beacon. It returns how many of all were not answered, and the
// longest time without answer from a moment up to now.
func (b *Beacon) End(since time.Time) (lost int, gap time.Duration) {
	b.stop()
	b.done.Wait()
	now := time.Now()
	time.Sleep(100 * time.Millisecond) // for the last answers
	b.mu.Lock()
	defer b.mu.Unlock()
	last := since
	for _, at := range append(slices.Clone(b.answers), now) {
		if at.After(last) {
			gap, last = max(gap, at.Sub(last)), at
		}
	}
	return b.sent - len(b.answers), gap
}
