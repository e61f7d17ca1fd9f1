package client

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
	"github.com/wireguardgateway/function-wireguard-gateway/test/packet"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// What the enrolment says is taken up while it runs, and nothing opens.
func TestEnrolmentChanges(t *testing.T) {
	t.Parallel()
	otherKey := seed.ServerKey(1)
	w := newWorld(t)
	s := up(t, w, enrolment())
	l := w.app.load()
	w.leaks.reset()
	direct := to(svc4, svc6)

	// Networks that the pod reaches directly, and no longer.
	w.expectSvc("through the tunnel", gateway4, gateway6)
	e := enrolment()
	e.BypassCIDRs = prefixes(svc4+"/32", "2001:db8:6::/64", svc4+"/32")
	w.enrol(e)
	w.expectSvc("directly", app4, app6)
	w.expectNoLeak("more networks", direct)
	e.BypassCIDRs = prefixes("2001:db8:6::/64")
	w.enrol(e)
	w.expectSvc("one of them no longer", gateway4, app6)
	e.BypassCIDRs = nil
	w.enrol(e)
	w.expectSvc("through the tunnel again", gateway4, gateway6)
	w.expectNoLeak("fewer networks", direct)

	// A smaller MTU.
	e.MTU = 1300
	w.enrol(e)
	netns.WaitFor(t, limit, "the MTU", func() error { return want(w.app.Run("ip link show wgc0"), "mtu 1300 ") })
	w.expectSeen("a smaller MTU", seenGateway4, gateway6)

	// Another key of the gateway, which comes to the gateway a moment later.
	e.GatewayPublicKey = otherKey.Public()
	w.enrol(e)
	s.waitReason("has not answered a handshake")
	w.expectClosed("another key")
	w.gateway.Write("gateway.key", otherKey.String()+"\n")
	w.gateway.Run("wg set wg0 private-key /run/gateway.key")
	s.waitReady()
	w.expectSeen("another key", seenGateway4, gateway6)

	// Another port.
	w.gateway.Run("wg set wg0 listen-port 4500")
	w.node.Run("nft add element ip nodenat endpoints { " + endpoint4 + " . udp . 4500 : " + gateway4 + " . 4500 }")
	e.Endpoint = endpointName + ":4500"
	w.enrol(e)
	port := func(p packet.Packet) bool { return p.Protocol == "udp" && p.FromPort == 51821 && p.ToPort == 4500 }
	netns.WaitFor(t, limit, "the other port", func() error {
		if w.leaks.count(port) == 0 {
			return errors.New("nothing is sent to it")
		}
		return nil
	})
	s.waitReady()
	w.expectSeen("another port", seenGateway4, gateway6)

	// Another address, without a name.
	e.Endpoint = gateway4 + ":4500"
	w.enrol(e)
	netns.WaitFor(t, limit, "the address", func() error { return want(w.app.Run("wg show wgc0 endpoints"), gateway4+":4500") })
	s.waitReady()
	w.expectSeen("an address", seenGateway4, gateway6)

	// What cannot be used changes nothing.
	said := len(s.Out.String())
	for _, bad := range []string{"{", `{"version":2}`, strings.Replace(s.enrolment(w), `"mtu":1300`, `"mtu":1`, 1)} {
		w.app.Write("enrolment/enrolment.json", bad)
		netns.WaitFor(t, limit, "a word on it", func() error {
			if out, err := s.probe(); err != nil || !strings.Contains(out, "the last good enrolment is in force") {
				return fmt.Errorf("%s %w", out, err)
			}
			return nil
		})
		w.enrol(e)
		netns.WaitFor(t, limit, "nothing more on it", func() error {
			if out, err := s.probe(); err != nil || strings.Contains(out, "in force") {
				return fmt.Errorf("%s %w", out, err)
			}
			return nil
		})
	}
	if !strings.Contains(s.Out.String()[said:], "cannot take enrolment") {
		t.Errorf("nothing is said of a bad enrolment: %s", s.Out.String()[said:])
	}
	w.expectSeen("after bad ones", seenGateway4, gateway6)

	l.end()
	if n := l.as(app4, app6, seenApp4); n != 0 {
		t.Errorf("the internet has seen the pod %d times: %s", n, l)
	}
	w.expectNoLeak("after all", direct, port)
	for _, key := range []wireguard.Key{classKey, gatewayKey, wireguard.PodKey(classKey, w.uid)} {
		if strings.Contains(s.Out.String(), key.String()) {
			t.Error("the log has a key")
		}
	}
	if t.Failed() {
		t.Log(s.Out)
	}
}

