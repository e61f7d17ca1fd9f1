package plan

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
)

// The Secret that the agent reads holds 1 MiB. WireguardPeers cannot fill it.
func TestAttachedFitTheSecret(t *testing.T) {
	in := inputs(t, longLimits())
	in.Attachments = []corev1.ConfigMap{attachedTo(t, "aaa", "greedy", longAccess())}
	if diff := cmp.Diff([]string{"aaa/greedy Rejected TooLarge"}, summary(planned(t, in))); diff != "" {
		t.Errorf("one peer: -want, +got:\n%s", diff)
	}

	in.Attachments = nil
	for i := range 10 {
		in.Attachments = append(in.Attachments, attachedTo(t, "web", fmt.Sprintf("old%d", i), "{}"))
	}
	g := planned(t, in)
	for i := range 60 {
		in.Attachments = append(in.Attachments, attachedTo(t, "aaa", fmt.Sprintf("new%d", i), "{}"))
	}
	expectFull(t, in, g)
}

// Who had an address keeps it for when it fits again. Who had none takes none.
func TestTooLargeKeepsItsAddress(t *testing.T) {
	in := inputs(t, longLimits())
	in.Attachments = []corev1.ConfigMap{attachedTo(t, "web", "old", "{}")}
	g := planned(t, in)
	want := g.Reservations["web/old"]
	in.Status, in.ObservedConfig = statusOf(g), configOf(t, g)
	in.Attachments = []corev1.ConfigMap{attachedTo(t, "web", "old", longAccess()), attachedTo(t, "web", "new", longAccess())}
	g = planned(t, in)
	if diff := cmp.Diff([]string{"web/new Rejected TooLarge", "web/old Rejected TooLarge"}, summary(g)); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if diff := cmp.Diff(map[string][]netip.Addr{"web/old": want}, g.Reservations, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("addresses: -want, +got:\n%s", diff)
	}
}

// Routes that come take no QR code away, and one that is asked for takes away
// no route.
func TestRoutesLeaveQRCodes(t *testing.T) {
	const spec = "peerToPeer: true\nallowedPeerNamespaces: {from: All, limits: {routes: [172.16.0.0/12]}}\nendpoint: {host: vpn.example.com}\npeers: [{name: phone, allowedIPs: [10.43.0.0/16], qrCode: %t}]"
	const sites = 8
	attached := func(format string) []corev1.ConfigMap {
		var all []corev1.ConfigMap
		for i := range sites {
			rs := make([]string, 32)
			for k := range rs {
				rs[k] = fmt.Sprintf("172.16.%d.%d/32", i, k)
			}
			client := strings.ReplaceAll(format, "ROUTES", "routes: ["+strings.Join(rs, ", ")+"]")
			all = append(all, attachedTo(t, "web", fmt.Sprintf("site%d", i), client))
		}
		return all
	}
	for name, tc := range map[string]struct {
		reason string
		before string // what they were, empty where they were not there
		had    bool   // whether there was a QR code
		stay   bool
	}{
		"New":     {reason: "newcomers with routes come last"},
		"Served":  {reason: "who is there stays", before: "{ROUTES}", stay: true},
		"Enabled": {reason: "who is off the device has its routes in the configurations, too", before: "{disabled: true, ROUTES}", stay: true},
		"More":    {reason: "who asks for more routes than it had is like a newcomer", before: "{}", had: true},
	} {
		t.Run(name, func(t *testing.T) {
			in := inputs(t, fmt.Sprintf(spec, true))
			if tc.before != "" {
				before := inputs(t, fmt.Sprintf(spec, tc.had))
				before.Attachments = attached(tc.before)
				in = next(t, planned(t, before), fmt.Sprintf(spec, true))
			}
			in.Attachments = attached("{ROUTES}")
			g := planned(t, in)
			if got := len(g.Rejected()); (got == 0) != tc.stay || got == sites {
				t.Errorf("%s: want some rejected: %t, got %q", tc.reason, !tc.stay, g.Rejected())
			}
			phone := peerOf(t, g, "phone")
			if n := len(g.ClientConfig(phone, phone.Direct).String()); (n <= MaxQRCode) == tc.stay {
				t.Errorf("%s: want a configuration with a QR code: %t, got one of %d bytes", tc.reason, !tc.stay, n)
			}
			for _, why := range g.Rejected() {
				if !strings.Contains(why, "the configurations and QR codes of the gateway's own peers have no room left for the routes") {
					t.Errorf("%s: %s", tc.reason, why)
				}
			}
		})
	}
}

