package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wireguardgateway/function-wireguard-gateway/test/controlplane/harness"
	node "github.com/wireguardgateway/function-wireguard-gateway/test/node/harness"
)

// callers watches who opens connections to the site, by the address that a pod
// has on the node.
type callers struct {
	mu   sync.Mutex
	seen map[string]int
	cmd  *exec.Cmd
	rest string
}

var sourceOf = regexp.MustCompile(`src=([0-9a-f.:]+) dst=` + regexp.QuoteMeta(node.Site4) + ` `)

func watchCallers(t *testing.T, n *node.Node) *callers {
	t.Helper()
	c := &callers{seen: map[string]int{}}
	c.cmd = n.Command(context.Background(), "conntrack", "-E", "-e", "NEW", "-p", "tcp", "-d", node.Site4)
	c.cmd.Stdout, c.cmd.Stderr = c, io.Discard
	if err := n.Start(c.cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
	})
	return c
}

// Write takes what conntrack prints.
func (c *callers) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rest += string(b)
	for {
		line, rest, ok := strings.Cut(c.rest, "\n")
		if !ok {
			return len(b), nil
		}
		c.rest = rest
		if m := sourceOf.FindStringSubmatch(line); m != nil {
			c.seen[m[1]]++
		}
	}
}

// check holds that nobody called but the gateway, and that it did.
func (c *callers) check(t *testing.T, gateway *corev1.Pod) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen[gateway.Status.PodIP] == 0 {
		t.Errorf("the gateway at %s made no connection: %v", gateway.Status.PodIP, c.seen)
	}
	for source, count := range c.seen {
		if source != gateway.Status.PodIP {
			t.Errorf("%s made %d connections outside of the tunnel, the gateway is %s", source, count, gateway.Status.PodIP)
		}
	}
	t.Logf("connections that the site saw, by pod: %v", c.seen)
}

