package node

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/test/controlplane/harness"
	node "github.com/wireguardgateway/function-wireguard-gateway/test/node/harness"
)

// restarts returns how often the agent and gluetun have been started again.
func restarts(p *corev1.Pod) map[string]int {
	out := map[string]int{}
	for _, s := range append(append([]corev1.ContainerStatus{}, p.Status.ContainerStatuses...), p.Status.InitContainerStatuses...) {
		if s.Name == names.ContainerAgent || s.Name == names.ContainerGluetun {
			out[s.Name] = int(s.RestartCount)
		}
	}
	return out
}

// away lets nothing through the provider until the user is told so, and brings it
// back. What was broken before may have opened Crossplane's circuit breaker, with
// which it looks at a gateway every half a minute only.
func (g *gluetunGateway) away(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	start := time.Now()
	if err := g.provider.Fail(ctx); err != nil {
		return err
	}
	down, err := g.egress(ctx, start, "False", "TunnelDown")
	if err != nil {
		return err
	}
	if err := g.n.Wait(ctx, "the pod to be not ready", func() error {
		if g.podReady(ctx) == nil {
			return errors.New("it is")
		}
		return nil
	}); err != nil {
		return err
	}
	notReady := time.Since(start)
	start = time.Now()
	if err := g.provider.Serve(ctx); err != nil {
		return err
	}
	up, err := g.egress(ctx, start, "True", "TunnelUp")
	g.t.Logf("EgressReady was False %v after the provider was gone, the pod not ready after %v; EgressReady was True %v after it was back",
		down, notReady.Round(time.Millisecond), up)
	return err
}

// egress waits for EgressReady, and returns how long that is after something.
func (g *gluetunGateway) egress(ctx context.Context, since time.Time, status, reason string) (time.Duration, error) {
	err := g.n.Wait(ctx, "EgressReady="+status, func() error {
		o, err := g.n.Get(ctx, "wireguardgateway.io/v1alpha1", "WireguardGateway", g.namespace, gatewayName)
		if err != nil {
			return err
		}
		return harness.HasCondition(o, "EgressReady", status, reason)
	})
	return time.Since(since).Round(time.Millisecond), err
}

// rotate gives the user another key, who stores it and restarts the pod.
func (g *gluetunGateway) rotate(ctx context.Context) error {
	if err := g.provider.Rotate(ctx); err != nil {
		return err
	}
	g.secret.StringData = g.provider.Credentials()
	if err := g.n.Client.Update(ctx, g.secret); err != nil {
		return err
	}
	return g.deletePod(ctx)
}