// longLimits is a gateway whose limits take 14 KiB in each that is attached.
func longLimits() string {
	var limits strings.Builder
	for i := range 32 {
		fmt.Fprintf(&limits, "{action: Accept, to: {cidr: 10.43.%d.0/24, ports: [%s]}},", i, portList(i, 32))
	}
	return "peerCIDR: 10.8.0.0/16\nallowedPeerNamespaces: {from: All, limits: {access: [" + limits.String() + "]}}"
}

// longAccess are access rules of a peer that are too many within those limits.
func longAccess() string {
	var own strings.Builder
	for i := range 32 {
		fmt.Fprintf(&own, "{action: Accept, to: {ports: [%s]}},", portList(i+1, 32))
	}
	return "access: [" + own.String() + "]"
}

func portList(first, n int) string {
	s := make([]string, n)
	for i := range s {
		s[i] = fmt.Sprintf("\"%d-%d\"", 1000+(first+i)*100, 1000+(first+i)*100+90)
	}
	return strings.Join(s, ",")
}

// fullOf is a gateway with those limits that has no room for one more, and its
// inputs. The class of pods web/crawler, web/phone and web/z00 to web/z49 are
// attached to it.
func fullOf(t *testing.T) (Inputs, *Gateway) {
	t.Helper()
	in := inputs(t, longLimits())
	in.Attachments = []corev1.ConfigMap{podsAttachedTo(t, "web", "crawler"), attachedTo(t, "web", "phone", "{}")}
	for i := range 50 {
		in.Attachments = append(in.Attachments, attachedTo(t, "web", fmt.Sprintf("z%02d", i), "{}"))
	}
	g := planned(t, in)
	if why := g.Rejected(); len(why) > 0 {
		t.Fatal(why)
	}
	return in, g
}

// rejected are the peers and classes of pods that are not served.
func rejected(g *Gateway) []string {
	return slices.DeleteFunc(append(summary(g), classes(g)...), func(s string) bool { return strings.HasSuffix(s, " Active") })
}

// expectFull plans a gateway again with more in the namespace aaa than a Secret
// holds. It is full then, and who was there stays, although aaa sorts first.
func expectFull(t *testing.T, in Inputs, g *Gateway) {
	t.Helper()
	in.Status, in.ObservedConfig = statusOf(g), configOf(t, g)
	g = planned(t, in)
	if n := len(configOf(t, g)); n > 1<<20 {
		t.Errorf("want a configuration that fits a Secret, got %d bytes", n)
	}
	for _, s := range append(summary(g), classes(g)...) {
		newcomer := strings.HasPrefix(s, "aaa/") && strings.HasSuffix(s, " Rejected TooLarge")
		if !newcomer && !strings.HasSuffix(s, " Active") {
			t.Error(s)
		}
	}
	if len(g.Rejected()) == 0 {
		t.Error("want some for which there is no room, got none")
	}
}

