package plan

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// attachedTo is what a WireguardPeer of the given namespace and name composes
// for the gateway home in the namespace vpn, whose seed is seedA. It is written
// out here from the description of the format.
func attachedTo(t *testing.T, namespace, name, client string) corev1.ConfigMap {
	t.Helper()
	c := v1alpha1.Client{}
	if err := yaml.UnmarshalStrict([]byte(client), &c); err != nil {
		t.Fatal(err)
	}
	seed := wireguard.Seed(seedA)
	if c.PublicKey == "" {
		c.PublicKey = seed.PeerKey(namespace, name, c.KeyRotation).Public().String()
	}
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	uid := "uid-of-" + namespace + "-" + name
	mac := wireguard.Attachment{Gateway: "vpn/home", Namespace: namespace, Name: name, UID: uid, Client: b}.MAC(seed.AttachmentKey())
	return corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace,
			Name:      name + "-wireguard.attachment",
			Labels:    map[string]string{"wireguardgateway.io/gateway": "home", "wireguardgateway.io/gateway-namespace": "vpn"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "wireguardgateway.io/v1alpha1", Kind: "WireguardPeer", Name: name, UID: types.UID(uid), Controller: new(true),
			}},
		},
		Data: map[string]string{"client.json": string(b), "uid": uid, "mac": mac},
	}
}

const (
	allAllowed = "allowedPeerNamespaces: {from: All}\n"
	alice      = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="
	bob        = "3p7bfXt9wbTTW2HC7OQ1Nz+DQ8hbeGdNrfx+FG+IK08="
)

// summary tells of every peer what its user sees first.
func summary(g *Gateway) []string {
	var out []string
	for i := range g.Peers {
		p := &g.Peers[i]
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s %s %s", p.ID(), p.State, p.Reason)))
	}
	return out
}

func TestAttachedLikeInline(t *testing.T) {
	const client = "presharedKey: {generate: true}\naddresses: [10.8.0.50]\nendpoint: 198.51.100.9:51820\npersistentKeepalive: 15\n" +
		"access: [{action: Accept, to: {cidr: 10.43.0.0/16}}]\nexpiresAt: \"2027-01-01T00:00:00Z\"\n"
	in := inputs(t, allAllowed)
	in.Attachments = []corev1.ConfigMap{attachedTo(t, "apps", "media", client)}
	g := planned(t, in)
	inline := planned(t, inputs(t, "peers:\n- name: media\n  "+strings.ReplaceAll(strings.TrimSpace(client), "\n", "\n  ")))

	got, want := g.Config().Peers[0], inline.Config().Peers[0]
	seed := wireguard.Seed(seedA)
	psk := seed.PresharedKey("apps", "media", 0)
	want.Namespace, want.PublicKey, want.PresharedKey = "apps", seed.PeerKey("apps", "media", 0).Public(), &psk
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Errorf("on the device: -inline, +WireguardPeer:\n%s", diff)
	}
	if g.Refused != 0 {
		t.Errorf("refused: want 0, got %d", g.Refused)
	}
	if !g.NextExpiry.Equal(inline.NextExpiry) {
		t.Errorf("next expiry: want %s, got %s", inline.NextExpiry, g.NextExpiry)
	}
}

