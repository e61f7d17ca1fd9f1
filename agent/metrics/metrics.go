// Package metrics serves what the agent counts, and what the device says of
// its peers.
package metrics

import (
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/config"
)

// Causes of a sync, as values of the label cause.
const (
	CauseConfig  = "config"  // a new configuration
	CauseExpiry  = "expiry"  // a peer has expired
	CauseNetwork = "network" // links, addresses, routes or rules have changed
	CauseDrift   = "drift"   // somebody else changed device or firewall
	CauseRetry   = "retry"   // the last sync failed
	CausePods    = "pods"    // pods have come, changed or gone
)

// Metrics are the agent's own.
type Metrics struct {
	// SyncDuration is in seconds, from the cause to the end.
	SyncDuration *prometheus.HistogramVec
	SyncErrors   prometheus.Counter
	// Rejected counts configurations that were not taken.
	Rejected prometheus.Counter
	// ConfigValid is 1 while the configuration in force is the newest that was
	// seen, and 0 while a newer one is rejected.
	ConfigValid prometheus.Gauge
	// configApplied is when the configuration in force was applied, in seconds
	// since 1970. Its age is the present time less this.
	configApplied prometheus.Gauge
	Ready         prometheus.Gauge
	Peers         prometheus.Gauge
	pods          *prometheus.GaugeVec
	// egress has no value before the way out was looked at.
	egress *prometheus.GaugeVec
	mode   string

	poolSize, poolUsed *prometheus.GaugeVec
}

// New registers the agent's metrics.
func New(r prometheus.Registerer) *Metrics {
	m := &Metrics{
		SyncDuration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "wireguard_gateway_sync_duration_seconds",
			Help:    "Time to make device, routes and firewall what the configuration says.",
			Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5},
		}, []string{"cause"}),
		SyncErrors: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "wireguard_gateway_sync_errors_total",
			Help: "Syncs that failed.",
		}),
		Rejected: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "wireguard_gateway_config_rejected_total",
			Help: "Configurations that were not taken, because they cannot be used as a whole.",
		}),
		ConfigValid: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "wireguard_gateway_config_valid",
			Help: "1 if the newest configuration is in force, 0 if it was rejected and the last good one is.",
		}),
		configApplied: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "wireguard_gateway_config_applied_timestamp_seconds",
			Help: "When the configuration in force was applied, in seconds since 1970.",
		}),
		Ready: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "wireguard_gateway_ready",
			Help: "1 if the gateway serves its peers, 0 if not.",
		}),
		Peers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "wireguard_gateway_peers",
			Help: "Peers on the device, apart from pods.",
		}),
		pods: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "wireguard_gateway_injected_pods",
			Help: "Pods on the device that have joined by the label of this WireguardPeer.",
		}, []string{"peer_namespace", "peer_name"}),
		egress: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "wireguard_gateway_egress_up",
			Help: "1 if traffic of peers can leave as configured, 0 if it is dropped.",
		}, []string{"mode"}),
		poolSize: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "wireguard_gateway_pool_addresses",
			Help: "Addresses of the pool that peers can have.",
		}, []string{"pool"}),
		poolUsed: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "wireguard_gateway_pool_addresses_used",
			Help: "Addresses of the pool that peers have, on the device or not.",
		}, []string{"pool"}),
	}
	r.MustRegister(m.SyncDuration, m.SyncErrors, m.Rejected, m.ConfigValid, m.configApplied, m.Ready, m.Peers, m.pods, m.egress, m.poolSize, m.poolUsed,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// Applied notes that a configuration is in force.
func (m *Metrics) Applied(c *config.Config, now time.Time) {
	m.configApplied.Set(float64(now.UnixNano()) / 1e9)
	m.poolSize.Reset()
	m.poolUsed.Reset()
	for _, a := range c.Addresses {
		pool := a.Masked()
		m.poolSize.WithLabelValues(pool.String()).Set(poolSize(pool))
		used := 0
		for _, addresses := range c.Reservations {
			for _, r := range addresses {
				if pool.Contains(r) {
					used++
				}
			}
		}
		m.poolUsed.WithLabelValues(pool.String()).Set(float64(used))
	}
}

// Pods notes how many pods there are, by the namespace and name of their class.
// Classes that are not named have none.
func (m *Metrics) Pods(counts map[[2]string]int) {
	m.pods.Reset()
	for class, n := range counts {
		m.pods.WithLabelValues(class[0], class[1]).Set(float64(n))
	}
}

// Egress notes whether traffic of peers can leave. A configuration has one mode.
func (m *Metrics) Egress(mode string, up bool) {
	if m.mode != mode {
		m.egress.Reset()
		m.mode = mode
	}
	m.egress.WithLabelValues(mode).Set(Bool(up))
}

// poolSize leaves out the network's own address, broadcast, and the gateway's.
func poolSize(pool netip.Prefix) float64 {
	hosts := pool.Addr().BitLen() - pool.Bits()
	size := 1.0
	for range hosts {
		size *= 2
	}
	if pool.Addr().Is4() {
		return max(0, size-3)
	}
	return max(0, size-2)
}

// Bool returns the value of a gauge that is 0 or 1.
func Bool(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
