package config

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// key returns a key that is all one byte, clamped where it serves as private.
func key(b byte) wireguard.Key {
	k := wireguard.Key{}
	for i := range k.Key {
		k.Key[i] = b
	}
	return k
}

func peer(n byte) wireguard.Peer {
	return wireguard.Peer{
		Namespace: "vpn",
		Name:      fmt.Sprintf("p%d", n),
		PublicKey: key(n),
		Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 8, 0, n})},
	}
}

func valid() wireguard.GatewayConfig {
	return wireguard.GatewayConfig{
		Gateway:        "vpn/home",
		PrivateKey:     key(0x40),
		ListenPort:     51820,
		MTU:            1420,
		Addresses:      []netip.Prefix{netip.MustParsePrefix("10.8.0.1/24"), netip.MustParsePrefix("fd00:8::1/64")},
		Implementation: wireguard.ImplementationAuto,
		Egress:         wireguard.Egress{Mode: wireguard.EgressDirect},
		Peers:          []wireguard.Peer{peer(2), peer(3)},
	}
}

func encode(tb testing.TB, g wireguard.GatewayConfig) []byte {
	tb.Helper()
	b, err := g.Encode()
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

func TestParse(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*wireguard.GatewayConfig)
		want   string // part of the error, empty for none
	}{
		"Valid":                 {"a plain configuration is taken", func(*wireguard.GatewayConfig) {}, ""},
		"NoPeers":               {"a gateway may have no peer yet", func(g *wireguard.GatewayConfig) { g.Peers = nil }, ""},
		"NoImplementation":      {"an empty implementation is Auto", func(g *wireguard.GatewayConfig) { g.Implementation = "" }, ""},
		"NoPrivateKey":          {"a device needs a key", func(g *wireguard.GatewayConfig) { g.PrivateKey = wireguard.Key{} }, "privateKey"},
		"PortZero":              {"clients need a port that is known", func(g *wireguard.GatewayConfig) { g.ListenPort = 0 }, "listenPort"},
		"PortTooLarge":          {"ports have 16 bits", func(g *wireguard.GatewayConfig) { g.ListenPort = 65536 }, "listenPort"},
		"NoAddresses":           {"a gateway has a pool", func(g *wireguard.GatewayConfig) { g.Addresses = nil }, "addresses"},
		"TwoOfOneFamily":        {"a gateway has one pool of each family", func(g *wireguard.GatewayConfig) { g.Addresses[1] = netip.MustParsePrefix("10.9.0.1/24") }, "second"},
		"MTUTooSmallForIPv6":    {"IPv6 needs 1280 bytes", func(g *wireguard.GatewayConfig) { g.MTU = 1279 }, "mtu"},
		"MTUTooLarge":           {"a datagram has 65535 bytes", func(g *wireguard.GatewayConfig) { g.MTU = 65536 }, "mtu"},
		"UnknownImplementation": {"a newer implementation is not guessed", func(g *wireguard.GatewayConfig) { g.Implementation = "Magic" }, "implementation"},
		"UnknownEgress":         {"a newer egress mode is not guessed", func(g *wireguard.GatewayConfig) { g.Egress.Mode = "Other" }, "egress.mode"},
		"NoEgress":              {"no mode is not Direct", func(g *wireguard.GatewayConfig) { g.Egress.Mode = "" }, "egress.mode"},
		"Credentials":           {"files are named", func(g *wireguard.GatewayConfig) { g.Egress.Credentials = []string{"openvpn-user"} }, ""},
		"CredentialsElsewhere":  {"no file is looked for elsewhere", func(g *wireguard.GatewayConfig) { g.Egress.Credentials = []string{"../openvpn-user"} }, "egress.credentials"},
		"CredentialsParent":     {"a directory is no file", func(g *wireguard.GatewayConfig) { g.Egress.Credentials = []string{".."} }, "egress.credentials"},
		"ClusterHostBits": {"networks are canonical", func(g *wireguard.GatewayConfig) {
			g.Egress.ClusterCIDRs = []netip.Prefix{netip.MustParsePrefix("10.0.0.1/8")}
		}, "10.0.0.0/8"},
		"DuplicatePublicKey": {"the second would take the first one's place on the device", func(g *wireguard.GatewayConfig) { g.Peers[1].PublicKey = g.Peers[0].PublicKey }, "peer vpn/p3 has the public key of peer vpn/p2"},
		"OwnPublicKey":       {"a device is not its own peer", func(g *wireguard.GatewayConfig) { g.Peers[0].PublicKey = g.PrivateKey.Public() }, "the gateway"},
		"DuplicateAddress":   {"the second would steal the first one's traffic", func(g *wireguard.GatewayConfig) { g.Peers[1].Addresses = g.Peers[0].Addresses }, "10.8.0.2/32, which peer vpn/p2 has"},
		"ServerAddress":      {"the gateway keeps its own address", func(g *wireguard.GatewayConfig) { g.Peers[0].Addresses[0] = netip.MustParseAddr("10.8.0.1") }, "which the gateway has"},
		"NoName":             {"peers are named", func(g *wireguard.GatewayConfig) { g.Peers[0].Name = "" }, "name"},
		"NoPublicKey":        {"peers have a key", func(g *wireguard.GatewayConfig) { g.Peers[0].PublicKey = wireguard.Key{} }, "publicKey"},
		"MappedAddress":      {"addresses have one form", func(g *wireguard.GatewayConfig) { g.Peers[0].Addresses[0] = netip.MustParseAddr("::ffff:10.8.0.2") }, "plain"},
		"DefaultRoute": {"no peer takes the gateway's egress", func(g *wireguard.GatewayConfig) {
			g.Peers[0].Routes = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
		}, "everything"},
		"RouteHostBits": {"routes are canonical", func(g *wireguard.GatewayConfig) {
			g.Peers[0].Routes = []netip.Prefix{netip.MustParsePrefix("192.168.1.1/24")}
		}, "192.168.1.0/24"},
		"EndpointWithoutPort": {"an endpoint has a port", func(g *wireguard.GatewayConfig) { g.Peers[0].Endpoint = "198.51.100.7" }, "endpoint"},
		"EndpointPortZero":    {"an endpoint has a usable port", func(g *wireguard.GatewayConfig) { g.Peers[0].Endpoint = "198.51.100.7:0" }, "endpoint"},
		"EndpointName":        {"an endpoint may be a name", func(g *wireguard.GatewayConfig) { g.Peers[0].Endpoint = "a.example.com:51820" }, ""},
		"KeepaliveTooLarge":   {"keepalives have 16 bits", func(g *wireguard.GatewayConfig) { g.Peers[0].PersistentKeepalive = 65536 }, "persistentKeepalive"},
		"UnknownAction":       {"a newer action is not guessed", func(g *wireguard.GatewayConfig) { g.Peers[0].Access = []wireguard.AccessRule{{Action: "Log"}} }, "access[0]: action"},
		"UnknownProtocol": {"a newer protocol is not guessed", func(g *wireguard.GatewayConfig) {
			g.Peers[0].Access = []wireguard.AccessRule{{Action: wireguard.Accept, Protocol: "SCTP"}}
		}, "protocol"},
		"ICMPPorts": {"ICMP has no ports", func(g *wireguard.GatewayConfig) {
			g.Peers[0].Access = []wireguard.AccessRule{{Action: wireguard.Accept, Protocol: wireguard.ProtocolICMP, To: wireguard.AccessDestination{Ports: []wireguard.PortRange{{First: 1, Last: 2}}}}}
		}, "ports"},
		"PodClasses": {"pods may join", func(g *wireguard.GatewayConfig) {
			g.PodClasses = []wireguard.PodClass{{Namespace: "apps", Name: "media", Key: key(7)}}
			g.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}
		}, ""},
		"PodClassTwice": {"a pod has one class", func(g *wireguard.GatewayConfig) {
			g.PodClasses = []wireguard.PodClass{{Namespace: "apps", Name: "media", Key: key(7)}, {Namespace: "apps", Name: "media", Key: key(8)}}
		}, "apps/media is there twice"},
		"PodClassNoName": {"a class is found by its label", func(g *wireguard.GatewayConfig) {
			g.PodClasses = []wireguard.PodClass{{Namespace: "apps", Key: key(7)}}
		}, "no name"},
		"PodClassNoKey": {"keys of pods are not to be guessed", func(g *wireguard.GatewayConfig) {
			g.PodClasses = []wireguard.PodClass{{Namespace: "apps", Name: "media"}}
		}, "key is missing"},
		"PodClassAccess": {"a newer action is not guessed", func(g *wireguard.GatewayConfig) {
			g.PodClasses = []wireguard.PodClass{{Namespace: "apps", Name: "media", Key: key(7), Access: []wireguard.AccessRule{{Action: "Log"}}}}
		}, "apps/media: access[0]: action"},
		"PodCIDRHostBits": {"networks are canonical", func(g *wireguard.GatewayConfig) {
			g.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.0.1/16")}
		}, "podCIDRs"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := valid()
			tc.change(&g)
			c, err := Parse(encode(t, g))
			if tc.want == "" {
				if err != nil {
					t.Fatalf("%s: got error %v", tc.reason, err)
				}
				if c.Hash == "" || c.Implementation == "" {
					t.Errorf("%s: hash %q, implementation %q, want both", tc.reason, c.Hash, c.Implementation)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: got error %v, want one with %q", tc.reason, err, tc.want)
			}
		})
	}
}

