// Package harness runs a cluster of one node for tests, without a container
// engine and without touching the machine: etcd and all of Kubernetes as plain
// processes, containerd and runc, in namespaces and cgroups of their own, and
// around the node an internet with clients. Crossplane is installed by its own
// chart. The only thing that is played is a load balancer. Network policies are
// not enforced.
//
// It needs root, cgroup v1, and what tools/build.sh builds.
package harness

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wireguardgateway/function-wireguard-gateway/test/controlplane/harness"
)

// RequiredVariable is an environment variable. Without it, tests that run a node
// say that they do not run.
const RequiredVariable = "WIREGUARD_GATEWAY_NODE"

// tools are what tools/build.sh builds for a node.
var tools = []string{
	"etcd", "kube-apiserver", "kube-controller-manager", "kubectl", "crossplane", "crossplane-core",
	"kubelet", "kube-proxy", "kube-scheduler", "containerd", "containerd-shim-runc-v2", "runc",
	"bridge", "host-local", "loopback", "coredns", "helm",
}

// packages are what else tests call, and where Debian has it.
var packages = map[string]string{
	"ip": "iproute2", "wg-quick": "wireguard-tools", "nft": "nftables", "iptables": "iptables",
	"conntrack": "conntrack", "sysctl": "procps", "mount": "mount",
	"nsenter": "util-linux",
}

// Options say what to start.
type Options struct {
	// Bare is a node without Crossplane.
	Bare bool
}

// Node is a cluster that runs.
type Node struct {
	// Cluster is its API. What that type starts by itself is not there.
	*harness.Cluster
	// Space is where the node's own processes are.
	*Space
	// Internet is what the node and its clients are attached to.
	Internet *Host
	// Site is a host behind the cluster.
	Site *Host

	options Options
	cgroups cgroups
	daemons map[string]*daemon
	hosts   []*Host
	pid     int // of the node's first process
	init    string
	bin     string
	token   string
	helpers *exec.Cmd
	stop    context.CancelFunc

	wireguardGo string
}

// startTimeout bounds the start of one component, on a machine that is busy.
const startTimeout = 4 * time.Minute

//go:embed namespaces.sh
var namespaces string

//go:embed dns.yaml
var dns string

// Runnable says why a node cannot run here.
func Runnable() error {
	if os.Getuid() != 0 {
		return errors.New("a node needs root, for namespaces")
	}
	for _, h := range hierarchies {
		if !exists(filepath.Join(cgroupRoot, h, "tasks")) {
			return fmt.Errorf("a node needs cgroup v1 with hierarchy %s", h)
		}
	}
	root, err := repository()
	if err != nil {
		return err
	}
	for _, name := range tools {
		if !exists(filepath.Join(root, "_output", "bin", name)) {
			return fmt.Errorf("a node needs %s: run tools/build.sh %[1]s", name)
		}
	}
	for tool, pkg := range packages {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("a node needs %s, of package %s", tool, pkg)
		}
	}
	return nil
}

// repository returns the folder of the main module.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; dir != "/"; dir = filepath.Dir(dir) {
		if exists(filepath.Join(dir, "tools", "build.sh")) {
			return dir, nil
		}
	}
	return "", errors.New("not in the repository")
}

func (n *Node) path(elements ...string) string {
	return filepath.Join(append([]string{n.Dir}, elements...)...)
}

