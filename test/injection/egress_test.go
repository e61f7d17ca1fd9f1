package injection

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/test/gluetun"
	"github.com/wireguardgateway/function-wireguard-gateway/test/injection/container"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

const (
	provider4, provider6 = "198.51.100.10", "2001:db8:3::10"
	providerPort         = 51821
	tunnel4, tunnel6     = "10.64.0.2", "fd64::2"
)

var (
	providersKey = wireguard.Seed{1}.ServerKey(0)
	accountsKey  = wireguard.Seed{2}.ServerKey(0)
)

// egressSpec sends all that pods send to the internet through a provider.
var egressSpec = strings.Replace(gatewaySpec, "name: home", "name: egress", 1) + `
  gluetun:
    provider: custom
    credentials: {secretRef: {name: provider}}
    endpoint: {ip: ` + provider4 + `, port: ` + fmt.Sprint(providerPort) + `, publicKey: "` + providersKey.Public().String() + `"}
`

const crawlerSpec = `
apiVersion: wireguardgateway.io/v1alpha1
kind: WireguardPeer
metadata: {name: crawler, namespace: apps}
spec:
  gatewayRef: {name: egress, namespace: vpn}
  pods: {implementation: Userspace}
`

// tunnel is a device of plain wireguard-go.
type tunnel struct {
	at     *namespace
	dir    string
	device string
	*process
}

// newTunnel makes a device in a namespace, and configures it.
func newTunnel(at *namespace, device, config string, lines ...string) (*tunnel, error) {
	dir, err := os.MkdirTemp(shared.dir, "tunnel")
	if err != nil {
		return nil, err
	}
	t := &tunnel{at: at, dir: dir, device: device}
	for _, d := range []string{"root", "volume"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o700); err != nil {
			return nil, err
		}
	}
	s := container.Spec{
		Root: filepath.Join(dir, "root"), Program: programs.wireguardGo, Privileged: true, Args: []string{"-f", device}, Env: []string{"LOG_LEVEL=error"},
		Mounts: map[string]container.Mount{"/dev/net/tun": {Source: "/dev/net/tun"}, "/var/run/wireguard": {Source: filepath.Join(dir, "volume")}},
	}
	cmd, err := command(s)
	if err != nil {
		return nil, err
	}
	if t.process, err = at.start(cmd); err != nil {
		return nil, err
	}
	if _, err := poll(interval, func() error {
		_, err := (&pod{dir: dir}).uapi("volume", device, "set=1\n"+config)
		return err
	}); err != nil {
		t.kill()
		return nil, fmt.Errorf("%w: %s", err, t.out)
	}
	return t, at.script(lines...)
}

// script runs lines one by one, up to the first that fails.
func (n *namespace) script(lines ...string) error {
	_, err := n.run("sh", "-ec", strings.Join(lines, "\n"))
	return err
}

// provider is the other end of gluetun's tunnel, with a NAT of its own.
func (w *world) provider(t *testing.T) (*namespace, func() (*tunnel, error)) {
	t.Helper()
	n, err := newNamespace("provider")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.close)
	if err := errors.Join(
		w.node.attach(n, "provider", netip.MustParseAddr(provider4), netip.MustParseAddr(provider6)),
		n.sysctl(map[string]string{"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1"}),
	); err != nil {
		t.Fatal(err)
	}
	if _, err := n.runWith(`table inet provider { chain p { type nat hook postrouting priority 100; oifname "eth0" masquerade; }; }`, "nft", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	// The host on the internet is also whoever the agent looks for through the
	// tunnel.
	for _, a := range []string{"1.1.1.1/32", "8.8.8.8/32", "2606:4700:4700::1111/128", "2001:4860:4860::8888/128"} {
		if err := errors.Join(w.internet.address("lo", a), w.node.script("ip route add "+a+" dev internet")); err != nil {
			t.Fatal(err)
		}
	}
	return n, func() (*tunnel, error) {
		return newTunnel(n, "wgp0", fmt.Sprintf("private_key=%s\nlisten_port=%d\npublic_key=%s\nallowed_ip=%s/32\nallowed_ip=%s/128", digits(providersKey), providerPort, digits(accountsKey.Public()), tunnel4, tunnel6),
			"ip addr add 10.64.0.1/24 dev wgp0", "ip addr add fd64::1/64 dev wgp0 nodad", "ip link set wgp0 up")
	}
}

func digits(k wireguard.Key) string { return hex.EncodeToString(k.Key[:]) }