func TestAttachmentRefused(t *testing.T) {
	cases := map[string]struct {
		reason string
		spec   string
		change func(t *testing.T, m *corev1.ConfigMap)
	}{
		"NotAllowed":     {reason: "the owner lets in another namespace only", spec: `allowedPeerNamespaces: {from: Names, names: [web]}`},
		"Default":        {reason: "the owner lets in nobody", spec: `{}`},
		"NotSelected":    {reason: "the namespace is not among those that have the label", spec: `allowedPeerNamespaces: {from: Selector, selector: {matchLabels: {vpn: "yes"}}}`},
		"NoCode":         {reason: "nobody authenticated it", change: func(_ *testing.T, m *corev1.ConfigMap) { delete(m.Data, "mac") }},
		"OtherSettings":  {reason: "the settings were changed afterwards", change: func(_ *testing.T, m *corev1.ConfigMap) { m.Data["client.json"] = `{"publicKey":"` + alice + `"}` }},
		"OtherNamespace": {reason: "it was copied to another namespace, owner and all", change: func(_ *testing.T, m *corev1.ConfigMap) { m.Namespace = "web" }},
		"OtherName":      {reason: "it was copied to another name", change: func(_ *testing.T, m *corev1.ConfigMap) { m.Name = "video-wireguard.attachment" }},
		"NoSuffix":       {reason: "a ConfigMap of another name is none of ours", change: func(_ *testing.T, m *corev1.ConfigMap) { m.Name = "media" }},
		"NoOwner":        {reason: "it was put back after its WireguardPeer was deleted", change: func(_ *testing.T, m *corev1.ConfigMap) { m.OwnerReferences = nil }},
		"OtherOwner":     {reason: "it has an owner that stays when the WireguardPeer goes", change: func(_ *testing.T, m *corev1.ConfigMap) { m.OwnerReferences[0].UID = "another" }},
		"OwnerKind":      {reason: "an owner of another kind that stays has no say", change: func(_ *testing.T, m *corev1.ConfigMap) { m.OwnerReferences[0].Kind = "ConfigMap" }},
		"OwnerGroup":     {reason: "somebody else's WireguardPeer has no say", change: func(_ *testing.T, m *corev1.ConfigMap) { m.OwnerReferences[0].APIVersion = "example.org/v1alpha1" }},
		"NoController":   {reason: "an owner beside the controller can be added by anybody", change: func(_ *testing.T, m *corev1.ConfigMap) { m.OwnerReferences[0].Controller = nil }},
		"Deleted":        {reason: "a finalizer keeps it when its WireguardPeer is gone", change: func(_ *testing.T, m *corev1.ConfigMap) { m.DeletionTimestamp = &metav1.Time{Time: now} }},
		"Immutable":      {reason: "its WireguardPeer could never change it again, nor be disabled", change: func(_ *testing.T, m *corev1.ConfigMap) { m.Immutable = new(true) }},
		"EmptyUID":       {reason: "no UID is nobody's", change: func(_ *testing.T, m *corev1.ConfigMap) { m.Data["uid"], m.OwnerReferences[0].UID = "", "" }},
		"OtherGateway": {reason: "it is another gateway's, relabelled", change: func(_ *testing.T, m *corev1.ConfigMap) {
			seed := wireguard.Seed(seedA)
			m.Data["mac"] = wireguard.Attachment{Gateway: "vpn/work", Namespace: "apps", Name: "media", UID: m.Data["uid"], Client: []byte(m.Data["client.json"])}.MAC(seed.AttachmentKey())
		}},
		"OtherSeed": {reason: "its author does not know the seed", change: func(_ *testing.T, m *corev1.ConfigMap) {
			seed := wireguard.Seed(seedB)
			m.Data["mac"] = wireguard.Attachment{Gateway: "vpn/home", Namespace: "apps", Name: "media", UID: m.Data["uid"], Client: []byte(m.Data["client.json"])}.MAC(seed.AttachmentKey())
		}},
		"Empty": {reason: "it says nothing", change: func(_ *testing.T, m *corev1.ConfigMap) { *m = corev1.ConfigMap{} }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			spec := tc.spec
			if spec == "" {
				spec = allAllowed
			}
			in := inputs(t, spec)
			m := attachedTo(t, "apps", "media", "{}")
			if tc.change != nil {
				tc.change(t, &m)
			}
			in.Attachments = []corev1.ConfigMap{m}
			g := planned(t, in)
			if len(g.Peers) != 0 || len(g.Reservations) != 0 || g.Refused != 1 {
				t.Errorf("%s: want no peer and 1 refused, got %v and %d", tc.reason, summary(g), g.Refused)
			}
		})
	}
}

func TestAttachmentAccepted(t *testing.T) {
	selector := `allowedPeerNamespaces: {from: Selector, selector: {matchLabels: {vpn: "yes"}}}`
	cases := map[string]struct {
		reason string
		spec   string
		change func(m *corev1.ConfigMap)
	}{
		"Named":    {reason: "the owner names the namespace", spec: `allowedPeerNamespaces: {from: Names, names: [apps]}`},
		"Selected": {reason: "the namespace has the label", spec: selector},
		"Claim": {reason: "in the claim flavour the owner is the composite resource, whose name is another", spec: allAllowed, change: func(m *corev1.ConfigMap) {
			m.OwnerReferences[0].Kind, m.OwnerReferences[0].Name = "XWireguardPeer", "media-x7x2q"
		}},
		"Later": {reason: "a later version of the API is the same kind", spec: allAllowed, change: func(m *corev1.ConfigMap) { m.OwnerReferences[0].APIVersion = "wireguardgateway.io/v1" }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := inputs(t, tc.spec)
			m := attachedTo(t, "apps", "media", "{}")
			if tc.change != nil {
				tc.change(&m)
			}
			in.Attachments = []corev1.ConfigMap{m}
			in.Namespaces = []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "apps", Labels: map[string]string{"vpn": "yes"}}}}
			if diff := cmp.Diff([]string{"apps/media Active"}, summary(planned(t, in))); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// What a WireguardPeer asks for that it cannot have concerns nobody else.
