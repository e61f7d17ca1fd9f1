package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	node "github.com/wireguardgateway/function-wireguard-gateway/test/node/harness"
)

const (
	gluetunImage = "ghcr.io/qdm12/gluetun:v3.41.1"
	// credentials names the Secret with what the provider gave its customer.
	credentials = "provider"
)

// gluetunGateway is a gateway whose peers leave through a provider.
type gluetunGateway struct {
	*gateway

	provider *node.Provider
	secret   *corev1.Secret
}

// outsides are what the providers of each node lead to.
var outsides = map[*node.Node]*node.Outside{}

// outsideOf returns what is behind the providers, and has the image of gluetun's
// stand-in stored first.
func outsideOf(t *testing.T, n *node.Node) *node.Outside {
	t.Helper()
	if o := outsides[n]; o != nil {
		return o
	}
	if err := n.PushGluetun(t.Context(), gluetunImage); err != nil {
		t.Fatal(err)
	}
	o, err := n.NewOutside(context.WithoutCancel(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	outsides[n] = o
	return o
}

// newGluetunGateway prepares a gateway behind a provider of its own, and the
// Secret that the user has of it. The gateway needs a Composition in which the
// platform names its networks: the spec is onPlatform, and what else there is.
func newGluetunGateway(t *testing.T, n *node.Node, namespace, spec string) *gluetunGateway {
	t.Helper()
	p, err := n.NewProvider(t.Context(), outsideOf(t, n))
	if err != nil {
		t.Fatal(err)
	}
	g := &gluetunGateway{gateway: newGateway(t, n, namespace, spec), provider: p}
	g.secret = &corev1.Secret{StringData: p.Credentials()}
	g.secret.Namespace, g.secret.Name = namespace, credentials
	if err := n.Client.Create(t.Context(), g.secret); err != nil {
		t.Fatal(err)
	}
	egress := map[string]any{}
	if err := yaml.Unmarshal(fmt.Appendf(nil, `
provider: custom
credentials: {secretRef: {name: %s}}
endpoint: {ip: %s, port: %d, publicKey: %q}
`, credentials, p.Exit4, node.ProviderPort, p.PublicKey), &egress); err != nil {
		t.Fatal(err)
	}
	g.spec["gluetun"] = egress
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for _, args := range [][]string{{"logs"}, {"logs", "--previous"}} {
			out, _ := n.Kubectl(context.Background(), append(args, "-n", namespace, "-l", "app.kubernetes.io/name=wireguard-gateway", "-c", names.ContainerGluetun, "--tail", "30")...)
			t.Logf("gluetun's %s:\n%s", strings.Join(args, " "), out)
		}
	})
	return g
}

// dnsLine is what a client would need resolvconf(8) for.
var dnsLine = regexp.MustCompile(`(?m)^DNS = .*\n`)

// connect brings up a client as a peer, and returns when it reaches the outside.
func (g *gluetunGateway) connect(peer string) *node.Client {
	g.t.Helper()
	c, err := g.n.NewClient(g.t.Context())
	if err != nil {
		g.t.Fatal(err)
	}
	if err := c.Up(g.t.Context(), dnsLine.ReplaceAllString(g.conf(peer), "")); err != nil {
		g.t.Fatal(err)
	}
	waitReply(g.t, c, node.Outside4)
	return c
}

// waitUp waits until peers leave through the provider, as far as the user is
// told.
func (g *gluetunGateway) waitUp() {
	g.t.Helper()
	g.waitCondition("EgressReady", "True", "TunnelUp")
	g.n.Eventually(g.t, "the provider's address in the status", func() error {
		if e := g.status().Egress; e == nil || e.PublicIP != g.provider.Exit4 {
			return fmt.Errorf("it is %+v, want %q", e, g.provider.Exit4)
		}
		return nil
	})
}

// within runs a command line without quotes in the network of the pod.
func (g *gateway) within(ctx context.Context, line string) (string, error) {
	p, err := g.pod(ctx)
	if err != nil {
		return "", err
	}
	pid, err := aProcess(g.n, p, names.ContainerAgent)
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, "nsenter", append([]string{"-t", strconv.Itoa(pid), "-n"}, strings.Fields(line)...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("cannot run %s: %w: %s", line, err, out)
	}
	return string(out), err
}

// probe does what the kubelet's probe of gluetun does.
func (g *gluetunGateway) probe(ctx context.Context) error {
	p, err := g.pod(ctx)
	if err != nil {
		return err
	}
	for _, c := range p.Spec.InitContainers {
		if c.Name == names.ContainerGluetun {
			_, err = g.n.Kubectl(ctx, append([]string{"exec", "-n", p.Namespace, p.Name, "-c", c.Name, "--"}, c.LivenessProbe.Exec.Command...)...)
			return err
		}
	}
	return errors.New("there is no gluetun in the pod")
}

