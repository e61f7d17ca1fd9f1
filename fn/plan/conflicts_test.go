package plan

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
)

// Of seedA, computed apart from this repository's code: the derived public key
// of the peer laptop.
const laptopPublic = "QY28S6n0ZP/puq3/9BAOJlzx3Q8dGZzn5iVmy4pEln0="

// somePublic is from RFC 7748, section 6.1.
const somePublic = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="

// TestConflicts walks through passes of a gateway, each with another spec. The
// state of each pass is there in the next one, but for a configuration that is
// lost, which must not matter.
func TestConflicts(t *testing.T) {
	const (
		keyA  = `{name: a, publicKey: "` + somePublic + `"}`
		keyB  = `{name: b, publicKey: "` + somePublic + `"}`
		siteA = `{name: site-a, routes: [192.168.50.0/24]}`
		siteB = `{name: site-b, routes: [192.168.50.128/25]}`
		offA  = `{name: site-a, routes: [192.168.50.0/24], disabled: true}`
		goneA = `{name: site-a, routes: [192.168.50.0/24], expiresAt: "2020-01-01T00:00:00Z"}`
	)
	type pass struct {
		peers    string
		want     map[string]string
		messages []string
	}
	cases := map[string]struct {
		reason string
		passes []pass
	}{
		"PublicKey": {
			"Of two new peers the first name has the key. The message has both names.",
			[]pass{{keyB + ", " + keyA, map[string]string{"a": "Active", "b": "Rejected DuplicatePublicKey"}, []string{`"a"`, `"b"`}}},
		},
		"PublicKeyIncumbent": {
			"Who was there stays, whatever its name is.",
			[]pass{
				{keyB, map[string]string{"b": "Active"}, nil},
				{keyA + ", " + keyB, map[string]string{"a": "Rejected DuplicatePublicKey", "b": "Active"}, []string{`"a"`, `"b"`}},
				{keyA + ", " + keyB, map[string]string{"a": "Rejected DuplicatePublicKey", "b": "Active"}, nil},
				{keyA, map[string]string{"a": "Active"}, nil},
			},
		},
		"PublicKeyDisabledIncumbent": {
			"Who is disabled was there, too.",
			[]pass{
				{`{name: b, disabled: true, publicKey: "` + somePublic + `"}`, map[string]string{"b": "Disabled"}, nil},
				{keyA + `, {name: b, disabled: true, publicKey: "` + somePublic + `"}`, map[string]string{"a": "Rejected DuplicatePublicKey", "b": "Disabled"}, nil},
			},
		},
		"PublicKeyChanged": {
			"Who is served comes before who waits, where neither had the key.",
			[]pass{
				{siteB, map[string]string{"site-b": "Active"}, nil},
				{`{name: a, routes: [192.168.50.0/24], publicKey: "` + somePublic + `"}, ` + siteB, map[string]string{"a": "Rejected RouteConflict", "site-b": "Active"}, nil},
				{
					`{name: a, routes: [192.168.50.0/24], publicKey: "` + somePublic + `"}, {name: site-b, routes: [192.168.50.128/25], publicKey: "` + somePublic + `"}`,
					map[string]string{"a": "Rejected DuplicatePublicKey", "site-b": "Active"},
					nil,
				},
			},
		},
		"DerivedKey": {
			"A key of one's own may be another peer's derived one.",
			[]pass{{`{name: a, publicKey: "` + laptopPublic + `"}, {name: laptop}`, map[string]string{"a": "Active", "laptop": "Rejected DuplicatePublicKey"}, []string{`"a"`, `"laptop"`}}},
		},
		"GatewayKey": {
			"The gateway cannot be its own peer.",
			[]pass{{`{name: a, publicKey: "` + seedAPublic + `"}`, map[string]string{"a": "Rejected DuplicatePublicKey"}, []string{`"a"`, "gateway's own"}}},
		},
		"Route": {
			"Of two new peers the first name has the network. The message has both names and networks.",
			[]pass{{siteB + ", " + siteA, map[string]string{"site-a": "Active", "site-b": "Rejected RouteConflict"}, []string{`"site-a"`, `"site-b"`, "192.168.50.0/24", "192.168.50.128/25"}}},
		},
		"RouteIncumbent": {
			"Who has the network keeps it.",
			[]pass{
				{siteB, map[string]string{"site-b": "Active"}, nil},
				{siteA + ", " + siteB, map[string]string{"site-a": "Rejected RouteConflict", "site-b": "Active"}, nil},
				{siteA + ", " + siteB, map[string]string{"site-a": "Rejected RouteConflict", "site-b": "Active"}, nil},
			},
		},
		"RouteDisabled": {
			"Who is off the device is in nobody's way, and keeps its Secret.",
			[]pass{
				{siteA, map[string]string{"site-a": "Active"}, nil},
				{offA + ", " + siteB, map[string]string{"site-a": "Disabled", "site-b": "Active"}, nil},
				{offA + ", " + siteB, map[string]string{"site-a": "Disabled", "site-b": "Active"}, nil},
				// The way back is closed while the other has it.
				{siteA + ", " + siteB, map[string]string{"site-a": "Rejected RouteConflict", "site-b": "Active"}, nil},
			},
		},
		"RouteExpired": {
			"Who has expired is in nobody's way either.",
			[]pass{{goneA + ", " + siteB, map[string]string{"site-a": "Expired", "site-b": "Active"}, nil}},
		},
		"RouteRejected": {
			"Who is rejected for something else holds nothing.",
			[]pass{{`{name: a, routes: [192.168.50.0/24], privateKeySecretRef: {name: none}}, ` + siteB, map[string]string{"a": "Rejected SecretMissing", "site-b": "Active"}, nil}},
		},
		"RouteGrows": {
			"Who asks for more than it had comes after who has it.",
			[]pass{
				{`{name: a, routes: [192.168.40.0/24]}, ` + siteB, map[string]string{"a": "Active", "site-b": "Active"}, nil},
				{`{name: a, routes: [192.168.40.0/24, 192.168.50.0/24]}, ` + siteB, map[string]string{"a": "Rejected RouteConflict", "site-b": "Active"}, nil},
			},
		},
		"RouteAdded": {
			"A site that announces one more network keeps what it has.",
			[]pass{
				{siteB, map[string]string{"site-b": "Active"}, nil},
				{siteA + ", " + siteB, map[string]string{"site-a": "Rejected RouteConflict", "site-b": "Active"}, nil},
				{siteA + `, {name: site-b, routes: [192.168.50.128/25, 192.168.51.0/24]}`, map[string]string{"site-a": "Rejected RouteConflict", "site-b": "Active"}, []string{"192.168.50.128/25 of peer \"site-b\""}},
			},
		},
		"RouteSplit": {
			"Two halves of what a site has are what it has.",
			[]pass{
				{`{name: b, routes: [192.168.50.0/24]}`, map[string]string{"b": "Active"}, nil},
				{
					siteB + `, {name: a, routes: [192.168.50.0/25]}, {name: b, routes: [192.168.50.0/25, 192.168.50.128/25]}`,
					map[string]string{"a": "Rejected RouteConflict", "b": "Active", "site-b": "Rejected RouteConflict"},
					nil,
				},
			},
		},
		"RouteWidened": {
			"So is the part that a site has of what it asks for.",
			[]pass{
				{siteB, map[string]string{"site-b": "Active"}, nil},
				{siteA + `, {name: site-b, routes: [192.168.0.0/16]}`, map[string]string{"site-a": "Rejected RouteConflict", "site-b": "Active"}, nil},
			},
		},
		"RouteAroundTwo": {
			"Of two that are in the way, the first network is named, whoever came first.",
			[]pass{
				{`{name: z, routes: [192.168.2.0/24]}`, map[string]string{"z": "Active"}, nil},
				{
					`{name: a, routes: [192.168.0.0/16]}, {name: b, routes: [192.168.1.0/24]}, {name: z, routes: [192.168.2.0/24]}`,
					map[string]string{"a": "Rejected RouteConflict", "b": "Active", "z": "Active"},
					[]string{`192.168.1.0/24 of peer "b"`},
				},
			},
		},
		"RouteReplaced": {
			"Who is served comes before who waits, where neither has what both ask for.",
			[]pass{
				{`{name: a, routes: [192.168.50.0/24, 192.168.51.0/24]}, {name: b}`, map[string]string{"a": "Active", "b": "Active"}, nil},
				{`{name: b, routes: [192.168.50.0/24]}`, map[string]string{"b": "Active"}, nil},
				{`{name: a, routes: [192.168.50.0/24, 192.168.51.0/24]}, {name: b, routes: [192.168.50.0/24]}`, map[string]string{"a": "Rejected RouteConflict", "b": "Active"}, nil},
				{`{name: a, routes: [192.168.50.0/24, 192.168.51.0/24]}, {name: b, routes: [192.168.51.0/24]}`, map[string]string{"a": "Rejected RouteConflict", "b": "Active"}, nil},
			},
		},
		"RouteGrowsIntoGrowing": {
			"Who has a network keeps it while it asks for another.",
			[]pass{
				{`{name: a, routes: [192.168.40.0/24]}, {name: b, routes: [192.168.50.0/24]}`, map[string]string{"a": "Active", "b": "Active"}, nil},
				{`{name: a, routes: [192.168.40.0/24, 192.168.50.0/24]}, {name: b, routes: [192.168.50.0/24, 192.168.60.0/24]}`, map[string]string{"a": "Rejected RouteConflict", "b": "Active"}, nil},
			},
		},
		"RoutesInARow": {
			"What a peer has that cannot have all that it asks for is free for others.",
			[]pass{
				{
					`{name: a, routes: [192.168.1.0/24]}, {name: b, routes: [192.168.2.0/24]}, {name: c, routes: [192.168.3.0/24]}, {name: d, routes: [192.168.4.0/24]}`,
					map[string]string{"a": "Active", "b": "Active", "c": "Active", "d": "Active"},
					nil,
				},
				{
					`{name: a, routes: [192.168.1.0/24, 192.168.2.0/24]}, {name: b, routes: [192.168.2.0/24, 192.168.3.0/24]}, {name: c, routes: [192.168.3.0/24, 192.168.4.0/24]}, {name: d, routes: [192.168.4.0/24]}`,
					map[string]string{"a": "Rejected RouteConflict", "b": "Active", "c": "Rejected RouteConflict", "d": "Active"},
					nil,
				},
			},
		},
		"RoutesOfEachOther": {
			"Two that ask for each other's networks as well as their own: one has both.",
			[]pass{
				{`{name: a, routes: [192.168.1.0/24]}, {name: b, routes: [192.168.2.0/24]}`, map[string]string{"a": "Active", "b": "Active"}, nil},
				{`{name: a, routes: [192.168.1.0/24, 192.168.2.0/24]}, {name: b, routes: [192.168.2.0/24, 192.168.1.0/24]}`, map[string]string{"a": "Rejected RouteConflict", "b": "Active"}, nil},
			},
		},
		"RoutesSwapped": {
			"Two can swap their networks in one step.",
			[]pass{
				{`{name: a, routes: [192.168.1.0/24]}, {name: b, routes: [192.168.2.0/24]}`, map[string]string{"a": "Active", "b": "Active"}, nil},
				{`{name: a, routes: [192.168.2.0/24]}, {name: b, routes: [192.168.1.0/24]}`, map[string]string{"a": "Active", "b": "Active"}, nil},
			},
		},
		"NoConflict": {
			"Networks side by side are two networks.",
			[]pass{{`{name: a, routes: [192.168.50.0/25, "fd50::/64"]}, {name: b, routes: [192.168.50.128/25, "fd51::/64"]}`, map[string]string{"a": "Active", "b": "Active"}, nil}},
		},
	}
	for name, tc := range cases {
		for lost, config := range map[string]func(*Gateway) []byte{
			"":        func(g *Gateway) []byte { return configOf(t, g) },
			"Deleted": func(*Gateway) []byte { return nil },
			"Edited":  func(*Gateway) []byte { return []byte("{}") },
		} {
			t.Run(name+lost, func(t *testing.T) {
				var g *Gateway
				for i, p := range tc.passes {
					in := inputs(t, "{peers: ["+p.peers+"]}")
					if g != nil {
						in.Status, in.ObservedConfig = statusOf(g), config(g)
					}
					g = planned(t, in)
					if diff := cmp.Diff(p.want, statesOf(g)); diff != "" {
						t.Errorf("%s\npass %d: -want, +got:\n%s", tc.reason, i, diff)
					}
					for _, m := range p.messages {
						if all := messages(g); !strings.Contains(all, m) {
							t.Errorf("%s\npass %d: want %s in the message, got %s", tc.reason, i, m, all)
						}
					}
					// It is settled at once.
					in.Status, in.ObservedConfig = statusOf(g), config(g)
					if again := planned(t, in); messages(again) != messages(g) || !maps.Equal(statesOf(again), statesOf(g)) {
						t.Errorf("%s\npass %d: it is not settled: first %v\n%s\nthen %v\n%s", tc.reason, i, statesOf(g), messages(g), statesOf(again), messages(again))
					}
				}
			})
		}
	}
}

