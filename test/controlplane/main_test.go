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
	sync.Mutex

	cluster *harness.Cluster
	err     error
	// bounded says that circuit breakers open, as they do by default.
	bounded bool
}

// shared returns the one cluster with namespaced composite resources. Tests have
// namespaces of their own in it, and leave nothing there. They do in seconds what
// users do in days, so no circuit breaker opens.
func shared(t *testing.T) *harness.Cluster {
	t.Helper()
	return cluster(t, false)
}

// bounded is the same cluster, where circuit breakers open as soon as they do by
// default. Tests that run beside others cannot have it.
func bounded(t *testing.T) *harness.Cluster {
	t.Helper()
	return cluster(t, true)
}

func cluster(t *testing.T, bounded bool) *harness.Cluster {
	t.Helper()
	started.Lock()
	defer started.Unlock()
	flags := []string{"--circuit-breaker-burst=1000000"}
	if bounded {
		flags = nil
	}
	switch {
	case started.cluster == nil:
		started.cluster, started.err = harness.Run(harness.Options{Flavour: harness.Namespaced, Core: flags})
		if started.err == nil {
			started.err = started.cluster.Play(context.Background())
		}
		started.bounded = bounded
	case started.bounded != bounded && started.err == nil:
		started.cluster.RestartCore(t, flags...)
		started.bounded = bounded
	}
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

// own returns a cluster that ends with the test, for one that takes parts of it
// away.
func own(t *testing.T) *harness.Cluster {
	t.Helper()
	c := harness.Start(t, harness.Options{Flavour: harness.Namespaced})
	if err := c.Play(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}
