package device

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

func key(b byte) wgtypes.Key {
	return wgtypes.Key{b}
}

// peers builds a configuration from "key psk keepalive network...", one peer a
// line.
func peers(lines ...string) []wireguard.Peer {
	var out []wireguard.Peer
	for _, l := range lines {
		var k, psk byte
		p := wireguard.Peer{}
		f := strings.Fields(l)
		if _, err := fmt.Sscan(strings.Join(f[:3], " "), &k, &psk, &p.PersistentKeepalive); err != nil {
			panic(err)
		}
		p.PublicKey.Key = key(k)
		if psk != 0 {
			p.PresharedKey = &wireguard.Key{Key: key(psk)}
		}
		for _, n := range f[3:] {
			p.Routes = append(p.Routes, netip.MustParsePrefix(n))
		}
		out = append(out, p)
	}
	return out
}

// form writes changes as short lines.
func form(changes []wgtypes.PeerConfig) []string {
	var out []string
	for _, c := range changes {
		s := fmt.Sprint(c.PublicKey[0])
		if c.UpdateOnly {
			s += " update"
		}
		if c.Remove {
			s += " remove"
		}
		if c.PresharedKey != nil {
			s += fmt.Sprintf(" psk=%d", c.PresharedKey[0])
		}
		if c.PersistentKeepaliveInterval != nil {
			s += fmt.Sprintf(" keepalive=%s", *c.PersistentKeepaliveInterval)
		}
		if c.ReplaceAllowedIPs {
			s += " replace"
		}
		for _, n := range c.AllowedIPs {
			s += " " + n.String()
		}
		out = append(out, s)
	}
	return out
}