func (s *sidecar) enrolment(w *world) string { return w.app.Run("cat /run/enrolment/enrolment.json") }

// expectSvc waits until another pod sees these addresses.
func (w *world) expectSvc(when, four, six string) {
	w.t.Helper()
	for a, seen := range map[string]string{svc4: four, svc6: six} {
		for _, network := range []string{"udp", "tcp"} {
			netns.WaitFor(w.t, limit, when, func() error {
				if got := w.app.ask(network, a); got != seen {
					return fmt.Errorf("%s to %s is seen as %s, want %s", network, a, got, seen)
				}
				return nil
			})
		}
	}
}

// The kubelet puts a new version in place by switching a link to its folder.
func TestKubeletMount(t *testing.T) {
	w := newWorld(t)
	w.serveGateway(w.gateway)
	w.admit(w.gateway)
	place := func(version string, e wireguard.Enrolment) {
		t.Helper()
		b, err := e.Encode()
		if err != nil {
			t.Fatal(err)
		}
		w.app.Write("enrolment/"+version+"/enrolment.json", string(b))
		w.app.Exec("sh", "-ec", "cd /run/enrolment; ln -s "+version+" ..data_tmp; mv -T ..data_tmp ..data; [ -e enrolment.json ] || ln -s ..data/enrolment.json enrolment.json")
	}
	e := enrolment()
	place("..one", e)
	w.startSidecar().waitReady()
	e.MTU = 1380
	place("..two", e)
	at := time.Now()
	netns.WaitFor(t, limit, "the new version", func() error { return want(w.app.Run("ip link show wgc0"), "mtu 1380 ") })
	t.Logf("taken up after %s", time.Since(at).Round(time.Millisecond))
}

// WireGuard follows a peer that sends from another address. If the gateway was
// seen by its pod's own address, and its pod is replaced, that is a dead end:
// the Service's address has to be put back.
func TestRoamingEndpoint(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := up(t, w, enrolment())
	w.app.Run("wg set wgc0 peer " + gatewayKey.Public().String() + " endpoint " + gateway4 + ":51820")
	w.expectSeen("roamed", seenGateway4, gateway6)
	time.Sleep(1500 * time.Millisecond)
	if err := want(w.app.Run("wg show wgc0 endpoints"), gateway4+":51820"); err != nil {
		t.Fatalf("a gateway that answers is to be left alone: %v", err)
	}
	w.leaks.reset()
	w.replaceGateway(endpoint4)
	at := time.Now()
	netns.WaitFor(t, limit, "the other gateway", func() error {
		if got := w.app.ask("udp", inet4); got != "203.0.113.211" {
			return fmt.Errorf("seen as %s", got)
		}
		return nil
	})
	t.Logf("after %s", time.Since(at).Round(time.Millisecond))
	if err := want(w.app.Run("wg show wgc0 endpoints"), endpoint4+":51820"); err != nil {
		t.Error(err)
	}
	s.waitReady()
	w.expectNoLeak("roaming")
}

// Readiness follows the gateway also where the pod sends nothing.
func TestReadiness(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := up(t, w, enrolment())
	w.gateway.Run("ip link set eth0 down")
	at := time.Now()
	s.waitReason("has not answered a handshake")
	took := time.Since(at)
	t.Logf("idle, the loss of the gateway is noticed after %s", took.Round(time.Millisecond))
	if out, err := s.probe("--startup"); err != nil {
		t.Errorf("what has started has started: %s", out)
	}
	if v := s.metric("wireguard_client_ready"); v != "0" {
		t.Errorf("wireguard_client_ready is %s", v)
	}
	w.gateway.Run("ip link set eth0 up")
	for _, l := range []string{"ip route add default via 10.244.0.1", "ip addr replace " + gateway6 + "/64 dev eth0 nodad", "ip -6 route add default via 2001:db8:2::1"} {
		w.gateway.Run(l)
	}
	at = time.Now()
	s.waitReady()
	t.Logf("and its return after %s", time.Since(at).Round(time.Millisecond))
	w.expectSeen("back", seenGateway4, gateway6)
	if v := s.metric("wireguard_client_ready"); v != "1" {
		t.Errorf("wireguard_client_ready is %s", v)
	}
	for _, name := range []string{"wireguard_client_received_bytes_total", "wireguard_client_sent_bytes_total", "wireguard_client_latest_handshake_seconds", "wireguard_client_renewals_total"} {
		if v := s.metric(name); v == "" || v == "0" {
			t.Errorf("%s is %q", name, v)
		}
	}
	// What is not of the tunnel is counted when it is dropped.
	w.app.askMarked("udp", inet4, wireguard.FirewallMark)
	netns.WaitFor(t, limit, "the dropped packet", func() error {
		if v := s.metric("wireguard_client_dropped_packets_total"); v == "0" {
			return errors.New("none")
		}
		return nil
	})
}

