package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// probeTimeout is below the kubelet's own, which is a second by default.
const probeTimeout = 900 * time.Millisecond

type probeCommand struct {
	Startup bool   `help:"Ask whether the tunnel was up once, not whether it is now."`
	Address string `default:"127.0.0.1:9586" help:"Where the client listens."`
}

// Run exists because the image has no shell, and the kubelet cannot ask who
// listens within the pod only.
func (c *probeCommand) Run(ctx context.Context) error {
	path := "/readyz"
	if c.Startup {
		path = "/startupz"
	}
	body, ok, err := ask(ctx, "http://"+c.Address+path)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("not ready: %s", strings.ReplaceAll(strings.TrimSpace(body), "\n", "; "))
	}
	_, err = fmt.Fprint(os.Stdout, body)
	return err
}

func ask(ctx context.Context, url string) (body string, ok bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", false, fmt.Errorf("cannot ask the client: %w", err)
	}
	// No proxy of the environment: it is in the same pod.
	transport := &http.Transport{}
	response, err := transport.RoundTrip(request)
	if err != nil {
		return "", false, fmt.Errorf("cannot ask the client: %w", err)
	}
	defer func() { _ = response.Body.Close() }()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		return "", false, fmt.Errorf("cannot read the client's answer: %w", err)
	}
	return string(b), response.StatusCode == http.StatusOK, nil
}
