package agent

import (
	"testing"
	"time"
)

// A sync follows a burst of the network's events, and another one has to rest,
// but not where the gateway would say something wrong of the tunnel meanwhile.
func TestChanged(t *testing.T) {
	now := time.Unix(1000, 0)
	soon, rest := now.Add(networkSettle), now.Add(networkInterval)
	cases := map[string]struct {
		reason string
		next   time.Time // sync that is due already
		rest   time.Time
		tunnel int // the last sync was for 7
		want   time.Time
	}{
		"First":    {"the burst is over then", time.Time{}, time.Time{}, 7, soon},
		"Rested":   {"the last one is long ago", time.Time{}, now.Add(-time.Second), 7, soon},
		"Rests":    {"the last one was a moment ago", time.Time{}, rest, 7, rest},
		"Burst":    {"more of a burst does not put it off", now.Add(time.Millisecond), time.Time{}, 7, now.Add(time.Millisecond)},
		"Gone":     {"the gateway is not ready any more", time.Time{}, rest, 0, soon},
		"Another":  {"nothing is forwarded from it yet", time.Time{}, rest, 8, soon},
		"Earlier":  {"others were in no hurry", rest, rest, 8, soon},
		"StillNew": {"a burst does not put this off either", now.Add(time.Millisecond), rest, 8, now.Add(time.Millisecond)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := &gateway{synced: 7, next: schedule{network: tc.next}, rest: schedule{network: tc.rest}}
			g.changed(now, tc.tunnel)
			if !g.next.network.Equal(tc.want) {
				t.Errorf("%s: want the sync after %s, got it after %s", tc.reason, tc.want.Sub(now), g.next.network.Sub(now))
			}
		})
	}
}
