package plan

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Hashes pick these in 10.8.0.0/24: they were computed apart from this
// repository's code, as the first 8 bytes of SHA-256 of "vpn/<name>", modulo
// the size of the pool. They are frozen: after a loss of all state, peers come
// back where they were.
const (
	hashLaptop = "10.8.0.199"
	hashPhone  = "10.8.0.20"
)

// addressCase is one pass over a gateway that peers already had addresses on.
type addressCase struct {
	reason string
	spec   string
	// had are the addresses in status, lost those that only the configuration
	// knows of.
	had, lost map[string]string
	want      map[string]string
	states    map[string]string // of those that are not Active
	messages  []string          // parts of the one message
}

func testAddresses(t *testing.T, cases map[string]addressCase) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := inputs(t, tc.spec)
			in.Status.Peers = peerStatuses(tc.had)
			in.ObservedConfig = reservations(t, tc.lost)
			g := planned(t, in)
			if diff := cmp.Diff(tc.want, addressesOf(g)); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			want := map[string]string{}
			for n := range tc.want {
				want[n] = "Active"
			}
			maps.Copy(want, tc.states)
			if diff := cmp.Diff(want, statesOf(g)); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			for _, m := range tc.messages {
				if all := messages(g); !strings.Contains(all, m) {
					t.Errorf("%s\nwant %s in the message, got %s", tc.reason, m, all)
				}
			}
		})
	}
}

func messages(g *Gateway) string {
	var out []string
	for i := range g.Peers {
		out = append(out, g.Peers[i].Message)
	}
	return strings.Join(out, "\n")
}

