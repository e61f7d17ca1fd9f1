package injection

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// hold is how long a fault lasts before anything is done about it. An app tries
// each of its means forty times in it.
const hold = 2 * time.Second

// subject is a pod whose app talks all the time, and what has to be so of it.
type subject struct {
	*pod
	t       *testing.T
	gateway *pod
	app     *app
	exits   []netip.Addr // as whom the app may be seen
	around  *watcher     // of what goes around the tunnel, or nil
}

// talks starts an app in the pod.
func (p *pod) talks(t *testing.T, gateway *pod) *subject {
	t.Helper()
	a, err := startApp(p.net)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.end)
	return &subject{pod: p, t: t, gateway: gateway, app: a, exits: gateway.addresses}
}

// tight fails the test where anything has left outside of the tunnel since the
// last time, or where the app was told to be anybody but the gateway.
func (s *subject) tight(when string) {
	s.t.Helper()
	if l := s.w.wall(s.pod).leaks(s.capture.seen()); len(l) > 0 {
		s.t.Errorf("%s, outside of the tunnel:\n%s", when, l)
	}
	for a, n := range s.app.identities() {
		if !slices.Contains(s.exits, a) {
			s.t.Errorf("%s, the app was seen as %s, %d times", when, a, n)
		}
	}
	seen := s.w.internet.seen()
	for _, a := range s.addresses {
		if seen[a] > 0 {
			s.t.Errorf("%s, the internet has seen %d of %s", when, seen[a], a)
		}
	}
}

// leaky fails the test unless much has left outside of the tunnel, of either
// family: a test that could not fail shows nothing.
func (s *subject) leaky(when string) {
	s.t.Helper()
	_ = s.capture.seen()
	time.Sleep(hold / 2)
	l := s.w.wall(s.pod).leaks(s.capture.seen())
	four, six := l.families()
	if four < 10 || six < 10 {
		s.t.Errorf("%s, only %d and %d packets have left: the test shows nothing\n%s", when, four, six, l)
	}
	s.t.Logf("control: %s, %d packets leave by IPv4 and %d by IPv6", when, four, six)
	s.forget()
}

// control shows what a fault does without the sidecar's firewall, and waits
// until that is back. Who looks around the tunnel does not look meanwhile: a
// connection that is made while nothing marks it does not outlive that.
func (s *subject) control(when string, prepare, restore func()) {
	s.t.Helper()
	if s.around != nil {
		s.around.paused.Lock()
		defer s.around.paused.Unlock()
	}
	prepare()
	s.unwall()
	s.leaky(when)
	restore()
	s.walled()
	// With the firewall the kernel forgets all connections, then and once more.
	time.Sleep(hold)
	s.forget()
}

// forget forgets what was seen up to now.
func (s *subject) forget() {
	_ = s.capture.seen()
	s.app.identities()
	s.w.internet.seen()
}

// online waits until the app is answered again, and tells how long that took.
func (s *subject) online(what string) {
	s.t.Helper()
	since := time.Now()
	took := waitFor(s.t, what, func() error { return s.app.answeredSince(since) })
	s.t.Logf("%s: the app has answers after %s", what, took.Round(time.Millisecond))
}

// silent holds a fault, and fails the test where the app was answered or
// anything has left outside of the tunnel.
func (s *subject) silent(when string) {
	s.t.Helper()
	time.Sleep(hold / 4) // What is on its way arrives.
	since := time.Now()
	time.Sleep(hold)
	if s.app.answeredSince(since) == nil {
		s.t.Errorf("%s, the app has answers: the fault is none", when)
	}
	s.tight(when)
}

// unwall takes the sidecar's firewall away, or of its two tables that of a
// family: inet, or netdev where the kernel has that for what leaves. It tells
// whether there was any. While the sidecar lives it would put it back.
func (s *subject) unwall(families ...string) bool {
	s.t.Helper()
	found := false
	for l := range strings.Lines(s.net.must(s.t, "nft", "list", "tables")) {
		f := strings.Fields(l) // such as: table inet wireguard_lockdown
		if f[2] == wireguard.LockdownTable && (len(families) == 0 || slices.Contains(families, f[1])) {
			s.net.must(s.t, "nft", "delete", "table", f[1], f[2])
			found = true
		}
	}
	return found
}

func (s *subject) freeze() { s.containers["wireguard"].signal(syscall.SIGSTOP) }
func (s *subject) thaw()   { s.containers["wireguard"].signal(syscall.SIGCONT) }

func (s *subject) deleteDevice() { s.net.must(s.t, "ip", "link", "del", wireguard.ClientDevice) }