// TestGluetunFaults breaks one thing after the other in traffic. Nothing leaks,
// nothing is rotated, and traffic comes back by itself. The kubelet starts a
// container again at once for the first time, and after 10, 20 and 40 seconds
// then.
func TestGluetunFaults(t *testing.T) {
	n := shared(t)
	platform(t, n)
	w := watchLeaks(t, n)
	g := newGluetunGateway(t, n, newNamespace(t, n, "privileged"), onPlatform+"\npeerCIDR: 10.8.0.0/24\npeerCIDRv6: fd00:8::/64\npeers: [{name: laptop}]")
	g.apply()
	g.waitUp()
	g.waitPod()
	g.waitReady()
	identity := g.identity()
	c := g.connect("laptop")

	agent, gluetun := names.ContainerAgent, names.ContainerGluetun
	killed := func(signal unix.Signal, containers ...string) func(context.Context) error {
		return func(ctx context.Context) error {
			p, err := g.pod(ctx)
			for _, c := range containers {
				err = errors.Join(err, kill(n, p, signal, c))
			}
			return err
		}
	}
	for _, tc := range []struct {
		name    string
		do      func(context.Context) error
		silence time.Duration // how long the client may have no answer
		// restarts are those of the containers. None: there is another pod.
		restarts map[string]int
	}{
		{"nothing", func(context.Context) error { return nil }, time.Second, map[string]int{agent: 0, gluetun: 0}},
		{"gluetun killed", killed(unix.SIGKILL, gluetun), 40 * time.Second, map[string]int{agent: 0, gluetun: 1}},
		{"agent killed", killed(unix.SIGKILL, agent), 40 * time.Second, map[string]int{agent: 1, gluetun: 0}},
		{"gluetun terminated", killed(unix.SIGTERM, gluetun), 60 * time.Second, map[string]int{agent: 0, gluetun: 1}},
		{"both killed", killed(unix.SIGKILL, gluetun, agent), 80 * time.Second, map[string]int{agent: 1, gluetun: 1}},
		{"provider away", g.away, 3 * time.Minute, map[string]int{agent: 0, gluetun: 0}},
		{"pod deleted", g.deletePod, 60 * time.Second, nil},
		// None of them has to wait then, so that gluetun may be there before the agent,
		// and fail once on the stale rule.
		{"both killed in a new pod", killed(unix.SIGKILL, gluetun, agent), 60 * time.Second, map[string]int{agent: 1, gluetun: 1}},
		{"credentials rotated", g.rotate, 60 * time.Second, nil},
	} {
		if !t.Run(tc.name, func(t *testing.T) {
			before := g.waitPod()
			if err := w.watch(t.Context(), g); err != nil {
				t.Fatal(err)
			}
			r := watchFault(t, g.gateway, c, tc.do, node.Outside4, node.Outside6)
			if r.Silence > tc.silence {
				t.Errorf("the client had no answer for %v", r.Silence)
			}
			after := g.waitPod()
			g.waitUp()
			g.waitReady()
			if err := w.watch(t.Context(), g); err != nil {
				t.Fatal(err)
			}
			w.check(t, tc.name)
			strangers, err := outsideOf(t, n).Strangers(t.Context())
			if err != nil || len(strangers) > 0 {
				t.Errorf("who came around the tunnel: %q, %v", strangers, err)
			}
			if diff := cmp.Diff(identity, g.identity()); diff != "" {
				t.Errorf("-before +after:\n%s", diff)
			}
			g.checkRules(t, restarts(after)[gluetun], tc.restarts[agent] == 0)
			if tc.restarts == nil {
				if before.UID == after.UID {
					t.Error("the pod is the same")
				}
				return
			}
			if before.UID != after.UID {
				t.Errorf("the pod was %s and is %s", before.Name, after.Name)
			}
			got := restarts(after)
			for name, count := range restarts(before) {
				got[name] -= count
			}
			if diff := cmp.Diff(tc.restarts, got); diff != "" {
				t.Errorf("restarts: -want +got:\n%s", diff)
			}
		}) {
			break
		}
	}
}

// checkRules holds that a rule of each family leads into the tunnel, that gluetun's
// last start has not failed on a stale one where the agent was there, and that the
// firewall has what each start appends.
func (g *gluetunGateway) checkRules(t *testing.T, starts int, agent bool) {
	t.Helper()
	for _, family := range []string{"ip", "ip -6"} {
		out, err := g.within(t.Context(), family+" rule show pref 101")
		if err != nil || strings.Count(out, "\n") != 1 {
			t.Errorf("%s: %v, rules %q", family, err, out)
		}
	}
	out, err := g.within(t.Context(), "iptables -S OUTPUT")
	if err != nil {
		t.Fatal(err)
	}
	times := strings.Count(out, "-A OUTPUT -o lo -j ACCEPT\n")
	t.Logf("gluetun's firewall has each rule %d times", times)
	if times != starts+1 || !strings.Contains(out, "-P OUTPUT DROP") {
		t.Errorf("after %d restarts the firewall is\n%s", starts, out)
	}
	p, err := g.pod(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	log, err := g.n.Kubectl(t.Context(), "-n", g.namespace, "logs", p.Name, "-c", names.ContainerGluetun)
	stale := strings.Contains(log, "File exists")
	t.Logf("gluetun failed on a stale rule: %v", stale)
	if err != nil || stale && agent {
		t.Errorf("gluetun did not start at once: %v\n%s", err, log)
	}
}