func TestAttachedConflicts(t *testing.T) {
	cases := map[string]struct {
		reason   string
		spec     string
		attached [][3]string // namespace, name and settings
		want     []string
		message  string // of the first that is rejected
	}{
		"TwoNamespaces": {
			reason:   "a name is a namespace's own",
			spec:     allAllowed,
			attached: [][3]string{{"web", "media", "{}"}, {"apps", "media", "{}"}},
			want:     []string{"apps/media Active", "web/media Active"},
		},
		"InlineOfOneName": {
			reason:   "the owner's own word comes first",
			spec:     allAllowed + "peers: [{name: laptop}]",
			attached: [][3]string{{"vpn", "laptop", "publicKey: " + alice}},
			want:     []string{"vpn/laptop Active", "vpn/laptop Rejected DuplicateName"},
			message:  `the gateway has an inline peer "laptop", which comes before a WireguardPeer of the same namespace and name: rename one of them`,
		},
		"PublicKey": {
			reason:   "the device knows peers by it",
			spec:     allAllowed + "peers: [{name: laptop, publicKey: " + alice + "}]",
			attached: [][3]string{{"web", "media", "publicKey: " + alice}},
			want:     []string{"vpn/laptop Active", "web/media Rejected DuplicatePublicKey"},
			message:  `peers "web/media" and "laptop" have the same public key: every device needs a key of its own`,
		},
		"Pin": {
			reason:   "an address is one peer's",
			spec:     allAllowed + "peers: [{name: laptop, addresses: [10.8.0.50]}]",
			attached: [][3]string{{"web", "media", "addresses: [10.8.0.50]"}},
			want:     []string{"vpn/laptop Active", "web/media Rejected DuplicateAddress"},
			message:  `peer "web/media" pins the address 10.8.0.50, which peer "laptop" has: pin another address, or none`,
		},
		"Route": {
			reason:   "a network is behind one peer",
			spec:     "allowedPeerNamespaces: {from: All, limits: {routes: [192.168.0.0/16]}}",
			attached: [][3]string{{"web", "media", "routes: [192.168.50.0/24]"}, {"apps", "site", "routes: [192.168.50.128/25]"}},
			want:     []string{"apps/site Active", "web/media Rejected RouteConflict"},
			message:  `the route 192.168.50.0/24 of peer "web/media" overlaps with 192.168.50.128/25 of peer "apps/site": a network can be behind one peer only`,
		},
		"RouteNotAllowed": {
			reason:   "the owner lets WireguardPeers announce nothing, unless it says so",
			spec:     allAllowed,
			attached: [][3]string{{"web", "media", "routes: [192.168.50.0/24]"}},
			want:     []string{"web/media Rejected RouteNotAllowed"},
			message:  `the gateway's owner does not let WireguardPeers announce the route 192.168.50.0/24 of peer "web/media": leave it out, or ask the owner to add it to spec.allowedPeerNamespaces.limits.routes`,
		},
		"RouteWider": {
			reason:   "a route that is larger than what the owner allows is not within it",
			spec:     "allowedPeerNamespaces: {from: All, limits: {routes: [192.168.50.0/24]}}",
			attached: [][3]string{{"web", "media", "routes: [192.168.0.0/16]"}},
			want:     []string{"web/media Rejected RouteNotAllowed"},
		},
		"Unfit": {
			reason:   "the pool was changed under it, which is no failure of the gateway",
			spec:     allAllowed + "peerCIDR: 10.9.0.0/24\npeers: [{name: laptop}]",
			attached: [][3]string{{"web", "media", "addresses: [10.8.0.50]"}},
			want:     []string{"vpn/laptop Active", "web/media Rejected Invalid"},
			message:  `spec.client.addresses[0]: Invalid value: "10.8.0.50": is in none of the gateway's pools, 10.9.0.0/24: use an address from there`,
		},
		"ForeignSecret": {
			reason:   "a Secret that it names would be read in the gateway's namespace",
			spec:     allAllowed,
			attached: [][3]string{{"web", "media", "presharedKey: {secretRef: {name: home-wireguard.seed, key: seed}}"}},
			want:     []string{"web/media Rejected Invalid"},
		},
		"ForeignPrivateKey": {
			reason:   "so would this one, and it is not looked at",
			spec:     allAllowed,
			attached: [][3]string{{"web", "media", "{privateKeySecretRef: {name: x}, publicKey: " + bob + "}"}},
			want:     []string{"web/media Active"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := inputs(t, tc.spec)
			for _, a := range tc.attached {
				in.Attachments = append(in.Attachments, attachedTo(t, a[0], a[1], a[2]))
			}
			g := planned(t, in)
			if diff := cmp.Diff(tc.want, summary(g)); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
			if rejected := g.Rejected(); tc.message != "" && (len(rejected) != 1 || rejected[0] != tc.message) {
				t.Errorf("%s: want the message\n%s\ngot %q", tc.reason, tc.message, rejected)
			}
			// In another order, and once it is settled, it is the same.
			slices.Reverse(in.Attachments)
			in.Status, in.ObservedConfig = statusOf(g), configOf(t, g)
			if diff := cmp.Diff(string(configOf(t, g)), string(configOf(t, planned(t, in)))); diff != "" {
				t.Errorf("%s: it is not settled: -first, +then:\n%s", tc.reason, diff)
			}
		})
	}
}

