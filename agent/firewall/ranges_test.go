package firewall

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestIntervals(t *testing.T) {
	cases := map[string]struct {
		reason   string
		networks map[string]string
		want     []string
	}{
		"None":      {"no network, no interval", nil, nil},
		"Apart":     {"addresses apart stay apart", map[string]string{"10.8.0.2/32": "a", "10.8.0.4/32": "a"}, []string{"10.8.0.2-10.8.0.2 a", "10.8.0.4-10.8.0.4 a"}},
		"Adjacent":  {"neighbours stay apart", map[string]string{"10.8.0.2/32": "a", "10.8.0.3/32": "a"}, []string{"10.8.0.2-10.8.0.2 a", "10.8.0.3-10.8.0.3 a"}},
		"Different": {"neighbours with different verdicts are two", map[string]string{"10.8.0.2/32": "a", "10.8.0.3/32": "b"}, []string{"10.8.0.2-10.8.0.2 a", "10.8.0.3-10.8.0.3 b"}},
		"Nested": {"the smallest network wins", map[string]string{"10.0.0.0/8": "a", "10.1.0.0/16": "b", "10.1.2.0/24": "c"}, []string{
			"10.0.0.0-10.0.255.255 a", "10.1.0.0-10.1.1.255 b", "10.1.2.0-10.1.2.255 c", "10.1.3.0-10.1.255.255 b", "10.2.0.0-10.255.255.255 a",
		}},
		"SameStart":  {"a network may start with a smaller one", map[string]string{"10.0.0.0/8": "a", "10.0.0.0/24": "b"}, []string{"10.0.0.0-10.0.0.255 b", "10.0.1.0-10.255.255.255 a"}},
		"SameEnd":    {"a network may end with a smaller one", map[string]string{"10.0.0.0/24": "a", "10.0.0.255/32": "b", "10.0.1.0/24": "c"}, []string{"10.0.0.0-10.0.0.254 a", "10.0.0.255-10.0.0.255 b", "10.0.1.0-10.0.1.255 c"}},
		"SameNested": {"a smaller network with the same verdict is its own", map[string]string{"10.0.0.0/24": "a", "10.0.0.7/32": "a"}, []string{"10.0.0.0-10.0.0.6 a", "10.0.0.7-10.0.0.7 a", "10.0.0.8-10.0.0.255 a"}},
		"Edges":      {"the ends of the address space are no special case", map[string]string{"255.255.255.255/32": "a", "0.0.0.0/32": "b"}, []string{"0.0.0.0-0.0.0.0 b", "255.255.255.255-255.255.255.255 a"}},
		"IPv6":       {"IPv6 works alike", map[string]string{"fd00::/64": "a", "fd00::5/128": "b"}, []string{"fd00::-fd00::4 a", "fd00::5-fd00::5 b", "fd00::6-fd00::ffff:ffff:ffff:ffff a"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var ns []network
			for p, c := range tc.networks {
				ns = append(ns, network{netip.MustParsePrefix(p), c})
			}
			var got []string
			for _, i := range intervals(ns) {
				got = append(got, i.first.String()+"-"+i.last.String()+" "+i.chain)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// A set refuses intervals that overlap, so that a network which is there twice
// has to be one.
func TestIntervalsTwice(t *testing.T) {
	for _, s := range []string{"10.0.0.0/8", "255.0.0.0/8", "10.8.0.2/32"} {
		n := network{netip.MustParsePrefix(s), "a"}
		if got := intervals([]network{n, n}); len(got) != 1 || got[0] != (interval{n.prefix.Addr(), lastOf(n.prefix), "a"}) {
			t.Errorf("%s: got %v", s, got)
		}
	}
}

func FuzzIntervals(f *testing.F) {
	f.Add([]byte{10, 0, 0, 0, 8, 10, 1, 0, 0, 16, 10, 1, 0, 7, 32})
	f.Fuzz(func(t *testing.T, b []byte) {
		seen := map[netip.Prefix]string{}
		var ns []network
		for i := 0; i+5 <= len(b) && i < 5*24; i += 5 {
			p := netip.PrefixFrom(netip.AddrFrom4([4]byte(b[i:i+4])), int(b[i+4])%33).Masked()
			if _, twice := seen[p]; twice {
				continue
			}
			seen[p] = string(rune('a' + len(ns)))
			ns = append(ns, network{p, seen[p]})
		}
		got := intervals(ns)
		for i := 1; i < len(got); i++ {
			if !got[i-1].last.Less(got[i].first) {
				t.Fatalf("%v overlaps %v", got[i-1], got[i])
			}
		}
		// The ends of each network, and their neighbours, are where an error would show.
		for _, n := range ns {
			for _, a := range []netip.Addr{n.prefix.Addr(), lastOf(n.prefix), n.prefix.Addr().Prev(), lastOf(n.prefix).Next()} {
				if !a.IsValid() {
					continue
				}
				want, bits := "", -1
				for _, m := range ns {
					if m.prefix.Contains(a) && m.prefix.Bits() > bits {
						want, bits = m.chain, m.prefix.Bits()
					}
				}
				has := ""
				for _, i := range got {
					if !a.Less(i.first) && !i.last.Less(a) {
						has = i.chain
					}
				}
				if has != want {
					t.Errorf("%s is decided by %q, want %q", a, has, want)
				}
			}
		}
	})
}