// startGluetun does to the pod's network what gluetun does in a pod without
// faults.
func startGluetun(p *pod, c corev1.Container, postRules string) (*tunnel, error) {
	settings := gluetun.Settings{Env: map[string]string{}, Rules: postRules}
	for _, e := range c.Env {
		settings.Env[e.Name] = e.Value
	}
	network := gluetun.Network{
		Device: "eth0", Address4: p.addresses[0].String(), Address6: p.addresses[1].String(),
		Local4: []string{router4 + "/32"}, Local6: []string{"fe80::/64"}, Gateway4: router4, Gateway6: router6,
	}
	routing := gluetun.Routing(settings, network, func(command string) string {
		out, _ := p.net.run(strings.Fields(command)...)
		return out
	})
	if err := p.net.script(append(gluetun.Firewall(settings, network), routing...)...); err != nil {
		return nil, err
	}
	return newTunnel(p.net, gluetun.Device, fmt.Sprintf("private_key=%s\nfwmark=%d\npublic_key=%s\nendpoint=%s:%s\nallowed_ip=0.0.0.0/0\nallowed_ip=::/0", digits(accountsKey), gluetun.Mark,
		digits(providersKey.Public()), settings.Env["WIREGUARD_ENDPOINT_IP"], settings.Env["WIREGUARD_ENDPOINT_PORT"]),
		append(gluetun.Address(settings, tunnel4+"/32", tunnel6+"/128"), gluetun.Divert(true)...)...)
}

// egressWall is what a gateway with gluetun may send on its pod's interface.
func (w *world) egressWall(gateway *pod) wall {
	l := w.wall(gateway)
	l.to = []netip.AddrPort{netip.AddrPortFrom(netip.MustParseAddr(provider4), providerPort)}
	l.inbound = nil
	for _, a := range []string{node4, node6} {
		l.inbound = append(l.inbound, netip.AddrPortFrom(netip.MustParseAddr(a), wireguard.HTTPPort))
	}
	return l
}

// TestEgress sends a pod's traffic through its gateway and a commercial VPN, and
// takes that away.
func TestEgress(t *testing.T) {
	w := newWorld(t)
	_, serve := w.provider(t)
	vpn, err := serve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { vpn.kill() })
	if err := ensure(t.Context(), w.Client, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "vpn", Name: "provider"},
		StringData: map[string]string{"wireguard-private-key": accountsKey.String(), "wireguard-addresses": tunnel4 + "/32," + tunnel6 + "/128"},
	}); err != nil {
		t.Fatal(err)
	}
	if err := w.composer.set(t.Context(), egressSpec, crawlerSpec); err != nil {
		t.Fatal(err)
	}
	var tun *tunnel
	w.played["gluetun"] = func(p *pod, c corev1.Container) error {
		rules, err := w.secret(t.Context(), "vpn", "egress-wireguard.config", wireguard.PostRulesKey)
		if err == nil {
			tun, err = startGluetun(p, c, rules)
		}
		return err
	}
	t.Cleanup(func() {
		if tun != nil {
			tun.kill()
		}
		w.stopGateway("egress")
	})
	if err := w.startGateway(t.Context(), "egress"); err != nil {
		t.Fatal(err)
	}
	gateway := w.gateways["egress"]
	p := w.mustRun(t, "crawler")
	s := p.talks(t, gateway)
	s.exits = []netip.Addr{netip.MustParseAddr(provider4), netip.MustParseAddr(provider6)}
	s.online("through the provider")
	if err := p.seenAs(s.exits); err != nil {
		t.Error(err)
	}
	gatewayIsTight := func(when string) {
		t.Helper()
		if l := w.egressWall(gateway).leaks(gateway.capture.seen()); len(l) > 0 {
			t.Errorf("%s, from the gateway:\n%s", when, l)
		}
	}
	s.tight("through the provider")
	gatewayIsTight("through the provider")

	vpn.kill()
	s.silent("without the provider")
	gatewayIsTight("without the provider")

	// gluetun is killed, too, and its device is gone.
	tun.kill()
	s.silent("without gluetun")
	gatewayIsTight("without gluetun")

	// The same capture, at a gateway that sends directly.
	home := w.gateways["home"]
	q := w.mustRun(t, "media").talks(t, home)
	q.online("a gateway without gluetun")
	_ = home.capture.seen()
	time.Sleep(hold / 2)
	four, six := w.egressWall(home).leaks(home.capture.seen()).families()
	if four < 10 || six < 10 {
		t.Errorf("of a gateway without gluetun, only %d and %d packets are seen: the test shows nothing", four, six)
	}
	t.Logf("control: a gateway without gluetun sends %d packets by IPv4 and %d by IPv6", four, six)
}
