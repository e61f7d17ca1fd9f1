// Package server serves health and metrics over HTTP.
package server

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
	requestTimeout = 10 * time.Second
	stopTimeout    = time.Second
)

// Server is a running server.
type Server struct {
	http *http.Server
}

// Start serves probes by their paths, and the registry's metrics at /metrics.
func Start(ctx context.Context, address string, probes map[string]http.HandlerFunc, registry *prometheus.Registry, log *slog.Logger) (*Server, error) {
	mux := http.NewServeMux()
	for path, probe := range probes {
		mux.HandleFunc("GET "+path, probe)
	}
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot listen for probes: %w", err)
	}
	s := &Server{http: &http.Server{Handler: mux, ReadHeaderTimeout: requestTimeout, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout}}
	go func() {
		if err := s.http.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			log.Error("cannot serve probes", "error", err)
		}
	}()
	return s, nil
}

// Stop ends the server. What it is answering has a moment to finish.
func (s *Server) Stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	_ = s.http.Shutdown(ctx)
}