// Whatever newcomers ask for, from wherever, who was there keeps everything.
func TestNewcomersDisplaceNobody(t *testing.T) {
	const spec = "allowedPeerNamespaces: {from: All, limits: {routes: [192.168.0.0/16]}}\npeerCIDR: 10.8.0.0/29\n"
	in := inputs(t, spec)
	in.Attachments = []corev1.ConfigMap{attachedTo(t, "web", "old", "{publicKey: "+alice+", routes: [192.168.50.0/24]}")}
	first := planned(t, in)
	address := first.Peers[0].Addresses[0].String()

	in = next(t, first, spec+"peers: [{name: a}, {name: b, addresses: ["+address+"]}, {name: c, publicKey: "+alice+"}]")
	in.Attachments = []corev1.ConfigMap{
		attachedTo(t, "web", "old", "{publicKey: "+alice+", routes: [192.168.50.0/24]}"),
		attachedTo(t, "aaa", "key", "publicKey: "+alice),
		attachedTo(t, "aaa", "pin", "addresses: ["+address+"]"),
		attachedTo(t, "aaa", "route", "routes: [192.168.0.0/16]"),
		attachedTo(t, "aaa", "full1", "{}"), attachedTo(t, "aaa", "full2", "{}"), attachedTo(t, "aaa", "full3", "{}"),
	}
	g := planned(t, in)
	for i := range g.Peers {
		if p := &g.Peers[i]; p.ID() == "web/old" && (p.State != v1alpha1.PeerActive || p.Addresses[0].String() != address) {
			t.Errorf("want web/old as it was with %s, got %s %v: %s", address, p.State, p.Addresses, p.Message)
		}
	}
}

// An inline peer that takes over a WireguardPeer's name takes its address too,
// and a WireguardPeer that comes later changes nothing of it.
func TestDuplicateNameChangesNothing(t *testing.T) {
	const spec = allAllowed + "peers: [{name: laptop}, {name: phone}]"
	alone := planned(t, inputs(t, spec))
	in := next(t, alone, spec)
	in.Attachments = []corev1.ConfigMap{attachedTo(t, "vpn", "laptop", "{addresses: [10.8.0.99], publicKey: "+alice+"}")}
	g := planned(t, in)
	if diff := cmp.Diff(string(configOf(t, alone)), string(configOf(t, g))); diff != "" {
		t.Errorf("-before, +after:\n%s", diff)
	}
}

func TestLimitsReachTheDevice(t *testing.T) {
	in := inputs(t, "allowedPeerNamespaces: {from: All, limits: {access: [{action: Accept, to: {cidr: 10.43.0.0/16}, protocol: TCP}]}}\npeers: [{name: laptop}]")
	in.Attachments = []corev1.ConfigMap{attachedTo(t, "web", "wide", "access: [{action: Accept}]"), attachedTo(t, "web", "silent", "{}")}
	limit := []wireguard.AccessRule{{Action: "Accept", Protocol: "TCP", To: wireguard.AccessDestination{CIDR: netip.MustParsePrefix("10.43.0.0/16")}}}
	got := map[string][]wireguard.AccessRule{}
	for _, p := range planned(t, in).Config().Peers {
		got[p.Name] = p.Access
	}
	want := map[string][]wireguard.AccessRule{"laptop": nil, "wide": limit, "silent": limit}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("access: -want, +got:\n%s", diff)
	}
}

// Messages to one peer leave room for the others in the gateway's status.
func TestUnfitIsExplainedInBrief(t *testing.T) {
	in := inputs(t, allAllowed+"peerCIDR: 10.8.0.0/16")
	routes := make([]string, 32)
	for i := range routes {
		routes[i] = fmt.Sprintf("10.8.%d.0/24", i)
	}
	in.Attachments = []corev1.ConfigMap{attachedTo(t, "web", "media", "routes: ["+strings.Join(routes, ", ")+"]")}
	const want = `spec.client.routes[0]: Invalid value: "10.8.0.0/24": overlaps with the gateway's pool 10.8.0.0/16: name a network that is behind this peer; 31 more`
	if got := planned(t, in).Peers[0].Message; got != want {
		t.Errorf("want %s\ngot %s", want, got)
	}
}
