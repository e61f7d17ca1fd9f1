package node

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	node "github.com/wireguardgateway/function-wireguard-gateway/test/node/harness"
)

// TestLeastPrivilege looks at the agent's process while it forwards packets.
func TestLeastPrivilege(t *testing.T) {
	n := shared(t)
	g, _ := connected(t, n, `{}`)
	pod := g.waitPod()
	if len(pod.Spec.InitContainers) > 0 {
		t.Errorf("there is an init container: %s", pod.Spec.InitContainers[0].Name)
	}
	pids, err := n.Processes(pod, "agent")
	if err != nil || len(pids) != 1 {
		t.Fatalf("processes %v: %v", pids, err)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pids[0]))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for line := range strings.Lines(string(status)) {
		if k, v, ok := strings.Cut(line, ":"); ok {
			got[k] = strings.Join(strings.Fields(v), " ")
		}
	}
	const netAdmin = "0000000000001000"
	for k, want := range map[string]string{
		"Uid": "0 0 0 0", "CapEff": netAdmin, "CapPrm": netAdmin, "CapBnd": netAdmin, "CapInh": "0000000000000000", "CapAmb": "0000000000000000",
		"NoNewPrivs": "1", "Seccomp": "2",
	} {
		if got[k] != want {
			t.Errorf("%s is %s, want %s", k, got[k], want)
		}
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mounts", pids[0]))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/", "/proc/sys", "/etc/wireguard-gateway"} {
		if !mountedReadOnly(string(mounts), path) {
			t.Errorf("%s is writable:\n%s", path, mounts)
		}
	}
}

func mountedReadOnly(mounts, path string) bool {
	for line := range strings.Lines(mounts) {
		if f := strings.Fields(line); f[1] == path {
			return strings.HasPrefix(f[3], "ro")
		}
	}
	return false
}

// TestPodSecurity has gateways in namespaces that do not admit them, which say
// why. They come to be when they are admitted.
func TestPodSecurity(t *testing.T) {
	n := shared(t)
	for _, level := range []string{"baseline", "restricted"} {
		t.Run(level, func(t *testing.T) {
			g := newGateway(t, n, newNamespace(t, n, level), `peers: [{name: laptop}]`)
			g.apply()
			// The first failure, which a ReplicaSet keeps, may be that there was no service
			// account yet.
			message := g.waitCondition("WorkloadReady", "False", "FailedCreate")
			t.Log(message)
			if !strings.Contains(message, "pod-security.kubernetes.io/enforce=privileged") {
				t.Errorf("the message does not name the way out: %s", message)
			}
			ns := &corev1.Namespace{}
			ns.Name = g.namespace
			if err := n.MergePatch(t.Context(), ns, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"privileged"}}}`); err != nil {
				t.Fatal(err)
			}
			g.waitReady()
		})
	}
}

// TestIPv6 has a pool of either family. The privileged init container switches
// on forwarding.
func TestIPv6(t *testing.T) {
	n := shared(t)
	g, c := connected(t, n, `{peerCIDR: 10.8.0.0/24, peerCIDRv6: "fd00:8::/64"}`)
	waitReply(t, c, node.Site6)
	checkForwarding(t, g, true)
}

// checkForwarding looks at how a pod came to forward IPv6.
func checkForwarding(t *testing.T, g *gateway, initContainer bool) {
	t.Helper()
	pod := g.waitPod()
	if got := len(pod.Spec.InitContainers) == 1; got != initContainer {
		t.Errorf("there are %d init containers", len(pod.Spec.InitContainers))
	}
	for _, s := range pod.Status.InitContainerStatuses {
		if s.State.Terminated == nil || s.State.Terminated.ExitCode != 0 {
			t.Errorf("init container %s: %v", s.Name, s.State)
		}
	}
}

// TestPodSysctl sets forwarding by the pod's own sysctls, first where the
// kubelet does not allow it, and then where it does.
func TestPodSysctl(t *testing.T) {
	n := shared(t)
	const spec = `{peerCIDR: 10.8.0.0/24, peerCIDRv6: "fd00:8::/64", ipForwarding: PodSysctl}`
	t.Run("forbidden", func(t *testing.T) {
		g := newGateway(t, n, newNamespace(t, n, "privileged"), spec)
		g.addPeer("laptop")
		g.apply()
		n.Eventually(t, "the kubelet to refuse", func() error {
			out, err := n.Kubectl(t.Context(), "-n", g.namespace, "get", "pods", "-o", `jsonpath={range .items[*]}{.status.phase} {.status.reason} {.status.message}{"\n"}{end}`)
			if err == nil && !strings.Contains(out, "SysctlForbidden") {
				return fmt.Errorf("pods: %s", out)
			}
			return err
		})
		time.Sleep(5 * time.Second) // for what is refused to be made again
		message, err := n.Kubectl(t.Context(), "-n", g.namespace, "get", "pods", "--no-headers")
		t.Logf("pods: %v\n%s", err, message)
		t.Logf("WorkloadReady: %s", g.waitCondition("WorkloadReady", "False", ""))
	})
	t.Run("allowed", func(t *testing.T) {
		if err := n.RestartKubelet(`allowedUnsafeSysctls: [net.ipv4.ip_forward, net.ipv6.conf.all.forwarding]`); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := n.RestartKubelet(); err != nil {
				t.Error(err)
			}
		})
		g, c := connected(t, n, spec)
		waitReply(t, c, node.Site6)
		checkForwarding(t, g, false)
	})
}
