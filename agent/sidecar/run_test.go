package sidecar

import (
	"testing"
	"time"
)

// A sync follows a burst of the network's events, and another one has to rest,
// but no event puts off a sync that is due.
func TestSoon(t *testing.T) {
	now := time.Unix(1000, 0)
	later := now.Add(syncInterval)
	cases := map[string]struct {
		reason    string
		due, last time.Time
		want      time.Time
	}{
		"First":  {"the burst is over then", later, time.Time{}, now.Add(networkSettle)},
		"Rested": {"the last one is long ago", later, now.Add(-time.Minute), now.Add(networkSettle)},
		"Rests":  {"the last one was a moment ago", later, now, now.Add(networkInterval)},
		"Burst":  {"more of a burst does not put it off", now.Add(time.Millisecond), now.Add(-time.Minute), now.Add(time.Millisecond)},
		"Safety": {"nor the sync that needs no event", now.Add(time.Millisecond), now, now.Add(time.Millisecond)},
		"Late":   {"nor one that is late", now.Add(-time.Second), now.Add(-time.Minute), now.Add(-time.Second)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := soon(now, tc.due, tc.last); !got.Equal(tc.want) {
				t.Errorf("%s: want the sync after %s, got it after %s", tc.reason, tc.want.Sub(now), got.Sub(now))
			}
		})
	}
}