// TestNobodyIsDisplaced walks through lives of a gateway in which one peer after
// another comes, goes or asks for something else: all others that are served
// keep what they have.
func TestNobodyIsDisplaced(t *testing.T) {
	settings := map[string][]string{
		"addresses": {"", "[10.8.0.2]", "[10.8.0.3]", "[10.8.0.4, \"fd00:8::4\"]", "[\"fd00:8::5\"]"},
		"publicKey": {"", "", alice, bob},
		"disabled":  {"", "", "true"},
		"routes": {
			"", "[192.168.1.0/24]", "[192.168.0.0/16]", "[192.168.2.0/24]", "[192.168.1.0/24, 192.168.2.0/24]",
			"[192.168.1.0/25, 192.168.1.128/25]", "[192.168.2.0/24, 192.168.3.0/24]", "[192.168.1.128/25, 192.168.3.0/24]",
		},
	}
	for life := range uint64(20) {
		r := splitmix{life}
		peers := map[string]map[string]string{}
		var g *Gateway
		for step := range 40 {
			who := fmt.Sprintf("p%d", r.next()%10)
			if r.next()%5 == 0 {
				delete(peers, who)
			} else {
				if peers[who] == nil {
					peers[who] = map[string]string{}
				}
				key := slices.Sorted(maps.Keys(settings))[r.next()%4]
				peers[who][key] = settings[key][r.next()%uint64(len(settings[key]))]
			}
			var inline []string
			var attachments []corev1.ConfigMap
			for _, name := range slices.Sorted(maps.Keys(peers)) {
				var client []string
				for _, key := range slices.Sorted(maps.Keys(peers[name])) {
					if v := peers[name][key]; v != "" {
						client = append(client, key+": "+v)
					}
				}
				if name < "p5" {
					inline = append(inline, "{"+strings.Join(append(client, "name: "+name), ", ")+"}")
				} else {
					attachments = append(attachments, attachedTo(t, "apps", name, "{"+strings.Join(client, ", ")+"}"))
				}
			}
			in := inputs(t, `{peerCIDR: 10.8.0.0/28, peerCIDRv6: "fd00:8::/64", allowedPeerNamespaces: {from: All, limits: {routes: [192.168.0.0/16]}}, peers: [`+strings.Join(inline, ", ")+"]}")
			in.Attachments = attachments
			had := g
			if had != nil {
				in.Status, in.ObservedConfig = statusOf(had), configOf(t, had)
				switch r.next() % 4 {
				case 0:
					in.Status = &v1alpha1.WireguardGatewayStatus{}
				case 1:
					in.ObservedConfig = nil
				}
			}
			g = planned(t, in)
			if had == nil {
				continue
			}
			states, addresses := statesOf(g), addressesOf(g)
			for name, state := range statesOf(had) {
				if name == who || state != v1alpha1.PeerActive {
					continue
				}
				if states[name] != state || addresses[name] != addressesOf(had)[name] {
					t.Fatalf("life %d, step %d: %s changed to %v, and %s was displaced: it was %s with %s, and is %s with %q: %s",
						life, step, who, peers[who], name, state, addressesOf(had)[name], states[name], addresses[name], peerOf(t, g, name).Message)
				}
			}
		}
	}
}