// deleteRoutes deletes the policy's routes and rules.
func (s *subject) deleteRoutes() {
	s.t.Helper()
	for _, family := range []string{"-4", "-6"} {
		// The last one first: without those before it, what stays in the cluster
		// would go into the tunnel for a moment.
		for _, l := range slices.Backward(strings.Split(s.net.must(s.t, "ip", family, "rule", "show"), "\n")) {
			if preference, _, _ := strings.Cut(l, ":"); !slices.Contains([]string{"", "0", "32766", "32767"}, preference) {
				s.net.must(s.t, "ip", family, "rule", "del", "pref", preference)
			}
		}
		s.net.must(s.t, "ip", family, "route", "flush", "table", fmt.Sprint(wireguard.FirewallMark))
	}
}

// walled waits until the sidecar's firewall is there.
func (s *subject) walled() time.Duration {
	s.t.Helper()
	start := time.Now()
	_, err := poll(time.Millisecond, func() error {
		_, err := s.net.run("nft", "list", "table", "inet", wireguard.LockdownTable)
		return err
	})
	if err != nil {
		s.t.Fatalf("no firewall: %v\n%s", err, s.log())
	}
	return time.Since(start)
}

// TestFaults holds a pod through everything that can happen to its tunnel. What
// stays in the cluster works throughout.
func TestFaults(t *testing.T) {
	w := newWorld(t)
	p := w.mustRun(t, "media")
	if err := serveApp(p.net); err != nil {
		t.Fatal(err)
	}
	s := p.talks(t, w.gateways["home"])
	s.online("before all faults")
	s.tight("before all faults")
	s.around = watch(w.aroundTunnel(p))

	for _, f := range []struct {
		name string
		do   func(*subject)
	}{
		{"Killed", killed},
		{"DeviceDeleted", deviceDeleted},
		{"RoutesDeleted", routesDeleted},
		{"GatewayKilled", gatewayKilled},
		{"GatewayReplaced", gatewayReplaced},
		{"DNSChanged", dnsChanged},
	} {
		t.Run(f.name, func(t *testing.T) {
			s.t = t
			f.do(s)
		})
	}

	passed, failed := s.around.end()
	t.Logf("meanwhile, around the tunnel: %v", passed)
	if len(failed) > 0 {
		t.Errorf("around the tunnel:\n%s", strings.Join(failed, "\n"))
	}
	for _, c := range w.aroundTunnel(p) {
		if passed[c.name] < 10 {
			t.Errorf("around the tunnel: %s has worked %d times only", c.name, passed[c.name])
		}
	}
}

// aroundTunnel is what has to work whatever the tunnel does.
func (w *world) aroundTunnel(p *pod) []clusterCheck {
	four, six := p.addresses[0], p.addresses[1]
	answers := func(from *namespace, address string, source netip.Addr) func() error {
		return func() error { return answersTo(from, address, source) }
	}
	web := []string{"web pod to the pod, IPv4", "web pod to the pod, IPv6"}
	checks := []clusterCheck{
		{"DNS over UDP", func() error { return looksUp(p.net, "udp") }},
		{"DNS over TCP", func() error { return looksUp(p.net, "tcp") }},
		{"Service, IPv4", answers(p.net, net.JoinHostPort(web4, "80"), four)},
		{"Service, IPv6", answers(p.net, net.JoinHostPort(web6, "80"), six)},
		{"kubelet's probe, IPv4", answers(w.node.namespace, net.JoinHostPort(four.String(), fmt.Sprint(appPort)), netip.MustParseAddr(node4))},
		{"kubelet's probe, IPv6", answers(w.node.namespace, net.JoinHostPort(six.String(), fmt.Sprint(appPort)), netip.MustParseAddr(node6))},
		{"client on the internet, IPv4", answers(w.internet.namespace, net.JoinHostPort(four.String(), fmt.Sprint(appPort)), netip.MustParseAddr(internet4))},
		{"client on the internet, IPv6", answers(w.internet.namespace, net.JoinHostPort(six.String(), fmt.Sprint(appPort)), netip.MustParseAddr(internet6))},
	}
	for i, a := range p.addresses {
		checks = append(checks, clusterCheck{web[i], answers(w.web, net.JoinHostPort(a.String(), fmt.Sprint(appPort)), netip.Addr{})})
	}
	return checks
}

// answersTo makes a request, and looks as whom it was seen.
func answersTo(from *namespace, address string, source netip.Addr) error {
	h := http.Client{Timeout: dialTimeout, Transport: &http.Transport{DisableKeepAlives: true, DialContext: from.dial}}
	rsp, err := h.Get("http://" + address)
	if err != nil {
		return err
	}
	defer func() { _ = rsp.Body.Close() }()
	b, err := io.ReadAll(rsp.Body)
	if err != nil {
		return err
	}
	seen, err := netip.ParseAddrPort(string(b))
	if err == nil && source.IsValid() && seen.Addr().Unmap() != source {
		err = fmt.Errorf("seen as %s, not as %s", seen.Addr(), source)
	}
	return err
}

