package dataplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

const limit = netns.Limit

// agent is a running agent.
type agent struct {
	*netns.Process
	host *host
	http http.Client
}

// startAgent starts the agent of the gateway's pod with a configuration, and
// waits until it is ready.
func (w *world) startAgent(c wireguard.GatewayConfig) *agent {
	w.t.Helper()
	w.gateway.Write("config/config.json", encode(w.t, c))
	a := w.runAgent()
	a.waitReady(c)
	return a
}

// runAgent starts the agent with the configuration file as it is. Arguments go
// between nsenter and the agent.
func (w *world) runAgent(wrapper ...string) *agent {
	w.t.Helper()
	command := []string{agentBinary, "gateway", "--config=/run/config/config.json"}
	return newAgent(w.gateway, w.gateway.Start(slices.Concat(wrapper, command)...))
}

func newAgent(h *host, p *netns.Process) *agent {
	a := &agent{Process: p, host: h}
	a.http.Transport = &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
			return h.dial(network, address)
		},
	}
	a.http.Timeout = limit
	return a
}

func encode(t *testing.T, c wireguard.GatewayConfig) string {
	t.Helper()
	b, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// get asks the agent for a page.
func (a *agent) get(path string) (int, string, error) {
	resp, err := a.http.Get("http://127.0.0.1:9586" + path)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b), err
}

// write gives the agent another configuration. It does not wait.
func (a *agent) write(content string) {
	a.T.Helper()
	a.host.Write("config/config.json", content)
}

// apply gives the agent another configuration and waits until it is in force.
func (a *agent) apply(c wireguard.GatewayConfig) {
	a.T.Helper()
	a.write(encode(a.T, c))
	a.waitReady(c)
}

// waitReady waits until the agent is ready with a configuration.
func (a *agent) waitReady(c wireguard.GatewayConfig) {
	a.T.Helper()
	want := wireguard.ConfigHash([]byte(encode(a.T, c)))
	netns.WaitFor(a.T, limit, "configuration "+want, func() error {
		if !a.Running() {
			a.T.Fatalf("the agent has ended:\n%s", a.Out)
		}
		code, body, err := a.get("/readyz")
		if err != nil {
			return err
		}
		if code != http.StatusOK {
			return fmt.Errorf("%d %s", code, body)
		}
		if !strings.Contains(body, "configuration "+want+" is in force") {
			return errors.New(body)
		}
		return nil
	})
}

// metric returns the value of a metric without labels, or with labels as they
// are written.
func (a *agent) metric(name string) float64 {
	a.T.Helper()
	_, body, err := a.get("/metrics")
	if err != nil {
		a.T.Fatal(err)
	}
	for l := range strings.Lines(body) {
		if v, ok := strings.CutPrefix(l, name+" "); ok {
			f, err := strconv.ParseFloat(strings.TrimSpace(v), 64)
			if err != nil {
				a.T.Fatal(err)
			}
			return f
		}
	}
	return 0
}