func TestAddressOrder(t *testing.T) {
	testAddresses(t, map[string]addressCase{
		"New": {
			reason: "A hash picks the addresses of new peers.",
			spec:   peersSpec("phone", "laptop"),
			want:   map[string]string{"laptop": hashLaptop, "phone": hashPhone},
		},
		"Incumbents": {
			reason: "Who has an address keeps it.",
			spec:   peersSpec("laptop", "phone"),
			had:    map[string]string{"laptop": hashPhone, "phone": hashLaptop},
			want:   map[string]string{"laptop": hashPhone, "phone": hashLaptop},
		},
		"IncumbentBeforeNewcomer": {
			reason: "The newcomer's own pick is taken, so it goes on from there.",
			spec:   peersSpec("laptop", "zebra"),
			had:    map[string]string{"zebra": hashLaptop},
			want:   map[string]string{"laptop": "10.8.0.200", "zebra": hashLaptop},
		},
		"Pin": {
			reason: "A pin is what the peer gets.",
			spec:   `{peers: [{name: laptop, addresses: [10.8.0.50]}]}`,
			want:   map[string]string{"laptop": "10.8.0.50"},
		},
		"PinBeforeNewcomer": {
			reason: "A pin comes before what a hash picks.",
			spec:   `{peers: [{name: laptop}, {name: zebra, addresses: [` + hashLaptop + `]}]}`,
			want:   map[string]string{"laptop": "10.8.0.200", "zebra": hashLaptop},
		},
		"IncumbentBeforePin": {
			reason: "Whose address it is keeps it. The message has both names.",
			spec:   `{peers: [{name: a, addresses: [10.8.0.50]}, {name: b}]}`,
			had:    map[string]string{"b": "10.8.0.50"},
			want:   map[string]string{"a": "", "b": "10.8.0.50"},
			states: map[string]string{"a": "Rejected DuplicateAddress"},
			messages: []string{
				`"a"`, `"b"`, "10.8.0.50",
			},
		},
		"PinnedIncumbentBeforeIncumbent": {
			reason: "Of two who had it, the one that pins it stays.",
			spec:   `{peers: [{name: a}, {name: b, addresses: [10.8.0.50]}]}`,
			had:    map[string]string{"a": "10.8.0.50", "b": "10.8.0.50"},
			want:   map[string]string{"a": "10.8.0.45", "b": "10.8.0.50"},
		},
		"TwoPins": {
			reason: "Two new peers pin one address: the first name has it.",
			spec:   `{peers: [{name: b, addresses: [10.8.0.50]}, {name: a, addresses: [10.8.0.50]}]}`,
			want:   map[string]string{"a": "10.8.0.50", "b": ""},
			states: map[string]string{"b": "Rejected DuplicateAddress"},
			messages: []string{
				`"a"`, `"b"`, "10.8.0.50",
			},
		},
		"LoserKeepsOld": {
			reason: "The old address is for when the pin is taken back.",
			spec:   `{peers: [{name: a, addresses: [10.8.0.50]}, {name: b}]}`,
			had:    map[string]string{"a": "10.8.0.60", "b": "10.8.0.50"},
			want:   map[string]string{"a": "10.8.0.60", "b": "10.8.0.50"},
			states: map[string]string{"a": "Rejected DuplicateAddress"},
		},
		"LoserBeforeNewPin": {
			reason: "What is kept for when the pin is taken back is kept from newcomers too.",
			spec:   `{peers: [{name: b, addresses: [10.8.0.60]}, {name: c}, {name: z, addresses: [10.8.0.50]}]}`,
			had:    map[string]string{"b": "10.8.0.50", "c": "10.8.0.60"},
			want:   map[string]string{"b": "10.8.0.50", "c": "10.8.0.60", "z": ""},
			states: map[string]string{"b": "Rejected DuplicateAddress", "z": "Rejected DuplicateAddress"},
			messages: []string{
				`peer "z" pins the address 10.8.0.50, which peer "b" has`,
			},
		},
		"LoserBeforeEarlierPin": {
			reason: "Whose name comes first may be given it, until it is known that the loser goes back.",
			spec:   `{peers: [{name: a, addresses: [10.8.0.50]}, {name: b, addresses: [10.8.0.60]}, {name: c}]}`,
			had:    map[string]string{"b": "10.8.0.50", "c": "10.8.0.60"},
			want:   map[string]string{"a": "", "b": "10.8.0.50", "c": "10.8.0.60"},
			states: map[string]string{"a": "Rejected DuplicateAddress", "b": "Rejected DuplicateAddress"},
			messages: []string{
				`peer "a" pins the address 10.8.0.50, which peer "b" has`,
			},
		},
		"LosersInARow": {
			reason: "Each wants what the next has, and the last goes back: so do all.",
			spec:   `{peers: [{name: a, addresses: [10.8.0.51]}, {name: b, addresses: [10.8.0.52]}, {name: c, addresses: [10.8.0.53]}, {name: d}]}`,
			had:    map[string]string{"a": "10.8.0.50", "b": "10.8.0.51", "c": "10.8.0.52", "d": "10.8.0.53"},
			want:   map[string]string{"a": "10.8.0.50", "b": "10.8.0.51", "c": "10.8.0.52", "d": "10.8.0.53"},
			states: map[string]string{"a": "Rejected DuplicateAddress", "b": "Rejected DuplicateAddress", "c": "Rejected DuplicateAddress"},
		},
		"LosersOfOne": {
			reason: "Of two who had it, the first name goes back, and that is all.",
			spec:   `{peers: [{name: a, addresses: [10.8.0.60]}, {name: b, addresses: [10.8.0.60]}, {name: c}]}`,
			had:    map[string]string{"a": "10.8.0.50", "b": "10.8.0.50", "c": "10.8.0.60"},
			want:   map[string]string{"a": "10.8.0.50", "b": "", "c": "10.8.0.60"},
			states: map[string]string{"a": "Rejected DuplicateAddress", "b": "Rejected DuplicateAddress"},
		},
		"LoserBesidePinned": {
			reason: "Of two who had it, the one that pins it stays where the other would go back.",
			spec:   `{peers: [{name: a, addresses: [10.8.0.60]}, {name: b, addresses: [10.8.0.50]}, {name: c}]}`,
			had:    map[string]string{"a": "10.8.0.50", "b": "10.8.0.50", "c": "10.8.0.60"},
			want:   map[string]string{"a": "", "b": "10.8.0.50", "c": "10.8.0.60"},
			states: map[string]string{"a": "Rejected DuplicateAddress"},
		},
		"MoversInARow": {
			reason: "Each wants what the next has, and the last moves on: so do all, in one step.",
			spec:   `{peers: [{name: a, addresses: [10.8.0.51]}, {name: b, addresses: [10.8.0.52]}, {name: c, addresses: [10.8.0.53]}]}`,
			had:    map[string]string{"a": "10.8.0.50", "b": "10.8.0.51", "c": "10.8.0.52"},
			want:   map[string]string{"a": "10.8.0.51", "b": "10.8.0.52", "c": "10.8.0.53"},
		},
		"SwapBeforeNewPin": {
			reason: "A newcomer that waits for an address does not come between two that swap theirs.",
			spec:   `{peers: [{name: "0", addresses: [10.8.0.60]}, {name: a, addresses: [10.8.0.60]}, {name: b, addresses: [10.8.0.50]}]}`,
			had:    map[string]string{"a": "10.8.0.50", "b": "10.8.0.60"},
			want:   map[string]string{"0": "", "a": "10.8.0.60", "b": "10.8.0.50"},
			states: map[string]string{"0": "Rejected DuplicateAddress"},
		},
		"LoserOfOnePool": {
			reason: "Each pool has addresses of its own to keep.",
			spec:   `{peerCIDR: 10.8.0.0/24, peerCIDRv6: "fd00:8::/120", peers: [{name: b, addresses: ["fd00:8::60"]}, {name: c}, {name: z, addresses: [10.8.0.50, "fd00:8::50"]}]}`,
			had:    map[string]string{"b": "10.8.0.50 fd00:8::50", "c": "10.8.0.60 fd00:8::60"},
			want:   map[string]string{"b": "10.8.0.50 fd00:8::50", "c": "10.8.0.60 fd00:8::60", "z": ""},
			states: map[string]string{"b": "Rejected DuplicateAddress", "z": "Rejected DuplicateAddress"},
		},
		"Swap": {
			reason: "Two peers can swap their pins in one step.",
			spec:   `{peers: [{name: a, addresses: [10.8.0.60]}, {name: b, addresses: [10.8.0.50]}]}`,
			had:    map[string]string{"a": "10.8.0.50", "b": "10.8.0.60"},
			want:   map[string]string{"a": "10.8.0.60", "b": "10.8.0.50"},
		},
		"PinToOwn": {
			reason: "Who pins what it has stays.",
			spec:   `{peers: [{name: a, addresses: [10.8.0.50]}, {name: b}]}`,
			had:    map[string]string{"a": "10.8.0.50", "b": "10.8.0.60"},
			want:   map[string]string{"a": "10.8.0.50", "b": "10.8.0.60"},
		},
		"PinTakenBack": {
			reason: "Who pins no more keeps what it has.",
			spec:   `{peers: [{name: a}]}`,
			had:    map[string]string{"a": "10.8.0.50"},
			want:   map[string]string{"a": "10.8.0.50"},
		},
		"Deleted": {
			reason: "An address of a peer that is gone is free.",
			spec:   `{peers: [{name: a, addresses: [10.8.0.50]}]}`,
			had:    map[string]string{"gone": "10.8.0.50"},
			want:   map[string]string{"a": "10.8.0.50"},
		},
		"Disabled": {
			reason: "A disabled peer keeps its address.",
			spec:   `{peers: [{name: laptop}, {name: zebra, disabled: true}]}`,
			had:    map[string]string{"zebra": hashLaptop},
			want:   map[string]string{"laptop": "10.8.0.200", "zebra": hashLaptop},
			states: map[string]string{"zebra": "Disabled"},
		},
		"Rejected": {
			reason: "A rejected peer keeps its address, for when its Secret is there.",
			spec:   `{peers: [{name: laptop}, {name: zebra, privateKeySecretRef: {name: none}}]}`,
			had:    map[string]string{"zebra": hashLaptop},
			want:   map[string]string{"laptop": "10.8.0.200", "zebra": hashLaptop},
			states: map[string]string{"zebra": "Rejected SecretMissing"},
		},
	})
}

