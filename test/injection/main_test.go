// Package injection tests, from end to end, pods that join a gateway by a label.
// The API server and the admission policies are real, and so are the gateway's
// agent, the sidecar and every packet. Network namespaces are pods. The tests
// play scheduler, kubelet, kube-proxy and the cluster's DNS: they take the pods
// as the API server stores them, and run their containers as these say.
//
// It needs root, a few Debian packages, and what tools/build.sh builds.
package injection

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wireguardgateway/function-wireguard-gateway/test/controlplane/harness"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

const labelPeer = wireguard.PeerLabel

// packages are the tools that the tests use, and where Debian has them.
var packages = map[string]string{"nft": "nftables", "ip": "iproute2", "iptables": "iptables"}

// programs were built for the tests.
var programs struct{ agent, container, wireguardGo string }

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if err := missing(); err != nil {
		fmt.Println("skipping the tests of injection:", err)
		return 0
	}
	dir, err := os.MkdirTemp("", "injection")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for program, source := range map[*string]string{
		&programs.agent: "../../cmd/agent", &programs.container: "./container/run", &programs.wireguardGo: "golang.zx2c4.com/wireguard",
	} {
		*program = filepath.Join(dir, filepath.Base(source))
		cmd := exec.Command("go", "build", "-o", *program, source)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Printf("cannot build %s: %v\n%s", source, err, out)
			return 1
		}
	}
	shared.dir = dir
	defer func() {
		if shared.world != nil {
			shared.world.close()
		}
	}()
	return m.Run()
}

// missing says why the tests cannot run here.
func missing() error {
	if os.Getuid() != 0 {
		return errors.New("they need root, for network namespaces")
	}
	for tool, pkg := range packages {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Errorf("they need %s, of package %s", tool, pkg)
		}
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return errors.New("they need /dev/net/tun")
	}
	return nil
}

// world is a cluster with one node, and the internet around it.
type world struct {
	*harness.Cluster
	dir      string
	node     *node
	internet *internet
	web      *namespace // a pod without label, which serves Services
	composer *composer
	gateways map[string]*pod
	// played are containers of others, by their names.
	played map[string]func(*pod, corev1.Container) error
}

var shared struct {
	once  sync.Once
	dir   string
	world *world
	err   error
}

// newWorld returns the one world. Tests leave no pod in it but the gateways'.
func newWorld(t *testing.T) *world {
	t.Helper()
	if err := harness.Runnable(); err != nil {
		t.Skip(err)
	}
	shared.once.Do(func() {
		shared.world = &world{dir: shared.dir, gateways: map[string]*pod{}, played: map[string]func(*pod, corev1.Container) error{}}
		shared.err = shared.world.start()
	})
	w := shared.world
	t.Cleanup(func() {
		if t.Failed() && w.Cluster != nil {
			for name, g := range w.gateways {
				for c, p := range g.containers {
					t.Logf("%s: container %s said:\n%s", name, c, p.out)
				}
			}
		}
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return w
}

// input is that of the function.
const input = `
apiVersion: wireguard.fn.crossplane.io/v1beta1
kind: Input
spec:
  images: {agent: ` + agentImage + `}
  podCIDRs: ["` + podCIDR4 + `", "` + podCIDR6 + `"]
  serviceCIDRs: ["` + serviceCIDR4 + `", "` + serviceCIDR6 + `"]
`

// gatewaySpec lets the peers of namespace apps in. The device is always the one
// in userspace, so that it is the same one everywhere.
const gatewaySpec = `
apiVersion: wireguardgateway.io/v1alpha1
kind: WireguardGateway
metadata: {name: home, namespace: vpn}
spec:
  endpoint: {host: vpn.example.com}
  peerCIDR: 10.8.0.0/24
  peerCIDRv6: "fd00:8::/64"
  implementation: Userspace
  allowedPeerNamespaces: {from: Names, names: [apps]}
`

// mediaSpec is a class of pods.
const mediaSpec = `
apiVersion: wireguardgateway.io/v1alpha1
kind: WireguardPeer
metadata: {name: media, namespace: apps}
spec:
  gatewayRef: {name: home, namespace: vpn}
  pods: {implementation: Userspace}
`

func (w *world) start() error {
	ctx := context.Background()
	var err error
	if w.Cluster, err = harness.Run(harness.Options{Bare: true}); err != nil {
		return err
	}
	policies, err := harness.ReadObjects(filepath.Join(w.Root, "package", "cluster", "injection.yaml"))
	if err != nil {
		return err
	}
	for _, o := range policies {
		if err := w.Apply(ctx, o); err != nil {
			return err
		}
	}
	if err := w.namespaced(ctx, "kube-system", "apps", "vpn"); err != nil {
		return err
	}
	if w.composer, err = newComposer(w.Client, input); err != nil {
		return err
	}
	w.composer.others = policies
	if err := w.startNetwork(ctx); err != nil {
		return err
	}
	if err := w.composer.set(ctx, gatewaySpec, mediaSpec); err != nil {
		return err
	}
	if ready := w.composer.condition("WireguardPeer", "media", "PodsReady"); !strings.HasPrefix(ready, "TRUE ") {
		return fmt.Errorf("PodsReady is %s", ready)
	}
	if err := w.startGateway(ctx, "home"); err != nil {
		return err
	}
	// A policy is in force a moment after it was created.
	_, err = poll(interval, func() error {
		o, err := w.create(ctx, "media")
		if err != nil {
			return err
		}
		return errors.Join(isInjected(o, "media"), w.Client.Delete(ctx, o))
	})
	return err
}

// startNetwork makes the node, the internet, and a pod that serves the cluster's
// DNS and a Service.
func (w *world) startNetwork(ctx context.Context) error {
	var err error
	if w.node, err = newNode(); err != nil {
		return err
	}
	if w.internet, err = newInternet(w.node); err != nil {
		return err
	}
	if w.web, err = newNamespace("web"); err != nil {
		return err
	}
	addresses := w.node.addresses()
	if err := w.node.attach(w.web, "web", addresses...); err != nil {
		return err
	}
	if err := w.node.serveDNS(w.web); err != nil {
		return err
	}
	if err := serveApp(w.web); err != nil {
		return err
	}
	w.node.name("web.apps.svc.cluster.local", netip.MustParseAddr(web4))
	for s, a := range map[service]netip.Addr{
		{netip.MustParseAddr(clusterDNS), "udp", 53, 53}: addresses[0],
		{netip.MustParseAddr(clusterDNS), "tcp", 53, 53}: addresses[0],
		{netip.MustParseAddr(web4), "tcp", 80, appPort}:  addresses[0],
		{netip.MustParseAddr(web6), "tcp", 80, appPort}:  addresses[1],
	} {
		if err := w.node.serve(s, a); err != nil {
			return err
		}
	}
	// So that the API server gives their addresses to no other Service.
	for name, addresses := range map[string][]string{"dns": {clusterDNS}, "web": {web4, web6}} {
		families := []corev1.IPFamily{corev1.IPv4Protocol, corev1.IPv6Protocol}[:len(addresses)]
		policy := []corev1.IPFamilyPolicy{corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyRequireDualStack}[len(addresses)-1]
		if err := w.Client.Create(ctx, &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "apps", Name: name},
			Spec: corev1.ServiceSpec{
				ClusterIP: addresses[0], ClusterIPs: addresses, IPFamilies: families, IPFamilyPolicy: &policy,
				Ports: []corev1.ServicePort{{Port: 80}},
			},
		}); err != nil {
			return err
		}
	}
	return w.node.proxy(ctx, w.Config.Dial, "127.0.0.1:6443")
}

