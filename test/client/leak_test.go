package client

import (
	"fmt"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// fault is what may happen to a pod whose traffic is in the tunnel.
type fault struct {
	reason string
	// happen makes it so.
	happen func(w *world, s *sidecar)
	// control is the same where there is no lockdown and no sidecar that
	// mends anything. It has to leak. nil is happen.
	control func(w *world, s *sidecar)
	// heals tells that the sidecar gets over it by itself.
	heals bool
	// four and six are as what the pod is seen then, the gateway if empty.
	four, six string
}

func faults() map[string]fault {
	deleteRules := func(w *world, _ *sidecar) {
		for _, f := range []string{"-4", "-6"} {
			for _, p := range []string{"99", "102"} {
				w.app.Run("ip " + f + " rule del prio " + p)
			}
		}
	}
	deleteRoutes := func(w *world, _ *sidecar) {
		for _, f := range []string{"-4", "-6"} {
			w.app.Run("ip " + f + " route flush table 51820")
		}
	}
	deleteLink := func(w *world, _ *sidecar) { w.app.Run("ip link del wgc0") }
	return map[string]fault{
		"Killed":        {reason: "the sidecar is killed", happen: func(_ *world, s *sidecar) { s.kill9() }},
		"Terminated":    {reason: "the sidecar is told to end", happen: func(_ *world, s *sidecar) { s.Signal(syscall.SIGTERM); <-s.Done }, control: func(_ *world, s *sidecar) { s.kill9() }},
		"LinkDeleted":   {reason: "the interface is deleted", happen: deleteLink, heals: true},
		"LinkDown":      {reason: "the interface is taken down", happen: func(w *world, _ *sidecar) { w.app.Run("ip link set wgc0 down") }, heals: true},
		"RulesDeleted":  {reason: "the rules are deleted", happen: deleteRules, heals: true},
		"RoutesDeleted": {reason: "the routes are deleted", happen: deleteRoutes, heals: true},
		"BothDeleted":   {reason: "rules and interface are deleted", happen: func(w *world, s *sidecar) { deleteRules(w, s); deleteLink(w, s) }, heals: true},
		"PeerRemoved": {
			reason:  "the peer is removed from the device",
			happen:  func(w *world, _ *sidecar) { w.app.Run("wg set wgc0 peer " + gatewayKey.Public().String() + " remove") },
			control: deleteLink, heals: true,
		},
		"GatewayGone": {
			reason:  "the gateway is gone",
			happen:  func(w *world, _ *sidecar) { w.gateway.Run("ip link set eth0 down") },
			control: func(w *world, s *sidecar) { w.gateway.Run("ip link set eth0 down"); deleteLink(w, s) },
		},
		"GatewayReplaced": {
			reason: "the Service has another pod",
			happen: func(w *world, _ *sidecar) { w.replaceGateway(endpoint4) },
			control: func(w *world, s *sidecar) {
				w.replaceGateway(endpoint4)
				deleteLink(w, s)
			},
			heals: true, four: "203.0.113.211", six: "2001:db8:9::11",
		},
		"NameChanged": {
			reason: "the gateway's name has another address",
			happen: func(w *world, _ *sidecar) { w.replaceGateway("10.96.0.51") },
			control: func(w *world, s *sidecar) {
				w.replaceGateway("10.96.0.51")
				deleteLink(w, s)
			},
			heals: true, four: "203.0.113.211", six: "2001:db8:9::11",
		},
	}
}

// replaceGateway takes the gateway away and makes another one, with the same
// key, at another address, behind this address of a Service.
func (w *world) replaceGateway(service string) {
	w.t.Helper()
	w.gateway.Run("ip link set eth0 down")
	other := w.attach("gw2", shape{device: "eth0"}, "10.244.3.11", "2001:db8:9::11")
	w.node.NFT(`table ip nodenat {
  chain pre {
    ip daddr ` + service + ` udp dport 51820 dnat to 10.244.3.11:51820
  }
  chain post {
    oifname "n-inet" ip saddr 10.244.3.11 snat to 203.0.113.211
  }
}`)
	if service == endpoint4 {
		w.node.Run("nft delete element ip nodenat endpoints { " + endpoint4 + " . udp . 51820 }")
	} else {
		w.dns.set(endpointName, service)
	}
	// As kube-proxy does with what goes to an endpoint that is gone.
	_, _ = w.node.Try("conntrack", "-D", "-p", "udp", "--orig-port-dst", "51820")
	w.serveGateway(other)
	w.admit(other)
}

// Whatever happens, nothing leaves but through the tunnel, and nothing that is
// answered is seen as anybody but the gateway.
func TestNoLeak(t *testing.T) {
	t.Parallel()
	for name, f := range faults() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := up(t, w, enrolment())
			l := w.app.load()
			time.Sleep(500 * time.Millisecond)
			w.leaks.reset()
			f.happen(w, s)
			at := time.Now()
			four, six := f.four, f.six
			if four == "" {
				four, six = seenGateway4, gateway6
			}
			if f.heals {
				netns.WaitFor(t, limit, "traffic", func() error {
					if got := w.app.ask("udp", inet4); got != four {
						return fmt.Errorf("seen as %s", got)
					}
					return nil
				})
				t.Logf("traffic after %s", time.Since(at).Round(time.Millisecond))
				s.waitReady()
				w.expectSeen(f.reason, four, six)
			} else {
				w.expectClosed(f.reason)
			}
			since(at, 2*time.Second)
			l.end()
			if n := l.as(app4, app6, seenApp4); n != 0 {
				t.Errorf("%s: the internet has seen the pod %d times: %s", f.reason, n, l)
			}
			if l.as(seenGateway4, gateway6) == 0 {
				t.Errorf("the load was never answered, so it shows nothing: %s", l)
			}
			w.expectNoLeak(f.reason)
			if !f.heals && strings.HasPrefix(f.reason, "the sidecar") {
				// The next one finds the lockdown, and never opens it.
				w.leaks.reset()
				l := w.app.load()
				s := w.startSidecar()
				s.waitReady()
				w.expectSeen("a new sidecar", four, six)
				l.end()
				w.expectNoLeak("a new sidecar")
			}
			if t.Failed() {
				t.Log(s.Out, w.app.Run("nft list ruleset"), w.app.Run("ip rule"), w.app.Run("ip -6 rule"), w.app.Run("wg show"))
			}
		})
	}
}

