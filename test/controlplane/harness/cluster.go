// Package harness runs a real control plane for tests: etcd, kube-apiserver,
// kube-controller-manager and Crossplane as plain processes in a network
// namespace of their own, and the function beside them. There is no kubelet: what
// a kubelet, a load balancer or a Gateway would do, tests play.
//
// It needs root and what tools/build.sh builds.
package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// RequiredVariable is an environment variable. Without it, tests that take
// minutes on a control plane say that they do not run.
const RequiredVariable = "WIREGUARD_GATEWAY_CONTROLPLANE"

// Flavour is what a cluster offers to its users.
type Flavour string

// The flavours exclude each other in one cluster.
const (
	// None installs Crossplane and nothing of ours.
	None Flavour = ""
	// Namespaced has composite resources that live in namespaces.
	Namespaced Flavour = "configuration"
	// Claim has cluster-scoped composite resources, which users claim.
	Claim Flavour = "configuration-claim"
)

// Options say what to start.
type Options struct {
	Flavour Flavour
	// Core are further flags of Crossplane.
	Core []string
	// Bare is a Kubernetes without Crossplane, and without controllers.
	Bare bool
}

// Cluster is a control plane that runs.
type Cluster struct {
	// Client may do anything.
	Client client.Client
	// Config is the client's. Its connections are made within the cluster's
	// network.
	Config *rest.Config
	// Kubeconfig is a file with the same rights, for processes that Command starts.
	Kubeconfig string
	// Dir has logs, certificates and data. It is removed in the end.
	Dir string
	// Root is the repository.
	Root string

	options   Options
	network   *network
	processes map[string]*process
	authority *authority
	audit     *Audit

	apiserverArgs []string
	function      string // the program
	bin           string
}

// Addresses within the cluster's network, where nothing else is.
const (
	addressAPIServer   = "127.0.0.1:6443"
	addressFunction    = "127.0.0.1:9443"
	addressCoreMetrics = "127.0.0.1:8082"
	addressCoreHealth  = "127.0.0.1:8081"
	addressEtcd        = "http://127.0.0.1:2379"

	// ServiceAPIServer is the address of the Service of the API server.
	ServiceAPIServer = "10.96.0.1"
)

// startTimeout bounds the start of one component, on a machine that is busy.
const startTimeout = 3 * time.Minute

// Start starts a cluster that ends with the test. Where it cannot run, the test
// is skipped.
func Start(tb testing.TB, o Options) *Cluster {
	tb.Helper()
	if err := Runnable(); err != nil {
		tb.Skip(err)
	}
	c, err := Run(o)
	tb.Cleanup(func() {
		if tb.Failed() {
			c.DumpLogs(tb)
		}
		c.Stop()
	})
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// Runnable says why a cluster cannot run here.
func Runnable() error {
	if os.Getuid() != 0 {
		return errors.New("a control plane needs root, for a network namespace")
	}
	root, err := repository()
	if err != nil {
		return err
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-controller-manager", "crossplane-core"} {
		if _, err := os.Stat(filepath.Join(root, "_output", "bin", name)); err != nil {
			return fmt.Errorf("a control plane needs %s: run tools/build.sh %[1]s", name)
		}
	}
	return nil
}

// Run starts a cluster. It has to be stopped, also where it did not start.
func Run(o Options) (*Cluster, error) {
	c := &Cluster{options: o, processes: map[string]*process{}}
	var err error
	if c.Root, err = repository(); err != nil {
		return c, err
	}
	c.bin = filepath.Join(c.Root, "_output", "bin")
	if c.Dir, err = os.MkdirTemp("", "control-plane-"); err != nil {
		return c, err
	}
	if c.network, err = newNetwork(); err != nil {
		return c, err
	}
	steps := []struct {
		name string
		run  func(context.Context) error
	}{
		{"make certificates", c.prepare},
		{"start the API server", c.startKubernetes},
		{"install Crossplane", c.installCrossplane},
		{"install definitions of others", c.installDefinitions},
		{"start Crossplane", c.startCrossplane},
		{"install the function", c.installFunction},
		{"install the API", c.installAPI},
	}
	if o.Bare {
		steps = steps[:2]
	}
	for _, step := range steps {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		err := step.run(ctx)
		cancel()
		if err != nil {
			return c, fmt.Errorf("cannot %s: %w", step.name, err)
		}
	}
	return c, nil
}

// Stop ends all processes and removes what they wrote.
func (c *Cluster) Stop() {
	for _, name := range []string{"function", "rbac", "core", "kube-controller-manager", "kube-apiserver", "etcd"} {
		c.processes[name].kill()
	}
	for _, p := range c.processes {
		p.kill()
	}
	if c.network != nil {
		c.network.close()
	}
	if c.Dir != "" {
		_ = os.RemoveAll(c.Dir)
	}
}

// DumpLogs prints the ends of the logs that explain most failures.
func (c *Cluster) DumpLogs(tb testing.TB) {
	tb.Helper()
	for _, name := range []string{"kube-apiserver", "core", "rbac", "function"} {
		if p := c.processes[name]; p != nil {
			tb.Logf("the end of %s.log:\n%s", name, p.tail(15))
		}
	}
}

// repository returns the folder of the main module.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "tools", "build.sh")); err == nil {
			return dir, nil
		}
	}
	return "", errors.New("not in the repository")
}