func TestParseBytes(t *testing.T) {
	good := encode(t, valid())
	newer := map[string]any{}
	if err := json.Unmarshal(good, &newer); err != nil {
		t.Fatal(err)
	}
	newer["notInventedYet"] = map[string]any{"a": []int{1}}
	withUnknown, _ := json.Marshal(newer)
	newer["version"] = 2
	withVersion, _ := json.Marshal(newer)

	cases := map[string]struct {
		reason string
		bytes  []byte
		want   string
	}{
		"UnknownField":   {"fields of a newer function are ignored", withUnknown, ""},
		"UnknownVersion": {"another version may mean something else", withVersion, "version 2"},
		"NoVersion":      {"a document without version is none of ours", []byte(`{}`), "version 0"},
		"Empty":          {"an empty file is no configuration", nil, "cannot decode"},
		"Truncated":      {"half a file is no configuration", good[:len(good)/2], "cannot decode"},
		"Garbage":        {"a megabyte of garbage is no configuration", bytes.Repeat([]byte("\x00\xffgarbage"), 1<<17), "cannot decode"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := Parse(tc.bytes)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s: got error %v, want %q", tc.reason, err, tc.want)
			}
			if err != nil && len(err.Error()) > 500 {
				t.Errorf("%s: the error has %d bytes, too long for a log line", tc.reason, len(err.Error()))
			}
		})
	}
}

