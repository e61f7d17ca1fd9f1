package wireguard

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func key(t *testing.T, s string) *Key {
	t.Helper()
	k, err := ParseKey(s)
	if err != nil {
		t.Fatal(err)
	}
	return &k
}

func prefixes(ss ...string) []netip.Prefix {
	out := make([]netip.Prefix, len(ss))
	for i, s := range ss {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

func TestClientConfigString(t *testing.T) {
	const psk = "SzUUvJfRKlALgU3f26Ygg7zWFu6BRSJ3BpTVU0kge/s="
	cases := map[string]struct {
		reason string
		config ClientConfig
		want   string
	}{
		"Everything": {
			reason: "Every line stands in the order of wg-quick(8).",
			config: ClientConfig{
				PrivateKey:          key(t, aliceKey),
				Addresses:           prefixes("10.8.0.50/32", "fd00:8::50/128"),
				DNS:                 []string{"10.43.0.10", "fd00::53", "example.com"},
				MTU:                 1360,
				FwMark:              51820,
				PreUp:               []string{"first", "second"},
				PostDown:            []string{"third"},
				PublicKey:           *key(t, alicePublic),
				PresharedKey:        key(t, psk),
				AllowedIPs:          prefixes("0.0.0.0/0", "::/0"),
				Endpoint:            "[2001:db8::1]:51820",
				PersistentKeepalive: 25,
			},
			want: `[Interface]
Address = 10.8.0.50/32, fd00:8::50/128
DNS = 10.43.0.10, fd00::53, example.com
MTU = 1360
PreUp = first
PreUp = second
PostDown = third
FwMark = 51820
PrivateKey = ` + aliceKey + `

[Peer]
PublicKey = ` + alicePublic + `
PresharedKey = ` + psk + `
AllowedIPs = 0.0.0.0/0, ::/0
Endpoint = [2001:db8::1]:51820
PersistentKeepalive = 25
`,
		},
		"Least": {
			reason: "What is unset leaves no line, and no private key leaves the place for the device's own.",
			config: ClientConfig{
				Addresses:  prefixes("10.8.0.50/32"),
				PublicKey:  *key(t, alicePublic),
				AllowedIPs: prefixes("10.8.0.0/24"),
				Endpoint:   "vpn.example.com:51820",
			},
			want: `[Interface]
Address = 10.8.0.50/32

[Peer]
PublicKey = ` + alicePublic + `
AllowedIPs = 10.8.0.0/24
Endpoint = vpn.example.com:51820
`,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.config.String()); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestPeerAllowedIPs(t *testing.T) {
	p := Peer{
		Addresses: []netip.Addr{netip.MustParseAddr("10.8.0.50"), netip.MustParseAddr("fd00:8::50")},
		Routes:    prefixes("192.168.50.0/24"),
	}
	want := []string{"10.8.0.50/32", "fd00:8::50/128", "192.168.50.0/24"}
	var got []string
	for _, ip := range p.AllowedIPs() {
		got = append(got, ip.String())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}
