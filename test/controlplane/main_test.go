// Package controlplane proves on a real API server, with the real Crossplane,
// what users get: what is applied, defaulted, owned, healed and removed.
//
// `make test-controlplane` runs it. There is no kubelet. The tests play
// Deployments, load balancers, Gateways and the agent.
package controlplane

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/wireguardgateway/function-wireguard-gateway/test/controlplane/harness"
)

func TestMain(m *testing.M) {
	if os.Getenv(harness.RequiredVariable) == "" {
		fmt.Println("not run: make test-controlplane starts a control plane for these tests")
		return
	}
	if err := harness.Runnable(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if started.cluster != nil {
		started.cluster.Stop()
	}
	os.Exit(code)
}

// long tells whether the tests that take many minutes run in full.
func long() bool { return os.Getenv(harness.RequiredVariable) == "long" }

var started struct {
	once    sync.Once
	cluster *harness.Cluster
	err     error
}

// shared returns the one cluster with namespaced composite resources. Tests have
// namespaces of their own in it, and leave nothing there.
func shared(t *testing.T) *harness.Cluster {
	t.Helper()
	started.once.Do(func() {
		started.cluster, started.err = harness.Run(harness.Options{
			Flavour: harness.Namespaced,
			// A circuit breaker opens as soon as it does by default, but does not stay
			// open for five minutes, for the tests that want to see one.
			Core: []string{"--circuit-breaker-cooldown=5s"},
		})
		if started.err == nil {
			started.err = started.cluster.Play(context.Background())
		}
	})
	t.Cleanup(func() {
		if t.Failed() {
			started.cluster.DumpLogs(t)
		}
	})
	if started.err != nil {
		t.Fatal(started.err)
	}
	return started.cluster
}