func TestDiff(t *testing.T) {
	cases := map[string]struct {
		reason       string
		have, want   []string
		revoke, give []string
	}{
		"Same":        {"what stays is not mentioned", []string{"1 0 25 10.0.0.2/32", "2 7 0 10.0.0.3/32"}, []string{"2 7 0 10.0.0.3/32", "1 0 25 10.0.0.2/32"}, nil, nil},
		"Order":       {"the order of networks is no difference", []string{"1 0 0 10.0.0.2/32 fd00::2/128"}, []string{"1 0 0 fd00::2/128 10.0.0.2/32"}, nil, nil},
		"Add":         {"a new peer gets all it has", []string{"1 0 0 10.0.0.2/32"}, []string{"1 0 0 10.0.0.2/32", "2 7 25 10.0.0.3/32"}, nil, []string{"2 psk=7 keepalive=25s 10.0.0.3/32"}},
		"Plain":       {"a new peer without keys or networks is added all the same", nil, []string{"1 0 0"}, nil, []string{"1"}},
		"Remove":      {"a peer that is gone goes first", []string{"1 0 0 10.0.0.2/32"}, nil, []string{"1 update remove"}, nil},
		"Preshared":   {"only the key changes", []string{"1 0 0 10.0.0.2/32"}, []string{"1 9 0 10.0.0.2/32"}, nil, []string{"1 update psk=9"}},
		"NoPreshared": {"a key that is gone is cleared", []string{"1 9 0 10.0.0.2/32"}, []string{"1 0 0 10.0.0.2/32"}, nil, []string{"1 update psk=0"}},
		"Keepalive":   {"a keepalive of 0 switches it off", []string{"1 0 25 10.0.0.2/32"}, []string{"1 0 0 10.0.0.2/32"}, nil, []string{"1 update keepalive=0s"}},
		"Widen":       {"a network more leaves the others alone", []string{"1 0 0 10.0.0.2/32"}, []string{"1 0 0 10.0.0.2/32 10.9.0.0/24"}, nil, []string{"1 update 10.9.0.0/24"}},
		"Narrow":      {"a network less goes first", []string{"1 0 0 10.0.0.2/32 10.9.0.0/24"}, []string{"1 0 0 10.0.0.2/32"}, []string{"1 update replace 10.0.0.2/32"}, nil},
		"Move":        {"an address changes hands in two steps", []string{"1 0 0 10.0.0.2/32", "2 0 0 10.0.0.3/32"}, []string{"1 0 0 10.0.0.3/32", "2 0 0 10.0.0.2/32"}, []string{"1 update replace", "2 update replace"}, []string{"1 update 10.0.0.3/32", "2 update 10.0.0.2/32"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			have, want := wanted(peers(tc.have...)), wanted(peers(tc.want...))
			if diff := cmp.Diff(tc.revoke, form(revocations(have, want))); diff != "" {
				t.Errorf("%s: revocations: -want, +got:\n%s", tc.reason, diff)
			}
			after := map[wgtypes.Key]peer{}
			for k, p := range have {
				w, stays := want[k]
				if !stays {
					continue
				}
				var kept []netip.Prefix
				for _, n := range p.allowedIPs {
					for _, m := range w.allowedIPs {
						if n == m {
							kept = append(kept, n)
						}
					}
				}
				p.allowedIPs = kept
				after[k] = p
			}
			if diff := cmp.Diff(tc.give, form(grants(after, want))); diff != "" {
				t.Errorf("%s: grants: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestEndpointsFile(t *testing.T) {
	f := endpointsFile{path: filepath.Join(t.TempDir(), "endpoints.json")}
	if got, err := f.read(); err != nil || len(got) != 0 {
		t.Fatalf("no file is no endpoint and no error: got %v, %v", got, err)
	}
	want := map[wgtypes.Key]sighting{
		key(1): {address: netip.MustParseAddrPort("192.0.2.10:4000")},
		key(2): {netip.MustParseAddrPort("[2001:db8::1]:4001"), "site.example.com:51820"},
	}
	if err := f.write(want); err != nil {
		t.Fatal(err)
	}
	got, err := f.read()
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(want, got) {
		t.Errorf("got %v, want %v", got, want)
	}

	if err := os.Remove(f.path); err != nil {
		t.Fatal(err)
	}
	if err := f.write(want); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(f.path); err == nil {
		t.Error("the same endpoints were written again")
	}
	want = maps.Clone(want)
	want[key(1)] = sighting{want[key(1)].address, "192.0.2.10:4000"}
	if err := f.write(want); err != nil {
		t.Fatal(err)
	}
	if got, err := f.read(); err != nil || !maps.Equal(want, got) {
		t.Errorf("the same address under another endpoint: got %v, %v, want %v", got, err, want)
	}
}

// What cannot be used of the file costs nothing else in it.
func TestParseEndpoints(t *testing.T) {
	const good = `"AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=":"192.0.2.10:4000"`
	other := key(2).String()
	cases := map[string]struct {
		reason string
		bad    string
	}{
		"NoPort":    {"a datagram may come from port 0", `"` + other + `":"192.0.2.11:0"`},
		"NoAddress": {"nobody can be called there", `"` + other + `":"192.0.2.11"`},
		"Empty":     {"nor there", `"` + other + `":""`},
		"NoKey":     {"it is nobody's", `"x":"192.0.2.11:4000"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := parseEndpoints([]byte(`{"version":1,"endpoints":{` + good + `,` + tc.bad + `}}`))
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if len(got) != 1 || got[key(1)].address != netip.MustParseAddrPort("192.0.2.10:4000") {
				t.Errorf("%s: got %v", tc.reason, got)
			}
		})
	}
}

func FuzzParseEndpoints(f *testing.F) {
	f.Add([]byte(`{"version":1,"endpoints":{"AQAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=":"192.0.2.10:4000"}}`))
	f.Add([]byte(`{"version":2}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := parseEndpoints(b)
		if err != nil {
			return
		}
		for _, e := range got {
			if !e.address.IsValid() || e.address.Port() == 0 {
				t.Errorf("%v cannot be dialled", e.address)
			}
		}
	})
}

// What the device gives to whom is known before anything is taken from it.
func TestOwners(t *testing.T) {
	f := newFake()
	p := start(t, f, filepath.Join(t.TempDir(), "endpoints.json"))
	p.mustSync(one(""))
	next := p.next(f)
	want := map[netip.Prefix]wgtypes.Key{netip.MustParsePrefix("10.8.0.2/32"): key(1)}
	got, err := next.Owners()
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" || err != nil {
		t.Errorf("%v: -want, +got:\n%s", err, diff)
	}
	gone := &Device{name: "test-none", log: p.Device.log, client: f}
	if got, err := gone.Owners(); err != nil || got == nil || len(got) != 0 {
		t.Errorf("without device nobody has anything, got %v, %v", got, err)
	}
}
