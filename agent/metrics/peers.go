package metrics

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/config"
)

// Peers collects each peer's traffic and handshake from the device, when it is
// asked. It is safe for concurrent use.
type Peers struct {
	device string
	client *wgctrl.Client
	names  atomic.Pointer[map[wgtypes.Key]string]

	sent, received, handshake *prometheus.Desc
}

// NewPeers returns a collector for the device of the given name.
func NewPeers(device string) (*Peers, error) {
	client, err := wgctrl.New()
	if err != nil {
		return nil, fmt.Errorf("cannot talk to WireGuard: %w", err)
	}
	labels := []string{"interface", "public_key", "peer_name", "allowed_ips"}
	return &Peers{
		device: device, client: client,
		sent:      prometheus.NewDesc("wireguard_sent_bytes_total", "Bytes sent to the peer.", labels, nil),
		received:  prometheus.NewDesc("wireguard_received_bytes_total", "Bytes received from the peer.", labels, nil),
		handshake: prometheus.NewDesc("wireguard_latest_handshake_seconds", "When the last handshake with the peer was, in seconds since 1970. 0 is never.", labels, nil),
	}, nil
}

// Name tells how the peers of a configuration are called. Others have no series:
// there may be any number of pods, and they come and go.
func (p *Peers) Name(c *config.Config) {
	names := make(map[wgtypes.Key]string, len(c.Peers))
	for _, x := range c.Peers {
		names[x.PublicKey.Key] = config.PeerName(x)
	}
	p.names.Store(&names)
}

// Describe implements prometheus.Collector.
func (p *Peers) Describe(ch chan<- *prometheus.Desc) {
	ch <- p.sent
	ch <- p.received
	ch <- p.handshake
}

// Collect implements prometheus.Collector. Without device there is nothing to
// tell, which is no failure of the others' metrics.
func (p *Peers) Collect(ch chan<- prometheus.Metric) {
	names := p.names.Load()
	if names == nil {
		return
	}
	d, err := p.client.Device(p.device)
	if err != nil {
		return
	}
	for _, x := range d.Peers {
		name, known := (*names)[x.PublicKey]
		if !known {
			continue
		}
		handshake := 0.0
		if !x.LastHandshakeTime.IsZero() {
			handshake = float64(x.LastHandshakeTime.UnixNano()) / 1e9
		}
		labels := []string{p.device, x.PublicKey.String(), name, allowedIPs(x)}
		ch <- prometheus.MustNewConstMetric(p.sent, prometheus.CounterValue, float64(x.TransmitBytes), labels...)
		ch <- prometheus.MustNewConstMetric(p.received, prometheus.CounterValue, float64(x.ReceiveBytes), labels...)
		ch <- prometheus.MustNewConstMetric(p.handshake, prometheus.GaugeValue, handshake, labels...)
	}
}

// allowedIPs joins a peer's networks, in an order that does not change from
// one scrape to the next.
func allowedIPs(p wgtypes.Peer) string {
	ips := make([]string, len(p.AllowedIPs))
	for i, n := range p.AllowedIPs {
		ips[i] = n.String()
	}
	slices.Sort(ips)
	return strings.Join(ips, ",")
}