// TestGluetun takes peers' traffic out through a provider.
func TestGluetun(t *testing.T) {
	n := shared(t)
	platform(t, n)
	w := watchLeaks(t, n)
	g := newGluetunGateway(t, n, newNamespace(t, n, "privileged"), onPlatform+"\npeerCIDR: 10.8.0.0/24\npeerCIDRv6: fd00:8::/64\npeers: [{name: laptop}]")
	const port = 41230
	g.provider.Forward(outsideOf(t, n), port)
	egress := g.spec["gluetun"].(map[string]any)
	egress["portForwarding"] = map[string]any{"enabled": true}
	egress["env"] = []any{map[string]any{"name": "VPN_PORT_FORWARDING_PROVIDER", "value": "protonvpn"}}
	if err := g.provider.Fail(t.Context()); err != nil {
		t.Fatal(err)
	}
	start := g.apply()
	g.waitCondition("EgressReady", "False", "TunnelStarting")
	t.Logf("EgressReady was False %v after the gateway was applied", time.Since(start).Round(time.Millisecond))
	// A pod that is ready too early would be by now.
	time.Sleep(10 * time.Second)
	if g.podReady(t.Context()) == nil {
		t.Error("the pod is ready, and the tunnel is not up")
	}
	g.waitCondition("EgressReady", "False", "TunnelStarting")
	n.Eventually(t, "gluetun's own judgement", func() error {
		switch err := g.probe(t.Context()); {
		case err == nil:
			return errors.New("it is well without a provider")
		case !strings.Contains(err.Error(), "unhealthy"):
			return err
		}
		return nil
	})
	start = time.Now()
	if err := g.provider.Serve(t.Context()); err != nil {
		t.Fatal(err)
	}
	g.waitUp()
	t.Logf("EgressReady was True, with the provider's address, %v after the provider was there", time.Since(start).Round(time.Millisecond))
	if err := g.probe(t.Context()); err != nil {
		t.Errorf("gluetun's own judgement: %v", err)
	}
	if got := g.status().Egress.ForwardedPort; got != port {
		t.Errorf("the forwarded port is %d, want %d", got, port)
	}
	g.waitPod()
	t.Logf("the pod was ready %v after the provider was there", time.Since(start).Round(time.Millisecond))
	g.waitReady()
	if err := w.watch(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	c := g.connect("laptop")
	for _, host := range []string{node.Outside4, node.Outside6} {
		f := startFlow(t, c, host)
		time.Sleep(3 * time.Second)
		if r := f.end(); r.Lost > 0 || r.Broken != nil {
			t.Errorf("%s: %+v", host, r)
		}
	}
	// By the gateway's resolver, which knows the cluster's names and others.
	for name, want := range map[string]string{"kubernetes.default.svc.cluster.local.": apiServer.Addr().String(), "example.com.": node.Outside4} {
		r := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return c.Dial(ctx, "udp", "10.8.0.1:53")
		}}
		if got, err := r.LookupNetIP(t.Context(), "ip4", name); err != nil || len(got) != 1 || got[0].String() != want {
			t.Errorf("%s is %v, want %s: %v", name, got, want, err)
		}
	}
	w.check(t, "nothing")
	g.leak(w, c)
}

// leak breaks both walls that stand around peers, and holds that this is seen.
func (g *gluetunGateway) leak(w *leakWatch, c *node.Client) {
	g.t.Helper()
	run := func(lines ...string) {
		g.t.Helper()
		for _, line := range lines {
			if _, err := g.within(g.t.Context(), line); err != nil {
				g.t.Fatal(err)
			}
		}
	}
	f := startFlow(g.t, c, node.Outside4)
	run("iptables -I FORWARD -i wg0 -o eth0 -j ACCEPT", "ip rule add iif wg0 lookup main pref 50", "nft delete table inet wireguard_gateway")
	time.Sleep(time.Second)
	leaks, _ := w.leaks()
	run("ip rule del pref 50", "iptables -D FORWARD -i wg0 -o eth0 -j ACCEPT")
	g.t.Logf("without both walls: %q", leaks)
	if len(leaks) == 0 {
		g.t.Error("packets around the tunnel are not seen, so that nothing is shown")
	}
	o := outsideOf(g.t, g.n)
	strangers, err := o.Strangers(g.t.Context())
	if err != nil {
		g.t.Fatal(err)
	}
	g.t.Logf("the outside saw %q", strangers)
	if len(strangers) == 0 {
		g.t.Error("the outside does not see who comes around the tunnel")
	}
	g.n.Eventually(g.t, "the walls", func() error {
		_, err := g.within(g.t.Context(), "nft list table inet wireguard_gateway")
		return err
	})
	g.n.Eventually(g.t, "traffic", func() error {
		if q := f.quietSince(); q > time.Second {
			return fmt.Errorf("no answer for %v", q)
		}
		return nil
	})
	f.end()
	w.forget()
	if err := o.Forget(g.t.Context()); err != nil {
		g.t.Fatal(err)
	}
}

// TestGluetunCredentials applies a gateway whose Secret is not there yet.
func TestGluetunCredentials(t *testing.T) {
	n := shared(t)
	platform(t, n)
	g := newGluetunGateway(t, n, newNamespace(t, n, "privileged"), onPlatform+"\npeers: [{name: phone}]")
	if err := n.Client.Delete(t.Context(), g.secret); err != nil {
		t.Fatal(err)
	}
	g.apply()
	t.Log(g.waitCondition("EgressReady", "False", "CredentialsMissing"))
	g.secret.ResourceVersion = ""
	g.secret.StringData = g.provider.Credentials()
	if err := n.Client.Create(t.Context(), g.secret); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	g.waitUp()
	t.Logf("EgressReady was True %v after the Secret was there", time.Since(start).Round(time.Millisecond))
	g.connect("phone")
}
