package controlplane

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/test/controlplane/harness"
)

// fleet are many gateways in one namespace.
type fleet []*gateway

func newFleet(t *testing.T, c *harness.Cluster, n int) fleet {
	t.Helper()
	namespace := newNamespace(t, c, "fleet-")
	var f fleet
	for i := range n {
		f = append(f, &gateway{t: t, c: c, kind: v1alpha1.GatewayKind, namespace: namespace, name: fmt.Sprintf("gateway-%d", i)})
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for _, g := range f {
			if err := client.IgnoreNotFound(c.Client.Delete(ctx, g.object())); err != nil {
				t.Error(err)
			}
		}
		for _, g := range f {
			o := g.object()
			c.Eventually(t, g.name+" to go", func() error { return gone(c.Client.Get(ctx, client.ObjectKeyFromObject(o), o)) })
		}
	})
	return f
}

// apply applies a spec to all, for as long as the API server needs to be there.
func (f fleet) apply(spec string) {
	for _, g := range f {
		g.eventually(g.name+" to be applied", func() error { return g.tryApply(spec) })
	}
}

// observe returns the keys and addresses, and the identity of the seed, of every
// gateway that has them.
func (f fleet) observe() map[string]string {
	out := map[string]string{}
	for _, g := range f {
		o := g.object()
		if err := g.c.Client.Get(g.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			continue
		}
		s := statusOf(g.t, o)
		seed, err := g.c.Get(g.t.Context(), "v1", "Secret", g.namespace, names.Seed(g.name))
		if err == nil && s.PublicKey != "" {
			out[g.name] = string(seed.GetUID()) + " " + keysOf(s)
		}
	}
	return out
}

// waitServed waits until all are ready and serve the wanted number of peers.
func (f fleet) waitServed(peers int64) {
	for _, g := range f {
		g.eventually(g.name+" to be ready", func() error {
			o := g.object()
			if err := g.c.Client.Get(g.t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
				return err
			}
			for _, condition := range []string{"Synced", "Ready"} {
				if err := harness.HasCondition(o, condition, "True", ""); err != nil {
					return err
				}
			}
			if active, _, _ := unstructured.NestedInt64(o.Object, "status", "activePeers"); active != peers {
				return fmt.Errorf("%d peers are active, not %d", active, peers)
			}
			return nil
		})
	}
}

const (
	twoPeers   = "{endpoint: {host: vpn.example.com}, peers: [{name: laptop}, {name: phone}]}"
	threePeers = "{endpoint: {host: vpn.example.com}, listenPort: 51821, peers: [{name: laptop}, {name: phone}, {name: tablet}]}"
)

// TestFaults takes away, in the middle of the creation and then of a change of
// many gateways, the function, Crossplane, and the API server. All come to
// what was asked for, and what was handed out once stays.
func TestFaults(t *testing.T) {
	t.Parallel()
	c := own(t)
	n, away := 8, 5*time.Second
	if long() {
		n, away = 20, time.Minute
	}
	for name, fault := range map[string]func(context.Context) error{
		"function": func(ctx context.Context) error { c.KillFunction(); return c.StartFunction(ctx) },
		"core":     func(ctx context.Context) error { c.KillCore(); return c.StartCore(ctx) },
		"API server": func(ctx context.Context) error {
			c.StopAPIServer()
			time.Sleep(away) // It is away for this long: nothing can be waited for.
			return c.StartAPIServer(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFleet(t, c, n)
			strike := func() {
				t.Helper()
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
				defer cancel()
				if err := fault(ctx); err != nil {
					t.Fatal(err)
				}
			}
			start := time.Now()
			f[:n/2].apply(twoPeers)
			strike()
			f[n/2:].apply(twoPeers)
			f.waitServed(2)
			created := time.Since(start)
			before := f.observe()
			if len(before) != len(f) {
				t.Fatal(errors.New("not all have keys"))
			}

			start = time.Now()
			f[:n/2].apply(threePeers)
			strike()
			f[n/2:].apply(threePeers)
			f.waitServed(3)
			changed := time.Since(start)
			for _, g := range f {
				// The tablet is new.
				s := g.status()
				s.Peers = s.Peers[:2]
				seed, err := c.Get(t.Context(), "v1", "Secret", g.namespace, names.Seed(g.name))
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(before[g.name], string(seed.GetUID())+" "+keysOf(s)); diff != "" {
					t.Errorf("%s: %s", g.name, diff)
				}
			}
			t.Logf("%d gateways ready after %v, changed after %v; no key, address or seed changed", len(f),
				created.Round(time.Second), changed.Round(time.Second))
		})
	}
}
