package controlplane

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/test/controlplane/harness"
)

// upstream is the registry that packages are released to.
const upstream = "xpkg.crossplane.io"

// release is the version that the README and the examples name.
const release = "v0.1.0"

// TestInstall installs both configurations one after the other, as users do:
// from packages in a registry, with the README's own commands. The package
// runtime is played: there is no kubelet to run the function's pod.
func TestInstall(t *testing.T) {
	t.Parallel()
	if out, err := exec.CommandContext(t.Context(), "../../tools/packages.sh").CombinedOutput(); err != nil {
		t.Fatalf("cannot build packages: %s", out)
	}
	c := harness.Start(t, harness.Options{})
	if err := c.Play(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.ServeRegistry(t.Context(), upstream); err != nil {
		t.Fatal(err)
	}
	packages := filepath.Join(c.Root, "_output", "packages")
	function := "wireguardgateway/function-wireguard-gateway"
	push(t, c, function, filepath.Join(packages, "function-wireguard-gateway-amd64.xpkg"), filepath.Join(packages, "function-wireguard-gateway-arm64.xpkg"))
	for _, name := range []string{"configuration-wireguard-gateway", "configuration-wireguard-gateway-claim"} {
		push(t, c, "wireguardgateway/"+name, filepath.Join(packages, name+".xpkg"))
	}

	t.Run("readme", func(t *testing.T) { testReadme(t, c) })
	if t.Failed() {
		return
	}
	t.Run("claim", func(t *testing.T) { testClaim(t, c) })
	if t.Failed() {
		return
	}
	t.Run("claimed peer", func(t *testing.T) { testPeerClaim(t, c) })
}

func push(t *testing.T, c *harness.Cluster, repository string, files ...string) {
	t.Helper()
	mustRun(t, c, "crossplane", "xpkg", "push", "--package-files", strings.Join(files, ","), harness.Registry+"/"+repository+":"+release)
}

func mustRun(t *testing.T, c *harness.Cluster, name string, args ...string) string {
	t.Helper()
	out, err := c.Output(c.Command(t.Context(), name, args...))
	if err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return out
}

// readmeCommands returns the lines of the README that call kubectl, in their
// order.
func readmeCommands(t *testing.T, c *harness.Cluster) []string {
	t.Helper()
	f, err := os.Open(filepath.Join(c.Root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var out []string
	for s := bufio.NewScanner(f); s.Scan(); {
		if strings.HasPrefix(s.Text(), "kubectl ") {
			out = append(out, s.Text())
		}
	}
	return out
}

// testReadme runs the README's commands as they stand. One that comes too early
// for what the one before it has started is repeated, as a user would.
func testReadme(t *testing.T, c *harness.Cluster) {
	t.Helper()
	start := time.Now()
	stop := playPackageRuntime(t, c)
	for _, command := range readmeCommands(t, c) {
		var out string
		c.Eventually(t, command, func() (err error) {
			out, err = c.Output(c.Command(t.Context(), "bash", "-c", command))
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
		t.Logf("$ %s\n%s", command, redact(out))
		if strings.Contains(command, "direct.conf") && !strings.Contains(out, "[Interface]") {
			t.Errorf("%s prints no configuration", command)
		}
	}
	stop()
	g := &gateway{t: t, c: c, kind: "WireguardGateway", namespace: "vpn", name: "home"}
	g.waitReady()
	t.Logf("from nothing to a gateway that is ready in %v", time.Since(start).Round(time.Second))
	if out := mustRun(t, c, "kubectl", "explain", "wireguardgateway.spec"); !strings.Contains(out, "peers") {
		t.Errorf("kubectl explain says: %s", out)
	}

	checkLifecycle(t, g, wantKeys([]string{"laptop", "phone"}))
	mustRun(t, c, "kubectl", "delete", "configuration", "wireguard-gateway")
	c.Eventually(t, "the definition to go", func() error {
		_, err := c.Get(t.Context(), "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "wireguardgateways.wireguardgateway.io")
		return gone(err)
	})
}

// redact hides keys: what a test prints may be kept.
func redact(out string) string {
	var lines []string
	for line := range strings.Lines(out) {
		if name, _, ok := strings.Cut(line, "="); ok && strings.Contains(name, "Key") && !strings.Contains(name, "Public") {
			line = name + "= ...\n"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "")
}

// playPackageRuntime runs the function of the first revision that appears.
func playPackageRuntime(t *testing.T, c *harness.Cluster) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		for {
			revision, err := functionRevision(ctx, c)
			if err == nil {
				done <- c.RunPackagedFunction(ctx, revision)
				return
			}
			select {
			case <-ctx.Done():
				done <- err
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	return func() {
		defer cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func functionRevision(ctx context.Context, c *harness.Cluster) (*unstructured.Unstructured, error) {
	l := &unstructured.UnstructuredList{}
	l.SetAPIVersion("pkg.crossplane.io/v1")
	l.SetKind("FunctionRevisionList")
	if err := c.Client.List(ctx, l); err != nil {
		return nil, err
	}
	if len(l.Items) == 0 {
		return nil, errors.New("there is no revision of the function yet")
	}
	return &l.Items[0], nil
}

// testClaim installs the other configuration, and takes a claim through its
// life.
func testClaim(t *testing.T, c *harness.Cluster) {
	t.Helper()
	if err := c.ApplyYAML(t.Context(), fmt.Sprintf(`apiVersion: pkg.crossplane.io/v1
kind: Configuration
metadata: {name: wireguard-gateway-claim}
spec: {package: %s/wireguardgateway/configuration-wireguard-gateway-claim:%s}
`, upstream, release)); err != nil {
		t.Fatal(err)
	}
	c.Eventually(t, "the claim to be offered", func() error {
		o, err := c.Get(t.Context(), "apiextensions.crossplane.io/v1", "CompositeResourceDefinition", "", "xwireguardgateways.wireguardgateway.io")
		if err != nil {
			return err
		}
		return harness.HasCondition(o, "Offered", "True", "")
	})
	checkSchema(t, c, clientApply)
	checkDefinition(t, c, "xwireguardgateways.wireguardgateway.io")

	g := newGateway(t, c, example(t, c, "full"))
	checkLifecycle(t, g, fullKeys)

	g = newGateway(t, c, example(t, c, "minimal"))
	g.waitReady()
	claim := g.status()
	if claim.PublicKey == "" || len(claim.Peers) != 2 || claim.Peers[0].Namespace != g.namespace {
		t.Errorf("the claim's status is %+v", claim)
	}
	if conf := string(g.secret("home-wireguard.peer.laptop")[names.DataInternal]); !strings.Contains(conf, "home-wireguard."+g.namespace+".svc.") {
		t.Errorf("internal.conf does not name the claim's Service:\n%s", redact(conf))
	}
}
