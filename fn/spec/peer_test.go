package spec

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// validKey is a public key that is well formed (RFC 7748, section 6.1).
const validKey = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="

func TestPeer(t *testing.T) {
	g := accepted(t, `
peerCIDRv6: fd00:8::/64
peerCIDR: 10.8.0.0/24
peers:
  - name: laptop
    publicKey: `+validKey+`
    presharedKey: {generate: true}
    addresses: [10.8.0.50, "FD00:8::50"]
    allowedIPs: [10.43.0.0/16, "fd00:8::/64"]
    routes: [192.168.50.0/24, "fd50::/64"]
    endpoint: 198.51.100.9:51820
    persistentKeepalive: 15
    dns: {servers: [9.9.9.9]}
    mtu: 1280
    advertisedEndpoint: {host: "[2001:db8::1]", port: 443}
    disabled: true
    expiresAt: "2027-01-01T01:00:00+01:00"
    access:
      - {action: Accept, to: {cidr: 10.43.0.20/32, ports: ["443", "8000-8100"]}, protocol: TCP}
      - {action: Reject}
    keyRotation: 3
    qrCode: true
  - name: phone
    privateKeySecretRef: {name: phone-key}
    presharedKey: {secretRef: {name: psk, key: phone}}
    persistentKeepalive: 0
`)
	key, err := wireguard.ParseKey(validKey)
	if err != nil {
		t.Fatal(err)
	}
	expires := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	prefix, addr := netip.MustParsePrefix, netip.MustParseAddr
	want := []Peer{
		{
			Namespace:   "vpn",
			Name:        "laptop",
			PublicKey:   &key,
			Preshared:   true,
			KeyRotation: 3,
			Pinned:      []netip.Addr{addr("10.8.0.50"), addr("fd00:8::50")},
			AllowedIPs:  []netip.Prefix{prefix("10.43.0.0/16"), prefix("fd00:8::/64")},
			Routes:      []netip.Prefix{prefix("192.168.50.0/24"), prefix("fd50::/64")},
			Endpoint:    "198.51.100.9:51820",
			Keepalive:   15,
			DNS:         &DNS{Servers: []netip.Addr{addr("9.9.9.9")}},
			MTU:         1280,
			Advertised:  Endpoint{Host: "2001:db8::1", Port: 443},
			Disabled:    true,
			ExpiresAt:   &expires,
			Access: []wireguard.AccessRule{
				{
					Action:   "Accept",
					To:       wireguard.AccessDestination{CIDR: prefix("10.43.0.20/32"), Ports: []wireguard.PortRange{{First: 443, Last: 443}, {First: 8000, Last: 8100}}},
					Protocol: "TCP",
				},
				{Action: "Reject", Protocol: "Any"},
			},
			QRCode: true,
		},
		{
			Namespace:    "vpn",
			Name:         "phone",
			PrivateKey:   SecretKey{Name: "phone-key", Key: "privateKey"},
			Preshared:    true,
			PresharedKey: SecretKey{Name: "psk", Key: "phone"},
		},
	}
	if diff := cmp.Diff(want, g.Peers, netTypes); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func TestKeepalive(t *testing.T) {
	g := accepted(t, `{persistentKeepalive: 0, peers: [{name: a}, {name: b, persistentKeepalive: 10}]}`)
	if g.Keepalive != 0 || g.Peers[0].Keepalive != 0 || g.Peers[1].Keepalive != 10 {
		t.Errorf("want the gateway's 0 for a and its own 10 for b, got %d, %d, %d", g.Keepalive, g.Peers[0].Keepalive, g.Peers[1].Keepalive)
	}
	testRefusals(t, map[string]refusal{
		"Gateway":  {"It has 16 bits.", `{persistentKeepalive: 65536}`, []string{`spec.persistentKeepalive: Invalid value: 65536: is out of range: use 0 to 65535`}},
		"Peer":     {"It has 16 bits.", `{peers: [{name: a, persistentKeepalive: 65536}]}`, []string{`spec.peers[0].persistentKeepalive: Invalid value: 65536`}},
		"Negative": {"It is an interval.", `{peers: [{name: a, persistentKeepalive: -1}]}`, []string{`spec.peers[0].persistentKeepalive: Invalid value: -1`}},
	})
}

func TestPeerNamesRefused(t *testing.T) {
	long := strings.Repeat("a", 41)
	testRefusals(t, map[string]refusal{
		"Duplicate": {"Two peers cannot share a Secret.", `{peers: [{name: a}, {name: b}, {name: a}]}`, []string{`spec.peers[2].name: Duplicate value: "a"`}},
		"Upper":     {"Names are parts of object names.", `{peers: [{name: Alice_Phone}]}`, []string{`spec.peers[0].name: Invalid value: "Alice_Phone": is no DNS label`}},
		"Dot":       {"Dots part the names of Secrets.", `{peers: [{name: a.b}]}`, []string{`spec.peers[0].name: Invalid value: "a.b": is no DNS label`}},
		"Empty":     {"A Secret needs a name.", `{peers: [{name: ""}]}`, []string{`spec.peers[0].name: Invalid value: ""`}},
		"TooLong":   {"Names are label values too.", `{peers: [{name: ` + long + `}]}`, []string{`spec.peers[0].name: Invalid value: "` + long + `": is too long: use at most 40`}},
		"LineBreak": {"Nothing that breaks a line gets through.", `{peers: [{name: "a\nb"}]}`, []string{`spec.peers[0].name: Invalid value: "a\nb"`}},
	})
}

func TestPeerKeysRefused(t *testing.T) {
	testRefusals(t, map[string]refusal{
		"Short":        {"The message says what a key looks like.", `{peers: [{name: a, publicKey: abc}]}`, []string{`spec.peers[0].publicKey: Invalid value: "abc": is no public key: it is 44 characters of base64`}},
		"NoBase64":     {"44 characters are not enough.", `{peers: [{name: a, publicKey: "!SDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="}]}`, []string{`spec.peers[0].publicKey: Invalid value: "!SDw`}},
		"NotCanonical": {"wg refuses it too.", `{peers: [{name: a, publicKey: "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmp="}]}`, []string{`spec.peers[0].publicKey: Invalid value`}},
		"Zero":         {"It is how an unset key looks.", `{peers: [{name: a, publicKey: "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="}]}`, []string{`spec.peers[0].publicKey: Invalid value: "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=": is all zeros`}},
		"Both":         {"One of them must be wrong.", `{peers: [{name: a, publicKey: ` + validKey + `, privateKeySecretRef: {name: b}}]}`, []string{`spec.peers[0].privateKeySecretRef: Forbidden: cannot go together with publicKey`}},
		"SecretName":   {"A Secret's name is a DNS name.", `{peers: [{name: a, privateKeySecretRef: {name: "B!"}}]}`, []string{`spec.peers[0].privateKeySecretRef.name: Invalid value: "B!"`}},
		"SecretKey":    {"A data key has its syntax.", `{peers: [{name: a, privateKeySecretRef: {name: b, key: "a/b"}}]}`, []string{`spec.peers[0].privateKeySecretRef.key: Invalid value: "a/b"`}},
		"NoPreshared":  {"An empty block says nothing.", `{peers: [{name: a, presharedKey: {}}]}`, []string{`spec.peers[0].presharedKey: Invalid value: "generate: false": set either`}},
		"TwoPreshared": {"There is one preshared key.", `{peers: [{name: a, presharedKey: {generate: true, secretRef: {name: b}}}]}`, []string{`spec.peers[0].presharedKey: Invalid value: "generate: true": set either`}},
		"Rotation":     {"It counts up.", `{peers: [{name: a, keyRotation: -1}]}`, []string{`spec.peers[0].keyRotation: Invalid value: -1`}},
		"RotationHuge": {"It must stay an integer in JSON.", `{peers: [{name: a, keyRotation: 9007199254740993}]}`, []string{`spec.peers[0].keyRotation: Invalid value: 9007199254740993`}},
	})
}

func TestPinnedRefused(t *testing.T) {
	testRefusals(t, map[string]refusal{
		"Outside":   {"The message names the pools.", `{peers: [{name: a, addresses: [10.9.0.5]}]}`, []string{`spec.peers[0].addresses[0]: Invalid value: "10.9.0.5": is in none of the gateway's pools, 10.8.0.0/24`}},
		"Network":   {"It is the network's.", `{peers: [{name: a, addresses: [10.8.0.0]}]}`, []string{`spec.peers[0].addresses[0]: Invalid value: "10.8.0.0": is the network's`}},
		"Server":    {"It is the gateway's.", `{peers: [{name: a, addresses: [10.8.0.1]}]}`, []string{`spec.peers[0].addresses[0]: Invalid value: "10.8.0.1": is the network's, the gateway's`}},
		"Broadcast": {"It is everybody's.", `{peers: [{name: a, addresses: [10.8.0.255]}]}`, []string{`spec.peers[0].addresses[0]: Invalid value: "10.8.0.255"`}},
		"Reserved":  {"The message names the range.", `{reservedAddresses: ["10.8.0.2-10.8.0.9"], peers: [{name: a, addresses: [10.8.0.5]}]}`, []string{`spec.peers[0].addresses[0]: Invalid value: "10.8.0.5": is in spec.reservedAddresses (10.8.0.2-10.8.0.9)`}},
		"Mask":      {"A peer has one address.", `{peers: [{name: a, addresses: [10.8.0.5/32]}]}`, []string{`spec.peers[0].addresses[0]: Invalid value: "10.8.0.5/32": is no single address: leave the prefix length out`}},
		"TwoOfOne":  {"There is one address of each family.", `{peers: [{name: a, addresses: [10.8.0.5, 10.8.0.6]}]}`, []string{`spec.peers[0].addresses[1]: Invalid value: "10.8.0.6": is a second address of one family, beside 10.8.0.5`}},
		"Twice":     {"The same address twice is no use.", `{peers: [{name: a, addresses: [10.8.0.5, 10.8.0.5]}]}`, []string{`spec.peers[0].addresses[1]: Invalid value: "10.8.0.5": is a second address`}},
		"NoPool":    {"There is no IPv6 pool.", `{peers: [{name: a, addresses: ["fd00::5"]}]}`, []string{`spec.peers[0].addresses[0]: Invalid value: "fd00::5": is in none of the gateway's pools`}},
	})
}

func TestRoutesRefused(t *testing.T) {
	testRefusals(t, map[string]refusal{
		"Everything":   {"All traffic of all peers would go there.", `{peers: [{name: a, routes: [0.0.0.0/0]}]}`, []string{`spec.peers[0].routes[0]: Invalid value: "0.0.0.0/0": is everything`}},
		"Everythingv6": {"All traffic of all peers would go there.", `{peers: [{name: a, routes: ["::/0"]}]}`, []string{`spec.peers[0].routes[0]: Invalid value: "::/0": is everything`}},
		"Pool":         {"Other peers live there.", `{peers: [{name: a, routes: [10.0.0.0/8]}]}`, []string{`spec.peers[0].routes[0]: Invalid value: "10.0.0.0/8": overlaps with the gateway's pool 10.8.0.0/24`}},
		"Pods":         {"The cluster's own traffic would go there.", `{peers: [{name: a, routes: [10.42.5.0/24]}]}`, []string{`spec.peers[0].routes[0]: Invalid value: "10.42.5.0/24": overlaps with the cluster's network 10.42.0.0/16`}},
		"Services":     {"The cluster's own traffic would go there.", `{peers: [{name: a, routes: ["fd43::10/128"]}]}`, []string{`spec.peers[0].routes[0]: Invalid value: "fd43::10/128": overlaps with the cluster's network fd43::/112`}},
		"Nodes":        {"The tunnel itself would go there.", `{peers: [{name: a, routes: [192.0.2.7/32]}]}`, []string{`spec.peers[0].routes[0]: Invalid value: "192.0.2.7/32": overlaps with the cluster's network 192.0.2.0/24`}},
		"HostBits":     {"The message gives the canonical form.", `{peers: [{name: a, routes: [192.168.50.1/24]}]}`, []string{`spec.peers[0].routes[0]: Invalid value: "192.168.50.1/24": has host bits set: write 192.168.50.0/24`}},
		"Within":       {"One of them says it all.", `{peers: [{name: a, routes: [192.168.50.0/24, 192.168.50.128/25]}]}`, []string{`spec.peers[0].routes[1]: Invalid value: "192.168.50.128/25": overlaps with 192.168.50.0/24 in the same list`}},
	})
}

func TestAllowedIPsRefused(t *testing.T) {
	testRefusals(t, map[string]refusal{
		"Address":  {"wg would take it, but the API does not guess.", `{peers: [{name: a, allowedIPs: [10.43.0.10]}]}`, []string{`spec.peers[0].allowedIPs[0]: Invalid value: "10.43.0.10": is no network`}},
		"HostBits": {"The message gives the canonical form.", `{peers: [{name: a, allowedIPs: [10.43.0.10/16]}]}`, []string{`spec.peers[0].allowedIPs[0]: Invalid value: "10.43.0.10/16": has host bits set: write 10.43.0.0/16`}},
	})
}

func TestPeerEndpoint(t *testing.T) {
	for in, want := range map[string]string{
		"198.51.100.9:51820":     "198.51.100.9:51820",
		"[2001:DB8::9]:1":        "[2001:db8::9]:1",
		"Site-B.example.com:443": "Site-B.example.com:443",
		"site.example.com.:443":  "site.example.com.:443",
	} {
		g := accepted(t, `{peers: [{name: a, endpoint: "`+in+`"}]}`)
		if got := g.Peers[0].Endpoint; got != want {
			t.Errorf("%s: want %s, got %s", in, want, got)
		}
	}
	for name, in := range map[string]string{
		"NoPort":      "198.51.100.9",
		"EmptyPort":   "198.51.100.9:",
		"PortZero":    "198.51.100.9:0",
		"PortTooHigh": "198.51.100.9:65536",
		"PortName":    "198.51.100.9:https",
		"NoHost":      ":51820",
		"NoBrackets":  "2001:db8::9:51820",
		"IPv4Bracket": "[198.51.100.9]:51820",
		"Mapped":      "[::ffff:198.51.100.9]:51820",
		"Scheme":      "udp://198.51.100.9:51820",
		"LineBreak":   "198.51.100.9\n:51820",
		"Space":       "198.51.100.9 :51820",
		"OpenBracket": "[2001:db8::9:51820",
	} {
		t.Run(name, func(t *testing.T) {
			quoted := strings.ReplaceAll(in, "\n", `\n`)
			_, errs := parse(t, `{peers: [{name: a, endpoint: "`+quoted+`"}]}`)
			checkErrors(t, "It is no place to dial.", []string{`spec.peers[0].endpoint: Invalid value: "` + quoted + `": is no endpoint: write host and port`}, errs)
		})
	}
}

func TestAccessRefused(t *testing.T) {
	testRefusals(t, map[string]refusal{
		"Action":     {"There are two.", `{peers: [{name: a, access: [{action: Drop}]}]}`, []string{`spec.peers[0].access[0].action: Unsupported value: "Drop"`}},
		"Protocol":   {"These are the protocols.", `{peers: [{name: a, access: [{action: Accept, protocol: SCTP}]}]}`, []string{`spec.peers[0].access[0].protocol: Unsupported value: "SCTP"`}},
		"ICMPPorts":  {"ICMP has none.", `{peers: [{name: a, access: [{action: Accept, protocol: ICMP, to: {ports: ["80"]}}]}]}`, []string{`spec.peers[0].access[0].to.ports: Forbidden: ICMP has no ports`}},
		"CIDR":       {"A destination is a network.", `{peers: [{name: a, access: [{action: Accept, to: {cidr: 10.43.0.20}}]}]}`, []string{`spec.peers[0].access[0].to.cidr: Invalid value: "10.43.0.20": is no network`}},
		"Port":       {"A port has 16 bits.", `{peers: [{name: a, access: [{action: Accept, protocol: TCP, to: {ports: ["70000"]}}]}]}`, []string{`spec.peers[0].access[0].to.ports[0]: Invalid value: "70000"`}},
		"UpsideDown": {"The message gives the right form.", `{peers: [{name: a, access: [{action: Accept, protocol: TCP, to: {ports: ["90-80"]}}]}]}`, []string{`spec.peers[0].access[0].to.ports[0]: Invalid value: "90-80": "90-80" is upside down: write "80-90"`}},
		"Twice":      {"One of them is enough.", `{peers: [{name: a, access: [{action: Accept, protocol: TCP, to: {ports: ["80", "80"]}}]}]}`, []string{`spec.peers[0].access[0].to.ports[1]: Duplicate value: "80"`}},
		"Second":     {"The message names the rule.", `{peers: [{name: a, access: [{action: Accept}, {action: accept}]}]}`, []string{`spec.peers[0].access[1].action: Unsupported value: "accept"`}},
	})
}
