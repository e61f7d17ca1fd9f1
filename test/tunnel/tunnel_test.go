package tunnel

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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

// TestTunnel connects a laptop that sends everything through the tunnel, and
// disconnects it again.
func TestTunnel(t *testing.T) {
	t.Parallel()
	n := newTopology(t, nil)
	before := n.laptop.run(t, "ip", "rule") + n.laptop.run(t, "ip", "route") + n.laptop.run(t, "nft", "list", "ruleset")
	n.up(t)
	for _, address := range []string{"10.8.0.1", "fd00:8::1", site, sitev6} {
		if !n.reaches(address, 30) {
			t.Fatalf("want %s to answer through the tunnel, got nothing\n%s", address, n.laptop.run(t, "wg", "show"))
		}
	}

	t.Run("MTU", func(t *testing.T) {
		if got := n.laptop.run(t, "ip", "-o", "link", "show", n.iface); !strings.Contains(got, " mtu 1360 ") {
			t.Errorf("want an MTU of 1360, got %s", got)
		}
		// Headers are 28 bytes in IPv4, 48 in IPv6.
		for address, size := range map[string]int{site: 1332, sitev6: 1312} {
			n.laptop.run(t, "ping", "-c3", "-i0.2", "-W5", "-Mdo", "-s", strconv.Itoa(size), address)
			if out, err := n.laptop.try("ping", "-c1", "-W2", "-Mdo", "-s", strconv.Itoa(size+1), address); err == nil {
				t.Errorf("want no packet above the MTU, got\n%s", out)
			}
		}
	})

	t.Run("Outside", func(t *testing.T) {
		if got := strings.Count(n.gateway.output(), "request from "+addressLaptop+":"); got != 1 {
			t.Errorf("want one WebSocket that lasts, from the laptop's own address, got %d:\n%s", got, n.gateway.output())
		}
	})

	t.Run("WrongPrefix", func(t *testing.T) { wrongPrefix(t, n) })

	n.server.stop()
	if n.reaches(site, 1) {
		t.Error("want nothing to get through without the server, got an answer")
	}
	n.startServer(t)
	if !n.reaches(site, 30) {
		t.Error("want the tunnel back after a restart of its server, got nothing")
	}

	t.Run("Down", func(t *testing.T) {
		pid := n.pid(t)
		n.down(t)
		if alive(pid) {
			t.Error("want wstunnel stopped, got it running")
		}
		if _, err := os.Stat(n.pidFile()); err == nil {
			t.Error("want no file left, got", n.pidFile())
		}
		if after := n.laptop.run(t, "ip", "rule") + n.laptop.run(t, "ip", "route") + n.laptop.run(t, "nft", "list", "ruleset"); after != before {
			t.Errorf("want rules and routes as they were:\n%s\ngot\n%s", before, after)
		}
	})

	t.Run("UpAgain", func(t *testing.T) {
		n.up(t)
		if !n.reaches(site, 30) {
			t.Error("want the tunnel up again, got nothing")
		}
	})
}

// wrongPrefix asks for paths that are not the tunnel's, at the Gateway and at
// the server behind it.
func wrongPrefix(t *testing.T, n *topology) {
	t.Helper()
	right := strings.Trim(*n.route.Spec.Rules[0].Matches[0].Path.Value, "/")
	for name, tc := range map[string]struct {
		from   *host
		url    string
		prefix string
	}{
		"AtTheGateway": {n.laptop, "wss://ws.example.com:443", "wrong"},
		"LongerPrefix": {n.laptop, "wss://ws.example.com:443", right + "x"},
		"AtTheServer":  {n.router, "ws://" + addressPod + ":8080", "wrong"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.from.env = n.laptop.env
			p := tc.from.start(t, filepath.Join(n.programs, "wstunnel"), "client", "--tls-verify-certificate", "--socket-so-mark", "51820",
				"--http-upgrade-path-prefix", tc.prefix, "--local-to-remote", "udp://127.0.0.1:51999:127.0.0.1:51820?timeout_sec=0", tc.url)
			eventually(t, "the upgrade is refused", func() bool {
				_, _ = tc.from.try("bash", "-c", "echo x >/dev/udp/127.0.0.1/51999")
				return strings.Contains(p.output(), "the upgrade was refused: 4")
			})
			if strings.Contains(p.output(), "connected") {
				t.Errorf("want no tunnel, got\n%s", p.output())
			}
			p.stop()
		})
	}
	t.Run("OtherDestination", func(t *testing.T) {
		p := n.laptop.start(t, filepath.Join(n.programs, "wstunnel"), "client", "--tls-verify-certificate", "--socket-so-mark", "51820",
			"--http-upgrade-path-prefix", right, "--local-to-remote", "udp://127.0.0.1:51998:10.244.0.1:53?timeout_sec=0", "wss://ws.example.com:443")
		eventually(t, "the destination is refused", func() bool {
			_, _ = n.laptop.try("bash", "-c", "echo x >/dev/udp/127.0.0.1/51998")
			return strings.Contains(p.output(), "the upgrade was refused: 400")
		})
		p.stop()
	})
}