// Run starts a node. It has to be stopped, also where it did not start.
func Run(o Options) (*Node, error) {
	n := &Node{Cluster: &harness.Cluster{}, options: o, daemons: map[string]*daemon{}}
	var err error
	if n.Root, err = repository(); err != nil {
		return n, err
	}
	n.bin = filepath.Join(n.Root, "_output", "bin")
	if err := removeStale(); err != nil {
		return n, err
	}
	if n.Dir, err = os.MkdirTemp("", prefix+strconv.Itoa(os.Getpid())+"."); err != nil {
		return n, err
	}
	steps := []struct {
		name string
		run  func(context.Context) error
	}{
		{"build programs", n.build},
		{"make namespaces", n.makeNamespaces},
		{"connect the node", n.connect},
		{"write the configuration", n.configure},
		{"fill the registry", n.fillRegistry},
		{"start the API server", n.startAPIServer},
		{"start the node", n.startNode},
		{"start the cluster's DNS", n.startDNS},
		{"install Crossplane", n.installCrossplane},
	}
	if o.Bare {
		steps = steps[:len(steps)-2]
	}
	for _, step := range steps {
		ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
		err := step.run(ctx)
		cancel()
		if err != nil {
			return n, fmt.Errorf("cannot %s: %w", step.name, err)
		}
	}
	return n, nil
}

// Stop ends everything, and removes what was written. It says what it cannot
// remove.
func (n *Node) Stop() error {
	if n.stop != nil {
		n.stop()
	}
	// All processes end with the first one. Their namespaces end with them, and
	// with those the mounts and interfaces.
	if n.pid != 0 {
		_ = unix.Kill(n.pid, unix.SIGKILL)
		for _, d := range n.daemons {
			<-d.done
		}
		_ = n.helpers.Wait()
	}
	for _, h := range n.hosts {
		h.end()
	}
	n.end()
	err := n.cgroups.remove()
	if n.Dir != "" {
		err = errors.Join(err, os.RemoveAll(n.Dir))
	}
	return err
}

// DumpLogs prints what explains most failures.
func (n *Node) DumpLogs(tb testing.TB) {
	tb.Helper()
	for name, d := range n.daemons {
		if name == "kubelet" || d.ended() {
			tb.Logf("the end of %s.log:\n%s", name, d.tail(15))
		}
	}
	if n.Client == nil {
		return
	}
	for _, args := range []string{"get pods -A -o wide", "get events -A --sort-by=.lastTimestamp"} {
		out, err := n.Kubectl(context.Background(), strings.Fields(args)...)
		lines := strings.Split(out, "\n")
		tb.Logf("kubectl %s: %v\n%s", args, err, strings.Join(lines[max(0, len(lines)-40):], "\n"))
	}
}

// Kubectl runs kubectl with all rights.
func (n *Node) Kubectl(ctx context.Context, args ...string) (string, error) {
	return n.Output(n.Command(ctx, "kubectl", args...))
}

// Command returns a command that has yet to be run with Output: at the root of
// the repository, with the pinned tools on its PATH and all rights in the
// cluster.
func (n *Node) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	if p := filepath.Join(n.bin, name); exists(p) {
		cmd.Path, cmd.Err = p, nil
	}
	cmd.Dir = n.Root
	cmd.Env = append(os.Environ(), "PATH="+n.bin+":"+os.Getenv("PATH"), "KUBECONFIG="+n.Kubeconfig,
		"HELM_CACHE_HOME="+n.path("helm"), "HELM_CONFIG_HOME="+n.path("helm"), "HELM_DATA_HOME="+n.path("helm"))
	return cmd
}

// Output runs a command in the node's namespaces.
func (n *Node) Output(cmd *exec.Cmd) (string, error) { return n.Space.Output(cmd) }

// build builds the two programs that no tool brings.
func (n *Node) build(ctx context.Context) error {
	n.init, n.wireguardGo = n.path("init"), n.path("wireguard-go")
	return errors.Join(n.Build(ctx, n.init, "./test/node/container"), n.Build(ctx, n.wireguardGo, "golang.zx2c4.com/wireguard"))
}

// Build builds a program of the repository that needs no library.
func (n *Node) Build(ctx context.Context, program, source string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", program, source)
	cmd.Dir, cmd.Env = n.Root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build %s: %w: %s", source, err, out)
	}
	return nil
}

