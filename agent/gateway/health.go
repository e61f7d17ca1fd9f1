package gateway

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/metrics"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/server"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// notRead is the reason of a gateway that has just started.
const notRead = "no configuration has been read yet"

// health is what the probes see. It is safe for concurrent use.
type health struct {
	*server.Liveness

	mu       sync.Mutex
	applied  string
	failing  []string
	warnings []string
}

func newHealth() *health {
	return &health{Liveness: server.NewLiveness("agent"), failing: []string{notRead}}
}

func (h *health) probes() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{"/healthz": h.Healthz, "/readyz": h.readyz}
}

func (h *health) set(applied string, failing, warnings []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.applied, h.failing, h.warnings = applied, failing, warnings
}

func (h *health) reasons() []error {
	h.mu.Lock()
	defer h.mu.Unlock()
	var out []error
	for _, f := range h.failing {
		out = append(out, errors.New(f))
	}
	return out
}

// readyz answers the readiness probe. Where the last good configuration is in
// force because a newer one is bad, the gateway serves its peers and stays
// ready: without it the Service would cut all of them off. The reason is in the
// answer all the same.
func (h *health) readyz(w http.ResponseWriter, _ *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.failing) > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	} else {
		_, _ = fmt.Fprintln(w, "ok")
	}
	for _, f := range slices.Concat(h.failing, h.warnings) {
		_, _ = fmt.Fprintln(w, f)
	}
	if h.applied != "" {
		_, _ = fmt.Fprintf(w, "configuration %s is in force\n", h.applied)
	}
}

// tell passes on what is known now: to the probes, the metrics and the report.
func (g *gateway) tell() {
	var failing, warnings []string
	lastGood := "" // why it is the last good configuration that is in force
	report := wireguard.Report{ConfigHash: g.applied}
	if g.applied == "" && g.failure == "" {
		reason := notRead
		if g.rejected != "" {
			reason = "no configuration could be used yet: " + g.rejected
		}
		failing = append(failing, reason)
	}
	if g.failure != "" {
		failing = append(failing, g.failure)
	}
	if g.applied != "" {
		state, reason := g.egress(g.config)
		report.Egress = state
		g.metrics.Egress(g.config.Egress.Mode, reason == "")
		for _, r := range []string{reason, forwarding(g.config)} {
			if r != "" {
				failing = append(failing, r)
			}
		}
		if g.rejected != "" {
			lastGood = "the last good configuration is in force: " + g.rejected
			warnings = append(warnings, lastGood)
		}
		if g.notes != "" {
			warnings = append(warnings, g.notes)
		}
		for _, n := range g.pods.watcher.Lost() {
			warnings = append(warnings, "pods of namespace "+n+" cannot be watched, those that are known stay")
		}
		report.InjectedPods = len(g.pods.served)
	}
	g.health.set(g.applied, failing, warnings)
	g.metrics.Ready.Set(metrics.Bool(len(failing) == 0))

	report.Reasons = append(report.Reasons, failing...)
	if lastGood != "" {
		report.Reasons = append(report.Reasons, lastGood)
	}
	report.Ready = len(report.Reasons) == 0
	if g.publish != nil {
		g.publish(report)
	}
}