// metric returns a metric without labels as it is written.
func (s *sidecar) metric(name string) string {
	s.T.Helper()
	c := http.Client{Transport: &http.Transport{DialContext: s.h.dialContext}, Timeout: limit}
	resp, err := c.Get("http://127.0.0.1:9586/metrics")
	if err != nil {
		s.T.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b := new(strings.Builder)
	if err := resp.Write(b); err != nil {
		s.T.Fatal(err)
	}
	for l := range strings.Lines(b.String()) {
		if v, ok := strings.CutPrefix(l, name+" "); ok {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// A sidecar that is restarted while there is load: what is lost is what was
// sent in between.
func TestRestart(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"Terminated": syscall.SIGTERM, "Killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			e := enrolment()
			e.BypassCIDRs = prefixes(svc4 + "/32")
			s := up(t, w, e)
			l := w.app.load()
			tunnel, direct := w.app.Beacon(inet4, echoPort), w.app.Beacon(svc4, echoPort)
			time.Sleep(time.Second)
			w.leaks.reset()
			at := time.Now()
			s.Signal(signal)
			<-s.Done
			s = w.startSidecar()
			s.waitReady()
			ready := time.Since(at)
			time.Sleep(time.Second)
			lost, gap := tunnel.End(at)
			lostDirect, _ := direct.End(at)
			l.end()
			t.Logf("ready after %s; of datagrams every 10 ms %d were lost, the longest gap was %s; beside the tunnel %d were lost", ready.Round(time.Millisecond), lost, gap.Round(time.Millisecond), lostDirect)
			if lostDirect > 3 {
				t.Errorf("%d datagrams to a network beside the tunnel were lost", lostDirect)
			}
			if gap > 3*time.Second {
				t.Errorf("the longest gap was %s", gap)
			}
			if n := l.as(app4, app6, seenApp4); n != 0 {
				t.Errorf("the internet has seen the pod %d times: %s", n, l)
			}
			w.expectNoLeak("restart", to(svc4))
		})
	}
}

// How long it takes from the start of the process, where the gateway comes to
// know of the pod only a moment after.
func TestStartTime(t *testing.T) {
	for _, later := range []time.Duration{0, 300 * time.Millisecond, time.Second, 3 * time.Second} {
		t.Run(later.String(), func(t *testing.T) {
			w := newWorld(t)
			w.serveGateway(w.gateway)
			w.enrol(enrolment())
			if later == 0 {
				w.admit(w.gateway)
			}
			at := time.Now()
			s := w.startSidecar()
			if later != 0 {
				since(at, later)
				w.admit(w.gateway)
			}
			netns.WaitFor(t, limit, "the startup probe", func() error { _, err := s.probe("--startup"); return err })
			took := time.Since(at)
			t.Logf("the gateway knows the pod after %s: started after %s", later, took.Round(time.Millisecond))
			// WireGuard by itself tries again after 5 seconds.
			if took-later > 4*time.Second {
				t.Errorf("it took %s", took)
			}
		})
	}
}

// A pod of one family: what is of the other stays in the pod.
func TestOneFamily(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		ips        string
		works, not string
		seen       string
		endpoint   string
		noIPv6     bool
	}{
		"IPv4":   {app4, inet4, inet6, seenGateway4, endpointName + ":51820", false},
		"IPv6":   {app6, inet6, inet4, gateway6, "[" + gateway6 + "]:51820", false},
		"NoIPv6": {app4, inet4, inet6, seenGateway4, endpointName + ":51820", true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.serveGateway(w.gateway)
			w.admit(w.gateway)
			e := enrolment()
			e.Endpoint = tc.endpoint
			e.BypassCIDRs = cluster()
			if tc.noIPv6 {
				w.app.Sysctl("net.ipv6.conf.all.disable_ipv6=1", "net.ipv6.conf.default.disable_ipv6=1")
			}
			w.enrol(e)
			s := w.startSidecarWith("POD_UID="+w.uid, "POD_IPS="+tc.ips, "NODE_NAME=node-1")
			w.waitLocked()
			s.waitReady()
			w.leaks.reset()
			for _, network := range []string{"tcp", "udp"} {
				if got := w.app.ask(network, tc.works); got != tc.seen {
					t.Errorf("%s is seen as %s, want %s", network, got, tc.seen)
				}
				if got := w.app.ask(network, tc.not); answered(got) {
					t.Errorf("%s of the family that the pod does not have is seen as %s", network, got)
				}
			}
			w.expectNoLeak("one family")
			if t.Failed() {
				t.Log(s.Out)
			}
		})
	}
}