func TestAddressesLost(t *testing.T) {
	testAddresses(t, map[string]addressCase{
		"Status": {
			reason: "The configuration remembers.",
			spec:   peersSpec("laptop", "phone"),
			lost:   map[string]string{"laptop": "10.8.0.77", "phone": "10.8.0.78"},
			want:   map[string]string{"laptop": "10.8.0.77", "phone": "10.8.0.78"},
		},
		"Some": {
			reason: "What status lacks the configuration knows; where both speak, status does.",
			spec:   peersSpec("laptop", "phone"),
			had:    map[string]string{"laptop": "10.8.0.70"},
			lost:   map[string]string{"laptop": "10.8.0.77", "phone": "10.8.0.78"},
			want:   map[string]string{"laptop": "10.8.0.70", "phone": "10.8.0.78"},
		},
		"Both": {
			reason: "Hashes bring them back.",
			spec:   peersSpec("laptop", "phone"),
			want:   map[string]string{"laptop": hashLaptop, "phone": hashPhone},
		},
		"Garbage": {
			reason: "What is no address is none.",
			spec:   peersSpec("laptop"),
			had:    map[string]string{"laptop": "ten dot eight"},
			want:   map[string]string{"laptop": hashLaptop},
		},
	})

	in := inputs(t, peersSpec("laptop"))
	in.ObservedConfig = []byte(`{"version":2,"reservations":{"vpn/laptop":["10.8.0.77"]}}`)
	if got := addressesOf(planned(t, in))["laptop"]; got != hashLaptop {
		t.Errorf("a configuration of another version is not read: want %s, got %s", hashLaptop, got)
	}
}

