package node

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/test/controlplane/harness"
	node "github.com/wireguardgateway/function-wireguard-gateway/test/node/harness"
)

// connected is a gateway with a client that has traffic.
func connected(t *testing.T, n *node.Node, spec string) (*gateway, *node.Client) {
	t.Helper()
	g := newGateway(t, n, newNamespace(t, n, "privileged"), spec)
	g.addPeer("laptop")
	c, err := n.NewClient(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	g.apply()
	g.waitReady()
	if err := c.Up(t.Context(), g.conf("laptop")); err != nil {
		t.Fatal(err)
	}
	waitReply(t, c, node.Site4)
	return g, c
}

// podsOf returns the pods of a namespace with labels.
func podsOf(ctx context.Context, n *node.Node, namespace string, labels client.MatchingLabels) ([]corev1.Pod, error) {
	pods := &corev1.PodList{}
	err := n.Client.List(ctx, pods, client.InNamespace(namespace), labels)
	return pods.Items, err
}

// replace deletes pods, and waits until others are ready in their place.
func replace(ctx context.Context, n *node.Node, namespace string, labels client.MatchingLabels) error {
	old, err := podsOf(ctx, n, namespace, labels)
	if err != nil {
		return err
	}
	gone := map[string]bool{}
	for _, p := range old {
		gone[p.Name] = true
		if err := n.Client.Delete(ctx, &p); err != nil {
			return err
		}
	}
	return n.Wait(ctx, "another pod", func() error {
		pods, err := podsOf(ctx, n, namespace, labels)
		if err != nil {
			return err
		}
		for _, p := range pods {
			if gone[p.Name] {
				continue
			}
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
					return nil
				}
			}
		}
		return errors.New("none is ready")
	})
}

// watchFault does something in traffic to hosts, waits until there is traffic to
// all of them again, and returns what the client noticed.
func watchFault(t *testing.T, g *gateway, c *node.Client, fault func(context.Context) error, hosts ...string) report {
	t.Helper()
	flows := map[string]*flow{}
	for _, host := range hosts {
		flows[host] = startFlow(t, c, host)
	}
	time.Sleep(time.Second)
	start := time.Now()
	if err := fault(t.Context()); err != nil {
		t.Fatal(err)
	}
	done := time.Since(start)
	// What a fault does, it does soon.
	time.Sleep(5 * time.Second)
	g.n.Eventually(t, "traffic", func() error {
		for host, f := range flows {
			if q := f.quietSince(); q > time.Second {
				return fmt.Errorf("no answer of %s for %v", host, q)
			}
		}
		return nil
	})
	g.waitPod()
	time.Sleep(2 * time.Second)
	var all report
	for _, host := range hosts {
		r := flows[host].end()
		t.Logf("%s: it took %v; of %d packets %d lost, longest silence %v; TCP: slowest round trip %v, %v",
			host, done.Round(time.Millisecond), r.Sent, r.Lost, r.Silence, r.Slowest, ended(r.Broken))
		all = all.and(r)
	}
	return all
}

// killAgent ends the agent's process as a crash would.
func (g *gateway) killAgent(ctx context.Context) error {
	p, err := g.pod(ctx)
	if err != nil {
		return err
	}
	return kill(g.n, p, unix.SIGKILL, names.ContainerAgent)
}

func (g *gateway) deletePod(ctx context.Context) error {
	p, err := g.pod(ctx)
	if err != nil {
		return err
	}
	return g.n.Client.Delete(ctx, p)
}

// kill sends a signal to all processes of a container.
func kill(n *node.Node, p *corev1.Pod, signal unix.Signal, container string) error {
	pids, err := n.Processes(p, container)
	for _, pid := range pids {
		err = errors.Join(err, unix.Kill(pid, signal))
	}
	return err
}

// TestAgentKilled kills the agent's container in traffic. It comes back within a
// second or two, and calls the clients where they were. It does not reach them
// there behind a Service that hides where they are: kube-proxy forgets a flow
// whose pod is not ready, and its next packet comes from another port of the
// node. Then the clients notice by themselves, after WireGuard's 15 seconds.
func TestAgentKilled(t *testing.T) {
	n := shared(t)
	for policy, limit := range map[string]time.Duration{"Cluster": 21 * time.Second, "Local": 5 * time.Second} {
		t.Run(policy, func(t *testing.T) {
			g, c := connected(t, n, `service: {externalTrafficPolicy: `+policy+`}`)
			identity, before := g.identity(), g.waitPod()
			time.Sleep(2 * time.Second) // for the agent to see where the client is
			r := watchFault(t, g, c, g.killAgent, node.Site4)
			if r.Silence > limit {
				t.Errorf("the client had no answer for %v", r.Silence)
			}
			if r.Broken != nil {
				t.Errorf("the TCP connection broke: %v", r.Broken)
			}
			after := g.waitPod()
			if before.UID != after.UID || after.Status.ContainerStatuses[0].RestartCount != 1 {
				t.Errorf("pod %s has restarted %d times, before it was %s", after.Name, after.Status.ContainerStatuses[0].RestartCount, before.Name)
			}
			if diff := cmp.Diff(identity, g.identity()); diff != "" {
				t.Errorf("-before +after:\n%s", diff)
			}
		})
	}
}

// TestFaults breaks one thing after the other in traffic. Nothing is rotated,
// nobody moves, and traffic comes back by itself.
func TestFaults(t *testing.T) {
	n := shared(t)
	g, c := connected(t, n, `{}`)
	identity := g.identity()

	system := "crossplane-system"
	cases := []struct {
		name string
		do   func(ctx context.Context) error
		// silence is how long the client may have no answer. Zero: it notices
		// nothing.
		silence time.Duration
		// samePod tells that the pod stays, sameStream that TCP connections do.
		samePod, sameStream bool
	}{
		{"nothing", func(context.Context) error { return nil }, 0, true, true},
		{"function pod deleted", func(ctx context.Context) error {
			return replace(ctx, n, system, client.MatchingLabels{"pkg.crossplane.io/function": harness.FunctionName})
		}, 0, true, true},
		{"Crossplane pods deleted", func(ctx context.Context) error {
			return replace(ctx, n, system, client.MatchingLabels{"release": "crossplane"})
		}, 0, true, true},
		{"kubelet restarted", func(context.Context) error { return n.RestartKubelet() }, 0, true, true},
		{"pod deleted", g.deletePod, 40 * time.Second, false, false},
	}
	for _, tc := range cases {
		ok := t.Run(tc.name, func(t *testing.T) {
			before := g.waitPod()
			r := watchFault(t, g, c, tc.do, node.Site4)
			after := g.waitPod()
			if tc.silence == 0 {
				tc.silence = time.Second
				if r.Lost > 0 {
					t.Errorf("%d packets were lost", r.Lost)
				}
			}
			if r.Silence > tc.silence {
				t.Errorf("the client had no answer for %v", r.Silence)
			}
			if tc.sameStream && r.Broken != nil {
				t.Errorf("the TCP connection broke: %v", r.Broken)
			}
			if same := before.UID == after.UID; same != tc.samePod {
				t.Errorf("the pod is the same: %v, want %v", same, tc.samePod)
			}
			g.waitReady()
			if diff := cmp.Diff(identity, g.identity()); diff != "" {
				t.Errorf("-before +after:\n%s", diff)
			}
		})
		if !ok {
			break
		}
	}
}

func ended(err error) string {
	if err == nil {
		return "it goes on"
	}
	return "it ended: " + err.Error()
}
