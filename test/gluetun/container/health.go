package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// health is gluetun's own judgement of its tunnel.
type health struct {
	mu     sync.Mutex
	looked bool
	err    error
}

func (h *health) set(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.looked, h.err = true, err
}

func (h *health) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case !h.looked:
		http.Error(w, "healthcheck did not run yet", http.StatusInternalServerError)
	case h.err != nil:
		http.Error(w, h.err.Error(), http.StatusInternalServerError)
	}
}

// askHealth is the command that the kubelet's probe runs.
func askHealth() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+healthAddress, http.NoBody)
	if err != nil {
		return err
	}
	rsp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("cannot ask the health server: %w", err)
	}
	defer func() { _ = rsp.Body.Close() }()
	if rsp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(rsp.Body)
		return fmt.Errorf("unhealthy: %s", b)
	}
	return nil
}

// startupTimeout is how long a tunnel has for its first answer.
const startupTimeout = 6 * time.Second

// check looks through the tunnel.
func check(ctx context.Context, timeout time.Duration) error {
	c, err := (&net.Dialer{Timeout: timeout}).DialContext(ctx, "tcp4", net.JoinHostPort(internet, "443"))
	if err != nil {
		return err
	}
	return c.Close()
}

// watch returns when the tunnel passes nothing any more: minutes after it did so,
// since there are ten attempts, each of them longer.
func watch(ctx context.Context) error {
	for {
		if !sleep(ctx, time.Minute) {
			return ctx.Err()
		}
		var err error
		for _, seconds := range []int{5, 5, 5, 10, 10, 10, 15, 15, 15, 30} {
			start, timeout := time.Now(), time.Duration(seconds)*time.Second
			if err = check(ctx, timeout); err == nil {
				break
			}
			sleep(ctx, timeout-time.Since(start))
		}
		if err != nil {
			return errors.Join(errors.New("nothing passes the tunnel"), err)
		}
	}
}

// sleep tells whether it slept to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
