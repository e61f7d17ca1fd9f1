package node

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"sigs.k8s.io/controller-runtime/pkg/client"

	node "github.com/wireguardgateway/function-wireguard-gateway/test/node/harness"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// TestInjection has pods of workloads join a gateway by a label.
func TestInjection(t *testing.T) {
	n := shared(t)
	g, apps := newJoinable(t, n)
	gatewayPod := g.waitPod()
	seen := watchCallers(t, n)

	apply := func(text string) {
		t.Helper()
		start := time.Now()
		n.Eventually(t, "admission", func() error { return n.ApplyYAML(t.Context(), text) })
		t.Logf("applied after %v", time.Since(start).Round(time.Millisecond))
	}
	kubectl := func(args string) {
		t.Helper()
		start := time.Now()
		if _, err := n.Kubectl(t.Context(), append([]string{"-n", apps}, strings.Fields(args)...)...); err != nil {
			t.Fatal(err)
		}
		t.Logf("kubectl %s took %v", args, time.Since(start).Round(time.Millisecond))
	}
	apply(workload("Deployment", apps, "app", 2))
	kubectl("rollout status deployment/app --timeout=120s")
	pods, err := podsOf(t.Context(), n, apps, client.MatchingLabels{"calls": "site"})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range pods {
		if p.Spec.InitContainers[0].Name != wireguard.Sidecar {
			t.Errorf("the first container of %s is %s", p.Name, p.Spec.InitContainers[0].Name)
		}
	}
	apply(workload("StatefulSet", apps, "app", 1))
	kubectl("rollout status statefulset/app --timeout=120s")
	apply("apiVersion: batch/v1\nkind: Job\nmetadata: {name: app, namespace: " + apps + "}\nspec:\n  template:" + podTemplate("job", "once") + "      restartPolicy: Never\n")
	kubectl("wait --for=condition=Complete job/app --timeout=120s")
	kubectl("delete job/app")
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
		n.Eventually(t, "the pods that stay", func() error {
			pods, err = podsOf(t.Context(), n, apps, client.MatchingLabels{"calls": "site"})
			if err == nil && len(pods) != 3 {
				return fmt.Errorf("there are %d", len(pods))
			}
			return err
		})
		start := time.Now()
		for _, p := range pods {
			if err := kill(n, &p, unix.SIGKILL, wireguard.Sidecar); err != nil {
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
