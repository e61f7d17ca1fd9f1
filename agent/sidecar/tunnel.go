package sidecar

import (
	"math"
	"time"
)

const (
	// A peer that has not answered a handshake is made anew after firstPause,
	// then after ever longer ones up to maxPause. WireGuard by itself would try
	// again after 5 seconds, and the gateway may know the pod only a moment
	// after it has started.
	firstPause  = 250 * time.Millisecond
	maxPause    = 5 * time.Second
	pauseFactor = 1.1

	// After idleTime without anything from the gateway it is probed. It is
	// also probed when something was sent and nothing came back.
	idleTime = 10 * time.Second

	// maxProbes without answer, within lostTime at least, mean that the tunnel
	// passes nothing.
	maxProbes = 3
	lostTime  = 3 * time.Second
)

// sight is what the device says of the gateway as its peer.
type sight struct {
	handshake time.Time // of the last handshake, zero before the first
	rx, tx    int64     // bytes, since the peer was made
}

// tunnel finds out whether the tunnel passes traffic. It is up when something
// was received under a handshake: the gateway has answered, and what it sends
// to the pod arrives.
type tunnel struct {
	made     time.Time // when the peer was made, zero before the first time
	attempts int       // of making it, since the last reply
	last     sight
	up       bool
	replied  time.Time // when something was received last
	probes   int       // without answer
	asked    time.Time // when the first of them was sent
}

// renewed notes that the peer was made anew.
func (t *tunnel) renewed(now time.Time) {
	t.made, t.last, t.probes, t.up = now, sight{}, 0, false
	t.attempts++
}

// look takes what was just seen. It returns whether to probe, and whether to
// make the peer anew.
func (t *tunnel) look(now time.Time, s sight) (probe, renew bool) {
	// What comes with a new handshake may be the handshake itself.
	replied := !s.handshake.IsZero() && s.handshake.Equal(t.last.handshake) && s.rx > t.last.rx
	sent := s.tx > t.last.tx
	t.last = s
	switch {
	case replied:
		t.up, t.replied, t.probes, t.attempts = true, now, 0, 0
		return false, false
	case s.handshake.IsZero():
		t.up = false
		return false, t.renewalDue(now)
	case t.probes >= maxProbes && now.Sub(t.asked) >= lostTime:
		t.up = false
		return true, t.renewalDue(now)
	case t.up && !sent && now.Sub(t.replied) < idleTime:
		return false, false
	}
	if t.probes == 0 {
		t.asked = now
	}
	t.probes++
	return true, false
}

func (t *tunnel) renewalDue(now time.Time) bool {
	return now.Sub(t.made) >= pause(t.attempts)
}

// backoff says when what has failed is tried again. The zero value is at once.
type backoff struct {
	failures int // in a row
	next     time.Time
}

// failed notes that it has failed once more.
func (b *backoff) failed(now time.Time) {
	b.failures++
	b.next = now.Add(pause(b.failures))
}

func (b *backoff) due(now time.Time) bool {
	return !now.Before(b.next)
}

// pause is how long a peer may take to answer, after so many attempts, and how
// long a sync rests that has failed so often.
func pause(attempts int) time.Duration {
	p := float64(firstPause) * math.Pow(pauseFactor, float64(max(0, attempts-1)))
	return time.Duration(min(p, float64(maxPause)))
}
