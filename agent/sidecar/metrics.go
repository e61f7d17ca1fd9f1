package sidecar

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	readyDesc = prometheus.NewDesc("wireguard_client_ready",
		"1 if traffic passes the tunnel, 0 if not.", nil, nil)
	handshakeDesc = prometheus.NewDesc("wireguard_client_latest_handshake_seconds",
		"When the last handshake with the gateway was, in seconds since 1970. 0 before the first.", nil, nil)
	receivedDesc = prometheus.NewDesc("wireguard_client_received_bytes_total",
		"Bytes received through the tunnel.", nil, nil)
	sentDesc = prometheus.NewDesc("wireguard_client_sent_bytes_total",
		"Bytes sent through the tunnel.", nil, nil)
	renewalsDesc = prometheus.NewDesc("wireguard_client_renewals_total",
		"How often the session with the gateway was started anew because nothing came back.", nil, nil)
	droppedDesc = prometheus.NewDesc("wireguard_client_dropped_packets_total",
		"Packets that the lockdown kept from leaving the pod outside the tunnel.", nil, nil)
)

// total is a counter whose source starts anew now and then.
type total struct {
	before, last uint64
}

func (t *total) set(now uint64) {
	if now < t.last {
		t.before += t.last
	}
	t.last = now
}

func (t *total) value() float64 { return float64(t.before + t.last) }

// traffic is what the tunnel has carried.
type traffic struct {
	received, sent total
	handshake      time.Time
}

// Describe implements prometheus.Collector.
func (h *health) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{readyDesc, handshakeDesc, receivedDesc, sentDesc, renewalsDesc, droppedDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (h *health) Collect(out chan<- prometheus.Metric) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ready, handshake := 0.0, 0.0
	if len(h.reasons) == 0 {
		ready = 1
	}
	if !h.traffic.handshake.IsZero() {
		handshake = float64(h.traffic.handshake.Unix())
	}
	out <- prometheus.MustNewConstMetric(readyDesc, prometheus.GaugeValue, ready)
	out <- prometheus.MustNewConstMetric(handshakeDesc, prometheus.GaugeValue, handshake)
	out <- prometheus.MustNewConstMetric(receivedDesc, prometheus.CounterValue, h.traffic.received.value())
	out <- prometheus.MustNewConstMetric(sentDesc, prometheus.CounterValue, h.traffic.sent.value())
	out <- prometheus.MustNewConstMetric(renewalsDesc, prometheus.CounterValue, float64(h.renewals))
	out <- prometheus.MustNewConstMetric(droppedDesc, prometheus.CounterValue, h.dropped.value())
}

// saw notes what the device says.
func (h *health) saw(s sight) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.traffic.received.set(uint64(max(0, s.rx)))
	h.traffic.sent.set(uint64(max(0, s.tx)))
	if !s.handshake.IsZero() {
		h.traffic.handshake = s.handshake
	}
}

// renewed notes that the peer was made anew, which starts its counts anew.
func (h *health) renewed() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.traffic.received.set(0)
	h.traffic.sent.set(0)
	h.renewals++
}

// drops notes what the lockdown has counted.
func (h *health) drops(n uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dropped.set(n)
}
