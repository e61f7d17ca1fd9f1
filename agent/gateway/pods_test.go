package gateway

import (
	"log/slog"
	"net/netip"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/config"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/pods"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// What has to be forgotten are the addresses of pods that were served and are
// not any more, whoever has them now, until that was done.
func TestSelectPods(t *testing.T) {
	class := wireguard.PodClass{Namespace: "apps", Name: "media", Key: wireguard.Seed{1}.PodClassKey("apps", "media")}
	pod := func(uid string, addresses ...string) pods.Pod {
		p := pods.Pod{Namespace: "apps", Name: uid, UID: uid, Class: "media", Enrolments: []string{wireguard.EnrolmentSecret("media")}}
		for _, a := range addresses {
			p.Addresses = append(p.Addresses, netip.MustParseAddr(a))
		}
		return p
	}
	cases := map[string]struct {
		reason        string
		before, after []pods.Pod
		classes       []wireguard.PodClass
		left          []string
	}{
		"Same":    {"a pod that stays keeps its connections", []pods.Pod{pod("a", "10.244.1.5")}, []pods.Pod{pod("a", "10.244.1.5")}, []wireguard.PodClass{class}, nil},
		"New":     {"a new one has none", nil, []pods.Pod{pod("a", "10.244.1.5")}, []wireguard.PodClass{class}, nil},
		"Gone":    {"those of a pod that is gone, of both families", []pods.Pod{pod("a", "10.244.1.5", "2001:db8::5")}, nil, []wireguard.PodClass{class}, []string{"10.244.1.5", "2001:db8::5"}},
		"Passes":  {"those of the pod before", []pods.Pod{pod("a", "10.244.1.5")}, []pods.Pod{pod("b", "10.244.1.5")}, []wireguard.PodClass{class}, []string{"10.244.1.5"}},
		"Moves":   {"those of the pod itself, where it was", []pods.Pod{pod("a", "10.244.1.5")}, []pods.Pod{pod("a", "10.244.1.6")}, []wireguard.PodClass{class}, []string{"10.244.1.5"}},
		"Consent": {"those of pods that may not join any more", []pods.Pod{pod("a", "10.244.1.5")}, []pods.Pod{pod("a", "10.244.1.5")}, nil, []string{"10.244.1.5"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), podsFile)
			if err := (&pods.File{Path: path}).Write(tc.before); err != nil {
				t.Fatal(err)
			}
			g := &gateway{log: slog.New(slog.DiscardHandler)}
			g.restorePods(nil, path)
			g.pods.watcher = pods.NewWatcher(nil, tc.after, g.log)
			g.pods.watcher.Follow(t.Context(), tc.classes)
			c := &config.Config{}
			c.PodClasses = tc.classes
			// Nothing is forgotten until it is noted that it was.
			for range 2 {
				var left []string
				for _, a := range g.selectPods(c, nil) {
					left = append(left, a.String())
				}
				if diff := cmp.Diff(tc.left, left); diff != "" {
					t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
				}
			}
			g.keepPods()
			if left := g.selectPods(c, nil); len(left) > 0 {
				t.Errorf("%s: %v is left again", tc.reason, left)
			}
			kept, err := (&pods.File{Path: path}).Read()
			if err != nil {
				t.Fatal(err)
			}
			want := tc.after
			if tc.classes == nil {
				want = nil
			}
			if diff := cmp.Diff(want, kept, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
				t.Errorf("%s: kept: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
