package sidecar

import (
	"testing"
	"time"
)

func TestBackoff(t *testing.T) {
	now := time.Unix(1e9, 0)
	b := backoff{}
	if !b.due(now) {
		t.Error("the first try is at once")
	}
	for last := time.Duration(0); last < maxPause; {
		b.failed(now)
		wait := pause(b.failures)
		if wait <= last || wait > maxPause || b.due(now.Add(wait-1)) || !b.due(now.Add(wait)) {
			t.Fatalf("after %d failures it is tried again after %s, and before after %s", b.failures, wait, last)
		}
		last = wait
	}
}

func TestTunnelLook(t *testing.T) {
	type step struct {
		after        time.Duration // since the step before
		handshake    int           // which one, 0 for none yet
		rx, tx       int64
		probe, renew bool
		up           bool
		renewed      bool // the peer is made anew before the step
		manyRenewals int
	}
	start := time.Unix(1e9, 0)
	cases := map[string]struct {
		reason string
		steps  []step
	}{
		"Start": {"a handshake alone is no proof, a reply is", []step{
			{renewed: true},
			{after: 100 * time.Millisecond, handshake: 1, rx: 92, tx: 180, probe: true},
			{after: 100 * time.Millisecond, handshake: 1, rx: 188, tx: 276, up: true},
		}},
		"NoAnswer": {"a peer that does not answer is made anew, ever later", []step{
			{renewed: true},
			{after: 200 * time.Millisecond},
			{after: 60 * time.Millisecond, renew: true},
			{renewed: true},
			{after: 260 * time.Millisecond},
			{after: 50 * time.Millisecond, renew: true},
			{renewed: true, manyRenewals: 50},
			{after: 4 * time.Second},
			{after: time.Second, renew: true},
		}},
		"NewHandshake": {"what comes with a handshake may be the handshake", []step{
			{renewed: true},
			{after: time.Second, handshake: 1, rx: 92, tx: 180, probe: true},
			{after: time.Second, handshake: 2, rx: 184, tx: 360, probe: true},
			{after: time.Second, handshake: 2, rx: 216, tx: 360, up: true},
		}},
		"Idle": {"an idle tunnel is probed now and then", []step{
			{renewed: true},
			{handshake: 1, rx: 92, tx: 1, probe: true},
			{handshake: 1, rx: 100, tx: 1, up: true},
			{after: 9 * time.Second, handshake: 1, rx: 100, tx: 1, up: true},
			{after: time.Second, handshake: 1, rx: 100, tx: 1, probe: true, up: true},
			{after: time.Second, handshake: 1, rx: 200, tx: 97, up: true},
			{after: time.Second, handshake: 1, rx: 200, tx: 97, up: true},
		}},
		"Busy": {"one that brings something needs no probe", []step{
			{renewed: true},
			{handshake: 1, rx: 92, tx: 1, probe: true},
			{after: time.Second, handshake: 1, rx: 100, tx: 100, up: true},
			{after: time.Second, handshake: 1, rx: 200, tx: 200, up: true},
		}},
		"Lost": {"where nothing comes back it is down after three probes and three seconds", []step{
			{renewed: true},
			{handshake: 1, rx: 92, tx: 1, probe: true},
			{after: time.Second, handshake: 1, rx: 100, tx: 2, up: true},
			{after: time.Second, handshake: 1, rx: 100, tx: 3, probe: true, up: true},
			{after: time.Second, handshake: 1, rx: 100, tx: 4, probe: true, up: true},
			{after: time.Second, handshake: 1, rx: 100, tx: 5, probe: true, up: true},
			{after: time.Second, handshake: 1, rx: 100, tx: 6, probe: true, renew: true},
		}},
		"Back": {"a reply in between ends the count", []step{
			{renewed: true},
			{handshake: 1, rx: 92, tx: 1, probe: true},
			{after: time.Second, handshake: 1, rx: 100, tx: 2, up: true},
			{after: time.Second, handshake: 1, rx: 100, tx: 3, probe: true, up: true},
			{after: time.Second, handshake: 1, rx: 100, tx: 4, probe: true, up: true},
			{after: time.Second, handshake: 1, rx: 200, tx: 5, up: true},
			{after: time.Second, handshake: 1, rx: 200, tx: 6, probe: true, up: true},
			{after: time.Second, handshake: 1, rx: 200, tx: 7, probe: true, up: true},
			{after: time.Second, handshake: 1, rx: 200, tx: 8, probe: true, up: true},
		}},
		"Remade": {"a new peer is not up for what the old one received", []step{
			{renewed: true},
			{handshake: 1, rx: 92, tx: 1, probe: true},
			{after: time.Second, handshake: 1, rx: 100, tx: 2, up: true},
			{renewed: true},
			{after: time.Second, handshake: 2, rx: 92, tx: 3, probe: true},
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			now := start
			tunnel := tunnel{}
			for i, s := range tc.steps {
				now = now.Add(s.after)
				if s.renewed {
					for range s.manyRenewals + 1 {
						tunnel.renewed(now)
					}
					continue
				}
				seen := sight{rx: s.rx, tx: s.tx}
				if s.handshake != 0 {
					seen.handshake = start.Add(time.Duration(s.handshake) * time.Hour)
				}
				probe, renew := tunnel.look(now, seen)
				if probe != s.probe || renew != s.renew || tunnel.up != s.up {
					t.Fatalf("%s: step %d: want probe %t, renewal %t, up %t, got %t, %t, %t", tc.reason, i, s.probe, s.renew, s.up, probe, renew, tunnel.up)
				}
			}
		})
	}
}