// Who is in a full configuration keeps its room from those that wait for some.
func TestRoomStays(t *testing.T) {
	const (
		// As much as its limits twice more, which is past 32 KiB.
		twice = `{access: [{action: Accept, to: {ports: ["1-65534"]}}, {action: Accept, to: {ports: ["1-65535"]}}]}`
		later = `{expiresAt: "2027-01-01T00:00:00Z"}`
	)
	cases := map[string]struct {
		reason string
		phone  string // what one of them asks for then
		lost   []byte // what is there of the configuration then, if it is lost
		want   []string
	}{
		"Same":    {reason: "nothing happens", phone: "{}", want: []string{"aaa/new Rejected TooLarge"}},
		"Deleted": {reason: "the status knows who was served", phone: "{}", lost: []byte{}, want: []string{"aaa/new Rejected TooLarge"}},
		"Edited":  {reason: "the status knows who was served", phone: "{}", lost: []byte("{}"), want: []string{"aaa/new Rejected TooLarge"}},
		"Grows":   {reason: "a little more finds room", phone: later, want: []string{"aaa/new Rejected TooLarge"}},
		"GrowsDeleted": {
			reason: "so it does where nobody knows that it is more", phone: later, lost: []byte{}, want: []string{"aaa/new Rejected TooLarge"},
		},
		"GrowsTooMuch": {
			reason: "who asks for more than one peer may be loses what it had, and nobody else does", phone: twice, want: []string{"web/phone Rejected TooLarge"},
		},
	}
	full, before := fullOf(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := full
			in.Status, in.ObservedConfig = statusOf(before), tc.lost
			if tc.lost == nil {
				in.ObservedConfig = configOf(t, before)
			}
			in.Attachments = append(slices.Clone(full.Attachments), attachedTo(t, "aaa", "new", "{}"))
			in.Attachments[1] = attachedTo(t, "web", "phone", tc.phone)

			if diff := cmp.Diff(tc.want, rejected(planned(t, in))); diff != "" {
				t.Errorf("%s: rejected: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// Peers that are served may grow, but not without end. Those that find no room
// leave theirs to the others.
func TestGrowthIsBounded(t *testing.T) {
	const (
		growing = 20
		// Each then takes 28.5 KiB. The 32 others have 466 KiB, so that 16 of those
		// that grow fit the 768 KiB of all and the 160 KiB that are added.
		fit = 16
		// As much as its limits once more, with a reject at the end of each.
		more = `{access: [{action: Accept, to: {ports: ["1-65534"]}}]}`
	)
	in, g := fullOf(t)
	var want []string
	for i := range growing {
		name := fmt.Sprintf("z%02d", i)
		in.Attachments[2+i] = attachedTo(t, "web", name, more)
		if i >= fit {
			want = append(want, "web/"+name+" Rejected TooLarge")
		}
	}
	in.Attachments = append(in.Attachments, attachedTo(t, "aaa", "new", "{}"))
	want = append([]string{"aaa/new Rejected TooLarge"}, want...)
	in.Status, in.ObservedConfig = statusOf(g), configOf(t, g)
	g = planned(t, in)
	if diff := cmp.Diff(want, rejected(g)); diff != "" {
		t.Errorf("rejected: -want, +got:\n%s", diff)
	}
	in.Status, in.ObservedConfig = statusOf(g), configOf(t, g)
	again := planned(t, in)
	if diff := cmp.Diff(want, rejected(again)); diff != "" {
		t.Errorf("rejected in the next pass: -want, +got:\n%s", diff)
	}
	if diff := cmp.Diff(g.Rejected(), again.Rejected()); diff != "" {
		t.Errorf("why, in the next pass: -before, +after:\n%s", diff)
	}
}

func TestAttachedAreBounded(t *testing.T) {
	in := inputs(t, allAllowed+"peerCIDR: 10.8.0.0/16")
	in.Attachments = []corev1.ConfigMap{attachedTo(t, "web", "zzz", "{}")}
	in.Status = statusOf(planned(t, in))
	for i := range maxAttached + 5 {
		in.Attachments = append(in.Attachments, attachedTo(t, "aaa", fmt.Sprintf("p%d", i), "publicKey: "+alice))
	}
	g := planned(t, in)
	if len(g.Peers) != maxAttached || g.Refused != 6 {
		t.Errorf("want %d peers and 6 refused, got %d and %d", maxAttached, len(g.Peers), g.Refused)
	}
	if last := g.Peers[len(g.Peers)-1].ID(); last != "web/zzz" {
		t.Errorf("want who was served to stay, got %s as the last", last)
	}
}

// Routes are bounded for all WireguardPeers together, those that are off the
// device too. Who has some keeps them, whatever newcomers ask for.
func TestAttachedRoutesAreBounded(t *testing.T) {
	const spec = "peerCIDR: 10.8.0.0/16\nallowedPeerNamespaces: {from: All, limits: {routes: [172.16.0.0/12]}}\npeers: [{name: office, routes: [192.168.50.0/24]}]"
	routes := func(i, n int) string {
		rs := make([]string, n)
		for k := range rs {
			rs[k] = fmt.Sprintf("172.%d.%d.%d/32", 16+i/256, i%256, k)
		}
		return "routes: [" + strings.Join(rs, ", ") + "]"
	}
	in := inputs(t, spec)
	for i := range 31 { // 992 of 1000 routes.
		in.Attachments = append(in.Attachments, attachedTo(t, "web", fmt.Sprintf("old%02d", i), fmt.Sprintf("{disabled: %t, %s}", i < 10, routes(i, 32))))
	}
	old, g := in.Attachments, planned(t, in)
	newcomers := []corev1.ConfigMap{attachedTo(t, "aaa", "large", "{"+routes(100, 9)+"}"), attachedTo(t, "aaa", "none", "{}"), attachedTo(t, "bbb", "small", "{"+routes(101, 8)+"}")}
	cases := map[string]struct {
		reason string
		change func(in *Inputs)
		also   map[string]string // of those that were there, who is not as before
	}{
		"Newcomers":  {reason: "they sort first, and come last", change: func(*Inputs) {}},
		"ConfigLost": {reason: "the status knows who was served", change: func(in *Inputs) { in.ObservedConfig = nil }},
		"Enabled": {
			reason: "its routes were counted all the time",
			change: func(in *Inputs) { in.Attachments[0] = attachedTo(t, "web", "old00", "{"+routes(0, 32)+"}") },
			also:   map[string]string{"web/old00": "web/old00 Active"},
		},
		"Disabled": {
			reason: "it keeps its routes for later",
			change: func(in *Inputs) {
				in.Attachments[30] = attachedTo(t, "web", "old30", "{disabled: true, "+routes(30, 32)+"}")
			},
			also: map[string]string{"web/old30": "web/old30 Disabled"},
		},
		"Grown": {
			reason: "who asks for something more comes before those who had nothing",
			change: func(in *Inputs) {
				in.Attachments[30] = attachedTo(t, "web", "old30", "{expiresAt: \"2100-01-01T00:00:00Z\", "+routes(30, 32)+"}")
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := next(t, g, spec)
			in.Attachments = slices.Concat(old, newcomers)
			tc.change(&in)
			want := []string{"aaa/large Rejected TooLarge", "aaa/none Active", "bbb/small Active"}
			for _, s := range summary(g) {
				id, _, _ := strings.Cut(s, " ")
				if other, ok := tc.also[id]; ok {
					s = other
				}
				want = append(want, s)
			}
			slices.Sort(want)
			got := planned(t, in)
			if diff := cmp.Diff(want, summary(got)); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
			const message = `WireguardPeers announce at most 1000 routes of one gateway, and there is no room left for those of peer "aaa/large": use fewer of them, or another gateway`
			if why := got.Rejected(); len(why) != 1 || why[0] != message {
				t.Errorf("want %s\ngot %q", message, why)
			}
		})
	}
}

// A peer that is rejected for what it asks keeps its address, though another
// waits for room.
func TestWaitingTakesNoAddress(t *testing.T) {
	in := inputs(t, `{peerCIDR: 10.8.0.0/24, allowedPeerNamespaces: {from: All, limits: {routes: [192.168.0.0/16]}}, peers: [{name: office, routes: [192.168.1.0/24]}]}`)
	served := attachedTo(t, "zzz", "z", "{}")
	in.Attachments = []corev1.ConfigMap{served}
	// Room for one.
	for in.ObjectSize = MaxObject; ; in.ObjectSize -= 100 {
		if g := planned(t, in); len(g.Rejected()) == 0 && g.Refused == 0 {
			break
		}
	}
	g := planned(t, in)
	had := addressesOf(g)["z"]
	waits, asks := attachedTo(t, "aaa", "a", "{}"), attachedTo(t, "zzz", "z", "{routes: [192.168.1.0/24]}")
	for _, step := range []struct {
		what string
		all  []corev1.ConfigMap
		z    string
	}{
		{"another comes", []corev1.ConfigMap{waits, served}, v1alpha1.PeerActive},
		{"it asks for a network that another has", []corev1.ConfigMap{waits, asks}, v1alpha1.PeerRejected},
		{"nothing happens", []corev1.ConfigMap{waits, asks}, v1alpha1.PeerRejected},
	} {
		in.Status, in.ObservedConfig, in.Attachments = statusOf(g), configOf(t, g), step.all
		g = planned(t, in)
		if got := addressesOf(g)["z"]; got != had {
			t.Errorf("%s: its address was %s and is %q", step.what, had, got)
		}
		if got := statesOf(g)["z"]; !strings.HasPrefix(got, step.z) {
			t.Errorf("%s: it is %s, want %s", step.what, got, step.z)
		}
	}
}
