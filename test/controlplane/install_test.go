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

// commandsIn returns the lines of a document that call kubectl, in their order.
func commandsIn(t *testing.T, c *harness.Cluster, document string) []string {
	t.Helper()
	f, err := os.Open(filepath.Join(c.Root, document))
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

// follow runs a document's commands as they stand, in a folder with what they
// name. They may come too early once: a kind that was defined is not served yet.
func follow(t *testing.T, c *harness.Cluster, document string) {
	t.Helper()
	commands := commandsIn(t, c, document)
	if len(commands) == 0 {
		t.Fatalf("%s has no commands", document)
	}
	dir := t.TempDir()
	for _, folder := range []string{"example", "package"} {
		if err := os.Symlink(filepath.Join(c.Root, folder), filepath.Join(dir, folder)); err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range commands {
		var out string
		c.Eventually(t, command, func() (err error) {
			cmd := c.Command(t.Context(), "bash", "-c", "set -o pipefail; "+command)
			cmd.Dir = dir
			if out, err = c.Output(cmd); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
		t.Logf("$ %s\n%s", command, redact(out))
		if strings.Contains(command, "direct.conf") && !strings.Contains(out, "[Interface]") {
			t.Errorf("%s prints no configuration", command)
		}
	}
}

// testReadme does what the README says.
func testReadme(t *testing.T, c *harness.Cluster) {
	t.Helper()
	start := time.Now()
	stop := playPackageRuntime(t, c)
	follow(t, c, "README.md")
	stop()
	g := &gateway{t: t, c: c, kind: "WireguardGateway", namespace: "vpn", name: "home"}
	g.waitReady()
	t.Logf("from nothing to a gateway that is ready in %v", time.Since(start).Round(time.Second))
	if out := mustRun(t, c, "kubectl", "explain", "wireguardgateway.spec"); !strings.Contains(out, "peers") {
		t.Errorf("kubectl explain says: %s", out)
	}

	t.Run("docs", func(t *testing.T) { testDocs(t, c) })
	checkLifecycle(t, g, wantKeys([]string{"laptop", "phone"}))
	mustRun(t, c, "kubectl", "delete", "configuration", "wireguard-gateway")
	c.Eventually(t, "the definition to go", func() error {
		_, err := c.Get(t.Context(), "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", "wireguardgateways.wireguardgateway.io")
		return gone(err)
	})
}

// testDocs does what the documents say to whoever has followed the README, and
// takes away again what came of it.
func testDocs(t *testing.T, c *harness.Cluster) {
	t.Helper()
	for _, document := range []string{"docs/keys.md", "docs/egress.md", "docs/peers.md"} {
		follow(t, c, document)
	}
	// Another document has it, too.
	mustRun(t, c, "kubectl", "-n", "vpn", "delete", "secret", "proton")
	follow(t, c, "docs/pods.md")
	mustRun(t, c, "kubectl", "-n", "vpn", "delete", "secret", "proton", "home-seed")
	mustRun(t, c, "kubectl", "-n", "media", "delete", "deployment,wireguardpeer", "media")
	mustRun(t, c, "kubectl", "-n", "apps", "delete", "wireguardpeer", "media")
	mustRun(t, c, "kubectl", "apply", "-f", "example/minimal/xr.yaml")
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
