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

	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
	"github.com/wireguardgateway/function-wireguard-gateway/input/v1beta1"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// podsAttachedTo is what a WireguardPeer with pods composes for the gateway home
// in the namespace vpn. It is written out here from the description of the
// format.
func podsAttachedTo(t *testing.T, namespace, name string) corev1.ConfigMap {
	t.Helper()
	return withSettings(attachedTo(t, namespace, name, "{}"), `{"pods":true}`)
}

// withSettings is the attachment with another document, as the function would
// authenticate it.
func withSettings(m corev1.ConfigMap, settings string) corev1.ConfigMap {
	seed := wireguard.Seed(seedA)
	name, _ := strings.CutSuffix(m.Name, "-wireguard.attachment")
	m.Data["client.json"] = settings
	m.Data["mac"] = wireguard.Attachment{Gateway: "vpn/home", Namespace: m.Namespace, Name: name, UID: m.Data["uid"], Client: []byte(settings)}.MAC(seed.AttachmentKey())
	return m
}

// classes tells of every class of pods what its user sees first.
func classes(g *Gateway) []string {
	var out []string
	for i := range g.PodClasses {
		c := &g.PodClasses[i]
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s", c.ID(), c.State, c.Reason)))
	}
	return out
}

func TestPodClasses(t *testing.T) {
	cases := map[string]struct {
		reason   string
		spec     string
		attached [][2]string
		want     []string
		refused  int
	}{
		"Taken":      {reason: "the owner lets them in", spec: allAllowed, attached: [][2]string{{"web", "b"}, {"apps", "z"}, {"web", "a"}}, want: []string{"apps/z Active", "web/a Active", "web/b Active"}},
		"NotAllowed": {reason: "the owner lets in nobody", spec: "{}", attached: [][2]string{{"apps", "media"}}, refused: 1},
		"OnNode":     {reason: "the routes to pods would be the node's", spec: allAllowed + "pod: {hostNetwork: true}", attached: [][2]string{{"apps", "media"}}, want: []string{"apps/media Rejected Invalid"}},
		"Cut":        {reason: "gluetun keeps the agent from the API server, and so from seeing pods", spec: allAllowed + "gluetun: {provider: protonvpn, credentials: {secretRef: {name: proton}}}", attached: [][2]string{{"apps", "media"}}, want: []string{"apps/media Rejected Invalid"}},
		"Reaching":   {reason: "networks are reached beside the tunnel, and who knows which is the API server's", spec: allAllowed + gluetunSpec, attached: [][2]string{{"apps", "media"}}, want: []string{"apps/media Active"}},
		"Inline":     {reason: "an inline peer of the same namespace and name comes first", spec: allAllowed + "peers: [{name: media}]", attached: [][2]string{{"vpn", "media"}, {"apps", "media"}}, want: []string{"apps/media Active", "vpn/media Rejected DuplicateName"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := inputs(t, tc.spec)
			for _, a := range tc.attached {
				in.Attachments = append(in.Attachments, podsAttachedTo(t, a[0], a[1]))
			}
			g := planned(t, in)
			if diff := cmp.Diff(tc.want, classes(g)); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
			if g.Refused != tc.refused {
				t.Errorf("%s: want %d refused, got %d", tc.reason, tc.refused, g.Refused)
			}
			slices.Reverse(in.Attachments)
			in.Status, in.ObservedConfig = statusOf(g), configOf(t, g)
			if diff := cmp.Diff(string(configOf(t, g)), string(configOf(t, planned(t, in)))); diff != "" {
				t.Errorf("%s: it is not settled: -first, +then:\n%s", tc.reason, diff)
			}
		})
	}
}