// TestStrictReversePath has a laptop whose kernel drops what should have come
// in elsewhere, as some distributions set it.
func TestStrictReversePath(t *testing.T) {
	t.Parallel()
	n := newTopology(t, func(n *topology) {
		n.laptop.sysctl(t, "net.ipv4.conf.all.rp_filter=1", "net.ipv4.conf.default.rp_filter=1", "net.ipv4.conf.eth0.rp_filter=1")
	})
	n.up(t)
	if !n.reaches(site, 30) {
		t.Fatal("want an answer through the tunnel, got nothing")
	}
	// A connection that is made while the tunnel has the default route is the
	// harder one.
	n.server.stop()
	n.startServer(t)
	if !n.reaches(site, 30) {
		t.Error("want the tunnel back, got nothing")
	}
	if got := strings.TrimSpace(n.laptop.run(t, "sysctl", "-n", "net.ipv4.conf.all.rp_filter")); got != "1" {
		t.Errorf("want the filter left as it was, got %s", got)
	}
}

// TestWithoutNftables has a laptop with iptables alone.
func TestWithoutNftables(t *testing.T) {
	t.Parallel()
	n := newTopology(t, func(n *topology) {
		n.laptop.sysctl(t, "net.ipv4.conf.all.rp_filter=1", "net.ipv4.conf.eth0.rp_filter=1")
	})
	// wg-quick finds its helpers beside itself, so a folder without nft has to be
	// all that there is.
	folder := t.TempDir()
	for d := range strings.SplitSeq("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", ":") {
		files, _ := os.ReadDir(d)
		for _, f := range files {
			if f.Name() != "nft" && f.Name() != "wg-quick" {
				_ = os.Symlink(filepath.Join(d, f.Name()), filepath.Join(folder, f.Name()))
			}
		}
	}
	if _, err := os.Stat(filepath.Join(folder, "iptables-restore")); err != nil {
		t.Skip("needs iptables")
	}
	script, err := os.ReadFile("/usr/bin/wg-quick")
	if err != nil {
		t.Skip("needs wg-quick in /usr/bin")
	}
	if err := os.WriteFile(filepath.Join(folder, "wg-quick"), script, 0o755); err != nil {
		t.Fatal(err)
	}
	n.laptop.env[0] = "PATH=" + n.programs + ":" + folder
	n.laptop.run(t, filepath.Join(folder, "wg-quick"), "up", n.conf)
	t.Cleanup(func() { _, _ = n.laptop.try(filepath.Join(folder, "wg-quick"), "down", n.conf) })
	n.server.stop()
	n.startServer(t)
	if !n.reaches(site, 30) {
		t.Error("want an answer through the tunnel, got nothing")
	}
	if got := strings.TrimSpace(n.laptop.run(t, "sysctl", "-n", "net.ipv4.conf.all.rp_filter")); got != "2" {
		t.Errorf("want the filter loosened, got %s", got)
	}
}

// TestNameBehindTunnel has a laptop whose name server is behind the tunnel, as
// it is with a DNS line: without the tunnel it knows no names, and it needs one
// to get the tunnel back.
func TestNameBehindTunnel(t *testing.T) {
	t.Parallel()
	n := newTopology(t, nil)
	n.up(t)
	if !n.reaches(site, 30) {
		t.Fatal("want an answer through the tunnel, got nothing")
	}
	n.laptop.resolves(t, "other.example.com", addressProxy)
	n.server.stop()
	// For as long as names are remembered.
	if n.reaches(site, 7) {
		t.Error("want nothing to get through without the server, got an answer")
	}
	n.startServer(t)
	if !n.reaches(site, 30) {
		t.Error("want the tunnel back, got nothing")
	}
}

// TestOtherProcessSurvives has a file that names a process of somebody else's,
// which got the number of the one that was started.
func TestOtherProcessSurvives(t *testing.T) {
	n := newTopology(t, nil)
	n.up(t)
	if !n.reaches(site, 30) {
		t.Fatal("want an answer through the tunnel, got nothing")
	}
	own := n.pid(t)
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", own))
	if err != nil {
		t.Fatal(err)
	}
	args := strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
	// The same command line, elsewhere.
	n.router.env = n.laptop.env
	other := n.router.start(t, append([]string{filepath.Join(n.programs, "wstunnel")}, args[1:]...)...)
	number := regexp.MustCompile(`^\d+`)
	file, err := os.ReadFile(n.pidFile())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.pidFile(), number.ReplaceAll(file, []byte(strconv.Itoa(other.cmd.Process.Pid))), 0o644); err != nil {
		t.Fatal(err)
	}
	n.down(t)
	if !alive(other.cmd.Process.Pid) {
		t.Error("want the other process left alone, got it killed")
	}
}

