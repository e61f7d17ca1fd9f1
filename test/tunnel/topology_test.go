package tunnel

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/function-sdk-go/logging"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/wireguardgateway/function-wireguard-gateway/fn"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/offline"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// gateway sends everything of its peers through the tunnel.
const gateway = `
apiVersion: wireguardgateway.io/v1alpha1
kind: WireguardGateway
metadata: {name: home, namespace: vpn}
spec:
  peerCIDR: 10.8.0.0/24
  peerCIDRv6: fd00:8::/64
  gateway:
    hostname: ws.example.com
    parentRefs: [{name: public, namespace: ingress}]
  tunnel: {}
  peers:
    - {name: laptop, presharedKey: {generate: true}}
`

// rendered is what the function makes of it.
type rendered struct {
	conf    string // the peer's tunnel.conf
	config  wireguard.GatewayConfig
	route   gatewayv1.HTTPRoute
	service corev1.Service // of the tunnel
	server  corev1.Container
}

func render(t *testing.T) rendered {
	t.Helper()
	xr := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(gateway), &xr.Object); err != nil {
		t.Fatal(err)
	}
	rsp, err := offline.Run(context.Background(), fn.New(logging.NewNopLogger()), offline.Request{Composite: xr})
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]*unstructured.Unstructured{}
	for _, o := range offline.Composed(xr, rsp) {
		objects[o.GetAnnotations()[offline.AnnotationKey]] = o
	}
	data := func(key, name string) []byte {
		s, _, _ := unstructured.NestedString(objects[key].Object, "data", name)
		b, err := base64.StdEncoding.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	decode := func(key string, into any) {
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(objects[key].Object, into); err != nil {
			t.Fatal(err)
		}
	}
	r := rendered{conf: string(data("peer-laptop", "tunnel.conf"))}
	if r.config, err = wireguard.DecodeGatewayConfig(data("config", wireguard.ConfigKey)); err != nil {
		t.Fatal(err)
	}
	decode("http-route", &r.route)
	decode("tunnel-service", &r.service)
	deployment := appsv1.Deployment{}
	decode("deployment", &deployment)
	for _, c := range deployment.Spec.Template.Spec.Containers {
		if c.Name == "wstunnel" {
			r.server = c
		}
	}
	return r
}

// Addresses of the hosts. The site is behind the gateway, and no router knows
// it: whoever reaches it does so through the tunnel.
const (
	addressLaptop = "192.0.2.10"
	addressProxy  = "198.51.100.10"
	addressPod    = "10.244.0.10"
	site, sitev6  = "203.0.113.10", "2001:db8:113::10"
)

// topology is a laptop, a Gateway and a gateway's pod, with a router between
// them.
type topology struct {
	rendered

	programs                   string
	authority                  *authority
	laptop, router, proxy, pod *host

	server  *process // wstunnel in the pod
	gateway *process // the proxy
	conf    string   // file of the laptop's configuration
	iface   string
}

func newTopology(t *testing.T, change func(*topology)) *topology {
	t.Helper()
	needs(t)
	n := &topology{rendered: render(t), programs: build(t), authority: newAuthority(t)}
	n.router, n.laptop = newHost(t, "router"), newHost(t, "laptop")
	n.proxy, n.pod = newHost(t, "proxy"), newHost(t, "pod")
	n.router.sysctl(t, "net.ipv4.ip_forward=1")
	n.laptop.connect(t, n.router, 1, addressLaptop, "192.0.2.1")
	n.proxy.connect(t, n.router, 2, addressProxy, "198.51.100.1")
	n.pod.connect(t, n.router, 3, addressPod, "10.244.0.1")
	n.laptop.resolves(t, "ws.example.com", addressProxy)
	n.laptop.env = []string{
		"PATH=" + n.programs + ":" + os.Getenv("PATH"),
		"WG_QUICK_USERSPACE_IMPLEMENTATION=" + filepath.Join(n.programs, "wireguard-go"),
		"SSL_CERT_FILE=" + n.authority.file,
		"SSL_CERT_DIR=/nonexistent",
	}
	// The sockets of wireguard-go are named by interface, in one folder for all
	// namespaces, so the name has to be unique; wg-quick takes it from the file.
	n.iface = fmt.Sprintf("tl%d-%d", os.Getpid(), numbers.Add(1))
	if change != nil {
		change(n)
	}

	n.startPod(t)
	n.startProxy(t)
	n.conf = filepath.Join(t.TempDir(), n.iface+".conf")
	if err := os.WriteFile(n.conf, []byte(n.rendered.conf), 0o600); err != nil {
		t.Fatal(err)
	}
	return n
}