// Each of the networks is a rule of every pod's, and a rule is there once.
func TestBypassCIDRs(t *testing.T) {
	cases := map[string]struct {
		reason         string
		own            []string
		pods, services []string
		want           []string
	}{
		"Cluster": {"the cluster's own are the default, without its nodes", nil, []string{"10.42.0.0/16"}, []string{"10.43.0.0/16"}, []string{"10.42.0.0/16", "10.43.0.0/16"}},
		"Own":     {"the user's come in their place", []string{"192.0.2.0/24"}, []string{"10.42.0.0/16"}, nil, []string{"192.0.2.0/24"}},
		"Same":    {"pods and Services may have one network", nil, []string{"10.0.0.0/8", "fd00::/64"}, []string{"10.0.0.0/8"}, []string{"10.0.0.0/8", "fd00::/64"}},
		"Within":  {"a part of another is another", nil, []string{"10.0.0.0/8"}, []string{"10.43.0.0/16"}, []string{"10.0.0.0/8", "10.43.0.0/16"}},
		"None":    {"nobody names any", nil, nil, nil, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			platform, errs := spec.ParsePlatform(v1beta1.InputSpec{PodCIDRs: tc.pods, ServiceCIDRs: tc.services, NodeCIDRs: []string{"198.51.100.0/24"}})
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			p := &spec.WireguardPeer{Pods: &spec.Pods{}, Platform: platform}
			for _, s := range tc.own {
				p.Pods.BypassCIDRs = append(p.Pods.BypassCIDRs, netip.MustParsePrefix(s))
			}
			var got []string
			for _, n := range BypassCIDRs(p) {
				got = append(got, n.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// What is neither a client nor pods, or both, is nothing.
func TestPodsOrClient(t *testing.T) {
	for name, tc := range map[string]struct {
		reason, settings string
		peers, classes   int
	}{
		"Pods":          {"pods say that they are, and nothing else", `{"pods":true}`, 0, 1},
		"Newer":         {"what a newer function adds does no harm", `{"pods":true,"more":{}}`, 0, 1},
		"Client":        {"a client has a key", `{"publicKey":"` + alice + `"}`, 1, 0},
		"NoPods":        {"a client may say what it is not", `{"publicKey":"` + alice + `","pods":false}`, 1, 0},
		"Both":          {"it cannot be told what is meant", `{"publicKey":"` + alice + `","pods":true}`, 0, 0},
		"Neither":       {"a client without a key is none", `{}`, 0, 0},
		"NeitherSpelt":  {"nor is one that is no pods either", `{"pods":false}`, 0, 0},
		"AnotherType":   {"a string is no yes", `{"pods":"true"}`, 0, 0},
		"NothingAtAll":  {"null is no document", `null`, 0, 0},
		"PodsOfAClient": {"the settings of a client say nothing of pods", `{"pods":true,"addresses":["10.8.0.9"],"access":[{"action":"Accept"}]}`, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			in := inputs(t, allAllowed)
			in.Attachments = []corev1.ConfigMap{withSettings(attachedTo(t, "apps", "media", "{}"), tc.settings)}
			g := planned(t, in)
			if len(g.Peers) != tc.peers || len(g.PodClasses) != tc.classes || g.Refused != 1-tc.peers-tc.classes {
				t.Errorf("%s: want %d peers and %d classes, got %d and %d, %d refused", tc.reason, tc.peers, tc.classes, len(g.Peers), len(g.PodClasses), g.Refused)
			}
			if tc.classes == 1 && len(g.PodClasses) == 1 && len(g.PodClasses[0].Access) > 0 {
				t.Errorf("%s: want the owner's limits only, got %v", tc.reason, g.PodClasses[0].Access)
			}
		})
	}
}

// The agent learns of a class what its pods derive their keys from, and the
// networks of pods with the first class only.
func TestPodClassesReachTheDevice(t *testing.T) {
	const limits = "allowedPeerNamespaces: {from: All, limits: {access: [{action: Accept, to: {cidr: 10.43.0.0/16}, protocol: TCP}]}}"
	in := inputs(t, limits)
	in.Spec.Platform.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.42.0.0/16")}
	if c := planned(t, in).Config(); c.PodCIDRs != nil || c.PodClasses != nil {
		t.Errorf("without pods: want nothing of them, got %v and %v", c.PodCIDRs, c.PodClasses)
	}
	in.Attachments = []corev1.ConfigMap{podsAttachedTo(t, "web", "crawler"), podsAttachedTo(t, "apps", "media")}
	seed := wireguard.Seed(seedA)
	access := []wireguard.AccessRule{{Action: "Accept", Protocol: "TCP", To: wireguard.AccessDestination{CIDR: netip.MustParsePrefix("10.43.0.0/16")}}}
	want := wireguard.GatewayConfig{
		PodCIDRs: in.Spec.Platform.PodCIDRs,
		PodClasses: []wireguard.PodClass{
			{Namespace: "apps", Name: "media", Key: seed.PodClassKey("apps", "media"), Access: access},
			{Namespace: "web", Name: "crawler", Key: seed.PodClassKey("web", "crawler"), Access: access},
		},
	}
	c := planned(t, in).Config()
	got := wireguard.GatewayConfig{PodCIDRs: c.PodCIDRs, PodClasses: c.PodClasses}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if len(c.Peers) != 0 || len(c.Reservations) != 0 {
		t.Errorf("want no peers and no addresses, got %v and %v", c.Peers, c.Reservations)
	}
}

// Classes of pods find room as peers do.
func TestPodClassesFitTheSecret(t *testing.T) {
	in := inputs(t, longLimits())
	in.Attachments = []corev1.ConfigMap{podsAttachedTo(t, "web", "old"), attachedTo(t, "web", "phone", "{}")}
	g := planned(t, in)
	for i := range 80 {
		in.Attachments = append(in.Attachments, podsAttachedTo(t, "aaa", fmt.Sprintf("new%d", i)))
	}
	expectFull(t, in, g)
}

// Together with peers, at most so many are looked at, of whom who was served
// comes first.
func TestPodClassesAreBounded(t *testing.T) {
	in := inputs(t, allAllowed+"peerCIDR: 10.8.0.0/16")
	in.Attachments = []corev1.ConfigMap{podsAttachedTo(t, "web", "zzz")}
	g := planned(t, in)
	in.ObservedConfig = configOf(t, g)
	for i := range maxAttached + 5 {
		in.Attachments = append(in.Attachments, attachedTo(t, "aaa", fmt.Sprintf("p%d", i), "publicKey: "+alice))
	}
	g = planned(t, in)
	if len(g.Peers) != maxAttached-1 || g.Refused != 6 {
		t.Errorf("want %d peers and 6 refused, got %d and %d", maxAttached-1, len(g.Peers), g.Refused)
	}
	if diff := cmp.Diff([]string{"web/zzz Active"}, classes(g)); diff != "" {
		t.Errorf("want who was served to stay: -want, +got:\n%s", diff)
	}
}
