package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/test/controlplane/harness"
	node "github.com/wireguardgateway/function-wireguard-gateway/test/node/harness"
)

// gateway is one in a namespace of its own.
type gateway struct {
	t         *testing.T
	n         *node.Node
	namespace string
	spec      map[string]any
}

// gatewayName is that of every gateway.
const gatewayName = "home"

// namespaces counts those that tests have made.
var namespaces int

// newNamespace makes a namespace of the test that admits pods of a Pod Security
// level.
func newNamespace(t *testing.T, n *node.Node, level string) string {
	t.Helper()
	namespaces++
	name := fmt.Sprintf("%s-%d", strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name())), namespaces)
	ns := &corev1.Namespace{}
	ns.Name, ns.Labels = name, map[string]string{"pod-security.kubernetes.io/enforce": level}
	if err := n.Client.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	return name
}

// newGateway prepares a gateway, which apply creates. It is gone when the test
// ends.
func newGateway(t *testing.T, n *node.Node, namespace, spec string) *gateway {
	t.Helper()
	g := &gateway{t: t, n: n, namespace: namespace, spec: map[string]any{}}
	if err := yaml.Unmarshal([]byte(spec), &g.spec); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		o := g.object()
		if t.Failed() {
			out, _ := n.Kubectl(context.Background(), "-n", namespace, "get", "wgw", "-o", "jsonpath={range .items[*].status.conditions[*]}{.type}={.status} {.reason}: {.message}{\"\\n\"}{end}")
			t.Logf("conditions:\n%s", out)
			if out, err := n.Kubectl(context.Background(), "-n", namespace, "logs", "-l", "app.kubernetes.io/name=wireguard-gateway", "-c", "agent", "--tail", "30"); err == nil {
				t.Logf("the agent says:\n%s", out)
			}
		}
		if err := n.Client.Delete(context.Background(), o); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
		n.Eventually(t, "the gateway to go", func() error {
			if err := n.Client.Get(context.Background(), client.ObjectKeyFromObject(o), o); err == nil {
				return errors.New("it is still there")
			}
			pods := &corev1.PodList{}
			if err := n.Client.List(context.Background(), pods, client.InNamespace(namespace)); err != nil {
				return err
			}
			if len(pods.Items) > 0 {
				return fmt.Errorf("pod %s is still there", pods.Items[0].Name)
			}
			return nil
		})
	})
	return g
}

func (g *gateway) object() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "wireguardgateway.io/v1alpha1", "kind": "WireguardGateway",
		"metadata": map[string]any{"namespace": g.namespace, "name": gatewayName},
		"spec":     maps.Clone(g.spec),
	}}
}

func (g *gateway) apply() time.Time {
	g.t.Helper()
	start := time.Now()
	if err := g.n.Apply(g.t.Context(), g.object()); err != nil {
		g.t.Fatal(err)
	}
	return start
}

// addPeer adds one to what is applied next.
func (g *gateway) addPeer(name string) {
	peers, _ := g.spec["peers"].([]any)
	g.spec["peers"] = append(peers, map[string]any{"name": name})
}

// removePeer removes one from what is applied next.
func (g *gateway) removePeer(name string) {
	peers, _ := g.spec["peers"].([]any)
	g.spec["peers"] = slices.DeleteFunc(peers, func(p any) bool { return p.(map[string]any)["name"] == name })
}

func (g *gateway) status() v1alpha1.WireguardGatewayStatus {
	g.t.Helper()
	o, err := g.n.Get(g.t.Context(), "wireguardgateway.io/v1alpha1", "WireguardGateway", g.namespace, gatewayName)
	if err != nil {
		g.t.Fatal(err)
	}
	in := v1alpha1.WireguardGateway{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, &in); err != nil {
		g.t.Fatal(err)
	}
	return in.Status
}

// waitCondition waits for a condition, and returns its message.
func (g *gateway) waitCondition(kind, status, reason string) string {
	g.t.Helper()
	var message string
	g.n.Eventually(g.t, kind+"="+status+" "+reason, func() error {
		o, err := g.n.Get(g.t.Context(), "wireguardgateway.io/v1alpha1", "WireguardGateway", g.namespace, gatewayName)
		if err != nil {
			return err
		}
		message = fmt.Sprint(harness.Condition(o, kind)["message"])
		return harness.HasCondition(o, kind, status, reason)
	})
	return message
}

func (g *gateway) waitReady() { g.t.Helper(); g.waitCondition("Ready", "True", "") }

// conf waits for a peer's configuration.
func (g *gateway) conf(peer string) string {
	g.t.Helper()
	s := &corev1.Secret{}
	g.n.Eventually(g.t, "the configuration of "+peer, func() error {
		if err := g.n.Client.Get(g.t.Context(), client.ObjectKey{Namespace: g.namespace, Name: names.Peer(gatewayName, peer)}, s); err != nil {
			return err
		}
		if len(s.Data[names.DataDirect]) == 0 {
			return errors.New("there is none yet")
		}
		return nil
	})
	return string(s.Data[names.DataDirect])
}

// pod returns the one pod that is not about to go.
func (g *gateway) pod(ctx context.Context) (*corev1.Pod, error) {
	pods := &corev1.PodList{}
	if err := g.n.Client.List(ctx, pods, client.InNamespace(g.namespace), client.MatchingLabels(names.Selector(gatewayName))); err != nil {
		return nil, err
	}
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodFailed {
			return &p, nil
		}
	}
	return nil, errors.New("there is no pod")
}

// podReady holds that it is ready.
func (g *gateway) podReady(ctx context.Context) error {
	p, err := g.pod(ctx)
	if err != nil {
		return err
	}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return nil
		}
	}
	return fmt.Errorf("%s is not ready: %s", p.Name, p.Status.Phase)
}

func (g *gateway) waitPod() *corev1.Pod {
	g.t.Helper()
	g.n.Eventually(g.t, "the pod to be ready", func() error { return g.podReady(g.t.Context()) })
	p, err := g.pod(g.t.Context())
	if err != nil {
		g.t.Fatal(err)
	}
	return p
}

// identity is what must never change by itself.
func (g *gateway) identity() map[string]string {
	g.t.Helper()
	s := g.status()
	out := map[string]string{"public key": s.PublicKey, "addresses": fmt.Sprint(s.Addresses), "endpoints": fmt.Sprint(s.Endpoints)}
	for _, p := range s.Peers {
		out["peer "+p.Name] = fmt.Sprint(p.Addresses, p.PublicKey)
		// Pods have none.
		if !p.Pods {
			out["configuration of "+p.Name] = g.conf(p.Name)
		}
	}
	return out
}