func (c *Cluster) path(elements ...string) string {
	return filepath.Join(append([]string{c.Dir}, elements...)...)
}

// prepare writes certificates, tokens and configurations.
func (c *Cluster) prepare(context.Context) error {
	var err error
	if c.authority, err = newAuthority(); err != nil {
		return err
	}
	for name, host := range map[string]string{
		"apiserver": "kubernetes.default.svc",
		"core":      "crossplane." + systemNamespace,
		"function":  "function." + systemNamespace,
	} {
		p, err := c.authority.issue(name, host)
		if err != nil {
			return err
		}
		if err := p.write(c.path(name)); err != nil {
			return err
		}
	}
	if err := writeServiceAccountKey(c.path("sa.key"), c.path("sa.pub")); err != nil {
		return err
	}
	token, err := randomToken()
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.path("tokens.csv"), []byte(token+`,admin,admin,"system:masters"`+"\n"), 0o600); err != nil {
		return err
	}
	if err := os.WriteFile(c.path("audit.yaml"), []byte(auditPolicy), 0o600); err != nil {
		return err
	}
	c.Config = c.restConfig(token)
	c.Kubeconfig = c.path("admin.kubeconfig")
	return c.WriteKubeconfig(c.Kubeconfig, token)
}

func (c *Cluster) restConfig(token string) *rest.Config {
	return &rest.Config{
		Host:            "https://" + addressAPIServer,
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAData: c.authority.pem},
		QPS:             -1,
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			return c.network.dial(ctx, network, address)
		},
		WarningHandler: rest.NoWarnings{},
	}
}

// WriteKubeconfig writes a configuration of kubectl and its like for a bearer.
func (c *Cluster) WriteKubeconfig(file, token string) error {
	return os.WriteFile(file, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: test, cluster: {server: "https://%s", certificate-authority: %q}}]
users: [{name: test, user: {token: %q}}]
contexts: [{name: test, context: {cluster: test, user: test}}]
current-context: test
`, addressAPIServer, c.path("apiserver", "ca.crt"), token), 0o600)
}

// startKubernetes starts etcd, the API server, and of the controller manager
// what deletes and aggregates.
func (c *Cluster) startKubernetes(ctx context.Context) error {
	if _, err := c.start("etcd", nil, filepath.Join(c.bin, "etcd"),
		"--data-dir", c.path("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls", addressEtcd, "--advertise-client-urls", addressEtcd,
		"--listen-peer-urls", "http://127.0.0.1:2380", "--initial-advertise-peer-urls", "http://127.0.0.1:2380",
		"--initial-cluster", "default=http://127.0.0.1:2380",
	); err != nil {
		return err
	}
	host, port, _ := strings.Cut(addressAPIServer, ":")
	c.apiserverArgs = []string{
		"--etcd-servers", addressEtcd, "--bind-address", host, "--secure-port", port, "--advertise-address", host,
		"--tls-cert-file", c.path("apiserver", "tls.crt"), "--tls-private-key-file", c.path("apiserver", "tls.key"),
		"--client-ca-file", c.path("apiserver", "ca.crt"), "--token-auth-file", c.path("tokens.csv"),
		"--authorization-mode", "RBAC",
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", c.path("sa.pub"), "--service-account-signing-key-file", c.path("sa.key"),
		"--service-cluster-ip-range", "10.96.0.0/16,fd00:96::/112", "--endpoint-reconciler-type", "none",
		"--allow-privileged", "--profiling=false",
		"--audit-policy-file", c.path("audit.yaml"), "--audit-log-path", c.path("audit.log"),
	}
	c.audit = &Audit{file: c.path("audit.log"), perNamespace: map[string]int{}}
	if err := c.StartAPIServer(ctx); err != nil {
		return err
	}
	var err error
	if c.Client, err = client.New(c.Config, client.Options{Scheme: scheme.Scheme}); err != nil {
		return err
	}
	if c.options.Bare {
		return nil
	}
	if _, err := c.start("kube-controller-manager", nil, filepath.Join(c.bin, "kube-controller-manager"),
		"--kubeconfig", c.Kubeconfig, "--bind-address", host, "--leader-elect=false",
		"--controllers", "clusterrole-aggregation-controller,garbage-collector-controller,namespace-controller",
	); err != nil {
		return err
	}
	return c.Wait(ctx, "namespace default", func() error {
		return c.Client.Get(ctx, client.ObjectKey{Name: "default"}, &corev1.Namespace{})
	})
}

// StartAPIServer starts the API server, also after it was stopped.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	p, err := c.start("kube-apiserver", nil, filepath.Join(c.bin, "kube-apiserver"), c.apiserverArgs...)
	if err != nil {
		return err
	}
	h, err := rest.HTTPClientFor(c.Config)
	if err != nil {
		return err
	}
	return c.Wait(ctx, "the API server", func() error {
		if p.ended() {
			return permanent{fmt.Errorf("it ended: %w", p.err)}
		}
		_, err := get(ctx, h, c.Config.Host+"/readyz")
		return err
	})
}

// StopAPIServer takes the API server away.
func (c *Cluster) StopAPIServer() { c.processes["kube-apiserver"].kill() }