// spaceFlags are all namespaces of a node.
const spaceFlags = unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// makeNamespaces starts the node's first process, in namespaces of its own, and
// makes these those of a node.
func (n *Node) makeNamespaces(ctx context.Context) error {
	var err error
	if n.cgroups, err = newCgroups(filepath.Base(n.Dir)); err != nil {
		return err
	}
	n.Space, err = newSpace("the node", func() error {
		if err := n.cgroups.join(); err != nil {
			return err
		}
		n.helpers = exec.Command(n.init)
		n.helpers.SysProcAttr = &syscall.SysProcAttr{Cloneflags: spaceFlags, Pdeathsig: syscall.SIGKILL}
		if err := n.helpers.Start(); err != nil {
			return err
		}
		n.pid = n.helpers.Process.Pid
		return enterNamespaces(n.pid, spaceFlags)
	})
	if err != nil {
		return err
	}
	if err := n.Run(ctx, "mount --make-rprivate /"); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "bash", append([]string{"-c", namespaces, "namespaces.sh", n.Dir}, hierarchies...)...)
	_, err = n.Output(cmd)
	return err
}

func (n *Node) startAPIServer(ctx context.Context) error {
	if _, err := n.start("etcd",
		"--data-dir", n.path("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--listen-client-urls", addressEtcd, "--advertise-client-urls", addressEtcd,
		"--listen-peer-urls", addressEtcdPeer, "--initial-advertise-peer-urls", addressEtcdPeer,
		"--initial-cluster", "default="+addressEtcdPeer,
	); err != nil {
		return err
	}
	host, port, _ := strings.Cut(addressAPIServer, ":")
	d, err := n.start("kube-apiserver",
		"--etcd-servers", addressEtcd, "--bind-address", host, "--secure-port", port, "--advertise-address", host,
		"--cert-dir", n.path("pki"), "--token-auth-file", n.path("tokens.csv"),
		"--authorization-mode", "Node,RBAC", "--enable-admission-plugins", "NodeRestriction",
		"--service-account-issuer", "https://kubernetes.default.svc",
		"--service-account-key-file", n.path("sa.pub"), "--service-account-signing-key-file", n.path("sa.key"),
		"--service-cluster-ip-range", serviceCIDR4+","+serviceCIDR6,
		"--kubelet-preferred-address-types", "InternalIP", "--allow-privileged", "--profiling=false",
	)
	if err != nil {
		return err
	}
	if err := n.Wait(ctx, "the API server's certificate", func() error {
		_, err := os.Stat(n.path("pki", "apiserver.crt"))
		return err
	}); err != nil {
		return err
	}
	n.Config = &rest.Config{
		Host: "https://" + addressAPIServer, BearerToken: n.token, QPS: -1, Dial: n.Dial,
		TLSClientConfig: rest.TLSClientConfig{CAFile: n.path("pki", "apiserver.crt")},
		WarningHandler:  rest.NoWarnings{},
	}
	h, err := rest.HTTPClientFor(n.Config)
	if err != nil {
		return err
	}
	if err := n.Wait(ctx, "the API server", func() error {
		if d.ended() {
			return errors.New("it ended")
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.Config.Host+"/readyz", nil)
		if err != nil {
			return err
		}
		rsp, err := h.Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = rsp.Body.Close() }()
		if rsp.StatusCode != http.StatusOK {
			return errors.New(rsp.Status)
		}
		return nil
	}); err != nil {
		return err
	}
	n.Client, err = client.New(n.Config, client.Options{Scheme: scheme.Scheme})
	return err
}

