package dataplane

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// egressWorld is a world whose gateway leaves through a provider. Connections of
// the gateway and of its peer outlast long faults.
type egressWorld struct {
	*world
	vpn     *vpn
	egress  *egressGateway
	on      wireguard.GatewayConfig
	peer    *client
	gluetun *standIn // nothing of it is started
	around  around
}

func newEgressWorld(t *testing.T, e *egressGateway) *egressWorld {
	t.Helper()
	w := &egressWorld{world: newWorld(t), egress: e, on: e.config()}
	w.vpn = w.provider()
	w.peer = w.client(1)
	w.gluetun = w.newGluetun(e.env(), e.file(wireguard.PostRulesKey))
	for _, h := range []*host{w.server, w.gateway, w.peer.host} {
		h.patient()
	}
	w.server.echo(443, podPort, sessionPort)
	w.around = w.watchAround()
	return w
}

// up brings up gluetun's tunnel.
func (w *egressWorld) up(t *testing.T) {
	t.Helper()
	if err := w.gluetun.up(); err != nil {
		t.Fatal(err)
	}
}

// guardedWorld is an egress world with an agent, and with traffic that goes on
// whatever happens.
type guardedWorld struct {
	*egressWorld
	agent  *agent
	load   *load
	called func() string
	// These were there before each fault, and are there after it.
	peers, own sessions
}

func newGuardedWorld(t *testing.T, e *egressGateway) *guardedWorld {
	t.Helper()
	w := &guardedWorld{egressWorld: newEgressWorld(t, e)}
	w.called = w.callers()
	return w
}

// begin starts gluetun, which the agent waits for, and the traffic.
func (w *guardedWorld) begin(t *testing.T) {
	t.Helper()
	w.egress.connect(w.peer, "laptop")
	w.load = w.peer.load()
	w.peer.expect(t, "before gluetun", blocked)
	w.around.none(t, "before gluetun")
	w.gluetun.firewall()
	w.gluetun.routing()
	w.peer.expect(t, "before the tunnel", blocked)
	w.up(t)
	w.agent.waitReady(w.on)
	w.peer.expect(t, "with the tunnel", works)
	w.around.none(t, "with the tunnel")
	w.provided(t, "with the tunnel")
	w.load.flows(t)
	w.peers, w.own = w.peer.sessions(sessionPort), w.gateway.sessions(podPort)
}

// provided holds that the server has seen the provider, and nobody else.
func (w *guardedWorld) provided(t *testing.T, what string) {
	t.Helper()
	want := []string{
		"icmp " + provider4, "ipv6-icmp " + provider6, "tcp " + provider4, "tcp " + provider6, "udp " + provider4, "udp " + provider6,
	}
	if diff := cmp.Diff(want, strings.Split(w.called(), "\n")); diff != "" {
		t.Errorf("%s: who called, -want, +got:\n%s", what, diff)
	}
}

// shut holds that nothing passes, of what is new and of what was there.
func (w *guardedWorld) shut(t *testing.T, what string) {
	t.Helper()
	w.peer.expect(t, what, blocked)
	w.peers.stand(t, what)
	w.own.stand(t, what)
}

// again brings up gluetun's tunnel, and holds that everything goes on.
func (w *guardedWorld) again(t *testing.T, what string) {
	t.Helper()
	since := time.Now()
	w.up(t)
	w.goesOn(t, since, what)
}

// startAgain is again for a gluetun whose container has ended.
func (w *guardedWorld) startAgain(t *testing.T, what string) {
	t.Helper()
	w.gluetun.firewall()
	w.gluetun.routing()
	w.again(t, what)
}

// goesOn holds that everything goes on, and says how long that took.
func (w *guardedWorld) goesOn(t *testing.T, since time.Time, what string) {
	t.Helper()
	w.load.recovered(t, since, what)
	w.peers.goOn(t, since, what)
	w.own.goOn(t, since, what)
	w.agent.waitReady(w.on)
	w.peer.expect(t, what, works)
	w.around.none(t, what)
	w.provided(t, what)
}

// terminated ends gluetun, whose rules stay, and starts it again.
func (w *guardedWorld) terminated(t *testing.T) {
	w.gluetun.terminate()
	w.shut(t, "terminated")
	w.gluetun.firewall()
	w.gluetun.routing()
	w.peer.expect(t, "starting", blocked)
	w.again(t, "started again")
}
