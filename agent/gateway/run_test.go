package gateway

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/config"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/device"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/route"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
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

// A device of which nobody knows what it has gets a sync, with the pause of one
// that has failed, and the syncs that fail do not come sooner for it.
func TestObservedUnknown(t *testing.T) {
	now := time.Unix(1000, 0)
	cases := map[string]struct {
		reason string
		retry  time.Duration // the last pause
		next   time.Time     // retry that is due already
		want   time.Time
	}{
		"First": {"the sync before was well", 0, time.Time{}, now.Add(minRetry)},
		"Again": {"the pause is longer each time", time.Second, time.Time{}, now.Add(2 * time.Second)},
		"Most":  {"up to a limit", maxRetry, time.Time{}, now.Add(maxRetry)},
		"Due":   {"one that is due is not put off", time.Second, now.Add(time.Millisecond), now.Add(time.Millisecond)},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := &gateway{retry: tc.retry, next: schedule{retry: tc.next}}
			g.observed(t.Context(), now, device.Observation{Unknown: true})
			if !g.next.retry.Equal(tc.want) {
				t.Errorf("%s: want the sync after %s, got it after %s", tc.reason, tc.want.Sub(now), g.next.retry.Sub(now))
			}
		})
	}
	t.Run("Known", func(t *testing.T) {
		g := &gateway{}
		g.observed(t.Context(), now, device.Observation{})
		if !g.next.retry.IsZero() {
			t.Errorf("a device that is as it was left needs no sync, got one after %s", g.next.retry.Sub(now))
		}
	})
}

// One peer's route costs nobody else anything, nor the peer its other routes.
func TestWithoutOwn(t *testing.T) {
	own := []route.Network{{Prefix: netip.MustParsePrefix("10.244.0.10/24")}, {Prefix: netip.MustParsePrefix("fd00::10/64")}}
	cases := map[string]struct {
		reason string
		routes []string
		want   []string // that are left
		notes  int
	}{
		"Apart":    {"nothing of the pod's is in it", []string{"192.168.50.0/24", "fd50::/64"}, []string{"192.168.50.0/24", "fd50::/64"}, 0},
		"Same":     {"it is the pod's", []string{"192.168.50.0/24", "10.244.0.0/24"}, []string{"192.168.50.0/24"}, 1},
		"Wider":    {"the pod's is a part of it", []string{"10.0.0.0/8", "192.168.50.0/24"}, []string{"192.168.50.0/24"}, 1},
		"Narrower": {"the pod is not in it, so that the more specific route may win", []string{"10.244.0.77/32", "fd00::1:0/112"}, []string{"10.244.0.77/32", "fd00::1:0/112"}, 0},
		"Part":     {"the pod is in it", []string{"10.244.0.0/25", "fd00::/96"}, nil, 2},
		"None":     {"most peers have none", nil, nil, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			site := wireguard.Peer{Namespace: "vpn", Name: "site"}
			for _, r := range tc.routes {
				site.Routes = append(site.Routes, netip.MustParsePrefix(r))
			}
			before := []wireguard.Peer{site, {Namespace: "vpn", Name: "phone"}}
			c := &config.Config{GatewayConfig: wireguard.GatewayConfig{Peers: before}}
			notes := withoutOwn(c, own)
			var got []string
			for _, r := range c.Peers[0].Routes {
				got = append(got, r.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
			if len(c.LeftOut) != tc.notes {
				t.Errorf("%s: want %d networks that are kept out of gluetun's tunnel, got %v", tc.reason, tc.notes, c.LeftOut)
			}
			if len(notes) != tc.notes {
				t.Errorf("%s: want %d notes, got %q", tc.reason, tc.notes, notes)
			}
			for _, n := range notes {
				if !strings.Contains(n, "of peer vpn/site is left out: the pod has ") {
					t.Errorf("%s: got %q", tc.reason, n)
				}
			}
			// It is the configuration's again where the pod no longer has it.
			if len(before[0].Routes) != len(tc.routes) {
				t.Errorf("%s: the configuration itself has lost a route", tc.reason)
			}
		})
	}
}