// looksUp asks the cluster's DNS for the address of a Service.
func looksUp(from *namespace, network string) error {
	r := net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return from.dial(ctx, network, net.JoinHostPort(clusterDNS, "53"))
	}}
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	got, err := r.LookupNetIP(ctx, "ip4", "web.apps.svc.cluster.local.")
	if err == nil && (len(got) != 1 || got[0] != netip.MustParseAddr(web4)) {
		err = fmt.Errorf("got %v", got)
	}
	return err
}

// killed kills the sidecar. The kubelet starts it again, beside the app.
func killed(s *subject) {
	s.containers["wireguard"].kill()
	s.silent("while the sidecar is dead")
	if s.unwall("netdev") {
		s.silent("while the sidecar is dead, behind one of two walls")
	}
	s.control("while the sidecar is dead", func() {}, s.restart)
	s.online("the sidecar was started again")
	s.tight("while the sidecar starts again")
	// Again, and now the firewall is there all the time.
	s.containers["wireguard"].kill()
	s.restart()
	s.online("the sidecar was killed and started at once")
	s.tight("while the sidecar starts at once")
}

func (s *subject) restart() {
	s.t.Helper()
	if err := s.startSidecar(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

func deviceDeleted(s *subject) {
	s.deleteDevice()
	s.online("the device was deleted")
	s.tight("while the sidecar makes its device again")
	s.freeze()
	s.deleteDevice()
	s.silent("while there is no device")
	s.control("without device", func() {}, s.thaw)
	s.online("the sidecar goes on without device")
	s.tight("after the sidecar went on without device")
}

func routesDeleted(s *subject) {
	s.deleteRoutes()
	s.online("rules and routes were deleted")
	s.tight("while the sidecar makes its routes again")
	s.freeze()
	s.deleteRoutes()
	s.silent("while there are no routes")
	s.control("without routes", func() {}, s.thaw)
	s.online("the sidecar goes on without routes")
	s.tight("after the sidecar went on without routes")
}

// gatewayKilled kills the gateway's agent. The kubelet starts it again.
func gatewayKilled(s *subject) {
	agent := s.gateway.object.Spec.Containers[0]
	s.gateway.containers[agent.Name].kill()
	s.silent("while the gateway's agent is dead")
	s.withoutSidecar("without the gateway's agent")
	if _, err := s.gateway.startContainer(s.t.Context(), agent); err != nil {
		s.t.Fatal(err)
	}
	s.online("the gateway's agent was started again")
	s.tight("while the gateway's agent starts again")
}

// gatewayReplaced takes the gateway's pod away, and runs another one with
// another address.
func gatewayReplaced(s *subject) {
	s.gatewayGone()
	s.silent("while there is no gateway")
	s.withoutSidecar("without gateway")
	s.silent("while there still is no gateway")
	s.gatewayBack("the gateway was replaced")
	s.tight("while the gateway is replaced")
}

// gatewayGone takes the gateway's pod away.
func (s *subject) gatewayGone() {
	s.t.Helper()
	if err := s.w.serveGateway(s.t.Context(), "home", netip.Addr{}); err != nil {
		s.t.Fatal(err)
	}
	if err := s.gateway.remove(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
}

// gatewayBack runs a new pod of the gateway, which has another address than the
// one before.
func (s *subject) gatewayBack(what string) {
	s.t.Helper()
	old := s.gateway
	if err := s.w.startGateway(s.t.Context(), "home"); err != nil {
		s.t.Fatal(err)
	}
	s.gateway = s.w.gateways["home"]
	s.exits = s.gateway.addresses
	if s.gateway.addresses[0] == old.addresses[0] {
		s.t.Fatal("the new gateway has the old address")
	}
	s.online(what)
}

// withoutSidecar is the control of faults that are not the pod's: the same
// traffic, without all that the sidecar has made.
func (s *subject) withoutSidecar(when string) {
	s.t.Helper()
	s.control(when+" and sidecar", func() {
		s.freeze()
		s.deleteRoutes()
	}, s.thaw)
}

// dnsChanged makes the gateway's pod and Service anew, so that the cluster's DNS
// has another address for it, and nobody is at the old one.
func dnsChanged(s *subject) {
	w := s.w
	before, err := w.serviceOf(s.t.Context(), "home")
	if err != nil {
		s.t.Fatal(err)
	}
	s.gatewayGone()
	if err := w.Client.Delete(s.t.Context(), before); err != nil {
		s.t.Fatal(err)
	}
	if err := w.composer.settle(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	after, err := w.serviceOf(s.t.Context(), "home")
	if err != nil {
		s.t.Fatal(err)
	}
	if before.Spec.ClusterIP == after.Spec.ClusterIP {
		s.t.Fatal("the new Service has the old address")
	}
	s.silent("while the sidecar knows the old address")
	s.withoutSidecar("with another address")
	s.gatewayBack("the gateway's Service was made anew")
	s.tight("while the sidecar takes the new address")
}