// In a steady state the sidecar does next to nothing, and says nothing.
func TestQuiet(t *testing.T) {
	t.Parallel()
	const idle = 35 * time.Second // past idle probes, and a check of everything
	w := newWorld(t)
	s := up(t, w, enrolment())
	time.Sleep(2 * time.Second)
	said, used, table := len(s.Out.String()), s.CPU(), w.app.Run("nft -a list table inet wireguard_lockdown")
	time.Sleep(idle)
	if log := s.Out.String()[said:]; log != "" {
		t.Errorf("the sidecar has something to say:\n%s", log)
	}
	share := (s.CPU() - used).Seconds() / idle.Seconds()
	t.Logf("idle: %.2f %% of a processor, RSS %d KiB, of which %d KiB are its own (peak RSS %d KiB)", 100*share, s.memory("VmRSS"), s.memory("RssAnon"), s.memory("VmHWM"))
	if share > 0.02 {
		t.Errorf("the sidecar uses %.1f %% of a processor for nothing", 100*share)
	}
	if now := w.app.Run("nft -a list table inet wireguard_lockdown"); withoutHandles(now) != withoutHandles(table) {
		t.Error("the lockdown was written for nothing")
	}
	if v := s.metric("wireguard_client_renewals_total"); v != "1" {
		t.Errorf("the session was started %s times", v)
	}
}

func want(s, part string) error {
	if !strings.Contains(s, part) {
		return fmt.Errorf("no %q in %s", part, s)
	}
	return nil
}

// What stands in the sidecar's way keeps the pod closed, and when it is gone the
// pod does not have to wait.
func TestInTheWay(t *testing.T) {
	w := newWorld(t)
	w.serveGateway(w.gateway)
	w.admit(w.gateway)
	w.enrol(enrolment())
	w.app.Run("ip link add wgc0 type veth peer name other")
	s := w.startSidecar()
	s.waitReason("belongs to somebody else")
	at := time.Now()
	w.expectClosed("in the way")
	since(at, 4*time.Second)
	w.app.Run("ip link del wgc0")
	at = time.Now()
	s.waitReady()
	took := time.Since(at)
	t.Logf("ready after %s", took.Round(time.Millisecond))
	if took > 2*time.Second {
		t.Errorf("it took %s", took)
	}
	w.expectSeen("out of the way", seenGateway4, gateway6)
	w.expectNoLeak("in the way")
}

// A device that no longer answers is made anew by another process, which the
// kubelet starts.
func TestBlind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := up(t, w, enrolment())
	w.leaks.reset()
	w.app.Run("mv /run/wireguard/wgc0.sock /run/wireguard/moved.sock")
	select {
	case <-s.Done:
	case <-time.After(limit):
		t.Fatalf("it goes on: %s", s.Out)
	}
	if s.Cmd.ProcessState.Success() || !strings.Contains(s.Out.String(), "cannot look at wgc0") {
		t.Errorf("%v: %s", s.Cmd.ProcessState, s.Out)
	}
	w.startSidecar().waitReady()
	w.expectSeen("another process", seenGateway4, gateway6)
	w.expectNoLeak("a device that does not answer")
}

// A device whose control socket somebody has deleted is made anew.
func TestControlSocketDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := up(t, w, enrolment())
	w.leaks.reset()
	w.app.Run("rm /run/wireguard/wgc0.sock")
	netns.WaitFor(t, limit, "another device", func() error {
		_, err := w.app.Try("ls", "/run/wireguard/wgc0.sock")
		return err
	})
	s.waitReady()
	w.expectSeen("another device", seenGateway4, gateway6)
	w.expectNoLeak("a device without control socket")
}

// A search domain of the pod may know any name. The gateway's is not looked for
// there.
func TestSearchDomain(t *testing.T) {
	w := newWorld(t)
	w.dns.set(endpointName+".cluster.local", inet4)
	s := up(t, w, enrolment())
	w.expectSeen("beside a search domain that knows any name", seenGateway4, gateway6)
	if n := w.leaks.count(func(p packet.Packet) bool { return p.To == netip.MustParseAddr(inet4) }); n != 0 {
		t.Errorf("%d packets to what the search domain says: %s", n, s.Out)
	}
}
