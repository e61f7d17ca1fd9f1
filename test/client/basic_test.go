package client

import (
	"testing"
)

// The sidecar comes up, and everything is seen as the gateway.
func TestThroughGateway(t *testing.T) {
	w := newWorld(t)
	s := up(t, w, enrolment())
	w.expectSeen("up", seenGateway4, gateway6)
	w.expectNoLeak("up")
	if t.Failed() {
		t.Log(s.out, w.app.run("nft list ruleset"), w.app.run("ip rule"), w.app.run("ip route show table 51820"), w.app.run("wg show"), w.gateway.run("wg show"))
	}
}