// TestNetSet compares with a look at every pair, of nested, equal and disjoint
// networks of both families.
func TestNetSet(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		set := newNetSet()
		var all []netip.Prefix
		for range 8 {
			a := netip.AddrFrom4([4]byte{10, byte(r.IntN(4) << 6), 0, byte(r.IntN(2))})
			if r.IntN(3) == 0 {
				a = netip.AddrFrom16([16]byte{10, byte(r.IntN(4) << 6), 15: byte(r.IntN(2))})
			}
			n := netip.PrefixFrom(a, []int{8, 9, 10, 24, 32}[r.IntN(5)]).Masked()
			want := slices.ContainsFunc(all, func(have netip.Prefix) bool { return have.Bits() <= n.Bits() && have.Overlaps(n) })
			if got := set.contains(n); got != want {
				t.Fatalf("%v contain %s: want %t, got %t", all, n, want, got)
			}
			set.add(n)
			all = append(all, n)
		}
	}
}

// TestManyRoutes holds that time grows with the number of routes, not with its
// square: that took minutes.
func TestManyRoutes(t *testing.T) {
	in := inputs(t, "{peerToPeer: true, peerCIDR: 10.0.0.0/16}")
	for i := range 20 {
		in.Spec.Peers = append(in.Spec.Peers, spec.Peer{Namespace: "vpn", Name: fmt.Sprintf("narrow%d", i), AllowedIPs: []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16")}})
	}
	for i := range 1000 {
		p := spec.Peer{Namespace: "vpn", Name: fmt.Sprintf("site%d", i)}
		for k := range 32 {
			p.Routes = append(p.Routes, netip.PrefixFrom(netip.AddrFrom4([4]byte{172, byte(16 + i>>8), byte(i), byte(k)}), 32))
		}
		in.Spec.Peers = append(in.Spec.Peers, p)
	}
	start := time.Now()
	g := planned(t, in)
	if took := time.Since(start); took > 8*time.Second {
		t.Errorf("32,000 routes took %s", took)
	}
	if got := len(peerOf(t, g, "narrow0").AllowedIPs); got != 32002 || len(g.Rejected()) != 0 {
		t.Errorf("want 32002 networks and nobody rejected, got %d and %q", got, g.Rejected())
	}
}