// startGateway runs a pod of a gateway's Deployment, and sends to it what comes
// for its Service.
func (w *world) startGateway(ctx context.Context, name string) error {
	d := &appsv1.Deployment{}
	if err := w.Client.Get(ctx, client.ObjectKey{Namespace: "vpn", Name: name + "-wireguard"}, d); err != nil {
		return err
	}
	o := &corev1.Pod{ObjectMeta: d.Spec.Template.ObjectMeta, Spec: d.Spec.Template.Spec}
	o.Namespace, o.GenerateName = d.Namespace, d.Name+"-"
	if err := w.Client.Create(ctx, o); err != nil {
		return err
	}
	if err := w.bind(ctx, o); err != nil {
		return err
	}
	p, err := w.sandbox(o)
	w.gateways[name] = p
	if err != nil {
		return err
	}
	if err := w.report(ctx, p, name); err != nil {
		return err
	}
	_, err = poll(interval, func() error { return p.httpGet(wireguard.HTTPPort, "/readyz") })
	return err
}

func (w *world) report(ctx context.Context, p *pod, name string) error {
	if err := p.report(ctx, corev1.PodPending); err != nil {
		return err
	}
	for _, c := range p.object.Spec.InitContainers {
		init, err := p.startContainer(ctx, c)
		if err != nil {
			return err
		}
		if c.RestartPolicy != nil {
			continue
		}
		<-init.done
		if code := init.cmd.ProcessState.ExitCode(); code != 0 {
			return fmt.Errorf("container %s ended with %d: %s", c.Name, code, init.out)
		}
	}
	if _, err := p.startContainer(ctx, p.object.Spec.Containers[0]); err != nil {
		return err
	}
	if err := w.serveGateway(ctx, name, p.addresses[0]); err != nil {
		return err
	}
	return p.report(ctx, corev1.PodRunning)
}

// stopGateway takes the pod of a gateway away that a test has started.
func (w *world) stopGateway(name string) {
	if g := w.gateways[name]; g != nil {
		_ = g.remove(context.Background())
		delete(w.gateways, name)
	}
}

// serveGateway sends what comes for a gateway's Service to a pod, and makes its
// name known.
func (w *world) serveGateway(ctx context.Context, name string, to netip.Addr) error {
	s, err := w.serviceOf(ctx, name)
	if err != nil {
		return err
	}
	address, err := netip.ParseAddr(s.Spec.ClusterIP)
	if err != nil {
		return err
	}
	w.node.name(name+"-wireguard.vpn.svc.cluster.local", address)
	return w.node.serve(service{address, "udp", 51820, 51820}, to)
}

// serviceOf returns a gateway's Service.
func (w *world) serviceOf(ctx context.Context, gateway string) (*corev1.Service, error) {
	s := &corev1.Service{}
	err := w.Client.Get(ctx, client.ObjectKey{Namespace: "vpn", Name: gateway + "-wireguard"}, s)
	return s, err
}

func (w *world) close() {
	for _, g := range w.gateways {
		if g != nil {
			g.close()
		}
	}
	if w.Cluster != nil {
		w.Stop()
	}
}

// wall is what pods of this world may send outside of the tunnel.
func (w *world) wall(p *pod) wall {
	return wall{
		own: p.addresses, port: 51820, device: wireguard.ClientPort,
		bypass:  prefixes(podCIDR4, podCIDR6, serviceCIDR4, serviceCIDR6),
		inbound: inbound,
	}
}

func prefixes(ss ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range ss {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// inbound are those outside of the bypass who come in to the app of a pod.
var inbound = func() []netip.AddrPort {
	var out []netip.AddrPort
	for _, a := range []string{node4, node6, internet4, internet6} {
		out = append(out, netip.AddrPortFrom(netip.MustParseAddr(a), appPort))
	}
	return out
}()