// startNode starts what makes of an API server a cluster.
func (n *Node) startNode(ctx context.Context) error {
	if err := n.kubeletConfig(); err != nil {
		return err
	}
	for _, args := range [][]string{
		{"containerd", "--config", n.path("containerd.toml")},
		{
			"kube-controller-manager", "--kubeconfig", n.Kubeconfig, "--bind-address", "127.0.0.1", "--leader-elect=false",
			"--service-account-private-key-file", n.path("sa.key"), "--root-ca-file", n.path("pki", "apiserver.crt"),
			"--service-cluster-ip-range", serviceCIDR4 + "," + serviceCIDR6,
		},
		{"kube-scheduler", "--kubeconfig", n.Kubeconfig, "--bind-address", "127.0.0.1", "--leader-elect=false"},
		{"kube-proxy", "--config", n.path("kube-proxy.yaml"), "--hostname-override", nodeName},
	} {
		if _, err := n.start(args[0], args[1:]...); err != nil {
			return err
		}
	}
	if err := n.Wait(ctx, "containerd", func() error {
		return n.Run(ctx, "test -S "+containerdSocket)
	}); err != nil {
		return err
	}
	if err := n.startKubelet(); err != nil {
		return err
	}
	if err := n.Wait(ctx, "the node", n.nodeReady); err != nil {
		return err
	}
	return n.balance() //nolint:contextcheck // It goes on for as long as the node does.
}

func (n *Node) startKubelet() error {
	_, err := n.start("kubelet", "--kubeconfig", n.path("kubelet.kubeconfig"), "--config", n.path("kubelet.yaml"),
		"--hostname-override", nodeName, "--node-ip", node4+","+node6)
	return err
}

func (n *Node) nodeReady() error {
	node := &corev1.Node{}
	if err := n.Client.Get(context.Background(), client.ObjectKey{Name: nodeName}, node); err != nil {
		return err
	}
	ready := func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	}
	if !slices.ContainsFunc(node.Status.Conditions, ready) {
		return errors.New("it is not ready")
	}
	return nil
}

// RestartKubelet ends the kubelet as a crash would, and starts it anew, with
// further lines of configuration.
func (n *Node) RestartKubelet(lines ...string) error {
	d := n.daemons["kubelet"]
	_ = d.cmd.Process.Kill()
	<-d.done
	if err := n.kubeletConfig(lines...); err != nil {
		return err
	}
	return n.startKubelet()
}

// Processes returns those of a pod's container, as this process numbers them.
func (n *Node) Processes(pod *corev1.Pod, container string) ([]int, error) {
	for _, s := range slices.Concat(pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses) {
		if s.Name != container {
			continue
		}
		_, id, _ := strings.Cut(s.ContainerID, "://")
		dirs, err := filepath.Glob(filepath.Join(n.cgroups.dir("pids"), "kubepods", "*", "pod"+string(pod.UID), id))
		if err != nil || len(dirs) == 0 {
			dirs, err = filepath.Glob(filepath.Join(n.cgroups.dir("pids"), "kubepods", "pod"+string(pod.UID), id))
		}
		if err != nil || len(dirs) == 0 {
			return nil, errors.Join(err, fmt.Errorf("container %s of %s has no cgroup", container, pod.Name))
		}
		below, err := filepath.Rel(n.cgroups.dir("pids"), dirs[0])
		if err != nil {
			return nil, err
		}
		return n.cgroups.processes(below)
	}
	return nil, fmt.Errorf("%s has no container %s", pod.Name, container)
}

func (n *Node) fillRegistry(ctx context.Context) error {
	if err := n.serveRegistry(ctx); err != nil {
		return err
	}
	return n.pushPrograms(ctx)
}

func (n *Node) startDNS(ctx context.Context) error {
	if err := n.ApplyYAML(ctx, dns); err != nil {
		return err
	}
	_, err := n.Kubectl(ctx, "-n", "kube-system", "rollout", "status", "deployment/coredns")
	return err
}

// installCrossplane does what its users do.
func (n *Node) installCrossplane(ctx context.Context) error {
	module, err := n.Module(ctx, "tools/crossplane-core", "github.com/crossplane/crossplane/v2")
	if err != nil {
		return err
	}
	tag, err := n.pushCrossplane(ctx, module)
	if err != nil {
		return err
	}
	_, err = n.Output(n.Command(ctx, "helm", "install", "crossplane", filepath.Join(module, "cluster", "charts", "crossplane"),
		"--namespace", "crossplane-system", "--create-namespace", "--wait",
		"--set", "image.repository="+imageCrossplane, "--set", "image.tag="+tag))
	return err
}
