package node

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/test/controlplane/harness"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// soakFault is something that happens.
type soakFault struct {
	name string
	do   func(ctx context.Context) error
}

// faults are what may happen at any time, also to what is away since the last
// time: the gateways serve on without.
func (s *soak) faults() []soakFault {
	system := "crossplane-system"
	return []soakFault{
		{"agent killed", func(ctx context.Context) error { return s.anyGateway().killAgent(ctx) }},
		{"gateway's pod deleted", func(ctx context.Context) error { return s.anyGateway().deletePod(ctx) }},
		{"gateway's Deployment deleted", func(ctx context.Context) error {
			d := &appsv1.Deployment{}
			d.Namespace, d.Name = s.anyGateway().namespace, names.Workload(gatewayName)
			return client.IgnoreNotFound(s.n.Client.Delete(ctx, d))
		}},
		{"gateway's configuration deleted", func(ctx context.Context) error {
			o := &corev1.Secret{}
			o.Namespace, o.Name = s.anyGateway().namespace, names.Config(gatewayName)
			return client.IgnoreNotFound(s.n.Client.Delete(ctx, o))
		}},
		{"gluetun killed", func(ctx context.Context) error {
			p, err := s.leaving.pod(ctx)
			if err != nil {
				return err
			}
			return kill(s.n, p, unix.SIGKILL, names.ContainerGluetun)
		}},
		{"provider away for 20 seconds", func(ctx context.Context) error {
			if err := s.leaving.provider.Fail(ctx); err != nil {
				return err
			}
			time.Sleep(20 * time.Second)
			return s.leaving.provider.Serve(context.WithoutCancel(ctx))
		}},
		{"sidecar killed", func(ctx context.Context) error {
			p, err := s.anyPod(ctx)
			if err != nil {
				return err
			}
			return kill(s.n, p, unix.SIGKILL, wireguard.Sidecar)
		}},
		{"joined pod deleted", func(ctx context.Context) error {
			p, err := s.anyPod(ctx)
			if err != nil {
				return err
			}
			return s.n.Client.Delete(ctx, p)
		}},
		{"joined pods rolled", func(ctx context.Context) error {
			_, err := s.n.Kubectl(ctx, "-n", s.apps, "rollout", "restart", "deployment/rolled")
			return err
		}},
		{"joined pods scaled to twice as many and back", func(ctx context.Context) error {
			for _, pods := range []int{2 * replicas, replicas} {
				if _, err := s.n.Kubectl(ctx, "-n", s.apps, "scale", "deployment/rolled", fmt.Sprintf("--replicas=%d", pods)); err != nil {
					return err
				}
				select {
				case <-ctx.Done():
				case <-time.After(10 * time.Second):
				}
			}
			return nil
		}},
		{"kubelet restarted", func(context.Context) error { return s.n.RestartKubelet() }},
		{"Crossplane pods deleted", func(ctx context.Context) error {
			return replace(ctx, s.n, system, client.MatchingLabels{"release": "crossplane"})
		}},
		// Last, so that it can be left out: a process that is replaced cannot be seen to
		// grow.
		{"function pod deleted", func(ctx context.Context) error {
			return replace(ctx, s.n, system, client.MatchingLabels{"pkg.crossplane.io/function": harness.FunctionName})
		}},
	}
}

// anyGateway is one of those that things may happen to.
func (s *soak) anyGateway() *gateway {
	all := []*gateway{s.joined, s.leaving.gateway}
	for _, m := range s.shaken {
		all = append(all, m.gateway)
	}
	return all[rand.IntN(len(all))]
}

// anyPod is one of those that are rolled.
func (s *soak) anyPod(ctx context.Context) (*corev1.Pod, error) {
	pods, err := podsOf(ctx, s.n, s.apps, client.MatchingLabels{"app": "deployment"})
	if err != nil {
		return nil, err
	}
	if len(pods) == 0 {
		return nil, errors.New("there are no pods")
	}
	return &pods[rand.IntN(len(pods))], nil
}

// breakThings breaks one thing after the other, each kind once and then at
// random, and waits each time until everything is well again.
func (s *soak) breakThings(ctx context.Context, t *testing.T) error {
	t.Helper()
	faults := s.faults()
	for i := 0; ; i++ {
		kinds := faults
		if time.Since(s.start) > s.end.Sub(s.start)/4 {
			kinds = faults[:len(faults)-1]
		}
		fault := kinds[rand.IntN(len(kinds))]
		if i < len(kinds) {
			fault = kinds[len(kinds)-1-i]
		}
		start := time.Now()
		limited, cancel := context.WithTimeout(ctx, recovery)
		err := fault.do(limited)
		took := time.Since(start)
		if err == nil {
			// What it does, it does soon.
			time.Sleep(time.Second)
			err = s.n.Wait(limited, "everything to be well", func() error { return s.well(limited) })
		}
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil //nolint:nilerr // What the end interrupted has not failed.
		case err != nil:
			return fmt.Errorf("%v after the start, %s: %w", start.Sub(s.start).Round(time.Second), fault.name, err)
		}
		d := time.Since(start) - took
		t.Logf("%v: %s, well again after %v", start.Sub(s.start).Round(time.Second), fault.name, d.Round(time.Millisecond))
		s.recovered[fault.name] = append(s.recovered[fault.name], d)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(faultPace):
		}
	}
}
