package injection

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// An app that talks before its sidecar runs, which the order of containers
// forbids, is kept in from the moment that the sidecar has its firewall, long
// before there is a tunnel.
func TestBeforeTunnel(t *testing.T) {
	w := newWorld(t)
	o, err := w.create(t.Context(), "media")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(isInjected(o, "media"), w.bind(t.Context(), o)); err != nil {
		t.Fatal(err)
	}
	p, err := w.sandbox(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.remove(context.Background()) })
	s := p.talks(t, w.gateways["home"])
	s.leaky("before the sidecar")
	if err := p.startSidecar(t.Context()); err != nil {
		t.Fatal(err)
	}
	took := s.walled()
	t.Logf("the firewall is there %s after the sidecar's start", took.Round(time.Millisecond))
	s.forget()

	// The gateway does not know the pod yet.
	s.silent("while the sidecar starts")
	if err := p.exec(t.Context(), p.sidecar(), p.sidecar().StartupProbe); err == nil {
		t.Error("the startup probe passes before there is a tunnel")
	}
	if err := p.report(t.Context(), corev1.PodPending); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	if err := p.started(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("a pod that the gateway gets to know late is up %s after that", time.Since(start).Round(time.Millisecond))
	s.online("the gateway knows the pod")
	s.tight("when the tunnel is up")
	if err := p.exec(t.Context(), p.sidecar(), p.sidecar().ReadinessProbe); err != nil {
		t.Errorf("the readiness probe: %v", err)
	}
}

// What the sidecar runs with is what its pod says, and no more.
func TestLeastPrivilege(t *testing.T) {
	w := newWorld(t)
	p := w.mustRun(t, "media")
	status, err := p.status()
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"CapEff:\t0000000000001000", "CapPrm:\t0000000000001000", "CapBnd:\t0000000000001000", "NoNewPrivs:\t1", "Uid:\t0\t0\t0\t0"} {
		if !strings.Contains(status, line) {
			t.Errorf("no %q in\n%s", line, status)
		}
	}
	for l := range strings.Lines(status) {
		if strings.HasPrefix(l, "VmRSS") || strings.HasPrefix(l, "RssAnon") {
			t.Logf("memory of a sidecar at rest: %s", strings.Join(strings.Fields(l), " "))
		}
	}
}

// What the gateway's agent may do in the cluster is what it needs.
func TestRights(t *testing.T) {
	w := newWorld(t)
	for what, allowed := range map[string]bool{
		"list apps pods": true, "watch apps pods": true, "get vpn secrets home-wireguard.config": true, "patch vpn configmaps home-wireguard.status": true,
		"list vpn pods": false, "list  pods": false, "list others pods": false, "delete apps pods": false, "patch apps pods": false,
		"get vpn secrets home-wireguard.seed": false, "list vpn secrets": false, "get apps secrets media-wireguard.enrolment": false,
	} {
		f := append(strings.Split(what, " "), "")
		r := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:vpn:home-wireguard",
			Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:vpn", "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: f[0], Namespace: f[1], Resource: f[2], Name: f[3]},
		}}
		if err := w.Client.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		if r.Status.Allowed != allowed {
			t.Errorf("%s: allowed is %t, want %t", what, r.Status.Allowed, allowed)
		}
	}
}

// sink is the socket at the pod's end of a flow. It only counts what comes.
type sink struct {
	net.PacketConn

	received atomic.Int64
}

func newSink(at *namespace) (*sink, error) {
	c, err := at.packets("udp4", fmt.Sprintf(":%d", oldPort))
	if err != nil {
		return nil, err
	}
	s := &sink{PacketConn: c}
	go func() {
		b := make([]byte, 1500)
		for {
			if _, _, err := c.ReadFrom(b); errors.Is(err, net.ErrClosed) {
				return
			} else if err == nil {
				s.received.Add(1)
			}
		}
	}()
	return s, nil
}

// oldPort is where the flow of the pod that had the address before ends.
const oldPort = 7777

// talkedTo opens a flow from a pod to the internet, whose other end goes on
// sending whatever becomes of the pod.
func (w *world) talkedTo(t *testing.T, p *pod) {
	t.Helper()
	far, err := w.internet.packets("udp4", internet4+":0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSink(p.net)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.WriteTo([]byte("hello"), far.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	_ = far.SetReadDeadline(time.Now().Add(limit))
	_, from, err := far.ReadFrom(make([]byte, 64))
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	t.Cleanup(func() {
		close(stop)
		_ = far.Close()
	})
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				_, _ = far.WriteTo([]byte("for the pod that was"), from)
			}
		}
	}()
	waitFor(t, "answers on the flow", func() error {
		if s.received.Load() == 0 {
			return errors.New("nothing comes")
		}
		return nil
	})
}