func TestParseErrorsHideSecrets(t *testing.T) {
	g := valid()
	psk := key(0x55)
	g.Peers[0].PresharedKey = &psk
	b := encode(t, g)
	for _, secret := range []string{g.PrivateKey.String(), psk.String()} {
		broken := bytes.Replace(b, []byte(secret), []byte(secret[:43]), 1)
		_, err := Parse(broken)
		if err == nil {
			t.Fatal("a key of 43 characters was taken")
		}
		if strings.Contains(err.Error(), secret[:20]) {
			t.Errorf("the error quotes the secret: %v", err)
		}
	}
}

func TestActive(t *testing.T) {
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(d time.Duration) *time.Time { x := now.Add(d); return &x }
	cases := map[string]struct {
		reason  string
		expires []*time.Time
		names   []string
		next    time.Time
	}{
		"None":    {"peers without expiry stay", []*time.Time{nil, nil}, []string{"p0", "p1"}, time.Time{}},
		"Future":  {"the earliest is the next", []*time.Time{at(2 * time.Hour), at(time.Hour)}, []string{"p0", "p1"}, now.Add(time.Hour)},
		"Past":    {"expired peers are left out", []*time.Time{at(-time.Second), nil, at(time.Minute)}, []string{"p1", "p2"}, now.Add(time.Minute)},
		"Instant": {"at its time a peer has expired", []*time.Time{at(0)}, nil, time.Time{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := &Config{}
			for i, e := range tc.expires {
				c.Peers = append(c.Peers, wireguard.Peer{Name: fmt.Sprintf("p%d", i), ExpiresAt: e})
			}
			active, next := c.Active(now)
			var names []string
			for _, p := range active.Peers {
				names = append(names, p.Name)
			}
			if diff := cmp.Diff(tc.names, names); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
			if !next.Equal(tc.next) {
				t.Errorf("%s: next is %s, want %s", tc.reason, next, tc.next)
			}
			if len(c.Peers) != len(tc.expires) {
				t.Errorf("%s: the configuration itself lost peers", tc.reason)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add(encode(f, valid()))
	f.Add([]byte(`{"version":1}`))
	f.Add([]byte(`{"version":1,"peers":[{"name":"a","access":[{"action":"Accept","to":{"ports":["1-2"]}}]}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Parse(b)
		if err != nil {
			return
		}
		// What was taken once has to be taken again in its own encoding.
		again, err := Parse(encode(t, c.GatewayConfig))
		if err != nil {
			t.Fatalf("the encoding of a valid configuration is refused: %v", err)
		}
		if len(again.Peers) != len(c.Peers) {
			t.Errorf("got %d peers, want %d", len(again.Peers), len(c.Peers))
		}
	})
}

func BenchmarkParse2000(b *testing.B) {
	g := valid()
	g.Addresses[0] = netip.MustParsePrefix("10.8.0.1/16")
	g.Peers = nil
	for i := range 2000 {
		p := wireguard.Peer{Namespace: "vpn", Name: fmt.Sprintf("p%d", i), PersistentKeepalive: 25}
		p.PublicKey.Key = [32]byte{1, byte(i), byte(i >> 8)}
		k := p.PublicKey
		p.PresharedKey = &k
		p.Addresses = []netip.Addr{netip.AddrFrom4([4]byte{10, 8, byte(1 + i>>8), byte(i)}), netip.MustParseAddr(fmt.Sprintf("fd00:8::1:%x", i))}
		g.Peers = append(g.Peers, p)
	}
	doc := encode(b, g)
	b.SetBytes(int64(len(doc)))
	for b.Loop() {
		if _, err := Parse(doc); err != nil {
			b.Fatal(err)
		}
	}
}