// unlock takes away the lockdown, for a control.
func (w *world) unlock() {
	w.t.Helper()
	for _, family := range []string{"inet", "netdev"} {
		w.app.Run("nft delete table " + family + " " + wireguard.LockdownTable)
	}
}

// The same without lockdown leaks, so the test can see a leak.
func TestLeaksWithoutLockdown(t *testing.T) {
	t.Parallel()
	for name, f := range faults() {
		if f.control == nil {
			f.control = f.happen
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := up(t, w, enrolment())
			l := w.app.load()
			time.Sleep(500 * time.Millisecond)
			s.freeze()
			w.unlock()
			w.leaks.reset()
			f.control(w, s)
			time.Sleep(1500 * time.Millisecond)
			l.end()
			n := len(w.leaks.clear())
			t.Logf("%s: %d packets in the clear, the internet has seen the pod %d times", f.reason, n, l.as(seenApp4, app6))
			if n == 0 || l.as(seenApp4) == 0 || l.as(app6) == 0 {
				t.Errorf("%s: nothing leaked, so the other test shows nothing: %s", f.reason, l)
			}
		})
	}
}

// While the sidecar starts nothing leaves: not before it has its enrolment, not
// while the nameserver thinks, not while the gateway is not there or does not
// know the pod.
func TestNoLeakAtStart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.app.load()
	time.Sleep(500 * time.Millisecond)
	if n := len(w.leaks.clear()); n == 0 || l.as(seenApp4) == 0 || l.as(app6) == 0 {
		t.Fatalf("nothing leaves without sidecar, so the test shows nothing: %d packets, %s", n, l)
	}
	w.dns.slow(time.Second)
	s := w.startSidecar()
	w.waitLocked()
	time.Sleep(50 * time.Millisecond)
	w.leaks.reset()
	s.waitReason("no enrolment could be used yet")
	w.expectClosed("without enrolment")
	if n := w.leaks.count(isDNS); n != 0 {
		t.Errorf("%d questions to the nameserver without enrolment", n)
	}
	w.enrol(enrolment())
	s.waitReason("is being looked up")
	s.waitReason("has not answered a handshake")
	w.expectClosed("without gateway")
	w.dns.slow(0)
	w.serveGateway(w.gateway)
	w.expectClosed("as a stranger to the gateway")
	if out, err := s.probe("--startup"); err == nil {
		t.Errorf("the pod's containers may start: %s", out)
	}
	w.admit(w.gateway)
	at := time.Now()
	netns.WaitFor(t, limit, "the startup probe", func() error { _, err := s.probe("--startup"); return err })
	t.Logf("started %s after the gateway knew the pod", time.Since(at).Round(time.Millisecond))
	w.expectSeen("started", seenGateway4, gateway6)
	l.end()
	w.expectNoLeak("start")
	if w.leaks.count(isDNS) == 0 {
		t.Error("no question to the nameserver was seen, so the test shows nothing of them")
	}
}

