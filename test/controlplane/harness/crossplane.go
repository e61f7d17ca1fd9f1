package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// module returns the folder of a module that another module of the repository
// requires.
func (c *Cluster) module(ctx context.Context, requiredBy, path string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", path)
	cmd.Dir = filepath.Join(c.Root, requiredBy)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("cannot find module %s: %w", path, err)
	}
	m := struct {
		Dir string `json:"Dir"`
	}{}
	err = json.Unmarshal(out, &m)
	return m.Dir, err
}

// installCrossplane does what its chart does: a namespace, accounts with just
// the chart's permissions and our role, and the definitions.
func (c *Cluster) installCrossplane(ctx context.Context) error {
	module, err := c.module(ctx, "tools/crossplane-core", "github.com/crossplane/crossplane/v2")
	if err != nil {
		return err
	}
	if err := c.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNamespace}}); err != nil {
		return err
	}
	objects, err := chartPermissions(module)
	if err != nil {
		return err
	}
	if c.options.Flavour != None {
		role, err := ReadObjects(filepath.Join(c.Root, "package", "cluster", "clusterrole.yaml"))
		if err != nil {
			return err
		}
		objects = append(objects, role...)
	}
	for _, o := range objects {
		if err := c.Apply(ctx, o); err != nil {
			return err
		}
	}
	tokens := map[string]string{}
	for _, name := range []string{"crossplane", "rbac-manager"} {
		sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: name}}
		if err := c.Client.Create(ctx, sa); err != nil {
			return err
		}
		r := &authv1.TokenRequest{Spec: authv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](24 * 3600)}}
		if err := c.Client.SubResource("token").Create(ctx, sa, r); err != nil {
			return err
		}
		tokens[name] = r.Status.Token
		if err := c.WriteKubeconfig(c.path(name+".kubeconfig"), r.Status.Token); err != nil {
			return err
		}
	}
	// Kubernetes aggregates the roles in its own time.
	if err := c.Wait(ctx, "Crossplane's permissions", func() error {
		r := &rbacv1.ClusterRole{}
		if err := c.Client.Get(ctx, client.ObjectKey{Name: "crossplane"}, r); err != nil {
			return err
		}
		if len(r.Rules) == 0 {
			return fmt.Errorf("role %s has no rules yet", r.Name)
		}
		return nil
	}); err != nil {
		return err
	}
	// As an init container it would be restarted, too: its first run may come
	// before the API server serves the definitions that it has just created.
	return c.Wait(ctx, "crossplane core init", func() error {
		out, err := c.run(ctx, append(c.coreEnv(),
			"CRDS_PATH="+filepath.Join(module, "cluster", "crds"),
			"TLS_CA_SECRET_NAME=crossplane-root-ca", "TLS_CLIENT_SECRET_NAME=crossplane-tls-client",
			"TLS_SERVER_SECRET_NAME=crossplane-tls-server",
		), filepath.Join(c.bin, "crossplane-core"), "core", "init")
		if err != nil {
			return fmt.Errorf("%w: %s", err, lastLine(out))
		}
		return nil
	})
}

func lastLine(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1]
}

// run runs a program to its end in the cluster's network.
func (c *Cluster) run(ctx context.Context, env []string, command string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Dir = c.Root
	return c.output(cmd)
}

// output starts a command in the cluster's network and returns all that it
// prints.
func (c *Cluster) output(cmd *exec.Cmd) ([]byte, error) {
	out := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := c.network.start(cmd); err != nil {
		return nil, err
	}
	err := cmd.Wait()
	return []byte(out.String()), err
}

func (c *Cluster) coreEnv() []string {
	return []string{
		"KUBECONFIG=" + c.path("crossplane.kubeconfig"),
		"POD_NAMESPACE=" + systemNamespace, "POD_SERVICE_ACCOUNT=crossplane",
		"ENABLE_WEBHOOKS=false",
	}
}

// startCrossplane starts the core and the manager of roles.
func (c *Cluster) startCrossplane(ctx context.Context) error {
	if err := c.StartCore(ctx); err != nil {
		return err
	}
	_, err := c.start("rbac", []string{"KUBECONFIG=" + c.path("rbac-manager.kubeconfig")},
		filepath.Join(c.bin, "crossplane-core"), "rbac", "start", "--provider-clusterrole", "crossplane:allowed-provider-permissions")
	return err
}

// RestartCore starts Crossplane's core anew, with other flags of its own than
// before.
func (c *Cluster) RestartCore(tb testing.TB, flags ...string) {
	tb.Helper()
	c.processes["core"].stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(tb.Context()), startTimeout)
	defer cancel()
	c.options.Core = flags
	if err := c.StartCore(ctx); err != nil {
		tb.Fatal(err)
	}
}

// StartCore starts Crossplane's core, also after it was killed.
func (c *Cluster) StartCore(ctx context.Context) error {
	for _, dir := range []string{"xpkg", "xfn"} {
		if err := os.MkdirAll(c.path("cache", dir), 0o700); err != nil {
			return err
		}
	}
	_, metrics, _ := strings.Cut(addressCoreMetrics, ":")
	_, health, _ := strings.Cut(addressCoreHealth, ":")
	p, err := c.start("core", append(c.coreEnv(),
		"LEADER_ELECTION=false", "PACKAGE_RUNTIME=External",
		"TLS_CLIENT_CERTS_DIR="+c.path("core"), "TLS_SERVER_CERTS_DIR="+c.path("core"),
		"XPKG_CACHE_DIR="+c.path("cache", "xpkg"), "XFN_CACHE_DIR="+c.path("cache", "xfn"),
		"METRICS_PORT="+metrics, "HEALTH_PROBE_PORT="+health,
	), filepath.Join(c.bin, "crossplane-core"), slices.Concat([]string{"core", "start"}, c.options.Core)...)
	if err != nil {
		return err
	}
	return c.Wait(ctx, "Crossplane", func() error {
		if p.ended() {
			return permanent{fmt.Errorf("it ended: %w", p.err)}
		}
		_, err := c.httpGet(ctx, "http://"+addressCoreHealth+"/readyz")
		return err
	})
}

// KillCore ends Crossplane's core as a crash would.
func (c *Cluster) KillCore() { c.processes["core"].kill() }

// httpGet reads a page within the cluster's network.
func (c *Cluster) httpGet(ctx context.Context, url string) (string, error) {
	return get(ctx, &http.Client{Transport: &http.Transport{DialContext: c.network.dial, DisableKeepAlives: true}}, url)
}

func get(ctx context.Context, h *http.Client, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	rsp, err := h.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = rsp.Body.Close() }()
	b, err := io.ReadAll(rsp.Body)
	if err == nil && rsp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, rsp.Status)
	}
	return string(b), err
}

// installDefinitions installs kinds of others that gateways use.
func (c *Cluster) installDefinitions(ctx context.Context) error {
	gatewayAPI, err := c.module(ctx, ".", "sigs.k8s.io/gateway-api")
	if err != nil {
		return err
	}
	for _, path := range []string{
		filepath.Join(gatewayAPI, "config", "crd", "standard"),
		filepath.Join(c.Root, "test", "controlplane", "harness", "testdata", "podmonitor.yaml"),
	} {
		objects, err := ReadObjects(path)
		if err != nil {
			return err
		}
		for _, o := range objects {
			if err := c.Apply(ctx, o); err != nil {
				return err
			}
		}
	}
	return nil
}
