package gateway

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// having makes owners of "name network network" each.
func having(lines ...string) owners {
	names := map[netip.Prefix]string{}
	for _, l := range lines {
		f := strings.Fields(l)
		for _, n := range f[1:] {
			names[netip.MustParsePrefix(n)] = f[0]
		}
	}
	return owners{newByNetwork(names)}
}

func TestOwnersLeft(t *testing.T) {
	phone := "vpn/phone 10.8.0.2/32 fd00:8::2/128"
	addresses := []string{"10.8.0.2", "fd00:8::2", "192.168.50.1", "192.168.51.1", "fd50::1"}
	cases := map[string]struct {
		reason        string
		before, after owners
		left          []string // of the addresses
	}{
		"Same":       {"nothing has changed", having(phone), having(phone), nil},
		"Comes":      {"nobody had it", having(), having(phone), nil},
		"Goes":       {"somebody else may have it next", having(phone), having(), []string{"10.8.0.2", "fd00:8::2"}},
		"Passes":     {"somebody else has it", having(phone), having("vpn/tv 10.8.0.2/32", "vpn/phone fd00:8::2/128"), []string{"10.8.0.2"}},
		"Route":      {"networks pass too", having("vpn/site 192.168.0.0/16"), having("vpn/other 192.168.0.0/16"), []string{"192.168.50.1", "192.168.51.1"}},
		"Part":       {"a part of it is somebody else's", having("vpn/site 192.168.0.0/16"), having("vpn/site 192.168.0.0/16", "vpn/other 192.168.50.0/24"), []string{"192.168.50.1"}},
		"PartBack":   {"and comes back", having("vpn/site 192.168.0.0/16", "vpn/other 192.168.50.0/24"), having("vpn/site 192.168.0.0/16"), []string{"192.168.50.1"}},
		"Around":     {"what others have within it stays theirs", having("vpn/site 192.168.0.0/16", "vpn/other 192.168.50.0/24"), having("vpn/other 192.168.50.0/24"), []string{"192.168.51.1"}},
		"Own":        {"a route within one's own makes no difference", having("vpn/site fd50::/32"), having("vpn/site fd50::/32 fd50::/64"), nil},
		"OwnGone":    {"nor does its end", having("vpn/site fd50::/32 fd50::/64"), having("vpn/site fd50::/32"), nil},
		"NobodyKnew": {"it may have been anybody's", having("unknown 10.8.0.0/24"), having(phone), []string{"10.8.0.2"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var left []string
			for _, s := range addresses {
				a := netip.MustParseAddr(s)
				if tc.before.left(tc.after, netip.PrefixFrom(a, a.BitLen())) {
					left = append(left, s)
				}
			}
			if diff := cmp.Diff(tc.left, left); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
			if got := tc.before.anyLeft(tc.after); got != (len(tc.left) > 0) {
				t.Errorf("%s: connections are looked at: %t", tc.reason, got)
			}
		})
	}
}

func TestOwnersFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "owners.json")
	read := func() map[netip.Prefix]string {
		t.Helper()
		got, err := (&ownersFile{path: path}).read()
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := read(); got != nil {
		t.Errorf("without file nobody knows, got %v", got)
	}
	f := ownersFile{path: path}
	for _, o := range []owners{having(), having("vpn/phone 10.8.0.2/32 fd00:8::2/128")} {
		if err := f.write(o.values); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(o.values, read(), cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
			t.Errorf("-want, +got:\n%s", diff)
		}
	}
	if err := os.WriteFile(path, []byte(`{"version":2}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := f.read(); err == nil || got != nil {
		t.Errorf("another version says nothing, got %v, %v", got, err)
	}
	// A directory stands in its way, as a full disk would.
	if err := os.Mkdir(filepath.Join(dir, ".owners.json"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := f.write(having().values); err == nil {
		t.Error("want an error")
	}
	if got := read(); got != nil {
		t.Errorf("what is no longer true is left in the file: %v", got)
	}
}