// startPod makes a device as the agent would, and starts wstunnel with what its
// container has.
func (n *topology) startPod(t *testing.T) {
	t.Helper()
	device := fmt.Sprintf("tg%d-%d", os.Getpid(), numbers.Add(1))
	n.pod.start(t, filepath.Join(n.programs, "wireguard-go"), "-f", device)
	eventually(t, "the gateway has a device", func() bool {
		_, err := n.pod.try("wg", "show", device)
		return err == nil
	})
	c := n.config
	conf := &bytes.Buffer{}
	fmt.Fprintf(conf, "[Interface]\nPrivateKey = %s\nListenPort = %d\n", c.PrivateKey, c.ListenPort)
	for _, p := range c.Peers {
		ips := make([]string, 0, len(p.Addresses))
		for _, a := range p.AllowedIPs() {
			ips = append(ips, a.String())
		}
		fmt.Fprintf(conf, "[Peer]\nPublicKey = %s\nPresharedKey = %s\nAllowedIPs = %s\n", p.PublicKey, p.PresharedKey, strings.Join(ips, ", "))
	}
	file := filepath.Join(t.TempDir(), "wg.conf")
	if err := os.WriteFile(file, conf.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	n.pod.run(t, "wg", "setconf", device, file)
	for _, a := range c.Addresses {
		n.pod.run(t, "ip", "addr", "add", a.String(), "dev", device, "nodad")
	}
	n.pod.run(t, "ip", "link", "set", device, "mtu", strconv.Itoa(c.MTU), "up")
	n.pod.run(t, "ip", "addr", "add", site+"/32", "dev", "lo")
	n.pod.run(t, "ip", "addr", "add", sitev6+"/128", "dev", "lo", "nodad")
	// Nobody comes in but through the WebSocket.
	n.pod.run(t, "nft", "table inet test { chain in { type filter hook input priority 0; iifname eth0 udp dport "+strconv.Itoa(c.ListenPort)+" drop; }; }")
	n.startServer(t)
}

func (n *topology) startServer(t *testing.T) {
	t.Helper()
	n.server = n.pod.start(t, append([]string{filepath.Join(n.programs, "wstunnel")}, n.rendered.server.Args...)...)
}

func (n *topology) startProxy(t *testing.T) {
	t.Helper()
	port := n.service.Spec.Ports[0]
	target := 0
	for _, p := range n.rendered.server.Ports {
		if p.Name == port.TargetPort.StrVal {
			target = int(p.ContainerPort)
		}
	}
	s := settings{Route: n.route, Service: fmt.Sprintf("%s:%d", n.service.Name, port.Port), Address: fmt.Sprintf("%s:%d", addressPod, target)}
	if port.AppProtocol != nil {
		s.AppProtocol = *port.AppProtocol
	}
	s.Certificate, s.Key = n.authority.issue(t, "ws.example.com")
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	n.proxy.env = []string{proxySettings + "=" + string(b)}
	n.gateway = n.proxy.start(t, self)
}

func (n *topology) up(t *testing.T) {
	t.Helper()
	n.laptop.run(t, "wg-quick", "up", n.conf)
	t.Cleanup(func() { _, _ = n.laptop.try("wg-quick", "down", n.conf) })
}

func (n *topology) down(t *testing.T) {
	t.Helper()
	n.laptop.run(t, "wg-quick", "down", n.conf)
}

// reaches tells whether one ping of many comes back. The first ones may be lost
// while the tunnel comes up.
func (n *topology) reaches(address string, seconds int) bool {
	for end := time.Now().Add(time.Duration(seconds) * time.Second); time.Now().Before(end); {
		if _, err := n.laptop.try("ping", "-c1", "-W1", address); err == nil {
			return true
		}
	}
	return false
}

func (n *topology) pidFile() string { return "/run/wstunnel-" + n.iface + ".pid" }

// pid is the number of the process that the hooks started.
func (n *topology) pid(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile(n.pidFile())
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.Fields(string(b))[0])
	if err != nil {
		t.Fatal(err)
	}
	return pid
}
