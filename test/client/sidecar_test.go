package client

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
	"github.com/wireguardgateway/function-wireguard-gateway/test/packet"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// sidecar is a running sidecar.
type sidecar struct {
	*netns.Process
	h *host
}

// enrol gives the sidecar its enrolment, now or as a new version.
func (w *world) enrol(e wireguard.Enrolment) {
	w.t.Helper()
	b, err := e.Encode()
	if err != nil {
		w.t.Fatal(err)
	}
	w.app.Write("enrolment/enrolment.json", string(b))
}

// container wraps a command as the sidecar's container is: CAP_NET_ADMIN and no
// other, no new privileges, the root and /proc/sys read-only.
const container = `
	mount --bind /proc/sys /proc/sys
	mount -o remount,ro,bind /proc/sys
	mount --bind /run/wireguard /run/wireguard
	for m in / /run; do mount -o remount,ro,bind $m; done
	exec setpriv --bounding-set=-all,+net_admin --inh-caps=-all --no-new-privs "$@"`

// startSidecar starts the sidecar as the kubelet would.
func (w *world) startSidecar() *sidecar {
	w.t.Helper()
	return w.startSidecarWith("POD_UID="+w.uid, "POD_IPS="+app4+","+app6, "NODE_NAME=node-1")
}

func (w *world) startSidecarWith(environment ...string) *sidecar {
	w.t.Helper()
	args := slices.Concat([]string{"unshare", "--mount", "--propagation", "private", "sh", "-ec", container, "container", "env"},
		environment, []string{agentBinary, "client", "--enrolment=/run/enrolment/enrolment.json"})
	return &sidecar{Process: w.app.Start(args...), h: w.app}
}

// probe asks as the kubelet does.
func (s *sidecar) probe(args ...string) (string, error) {
	return s.h.Try(append([]string{agentBinary, "probe"}, args...)...)
}

// waitReady waits until traffic passes.
func (s *sidecar) waitReady() {
	s.T.Helper()
	netns.WaitFor(s.T, limit, "the sidecar to be ready", func() error {
		if !s.Running() {
			s.T.Fatalf("the sidecar has ended:\n%s", s.Out)
		}
		out, err := s.probe()
		if err != nil {
			return fmt.Errorf("%w\n%s\n%s", err, out, s.Out)
		}
		return nil
	})
}

// waitReason waits until the sidecar is not ready, and says why.
func (s *sidecar) waitReason(part string) {
	s.T.Helper()
	netns.WaitFor(s.T, limit, "a reason", func() error {
		out, err := s.probe()
		if err == nil || !strings.Contains(out, part) {
			return fmt.Errorf("no %q in %s", part, out)
		}
		return nil
	})
}

// waitLocked waits until the lockdown is there.
func (w *world) waitLocked() {
	w.t.Helper()
	netns.WaitFor(w.t, limit, "the lockdown", func() error {
		_, err := w.app.Try("nft", "list", "chain", "inet", wireguard.LockdownTable, "postrouting")
		return err
	})
}

// up is a world with a gateway that serves the pod, and a sidecar that is ready.
func up(t *testing.T, w *world, e wireguard.Enrolment) *sidecar {
	t.Helper()
	w.serveGateway(w.gateway)
	w.admit(w.gateway)
	w.enrol(e)
	s := w.startSidecar()
	s.waitReady()
	return s
}

// expectSeen fails the test unless the internet host sees the gateway, by all
// protocols of both families.
func (w *world) expectSeen(when string, four, six string) {
	w.t.Helper()
	want := map[string]string{inet4: four, inet6: six}
	for _, r := range w.tryAll(2*time.Second, func(a, got string) bool { return got == want[a] }) {
		w.t.Errorf("%s: %s, want %s", when, r, want[r.address])
	}
}

