package node

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/test/controlplane/harness"
	node "github.com/wireguardgateway/function-wireguard-gateway/test/node/harness"
)

const (
	// upstream is the registry that packages are released to.
	upstream = "xpkg.crossplane.io"
	// release is the version that the README and the examples name.
	release    = "v0.1.0"
	agentImage = "ghcr.io/wireguardgateway/agent:" + release
)

// publish puts packages and images where users find them. Crossplane and the
// node take them from a mirror.
func publish(ctx context.Context, n *node.Node) error {
	cmd := exec.CommandContext(ctx, filepath.Join(n.Root, "tools", "packages.sh"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build packages: %w: %s", err, out)
	}
	packages := filepath.Join(n.Root, "_output", "packages")
	for repository, files := range map[string][]string{
		"function-wireguard-gateway":            {"function-wireguard-gateway-amd64.xpkg", "function-wireguard-gateway-arm64.xpkg"},
		"configuration-wireguard-gateway":       {"configuration-wireguard-gateway.xpkg"},
		"configuration-wireguard-gateway-claim": {"configuration-wireguard-gateway-claim.xpkg"},
	} {
		for i := range files {
			files[i] = filepath.Join(packages, files[i])
		}
		if _, err := n.Output(n.Command(ctx, "crossplane", "xpkg", "push", "--package-files", strings.Join(files, ","),
			node.Registry+"/wireguardgateway/"+repository+":"+release)); err != nil {
			return err
		}
	}
	if err := n.PushTarball(ctx, agentImage, filepath.Join(packages, "agent-amd64.tar")); err != nil {
		return err
	}
	return n.ApplyYAML(ctx, fmt.Sprintf(`apiVersion: pkg.crossplane.io/v1beta1
kind: ImageConfig
metadata: {name: mirror}
spec:
  matchImages: [{type: Prefix, prefix: %s}]
  rewriteImage: {prefix: %s}
`, upstream, node.Registry))
}

// install does what the README says, until the kind is served and the function
// runs.
func install(ctx context.Context, n *node.Node) error {
	for _, file := range []string{"package/cluster/clusterrole.yaml", "example/install/configuration.yaml"} {
		if _, err := n.Kubectl(ctx, "apply", "-f", file); err != nil {
			return err
		}
	}
	return n.Wait(ctx, "the installation", func() error {
		for _, o := range []struct{ apiVersion, kind, name, condition string }{
			{"pkg.crossplane.io/v1", "Configuration", "wireguard-gateway", "Healthy"},
			{"pkg.crossplane.io/v1", "Function", harness.FunctionName, "Healthy"},
			{"apiextensions.crossplane.io/v2", "CompositeResourceDefinition", "wireguardgateways.wireguardgateway.io", "Established"},
		} {
			got, err := n.Get(ctx, o.apiVersion, o.kind, "", o.name)
			if err != nil {
				return err
			}
			if err := harness.HasCondition(got, o.condition, "True", ""); err != nil {
				return err
			}
		}
		return nil
	})
}

// firstTraffic applies a gateway, and brings up one client as soon as it is
// ready, and another one a little later, as fast as a person can.
func firstTraffic(t *testing.T, n *node.Node, g *gateway) {
	t.Helper()
	var clients []*node.Client
	for _, name := range []string{"laptop", "phone"} {
		g.addPeer(name)
		c, err := n.NewClient(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, c)
	}
	start := g.apply()
	conf := g.conf("laptop")
	written := time.Since(start)
	g.waitPod()
	running := time.Since(start)
	g.waitReady()
	ready := time.Since(start)
	if err := clients[0].Up(t.Context(), conf); err != nil {
		t.Fatal(err)
	}
	up := time.Since(start)
	reply := waitReply(t, clients[0], node.Site4).Sub(start)
	t.Logf("from apply: configuration after %v, pod ready after %v, gateway ready after %v, client up after %v, first reply after %v",
		written, running, ready, up, reply)

	time.Sleep(time.Until(start.Add(ready + 2*time.Second)))
	later := time.Now()
	if err := clients[1].Up(t.Context(), g.conf("phone")); err != nil {
		t.Fatal(err)
	}
	up = time.Since(later)
	t.Logf("a client that is brought up two seconds after that: up after %v, first reply after %v", up, waitReply(t, clients[1], node.Site4).Sub(later))
}

// TestFirstTraffic is a user's first minute: a gateway is applied, and a client
// with its configuration as it is reaches a host behind the cluster.
func TestFirstTraffic(t *testing.T) {
	n := shared(t)
	firstTraffic(t, n, newGateway(t, n, newNamespace(t, n, "privileged"), `{}`))
}
