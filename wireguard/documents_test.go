package wireguard

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// fullConfig has every field set.
const fullConfig = `{"version":1,"gateway":"vpn/home","privateKey":"` + aliceKey + `","listenPort":51820,"mtu":1420,` +
	`"addresses":["10.8.0.1/24","fd00:8::1/64"],"implementation":"Auto","peerToPeer":true,"persistentKeepalive":25,` +
	`"egress":{"mode":"Direct","clusterCIDRs":["10.42.0.0/16"]},"reservations":{"vpn/laptop":["10.8.0.50","fd00:8::50"]},` +
	`"peers":[{"namespace":"vpn","name":"laptop","publicKey":"` + alicePublic + `","presharedKey":"` + aliceKey + `",` +
	`"addresses":["10.8.0.50","fd00:8::50"],"routes":["192.168.50.0/24"],"endpoint":"198.51.100.9:51820","persistentKeepalive":15,` +
	`"access":[{"action":"Accept","to":{"cidr":"10.43.0.20/32","ports":["443","8000-8100"]},"protocol":"TCP"},{"action":"Reject"}],` +
	`"expiresAt":"2027-01-01T00:00:00Z"}],` +
	`"podClasses":[{"namespace":"apps","name":"media","key":"` + aliceKey + `","access":[{"action":"Reject"}]}],` +
	`"podCIDRs":["10.42.0.0/16"]}`

var equateNets = cmp.Options{
	cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{}),
}

func TestGatewayConfig(t *testing.T) {
	expires := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	addresses := []netip.Addr{netip.MustParseAddr("10.8.0.50"), netip.MustParseAddr("fd00:8::50")}
	want := GatewayConfig{
		Version:             1,
		Gateway:             "vpn/home",
		PrivateKey:          *key(t, aliceKey),
		ListenPort:          51820,
		MTU:                 1420,
		Addresses:           prefixes("10.8.0.1/24", "fd00:8::1/64"),
		Implementation:      "Auto",
		PeerToPeer:          true,
		PersistentKeepalive: 25,
		Egress:              Egress{Mode: "Direct", ClusterCIDRs: prefixes("10.42.0.0/16")},
		Reservations:        map[string][]netip.Addr{"vpn/laptop": addresses},
		Peers: []Peer{{
			Namespace:           "vpn",
			Name:                "laptop",
			PublicKey:           *key(t, alicePublic),
			PresharedKey:        key(t, aliceKey),
			Addresses:           addresses,
			Routes:              prefixes("192.168.50.0/24"),
			Endpoint:            "198.51.100.9:51820",
			PersistentKeepalive: 15,
			Access: []AccessRule{
				{
					Action:   "Accept",
					To:       AccessDestination{CIDR: netip.MustParsePrefix("10.43.0.20/32"), Ports: []PortRange{{443, 443}, {8000, 8100}}},
					Protocol: "TCP",
				},
				{Action: "Reject"},
			},
			ExpiresAt: &expires,
		}},
		PodClasses: []PodClass{{Namespace: "apps", Name: "media", Key: *key(t, aliceKey), Access: []AccessRule{{Action: "Reject"}}}},
		PodCIDRs:   prefixes("10.42.0.0/16"),
	}
	got, err := DecodeGatewayConfig([]byte(fullConfig))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, equateNets); diff != "" {
		t.Errorf("decoded: -want, +got:\n%s", diff)
	}
	want.Version = 0 // Encode knows it.
	b, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(fullConfig, string(b)); diff != "" {
		t.Errorf("encoded: -want, +got:\n%s", diff)
	}
}

func TestGatewayConfigWithoutPeers(t *testing.T) {
	b, err := GatewayConfig{}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), `"peers":[]`) || strings.Contains(string(b), "reservations") {
		t.Errorf("want an empty list of peers and no reservations, got %s", b)
	}
}

