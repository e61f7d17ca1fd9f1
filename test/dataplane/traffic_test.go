package dataplane

import (
	"encoding/json"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
)

// iperf serves iperf3 on the host, on a port.
func (h *host) iperf(port int) {
	h.T.Helper()
	h.Start("iperf3", "-s", "-p", strconv.Itoa(port))
	netns.WaitFor(h.T, limit, "iperf3", func() error {
		c, err := h.dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
		if err == nil {
			_ = c.Close()
		}
		return err
	})
}

// transfer is what iperf3 reports of one TCP connection.
type transfer struct {
	Intervals []struct {
		Sum struct {
			Start         float64 `json:"start"`
			End           float64 `json:"end"`
			BitsPerSecond float64 `json:"bits_per_second"`
			Retransmits   int     `json:"retransmits"`
		} `json:"sum"`
	} `json:"intervals"`
	End struct {
		Received struct {
			BitsPerSecond float64 `json:"bits_per_second"`
		} `json:"sum_received"`
	} `json:"end"`
	Error string `json:"error"`
}

// between measures the intervals that lie within a time, in seconds since the
// start.
func (r transfer) between(from, to float64) measure {
	m := measure{}
	n := 0
	for _, i := range r.Intervals {
		if i.Sum.Start >= from-0.01 && i.Sum.End <= to+0.01 {
			m.rate += i.Sum.BitsPerSecond
			m.retransmits += i.Sum.Retransmits
			n++
		}
	}
	m.rate /= float64(max(n, 1))
	return m
}

// transfer starts a TCP transfer to an address. The result waits for its end.
func (h *host) transfer(address string, port int, d time.Duration, args ...string) func() transfer {
	h.T.Helper()
	p := h.Start(append([]string{"iperf3", "-c", address, "-p", strconv.Itoa(port), "-t", fmt.Sprint(d.Seconds()), "-i", "0.5", "-J"}, args...)...)
	return func() transfer {
		h.T.Helper()
		r := transfer{}
		if err := json.Unmarshal([]byte(p.Wait(d+limit)), &r); err != nil || r.Error != "" {
			h.T.Fatalf("iperf3: %v %s", err, r.Error)
		}
		return r
	}
}

// beacon sends a datagram every 20 ms, and notes when each answer comes.
type beacon struct {
	mu      sync.Mutex
	answers []time.Time
	stop    chan struct{}
}

// beacon starts sending to an echo port.
func (h *host) beacon(address string, port int) *beacon {
	h.T.Helper()
	var c net.Conn
	var err error
	h.Within(func() { c, err = net.Dial("udp", net.JoinHostPort(address, strconv.Itoa(port))) })
	if err != nil {
		h.T.Fatal(err)
	}
	b := &beacon{stop: make(chan struct{})}
	h.T.Cleanup(func() { _ = c.Close() })
	go func() {
		buffer := make([]byte, 64)
		for {
			if _, err := c.Read(buffer); err != nil {
				select {
				case <-b.stop:
					return
				default: // unreachable for the moment
					time.Sleep(time.Millisecond)
					continue
				}
			}
			b.mu.Lock()
			b.answers = append(b.answers, time.Now())
			b.mu.Unlock()
		}
	}()
	go func() {
		ticker := time.NewTicker(20 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-b.stop:
				return
			case <-ticker.C:
				_, _ = c.Write([]byte("beacon"))
			}
		}
	}()
	return b
}

// gap stops the beacon and returns the longest time without answer since a
// moment, up to now.
func (b *beacon) gap(since time.Time) time.Duration {
	close(b.stop)
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	at := append(slices.DeleteFunc(slices.Clone(b.answers), func(t time.Time) bool { return t.Before(since) }), now)
	longest := at[0].Sub(since)
	for i := 1; i < len(at); i++ {
		longest = max(longest, at[i].Sub(at[i-1]))
	}
	return longest
}

// answered waits for an answer after a moment.
func (b *beacon) answered(t *testing.T, after time.Time) {
	t.Helper()
	netns.WaitFor(t, limit, "an answer", func() error {
		b.mu.Lock()
		defer b.mu.Unlock()
		if n := len(b.answers); n == 0 || b.answers[n-1].Before(after) {
			return fmt.Errorf("%d answers, none since %s", n, time.Since(after))
		}
		return nil
	})
}