// expectClosed fails the test where anything gets out.
func (w *world) expectClosed(when string) {
	w.t.Helper()
	for _, r := range w.tryAll(0, func(_, got string) bool { return !answered(got) }) {
		w.t.Errorf("%s: %s", when, r)
	}
}

const noAnswer = "nobody"

// result is what came of a try.
type result struct{ network, address, seen string }

func (r result) String() string {
	return fmt.Sprintf("%s to %s is seen as %s", r.network, r.address, r.seen)
}

// tryAll tries all protocols to the internet host at the same time, and returns
// those that do not become good within a time. All that is known of a ping is
// whether there is an answer.
func (w *world) tryAll(within time.Duration, good func(address, seen string) bool) []result {
	w.t.Helper()
	var mu sync.Mutex
	var bad []result
	var wait sync.WaitGroup
	for _, address := range []string{inet4, inet6} {
		for _, network := range []string{"tcp", "udp", "ping"} {
			wait.Go(func() {
				r := result{network: network, address: address}
				wantAnswer := !good(address, noAnswer)
				for start := time.Now(); ; time.Sleep(20 * time.Millisecond) {
					if network != "ping" {
						r.seen = w.app.ask(network, address)
					} else if r.seen = noAnswer; w.app.pings(address) {
						r.seen = "somebody"
					}
					if good(address, r.seen) || network == "ping" && (r.seen != noAnswer) == wantAnswer {
						return
					}
					if time.Since(start) >= within {
						break
					}
				}
				mu.Lock()
				defer mu.Unlock()
				bad = append(bad, r)
			})
		}
	}
	wait.Wait()
	return bad
}

// expectNoLeak fails the test where something left outside the tunnel.
func (w *world) expectNoLeak(when string, allowed ...func(packet.Packet) bool) {
	w.t.Helper()
	if ps := w.leaks.clear(allowed...); len(ps) != 0 {
		w.t.Errorf("%s: %d packets left outside the tunnel:\n%s", when, len(ps), sample(ps))
	}
	// The guard of the interfaces is there for frames. It must not be what
	// stops packets: not every kernel has it.
	out, err := w.app.Try("nft", "list", "counter", "netdev", wireguard.LockdownTable, "dropped")
	if err == nil && !strings.Contains(out, "packets 0 ") {
		w.t.Errorf("%s: packets came as far as the interface: %s", when, out)
	}
}

// to and from return what allows packets of an address.
func to(addresses ...string) func(packet.Packet) bool {
	return func(p packet.Packet) bool { return slices.Contains(addresses, p.To.String()) }
}

// pid returns the sidecar's own process.
func (s *sidecar) pid() int {
	s.T.Helper()
	// nsenter and the wrapper replace themselves.
	return s.Cmd.Process.Pid
}

// kill9 is what the kernel does when memory runs out.
func (s *sidecar) kill9() {
	s.Signal(syscall.SIGKILL)
	<-s.Done
}

// freeze keeps the sidecar from mending anything.
func (s *sidecar) freeze() {
	s.T.Helper()
	s.Signal(syscall.SIGSTOP)
	netns.WaitFor(s.T, limit, "the sidecar to stop", func() error {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.pid()))
		if err != nil {
			return err
		}
		if _, state, _ := strings.Cut(string(b), ") "); !strings.HasPrefix(state, "T") {
			return fmt.Errorf("it is %s", b)
		}
		return nil
	})
}

// memory returns what the sidecar has of memory, in KiB, by a name of
// /proc/PID/status.
func (s *sidecar) memory(name string) int {
	s.T.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.pid()))
	if err != nil {
		s.T.Fatal(err)
	}
	for l := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(l, name+":"); ok {
			n, err := strconv.Atoi(strings.Fields(v)[0])
			if err != nil {
				s.T.Fatal(err)
			}
			return n
		}
	}
	return 0
}

// since waits until a moment is so long ago.
func since(t time.Time, d time.Duration) { time.Sleep(time.Until(t.Add(d))) }
