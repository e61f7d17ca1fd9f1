package node

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wireguardgateway/function-wireguard-gateway/test/controlplane/harness"
	node "github.com/wireguardgateway/function-wireguard-gateway/test/node/harness"
)

// onPlatform has a gateway use the platform's Composition. All others use the one
// that is released, and names no DNS to clients, who would need resolvconf for it.
const onPlatform = `crossplane: {compositionRef: {name: platform-wireguardgateways.wireguardgateway.io}}`

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
// the tunnel. They open connections to the site as the mode says.
func podTemplate(app, mode string) string {
	return fmt.Sprintf(`
    metadata: {labels: {app: %[1]s, calls: site, wireguardgateway.io/peer: media}}
    spec:
      terminationGracePeriodSeconds: 1
      initContainers:
        - {name: first, image: %[3]s, args: [once, "%[4]s"]}
      containers:
        - {name: app, image: %[3]s, args: [%[2]s, "%[4]s"]}
`, app, mode, node.ImageProgram, node.Site4+":"+node.EchoPort)
}

// workload is a Deployment or a StatefulSet of pods that join.
func workload(kind, namespace, name string, replicas int) string {
	label := strings.ToLower(kind)
	service := ""
	if kind == "StatefulSet" {
		service = "\n  serviceName: " + name
	}
	return fmt.Sprintf(`apiVersion: apps/v1
kind: %s
metadata: {name: %s, namespace: %s}
spec:
  replicas: %d
  selector: {matchLabels: {app: %s}}%s
  template:%s`, kind, name, namespace, replicas, label, service, podTemplate(label, "call"))
}

// newJoinable makes a gateway, and a namespace whose pods join it by the label of
// the peer media.
func newJoinable(t *testing.T, n *node.Node) (g *gateway, apps string) {
	t.Helper()
	if _, err := n.Kubectl(t.Context(), "apply", "--server-side", "-f", "package/cluster/injection.yaml"); err != nil {
		t.Fatal(err)
	}
	platform(t, n)
	apps = newNamespace(t, n, "privileged")
	g = newGateway(t, n, newNamespace(t, n, "privileged"), onPlatform+"\nallowedPeerNamespaces: {from: Names, names: ["+apps+"]}")
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
			for _, args := range []string{"get pods -o wide", "get wgp -o yaml", "logs -l wireguardgateway.io/peer=media -c wireguard --tail 20", "logs -l calls=site -c app --tail 20", "get events --sort-by=.lastTimestamp"} {
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
	return g, apps
}