func TestAddressPools(t *testing.T) {
	testAddresses(t, map[string]addressCase{
		"Changed": {
			reason: "Another pool has other addresses, at the same place.",
			spec:   `{peerCIDR: 10.9.0.0/24, peers: [{name: laptop}, {name: phone}]}`,
			had:    map[string]string{"laptop": "10.8.0.5", "phone": "10.8.0.6"},
			want:   map[string]string{"laptop": "10.9.0.199", "phone": "10.9.0.20"},
		},
		"Grown": {
			reason: "A larger pool that holds the old one moves nobody.",
			spec:   `{peerCIDR: 10.8.0.0/16, peers: [{name: laptop}, {name: phone}]}`,
			had:    map[string]string{"laptop": hashLaptop, "phone": hashPhone},
			want:   map[string]string{"laptop": hashLaptop, "phone": hashPhone},
		},
		"IPv6Only": {
			reason: "Without an IPv4 pool there is no IPv4 address.",
			spec:   `{peerCIDRv6: "fd00:8::/120", peers: [{name: laptop}]}`,
			want:   map[string]string{"laptop": "fd00:8::c7"},
		},
		"DualStackLater": {
			reason: "The second pool is added to what is there.",
			spec:   `{peerCIDR: 10.8.0.0/24, peerCIDRv6: "fd00:8::/120", peers: [{name: laptop}, {name: phone}]}`,
			had:    map[string]string{"laptop": "10.8.0.77", "phone": "10.8.0.78"},
			want:   map[string]string{"laptop": "10.8.0.77 fd00:8::c7", "phone": "10.8.0.78 fd00:8::14"},
		},
		"DualStackPinnedHalf": {
			reason: "What is not pinned is allocated.",
			spec:   `{peerCIDR: 10.8.0.0/24, peerCIDRv6: "fd00:8::/120", peers: [{name: laptop, addresses: ["fd00:8::50"]}]}`,
			want:   map[string]string{"laptop": hashLaptop + " fd00:8::50"},
		},
		"IPv6Dropped": {
			reason: "A pool that goes takes its addresses along.",
			spec:   peersSpec("laptop"),
			had:    map[string]string{"laptop": "10.8.0.77 fd00:8::c7"},
			want:   map[string]string{"laptop": "10.8.0.77"},
		},
		"Exhausted": {
			reason: "The pool holds one peer: the others are rejected, each by itself.",
			spec:   `{peerCIDR: 10.8.0.0/30, peers: [{name: a}, {name: b}, {name: c}]}`,
			had:    map[string]string{"b": "10.8.0.2"},
			want:   map[string]string{"a": "", "b": "10.8.0.2", "c": ""},
			states: map[string]string{"a": "Rejected PoolExhausted", "c": "Rejected PoolExhausted"},
			messages: []string{
				"10.8.0.0/30", "spec.reservedAddresses",
			},
		},
		"SmallestIPv6": {
			reason: "IPv6 has no broadcast address.",
			spec:   `{peerCIDRv6: "fd00::/126", peers: [{name: a}, {name: b}, {name: c}]}`,
			want:   map[string]string{"a": "fd00::2", "b": "fd00::3", "c": ""},
			states: map[string]string{"c": "Rejected PoolExhausted"},
		},
		"OneFamilyExhausted": {
			reason: "An address of one family alone serves nobody who expects two.",
			spec:   `{peerCIDR: 10.8.0.0/30, peerCIDRv6: "fd00::/64", peers: [{name: a}, {name: b}]}`,
			had:    map[string]string{"a": "10.8.0.2 fd00::a", "b": "fd00::b"},
			want:   map[string]string{"a": "10.8.0.2 fd00::a", "b": "fd00::b"},
			states: map[string]string{"b": "Rejected PoolExhausted"},
		},
	})
}

