package sidecar

import (
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/server"
)

// health is what the probes see. It is safe for concurrent use.
type health struct {
	*server.Liveness

	mu       sync.Mutex
	started  bool // the tunnel was up once
	reasons  []string
	warnings []string
	dropped  total
	renewals int
	traffic  traffic
}

func newHealth() *health {
	return &health{Liveness: server.NewLiveness("sidecar"), reasons: []string{"the sidecar has just started"}}
}

func (h *health) probes() map[string]http.HandlerFunc {
	return map[string]http.HandlerFunc{"/healthz": h.Healthz, "/startupz": h.startupz, "/readyz": h.readyz}
}

func (h *health) set(reasons, warnings []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reasons, h.warnings = reasons, warnings
	h.started = h.started || len(reasons) == 0
}

// startupz answers the startup probe: the pod's containers may start once the
// tunnel was up.
func (h *health) startupz(w http.ResponseWriter, _ *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer(w, h.started)
}

// readyz answers the readiness probe.
func (h *health) readyz(w http.ResponseWriter, _ *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.answer(w, len(h.reasons) == 0)
}

func (h *health) answer(w http.ResponseWriter, ok bool) {
	if ok {
		_, _ = fmt.Fprintln(w, "ok")
	} else {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	for _, list := range [][]string{h.reasons, h.warnings} {
		for _, r := range list {
			_, _ = fmt.Fprintln(w, r)
		}
	}
}

// tell passes on what is known now.
func (s *sidecar) tell() {
	var reasons, warnings []string
	now := time.Now()
	switch {
	case s.enrolment == nil && s.rejected != "":
		reasons = append(reasons, "no enrolment could be used yet: "+s.rejected)
	case s.enrolment == nil:
		reasons = append(reasons, "no enrolment has been read yet")
	case s.failure != "":
		reasons = append(reasons, s.failure)
	case s.tunnel.up:
	case len(s.addresses) == 0 && s.unresolved != "":
		reasons = append(reasons, s.unresolved)
	case len(s.addresses) == 0:
		reasons = append(reasons, fmt.Sprintf("the gateway's name %s is being looked up", s.enrolment.host))
	case s.tunnel.last.handshake.IsZero():
		reasons = append(reasons, fmt.Sprintf("the gateway %s has not answered a handshake at %s yet", s.enrolment.Gateway, s.enrolment.Endpoint))
	default:
		reasons = append(reasons, fmt.Sprintf("the gateway %s has answered a handshake, but nothing comes back through the tunnel", s.enrolment.Gateway))
	}
	if len(reasons) > 0 && !s.tunnel.replied.IsZero() {
		reasons = append(reasons, fmt.Sprintf("the last packet came through the tunnel %s ago", now.Sub(s.tunnel.replied).Round(time.Second)))
	}
	if s.enrolment != nil && s.rejected != "" {
		warnings = append(warnings, "the last good enrolment is in force: "+s.rejected)
	}
	s.health.set(reasons, warnings)
}
