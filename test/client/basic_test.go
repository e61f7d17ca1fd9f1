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
		t.Log(s.Out, w.app.Run("nft list ruleset"), w.app.Run("ip rule"), w.app.Run("ip route show table 51820"), w.app.Run("wg show"), w.gateway.Run("wg show"))
	}
}
