package dataplane

import (
	"encoding/json"
	"fmt"
	"net"
	"strconv"
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