// A pod gets the address of one that is gone. It gets nothing of what is still
// sent to that one.
func TestAddressReused(t *testing.T) {
	w := newWorld(t)
	gateway := w.gateways["home"]
	first := w.mustRun(t, "media")
	w.talkedTo(t, first)
	if err := first.remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	second := w.mustRun(t, "media", first.addresses...)
	t.Logf("a pod with the address of another is up after %s", time.Since(start).Round(time.Millisecond))
	got, err := newSink(second.net)
	if err != nil {
		t.Fatal(err)
	}
	s := second.talks(t, gateway)
	s.online("a pod has another's address")
	time.Sleep(hold)
	if n := got.received.Load(); n > 0 {
		t.Errorf("%d packets for the pod that had the address before came to the next one", n)
	}
	s.tight("with another's address")
	if err := second.seenAs(gateway.addresses); err != nil {
		t.Error(err)
	}
	if err := second.remove(t.Context()); err != nil {
		t.Fatal(err)
	}

	// One without the label has nothing to do with the gateway.
	plain, err := w.plain(t, first)
	if err != nil {
		t.Fatal(err)
	}
	if got, err = newSink(plain.net); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the gateway's way to a pod without the label", func() error {
		return answersTo(gateway.net, net.JoinHostPort(plain.addresses[0].String(), fmt.Sprint(appPort)), gateway.addresses[0])
	})
	time.Sleep(hold / 2)
	if n := got.received.Load(); n > 0 {
		t.Errorf("%d packets for the pod that had the address before came to one without the label", n)
	}
}

// plain runs a pod without the label, with the addresses of another.
func (w *world) plain(t *testing.T, like *pod) (*pod, error) {
	t.Helper()
	o, err := w.create(t.Context(), "")
	if err != nil {
		return nil, err
	}
	if len(o.Spec.InitContainers) > 0 {
		return nil, errors.New("a pod without the label has a sidecar")
	}
	if err := w.bind(t.Context(), o); err != nil {
		return nil, err
	}
	p, err := w.sandbox(o, like.addresses...)
	t.Cleanup(func() { _ = p.remove(context.Background()) })
	if err != nil {
		return p, err
	}
	return p, errors.Join(p.report(t.Context(), corev1.PodRunning), serveApp(p.net))
}