// A sidecar that is not told what it needs says so, and what it leaves lets
// nothing out.
func TestNoFacts(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		environment []string
		want        string
	}{
		"NoUID":     {[]string{"POD_IPS=" + app4}, "POD_UID has to be metadata.uid"},
		"NoIPs":     {[]string{"POD_UID=1"}, "POD_IPS has to be status.podIPs"},
		"BadIPs":    {[]string{"POD_UID=1", "POD_IPS=10.244.1.5,x"}, `\"x\" is no address`},
		"TwoOfKind": {[]string{"POD_UID=1", "POD_IPS=10.244.1.5,10.244.1.6"}, "two addresses of one family"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.enrol(enrolment())
			s := w.startSidecarWith(tc.environment...)
			<-s.Done
			if s.Cmd.ProcessState.Success() || !strings.Contains(s.Out.String(), tc.want) {
				t.Errorf("%v: %s", s.Cmd.ProcessState, s.Out)
			}
			w.leaks.reset()
			w.expectClosed("without facts")
			w.expectNoLeak("without facts")
		})
	}
}

// Somebody who may change the network does so. It is put right.
func TestLockdownChanged(t *testing.T) {
	t.Parallel()
	cases := map[string]string{
		"TableDeleted": "delete table inet wireguard_lockdown",
		"TableFlushed": "flush table inet wireguard_lockdown",
		"AllFlushed":   "flush ruleset",
		"WallFlushed":  "flush chain inet wireguard_lockdown postrouting",
		"RuleInserted": "insert rule inet wireguard_lockdown postrouting accept",
	}
	for name, change := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			s := up(t, w, enrolment())
			before := withoutHandles(w.app.Run("nft list table inet wireguard_lockdown"))
			w.app.Exec(append([]string{"nft"}, strings.Fields(change)...)...)
			at := time.Now()
			netns.WaitFor(t, limit, "the lockdown as it was", func() error {
				now, err := w.app.Try("nft", "list", "table", "inet", "wireguard_lockdown")
				if err != nil {
					return err
				}
				if withoutHandles(now) != before {
					return fmt.Errorf("it is %s", now)
				}
				return nil
			})
			t.Logf("after %s", time.Since(at).Round(time.Millisecond))
			if !strings.Contains(s.Out.String(), "somebody else has changed the lockdown") {
				t.Errorf("nothing is said of it: %s", s.Out)
			}
			w.expectSeen("put right", seenGateway4, gateway6)
		})
	}
}

// A process with CAP_NET_RAW can give its packets our mark, and so choose their
// way around the tunnel. They do not leave.
func TestMarkOfOurs(t *testing.T) {
	w := newWorld(t)
	s := up(t, w, enrolment())
	w.leaks.reset()
	ask := func(want bool) {
		t.Helper()
		for _, a := range []string{inet4, inet6} {
			for _, network := range []string{"tcp", "udp"} {
				if got := w.app.askMarked(network, a, wireguard.FirewallMark); answered(got) != want {
					t.Errorf("%s to %s with our mark: %s", network, a, got)
				}
			}
		}
	}
	ask(false)
	w.expectNoLeak("with our mark")
	s.freeze()
	w.unlock()
	ask(true)
}

// What the sidecar may ask the nameserver, the pod's containers may not.
func TestNameserverOfSidecar(t *testing.T) {
	w := newWorld(t)
	s := up(t, w, enrolment())
	ask := func() int {
		t.Helper()
		w.leaks.reset()
		w.app.Within(func() {
			if c, err := net.Dial("udp", net.JoinHostPort(nameserver4, "53")); err == nil {
				_, _ = c.Write([]byte("x"))
				_ = c.Close()
			}
		})
		time.Sleep(100 * time.Millisecond)
		return w.leaks.count(isDNS)
	}
	if n := ask(); n != 0 {
		t.Errorf("%d questions left beside the tunnel", n)
	}
	s.kill9()
	if n := ask(); n != 0 {
		t.Errorf("%d questions left without sidecar", n)
	}
	w.unlock()
	if ask() == 0 {
		t.Error("none left without lockdown either, so the test shows nothing")
	}
}

// withoutHandles leaves out what differs between two equal tables.
func withoutHandles(s string) string {
	out := ""
	for l := range strings.Lines(s) {
		if !strings.Contains(l, "packets") {
			out += l
		}
	}
	return out
}