func TestAddressesReserved(t *testing.T) {
	testAddresses(t, map[string]addressCase{
		"Skipped": {
			reason: "The next free address comes after the range.",
			spec:   `{reservedAddresses: ["10.8.0.190-10.8.0.210"], peers: [{name: laptop}]}`,
			want:   map[string]string{"laptop": "10.8.0.211"},
		},
		"Wraps": {
			reason: "After the end comes the beginning.",
			spec:   `{reservedAddresses: ["10.8.0.190-10.8.0.255", "10.8.0.2"], peers: [{name: laptop}]}`,
			want:   map[string]string{"laptop": "10.8.0.3"},
		},
		"BeyondThePool": {
			reason: "A range may reach out of the pool on both sides.",
			spec:   `{reservedAddresses: ["10.7.0.0-10.8.0.99", "10.8.0.101-10.9.0.0"], peers: [{name: laptop}]}`,
			want:   map[string]string{"laptop": "10.8.0.100"},
		},
		"All": {
			reason: "Everything may be reserved.",
			spec:   `{reservedAddresses: ["10.8.0.0-10.8.0.255"], peers: [{name: laptop}]}`,
			want:   map[string]string{"laptop": ""},
			states: map[string]string{"laptop": "Rejected PoolExhausted"},
		},
		"Later": {
			reason: "Who sits on what becomes reserved has to go.",
			spec:   `{reservedAddresses: ["10.8.0.50"], peers: [{name: laptop}]}`,
			had:    map[string]string{"laptop": "10.8.0.50"},
			want:   map[string]string{"laptop": hashLaptop},
		},
		"HugeIPv6": {
			reason: "Half of a /64 is passed in one step, not in 2^63.",
			spec:   `{peerCIDRv6: "fd00:8::/64", reservedAddresses: ["fd00:8::-fd00:8::ffff:ffff:ffff:fff0"], peers: [{name: a}, {name: b}]}`,
			want:   map[string]string{"a": "fd00:8::ffff:ffff:ffff:fff1", "b": "fd00:8::ffff:ffff:ffff:fff2"},
		},
		"LowerHalf": {
			reason: "Whichever half is left serves.",
			spec:   `{peerCIDRv6: "fd00:8::/64", reservedAddresses: ["fd00:8::-fd00:8::7fff:ffff:ffff:ffff"], peers: [{name: a}]}`,
			want:   map[string]string{"a": "fd00:8:0:0:8000::"},
		},
		"UpperHalf": {
			reason: "Whichever half is left serves. Hashes pick from it.",
			spec:   `{peerCIDRv6: "fd00:8::/64", reservedAddresses: ["fd00:8::8000:0:0:0-fd00:8::ffff:ffff:ffff:ffff"], peers: [{name: laptop}]}`,
			want:   map[string]string{"laptop": "fd00:8::397c:6f62:4915:68c7"},
		},
		"LastOfAll": {
			reason: "After the last address of all comes the beginning.",
			spec:   `{peerCIDR: 255.255.255.0/24, reservedAddresses: ["255.255.255.16-255.255.255.255"], peers: [{name: laptop}]}`,
			want:   map[string]string{"laptop": "255.255.255.2"},
		},
		"AllOfIPv6": {
			reason: "A pool of 2^96 addresses, all of them reserved.",
			spec:   `{peerCIDRv6: "fd00:8::/32", reservedAddresses: ["fd00:8::-fd00:8:ffff:ffff:ffff:ffff:ffff:ffff"], peers: [{name: a}]}`,
			want:   map[string]string{"a": ""},
			states: map[string]string{"a": "Rejected PoolExhausted"},
		},
	})
}