// TestAddressReusedControl passes a pod's address on as WireGuard itself would:
// the next pod's key gets it, and nobody thinks of flows. So what the test above
// counts can happen.
func TestAddressReusedControl(t *testing.T) {
	w := newWorld(t)
	gateway := w.gateways["home"]
	first := w.mustRun(t, "media")
	w.talkedTo(t, first)
	// The second one is known to nobody, and has the first one's place.
	o, err := w.create(t.Context(), "media")
	if err != nil {
		t.Fatal(err)
	}
	if err := w.bind(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	first.close()
	second, err := w.sandbox(o, first.addresses...)
	t.Cleanup(func() { _ = second.remove(context.Background()) })
	if err != nil {
		t.Fatal(err)
	}
	got, err := newSink(second.net)
	if err != nil {
		t.Fatal(err)
	}
	enrolment, err := w.secret(t.Context(), "apps", "media-wireguard.enrolment", wireguard.EnrolmentKey)
	if err != nil {
		t.Fatal(err)
	}
	e, err := wireguard.DecodeEnrolment([]byte(enrolment))
	if err != nil {
		t.Fatal(err)
	}
	public := wireguard.PodKey(e.ClassKey, string(o.UID)).Public()
	request := "set=1\npublic_key=" + hex.EncodeToString(public.Key[:])
	for _, a := range first.addresses {
		request += fmt.Sprintf("\nallowed_ip=%s/%d", a, a.BitLen())
	}
	if err := second.startSidecar(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "what was meant for the first pod", func() error {
		// The agent sees that somebody has changed its device, and changes it back.
		if _, err := gateway.device(request); err != nil {
			return err
		}
		if n := got.received.Load(); n < 10 {
			return fmt.Errorf("%d packets: %s", n, second.log())
		}
		return nil
	})
	t.Logf("control: %d packets for one pod came to the next", got.received.Load())
	if _, err := gateway.device("set=1\npublic_key=" + hex.EncodeToString(public.Key[:]) + "\nremove=true"); err != nil {
		t.Error(err)
	}
}

// A pod that is on its way out is served as long as it has a sidecar, and kept
// in after that, up to its last packet.
func TestDeleted(t *testing.T) {
	w := newWorld(t)
	gateway := w.gateways["home"]
	p := w.mustRun(t, "media")
	s := p.talks(t, gateway)
	s.online("before the pod is deleted")
	if err := w.Client.Delete(t.Context(), p.object); err != nil {
		t.Fatal(err)
	}
	o := &corev1.Pod{}
	if err := w.Client.Get(t.Context(), client.ObjectKeyFromObject(p.object), o); err != nil || o.DeletionTimestamp == nil {
		t.Fatalf("the pod is not on its way out: %v %v", o.DeletionTimestamp, err)
	}
	time.Sleep(hold)
	s.online("the pod is on its way out")
	s.tight("while the pod is on its way out")
	p.containers["wireguard"].stop()
	s.silent("after the sidecar has ended")
	if err := p.remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	took := waitFor(t, "the gateway to forget the pod", func() error {
		peers, err := gateway.peers()
		if err == nil && len(peers) > 0 {
			err = fmt.Errorf("%d peers", len(peers))
		}
		return err
	})
	t.Logf("the pod is off the gateway %s after it is gone", took.Round(time.Millisecond))
}

// A gateway without IPv6 has pods that have it. What they send by IPv6 goes
// nowhere, and they are told so at once: programs try IPv6 first.
func TestWithoutIPv6(t *testing.T) {
	w := newWorld(t)
	if err := w.composer.set(t.Context(),
		strings.NewReplacer("name: home", "name: four", `  peerCIDRv6: "fd00:8::/64"`+"\n", "").Replace(gatewaySpec),
		strings.NewReplacer("name: home", "name: four", "name: media", "name: legacy").Replace(mediaSpec)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.stopGateway("four") })
	if err := w.startGateway(t.Context(), "four"); err != nil {
		t.Fatal(err)
	}
	pod := w.mustRun(t, "legacy")
	// The app comes later: of a host that sends much the kernel answers little.
	waitFor(t, "the answer that nothing leads there by IPv6", func() error {
		six, err := ask(pod.net, "tcp", internet6)
		if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) {
			return nil
		}
		return fmt.Errorf("the pod is seen as %s: %w", six, err)
	})
	s := pod.talks(t, w.gateways["four"])
	s.online("a gateway without IPv6")
	time.Sleep(hold)
	s.tight("at a gateway without IPv6")
	four, err := ask(s.net, "tcp", internet4)
	if err != nil || four != s.gateway.addresses[0] {
		t.Errorf("by IPv4 the pod is seen as %s: %v", four, err)
	}
	s.containers["wireguard"].kill()
	s.silent("without the sidecar of a gateway without IPv6")
}

// Consent is withdrawn, and given again.
func TestConsent(t *testing.T) {
	w := newWorld(t)
	gateway := w.gateways["home"]
	p := w.mustRun(t, "media")
	s := p.talks(t, gateway)
	s.online("with consent")
	s.tight("with consent")
	w.waitReported(t, 1)
	t.Cleanup(func() {
		if err := w.composer.set(context.Background(), gatewaySpec); err != nil {
			t.Error(err)
		}
	})

	start, off := time.Now(), make(chan time.Duration)
	go func() {
		_, err := poll(time.Millisecond, func() error {
			if peers, err := gateway.peers(); err != nil || len(peers) > 0 {
				return fmt.Errorf("%d peers: %w", len(peers), err)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		off <- time.Since(start)
	}()
	if err := w.composer.set(t.Context(), strings.Replace(gatewaySpec, "names: [apps]", "names: [others]", 1)); err != nil {
		t.Fatal(err)
	}
	t.Logf("consent withdrawn: the pod is off the gateway after %s, the function and all that it applies included", (<-off).Round(time.Millisecond))
	s.silent("without consent")
	t.Logf("PodsReady is now %s", w.composer.condition("WireguardPeer", "media", "PodsReady"))
	if o, err := w.create(t.Context(), "media"); err == nil {
		t.Error("a pod is let in without consent")
		_ = w.Client.Delete(t.Context(), o)
	} else {
		t.Logf("a pod that comes now is told: %v", err)
	}

	if err := w.composer.set(t.Context(), gatewaySpec); err != nil {
		t.Fatal(err)
	}
	s.online("consent was given again")
	s.tight("with consent given again")
}

// status is what the kernel says of the sidecar's process.
func (p *pod) status() (string, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.containers["wireguard"].cmd.Process.Pid))
	return string(b), err
}