func TestReport(t *testing.T) {
	want := Report{
		Version:      1,
		ConfigHash:   "0123456789abcdef",
		Ready:        true,
		Reasons:      []string{"gluetun is starting"},
		Egress:       EgressReport{State: EgressTunnelUp, PublicIP: "203.0.113.77", Country: "CH", ForwardedPorts: []int{41230}},
		InjectedPods: 3,
	}
	const document = `{"version":1,"configHash":"0123456789abcdef","ready":true,"reasons":["gluetun is starting"],` +
		`"egress":{"state":"TunnelUp","publicIP":"203.0.113.77","country":"CH","forwardedPorts":[41230]},"injectedPods":3}`
	got, err := DecodeReport([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("decoded: -want, +got:\n%s", diff)
	}
	b, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(document, string(b)); diff != "" {
		t.Errorf("encoded: -want, +got:\n%s", diff)
	}
}

func TestEnrolment(t *testing.T) {
	want := Enrolment{
		Version:             1,
		Gateway:             "vpn/home",
		GatewayPublicKey:    *key(t, alicePublic),
		Endpoint:            "home-wireguard.vpn.svc.cluster.local:51820",
		ClassKey:            *key(t, aliceKey),
		MTU:                 1340,
		BypassCIDRs:         prefixes("10.42.0.0/16", "fd43::/112"),
		Implementation:      "Auto",
		PersistentKeepalive: 25,
	}
	const document = `{"version":1,"gateway":"vpn/home","gatewayPublicKey":"` + alicePublic + `",` +
		`"endpoint":"home-wireguard.vpn.svc.cluster.local:51820","classKey":"` + aliceKey + `","mtu":1340,` +
		`"bypassCIDRs":["10.42.0.0/16","fd43::/112"],"implementation":"Auto","persistentKeepalive":25}`
	got, err := DecodeEnrolment([]byte(document))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, equateNets); diff != "" {
		t.Errorf("decoded: -want, +got:\n%s", diff)
	}
	b, err := want.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(document, string(b)); diff != "" {
		t.Errorf("encoded: -want, +got:\n%s", diff)
	}
}

// TestDocumentVersions holds what a new function and an old agent owe each
// other during a rollout.
func TestDocumentVersions(t *testing.T) {
	cases := map[string]struct {
		reason   string
		document string
		err      string // part of the error, empty for none
	}{
		"UnknownField":  {"A newer writer says more than we know.", `{"version":1,"novelty":{"a":[1]}}`, ""},
		"NewerVersion":  {"In another version everything may mean something else.", `{"version":2}`, "version 2"},
		"NoVersion":     {"Every document has one.", `{}`, "version 0"},
		"NewerShape":    {"The version is judged before the rest is read.", `{"version":2,"privateKey":{},"ready":"x"}`, "version 2"},
		"VersionString": {"A version is a number.", `{"version":"1"}`, "version"},
		"NoJSON":        {"Half a document is none.", `{"version":1`, "cannot decode"},
		"Empty":         {"Nothing is no document.", ``, "cannot decode"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, configErr := DecodeGatewayConfig([]byte(tc.document))
			_, reportErr := DecodeReport([]byte(tc.document))
			_, enrolmentErr := DecodeEnrolment([]byte(tc.document))
			for kind, err := range map[string]error{"config": configErr, "report": reportErr, "enrolment": enrolmentErr} {
				switch {
				case tc.err == "" && err != nil:
					t.Errorf("%s\n%s: want no error, got %v", tc.reason, kind, err)
				case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
					t.Errorf("%s\n%s: want an error with %q, got %v", tc.reason, kind, tc.err, err)
				}
			}
		})
	}
}

// TestErrorsKeepSecrets holds that no error says what may be a private key.
func TestErrorsKeepSecrets(t *testing.T) {
	const secret = "cASH++eeGx+IbFAwP5WooB4FaGFs2vmsICdOojA5"
	cases := map[string]string{
		"KeyTooShort":   `{"version":1,"privateKey":"` + secret + `"}`,
		"KeyNoBase64":   `{"version":1,"privateKey":"` + secret + `!!!="}`,
		"KeyInAddress":  `{"version":1,"addresses":["` + secret + `"]}`,
		"KeyInTime":     `{"version":1,"peers":[{"expiresAt":"` + secret + `"}]}`,
		"KeyInPorts":    `{"version":1,"peers":[{"access":[{"to":{"ports":["` + secret + `"]}}]}]}`,
		"KeyInReserved": `{"version":1,"reservations":{"vpn/a":["` + secret + `"]}}`,
		"KeyInNumber":   `{"version":1,"mtu":"` + secret + `"}`,
		"KeyAsVersion":  `{"version":"` + secret + `"}`,
		"Broken":        `{"version":1,"privateKey":"` + secret + `"`,
		"BrokenKey":     `{"version":1,"privateKey":` + secret + `}`,
	}
	for name, document := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := DecodeGatewayConfig([]byte(document))
			if err == nil {
				t.Fatal("want an error, got none")
			}
			if strings.Contains(err.Error(), secret[:8]) {
				t.Errorf("the error says the secret: %v", err)
			}
		})
	}
}

func TestConfigHash(t *testing.T) {
	// The first 8 bytes of SHA-256 of "abc" (FIPS 180-4, appendix).
	if got := ConfigHash([]byte("abc")); got != "ba7816bf8f01cfea" {
		t.Errorf("want ba7816bf8f01cfea, got %s", got)
	}
}