// TestLeftover has a wstunnel that an earlier attempt left behind: wg-quick
// does not clean up what PreUp did when it fails later.
func TestLeftover(t *testing.T) {
	t.Parallel()
	n := newTopology(t, nil)
	n.rendered.conf = strings.Replace(n.rendered.conf, "MTU = 1360", "MTU = 1", 1)
	if err := os.WriteFile(n.conf, []byte(n.rendered.conf), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := n.laptop.try("wg-quick", "up", n.conf); err == nil {
		t.Fatalf("want an attempt that fails, got\n%s", out)
	}
	leftover := n.pid(t)
	if !alive(leftover) {
		t.Fatal("want a process that was left behind, got none")
	}
	n.rendered.conf = strings.Replace(n.rendered.conf, "MTU = 1\n", "MTU = 1360\n", 1)
	if err := os.WriteFile(n.conf, []byte(n.rendered.conf), 0o600); err != nil {
		t.Fatal(err)
	}
	n.up(t)
	if alive(leftover) {
		t.Error("want the leftover stopped, got it running")
	}
	if !n.reaches(site, 30) {
		t.Error("want an answer through the tunnel, got nothing")
	}
}

// TestNotInstalled holds that a laptop without wstunnel is told so, and gets no
// interface that leads nowhere.
func TestNotInstalled(t *testing.T) {
	n := newTopology(t, nil)
	n.laptop.env[0] = "PATH=" + os.Getenv("PATH")
	out, err := n.laptop.try("wg-quick", "up", n.conf)
	if err == nil || !strings.Contains(out, "wstunnel: not found") {
		t.Errorf("want a failure that names wstunnel, got %v\n%s", err, out)
	}
	if _, err := n.laptop.try("ip", "link", "show", n.iface); err == nil {
		t.Error("want no interface, got one")
	}
}

// TestControls takes away what the tunnel depends on, one by one: without it
// nothing must get through, or the tests above would prove nothing.
func TestControls(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		why    string
		change func(t *testing.T, n *topology)
	}{
		"Unmarked": {"The WebSocket would go into the tunnel that it carries.", func(t *testing.T, n *topology) {
			t.Helper()
			n.rendered.conf = drop(t, n.rendered.conf, "--socket-so-mark 51820 ")
		}},
		"OtherAuthority": {"The certificate is verified.", func(t *testing.T, n *topology) {
			t.Helper()
			n.laptop.env[2] = "SSL_CERT_FILE=" + newAuthority(t).file
		}},
		"NoConntrackMark": {"Answers to the WebSocket have no mark.", func(t *testing.T, n *topology) {
			t.Helper()
			n.laptop.sysctl(t, "net.ipv4.conf.all.rp_filter=1", "net.ipv4.conf.eth0.rp_filter=1")
			lines := strings.Split(n.rendered.conf, "\n")
			n.rendered.conf = ""
			for _, l := range lines {
				if !strings.Contains(l, "nft 'table") {
					n.rendered.conf += l + "\n"
				}
			}
		}},
		"NoRoute": {"The Gateway routes by host.", func(_ *testing.T, n *topology) {
			n.route.Spec.Hostnames[0] = "other.example.com"
		}},
		"NoAppProtocol": {"The Gateway asks whether the backend speaks WebSocket.", func(_ *testing.T, n *topology) {
			n.service.Spec.Ports[0].AppProtocol = nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newTopology(t, func(n *topology) { tc.change(t, n) })
			n.up(t)
			n.server.stop()
			n.startServer(t)
			if n.reaches(site, 4) {
				t.Errorf("%s\nwant nothing to get through, got an answer", tc.why)
			}
		})
	}
	t.Run("NoTimeouts", func(t *testing.T) {
		t.Parallel()
		n := newTopology(t, func(n *topology) { n.route.Spec.Rules[0].Timeouts = nil })
		n.up(t)
		eventually(t, "the proxy cuts what lasts too long", func() bool {
			n.reaches(site, 1)
			return strings.Count(n.gateway.output(), "request from ") > 1
		})
	})
}

func drop(t *testing.T, s, part string) string {
	t.Helper()
	if !strings.Contains(s, part) {
		t.Fatalf("want %q in\n%s", part, s)
	}
	return strings.Replace(s, part, "", 1)
}
