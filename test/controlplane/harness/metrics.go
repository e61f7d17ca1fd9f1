package harness

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Metrics of Crossplane's core that tests count with.
type Metrics struct {
	// Reconciles of composite resources, and those of them that failed.
	Reconciles, Errors int
	// Busy are reconciles that run or wait, of composite resources.
	Busy int
	// BreakerEvents are what the circuit breakers of all composite resources count:
	// one for an object that is created or deleted, two for one that is updated, the
	// composite resource itself among them. PeerEvents are those of WireguardPeers.
	BreakerEvents, PeerEvents int
}

// Metrics reads the core's present metrics. Counters begin anew where it is
// restarted.
func (c *Cluster) Metrics(ctx context.Context) (Metrics, error) {
	page, err := c.httpGet(ctx, "http://"+addressCoreMetrics+"/metrics")
	if err != nil {
		return Metrics{}, err
	}
	m := Metrics{}
	for line := range strings.Lines(page) {
		name, rest, _ := strings.Cut(strings.TrimSpace(line), "{")
		labels, number, ok := strings.Cut(rest, "} ")
		if !ok {
			continue
		}
		v, err := strconv.ParseFloat(number, 64)
		if err != nil {
			continue
		}
		composite := strings.Contains(labels, `"composite/`)
		switch {
		case name == "circuit_breaker_events_total":
			m.BreakerEvents += int(v)
			if strings.Contains(labels, "wireguardpeers.") {
				m.PeerEvents += int(v)
			}
		case !composite:
		case name == "controller_runtime_reconcile_total":
			m.Reconciles += int(v)
			if strings.Contains(labels, `result="error"`) {
				m.Errors += int(v)
			}
		case name == "controller_runtime_active_workers", name == "workqueue_depth":
			m.Busy += int(v)
		}
	}
	return m, nil
}

// quietFor is how long nothing has to happen before nothing is taken to happen
// any more: longer than an event needs from the API server into a queue.
const quietFor = 1500 * time.Millisecond

// WaitQuiet waits until no composite resource is reconciled any more, and
// returns the metrics then.
func (c *Cluster) WaitQuiet(ctx context.Context) (Metrics, error) {
	last, since := Metrics{}, time.Now()
	err := c.Wait(ctx, "quiet", func() error {
		m, err := c.Metrics(ctx)
		if err != nil {
			return err
		}
		if m != last || m.Busy > 0 {
			last, since = m, time.Now()
		}
		if time.Since(since) < quietFor {
			return fmt.Errorf("%d reconciles, %d of them or more in progress", m.Reconciles, m.Busy)
		}
		return nil
	})
	return last, err
}