// platform applies copies of the Compositions in which the platform names its
// networks, until the test ends.
func platform(t *testing.T, n *node.Node) {
	t.Helper()
	for _, file := range []string{"composition.yaml", "composition-peer.yaml"} {
		objects, err := harness.ReadObjects(filepath.Join(n.Root, "package", "configuration", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range objects {
			o.SetName("platform-" + o.GetName())
			o.SetLabels(map[string]string{"example.com/networks": "named"})
			pipeline, _, _ := unstructured.NestedSlice(o.Object, "spec", "pipeline")
			for k, v := range map[string]any{
				"podCIDRs": []any{"10.244.0.0/16"}, "serviceCIDRs": []any{"10.96.0.0/16"}, "nodeCIDRs": []any{"10.200.0.0/24"}, "clusterDNS": "10.96.0.10",
			} {
				if err := unstructured.SetNestedField(pipeline[0].(map[string]any), v, "input", "spec", k); err != nil {
					t.Fatal(err)
				}
			}
			if err := unstructured.SetNestedSlice(o.Object, pipeline, "spec", "pipeline"); err != nil {
				t.Fatal(err)
			}
			if err := n.Apply(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			// Others would have to say which one they want.
			t.Cleanup(func() {
				if err := n.Client.Delete(context.Background(), o); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// podTemplate is the template of pods that join, with an init container that needs
// the tunnel.
func podTemplate(mode string) string {
	return fmt.Sprintf(`
    metadata: {labels: {app: %[1]s, wireguardgateway.io/peer: media}}
    spec:
      terminationGracePeriodSeconds: 1
      initContainers:
        - {name: first, image: %[2]s, args: [once, "%[3]s"]}
      containers:
        - {name: app, image: %[2]s, args: [%[1]s, "%[3]s"]}
`, mode, node.ImageProgram, node.Site4+":"+node.EchoPort)
}

// TestInjection has pods of workloads join a gateway by a label.
func TestInjection(t *testing.T) {
	n := shared(t)
	if _, err := n.Kubectl(t.Context(), "apply", "--server-side", "-f", "package/cluster/injection.yaml"); err != nil {
		t.Fatal(err)
	}
	platform(t, n)
	apps := "apps"
	if _, err := n.Kubectl(t.Context(), "create", "namespace", apps); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Kubectl(t.Context(), "label", "namespace", apps, "pod-security.kubernetes.io/enforce=privileged"); err != nil {
		t.Fatal(err)
	}
	g := newGateway(t, n, newNamespace(t, n, "privileged"), `
crossplane: {compositionRef: {name: platform-wireguardgateways.wireguardgateway.io}}
allowedPeerNamespaces: {from: Names, names: [apps]}
`)
	g.apply()
	start := time.Now()
	if err := n.ApplyYAML(t.Context(), fmt.Sprintf(`apiVersion: wireguardgateway.io/v1alpha1
kind: WireguardPeer
metadata: {name: media, namespace: %s}
spec:
  crossplane: {compositionRef: {name: platform-wireguardpeers.wireguardgateway.io}}
  gatewayRef: {name: %s, namespace: %s}
  pods: {}
`, apps, gatewayName, g.namespace)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			for _, args := range []string{"get pods -o wide", "get wgp -o yaml", "logs -l wireguardgateway.io/peer=media -c wireguard --tail 20", "logs -l app=call -c app --tail 20", "get events --sort-by=.lastTimestamp"} {
				out, _ := n.Kubectl(context.Background(), append([]string{"-n", apps}, strings.Fields(args)...)...)
				t.Logf("kubectl %s\n%s", args, out)
			}
		}
		for _, kind := range []string{"deployments", "statefulsets", "jobs", "wgp"} {
			if _, err := n.Kubectl(context.Background(), "-n", apps, "delete", kind, "--all", "--timeout=60s"); err != nil {
				t.Error(err)
			}
		}
	})
	n.Eventually(t, "the peer to be ready", func() error {
		o, err := n.Get(t.Context(), "wireguardgateway.io/v1alpha1", "WireguardPeer", apps, "media")
		if err != nil {
			return err
		}
		return harness.HasCondition(o, "Ready", "True", "")
	})
	t.Logf("the peer was ready %v after it was applied", time.Since(start).Round(time.Millisecond))
	g.waitReady()
	gatewayPod := g.waitPod()
	seen := watchCallers(t, n)

	apply := func(what, text string) {
		t.Helper()
		start := time.Now()
		n.Eventually(t, what+" to be applied", func() error { return n.ApplyYAML(t.Context(), text) })
		t.Logf("%s applied after %v", what, time.Since(start).Round(time.Millisecond))
	}
	kubectl := func(args string) {
		t.Helper()
		start := time.Now()
		if _, err := n.Kubectl(t.Context(), append([]string{"-n", apps}, strings.Fields(args)...)...); err != nil {
			t.Fatal(err)
		}
		t.Logf("kubectl %s took %v", args, time.Since(start).Round(time.Millisecond))
	}
	apply("Deployment", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: app, namespace: "+apps+"}\nspec:\n  replicas: 2\n  selector: {matchLabels: {app: call}}\n  template:"+podTemplate("call"))
	kubectl("rollout status deployment/app --timeout=120s")
	pods, err := podsOf(t.Context(), n, apps, client.MatchingLabels{"app": "call"})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		if p.Spec.InitContainers[0].Name != "wireguard" {
			t.Errorf("the first container of %s is %s", p.Name, p.Spec.InitContainers[0].Name)
		}
	}
	apply("StatefulSet", "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: app, namespace: "+apps+"}\nspec:\n  replicas: 1\n  serviceName: app\n  selector: {matchLabels: {app: call}}\n  template:"+podTemplate("call"))
	kubectl("rollout status statefulset/app --timeout=120s")
	apply("Job", "apiVersion: batch/v1\nkind: Job\nmetadata: {name: app, namespace: "+apps+"}\nspec:\n  template:"+strings.Replace(podTemplate("once"), "    spec:\n", "    spec:\n      restartPolicy: Never\n", 1))
	kubectl("wait --for=condition=Complete job/app --timeout=120s")
	kubectl("scale deployment/app --replicas=20")
	kubectl("rollout status deployment/app --timeout=180s")
	kubectl("rollout restart deployment/app")
	kubectl("rollout status deployment/app --timeout=300s")
	kubectl("scale deployment/app --replicas=2")
	seen.check(t, gatewayPod)

	t.Run("outside", func(t *testing.T) {
		_, err := n.Kubectl(t.Context(), "-n", apps, "run", "stranger", "--image", node.ImageProgram, "--labels", "wireguardgateway.io/peer=unknown")
		if err == nil {
			t.Error("a pod of an unknown peer was let in")
		}
		t.Logf("refused: %v", err)
	})
	t.Run("sidecar killed", func(t *testing.T) {
		n.Eventually(t, "two pods", func() error {
			pods, err = podsOf(t.Context(), n, apps, client.MatchingLabels{"app": "call"})
			if err == nil && len(pods) != 3 {
				return fmt.Errorf("there are %d", len(pods))
			}
			return err
		})
		start := time.Now()
		for _, p := range pods {
			pids, err := n.Processes(&p, "wireguard")
			for _, pid := range pids {
				err = errors.Join(err, unix.Kill(pid, unix.SIGKILL))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, p := range pods {
			n.Eventually(t, p.Name+" to be ready again", func() error {
				if err := n.Client.Get(t.Context(), client.ObjectKeyFromObject(&p), &p); err != nil {
					return err
				}
				if s := p.Status.InitContainerStatuses[0]; s.RestartCount != 1 || !s.Ready {
					return fmt.Errorf("restarted %d times, ready %v", s.RestartCount, s.Ready)
				}
				return nil
			})
		}
		t.Logf("all sidecars were ready again after %v", time.Since(start).Round(time.Millisecond))
		time.Sleep(3 * time.Second)
		for _, p := range pods {
			out, err := n.Kubectl(t.Context(), "-n", apps, "logs", p.Name, "-c", "app")
			t.Logf("%s says: %v\n%s", p.Name, err, out)
		}
		seen.check(t, gatewayPod)
	})
}
