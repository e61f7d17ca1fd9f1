package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const (
	serverTimeout = 10 * time.Second
	stopTimeout   = time.Second
)

// server serves health and metrics.
type server struct {
	http *http.Server
}

func serve(ctx context.Context, address string, h *health, registry *prometheus.Registry, log *slog.Logger) (*server, error) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", h.healthz)
	mux.HandleFunc("GET /readyz", h.readyz)
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot listen for probes: %w", err)
	}
	s := &server{http: &http.Server{Handler: mux, ReadHeaderTimeout: serverTimeout, ReadTimeout: serverTimeout, WriteTimeout: serverTimeout}}
	go func() {
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("cannot serve probes", "error", err)
		}
	}()
	return s, nil
}

func (s *server) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	_ = s.http.Shutdown(ctx)
}
