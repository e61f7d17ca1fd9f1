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
//
// They do in seconds what users do in days, so no circuit breaker opens. Tests of
// what an action costs count the breaker's events instead: with a breaker that
// opens, they would ask how fast the machine is, as events come back with time.
func shared(t *testing.T) *harness.Cluster {
	t.Helper()
	started.once.Do(func() {
		started.cluster, started.err = harness.Run(harness.Options{
			Flavour: harness.Namespaced,
			Core:    []string{"--circuit-breaker-burst=1000000"},
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

// breakerBurst is how many events Crossplane's circuit breaker lets a composite
// resource have at once by default. One of them comes back each second. Where
// none is left, Crossplane looks at the resource every 30 seconds for 5 minutes.
const breakerBurst = 100

// checkEvents fails where an action costs a composite resource that had rested as
// many events as open its circuit breaker.
func checkEvents(t *testing.T, what string, events, resources int) int {
	t.Helper()
	each := events / resources
	if each >= breakerBurst {
		t.Errorf("%s: %d events would open the circuit breaker", what, each)
	}
	return each
}

// own returns a cluster that ends with the test, for one that takes parts of it
// away. Its circuit breakers are as they are by default.
func own(t *testing.T) *harness.Cluster {
	t.Helper()
	c := harness.Start(t, harness.Options{Flavour: harness.Namespaced})
	if err := c.Play(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}
