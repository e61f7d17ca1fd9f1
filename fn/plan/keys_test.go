package plan

import (
	"bytes"
	"encoding/base64"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
)

// TestSeed is the whole decision about the seed: where it comes from, and when there is none rather than another one.
func TestSeed(t *testing.T) {
	secret := func(b []byte) map[string][]byte { return map[string][]byte{"seed": b} }
	encoded := []byte(base64.StdEncoding.EncodeToString(seedA) + "\n")
	const ref = `{keys: {seedSecretRef: {name: backup}}}`
	const accepting = `{keys: {acceptSeed: ` + seedBID + `}}`
	was := func(id, public string) *v1alpha1.WireguardGatewayStatus {
		return &v1alpha1.WireguardGatewayStatus{SeedID: id, PublicKey: public}
	}
	had := was(seedAID, seedAPublic)

	type want struct {
		ID, Public string
		Composed   []byte // nil: the seed is not composed
		Generated  bool
		Fleeting   bool
		Reason     string // of the failure, empty where there is none
		Messages   []string
	}
	cases := map[string]struct {
		reason             string
		spec               string
		status             *v1alpha1.WireguardGatewayStatus
		observed, required map[string][]byte
		fleeting           bool
		secrets            map[string]map[string][]byte
		want               want
	}{
		"FirstRun": {
			reason: "A gateway that never had a seed gets one.",
			want:   want{ID: seedBID, Public: seedBPublic, Composed: seedB, Generated: true},
		},
		"Found": {
			reason: "The seed is used and composed unchanged.",
			status: had, observed: secret(seedA), required: secret(seedA),
			want: want{ID: seedAID, Public: seedAPublic, Composed: seedA},
		},
		"FoundBase64": {
			reason: "An immutable Secret stays as it is, byte for byte.",
			status: had, observed: secret(encoded), required: secret(encoded),
			want: want{ID: seedAID, Public: seedAPublic, Composed: encoded},
		},
		"HiddenFromObserved": {
			reason: "Another owner controls it: it is still the seed.",
			status: had, required: secret(seedA),
			want: want{ID: seedAID, Public: seedAPublic, Composed: seedA},
		},
		"RequiredLags": {
			reason: "What is observed is there, whatever a cache says.",
			status: had, observed: secret(seedA),
			want: want{ID: seedAID, Public: seedAPublic, Composed: seedA},
		},
		"StatusLost": {
			reason:   "The seed knows more than the status does.",
			observed: secret(seedA), required: secret(seedA),
			want: want{ID: seedAID, Public: seedAPublic, Composed: seedA},
		},
		"Gone": {
			reason: "Another seed would cut every client off. The message gives both ways out.",
			status: had,
			want: want{Reason: "SeedMissing", Messages: []string{
				`"home-wireguard.seed"`, `"vpn"`, seedAID, "spec.keys.seedSecretRef", "crossplane.io/composition-resource-name: seed", "without owner references",
			}},
		},
		"GoneWithoutID": {
			reason: "A public key in status is enough to know that there was a seed.",
			status: was("", seedAPublic),
			want:   want{Reason: "SeedMissing", Messages: []string{"spec.keys.seedSecretRef", "refused", "create the gateway again"}},
		},
		"Fleeting": {
			reason:   "It may be that of a gateway that was deleted, and go with it. Nobody is held to it yet.",
			required: secret(seedA), fleeting: true,
			want: want{ID: seedAID, Public: seedAPublic, Composed: seedA, Fleeting: true},
		},
		"FleetingLater": {
			reason: "A gateway that runs is held to its seed, whoever owns it.",
			status: had, required: secret(seedA), fleeting: true,
			want: want{ID: seedAID, Public: seedAPublic, Composed: seedA},
		},
		"ReferenceBesideFleeting": {
			reason: "The seed that is asked for is nobody else's.",
			spec:   ref, required: secret(seedB), fleeting: true, secrets: map[string]map[string][]byte{"backup": secret(seedA)},
			want: want{ID: seedAID, Public: seedAPublic},
		},
		"Restored": {
			reason: "It came back under its name.",
			status: had, observed: secret(seedA), required: secret(seedA),
			want: want{ID: seedAID, Public: seedAPublic, Composed: seedA},
		},
		"RestoredElsewhere": {
			reason: "It came back under another name, and stays the user's.",
			spec:   ref, status: had, secrets: map[string]map[string][]byte{"backup": secret(seedA)},
			want: want{ID: seedAID, Public: seedAPublic},
		},
		"Reference": {
			reason: "A new gateway may start from a backup.",
			spec:   ref, secrets: map[string]map[string][]byte{"backup": secret(encoded)},
			want: want{ID: seedAID, Public: seedAPublic},
		},
		"ReferenceKey": {
			reason: "The key in the Secret can be named.",
			spec:   `{keys: {seedSecretRef: {name: backup, key: home}}}`, secrets: map[string]map[string][]byte{"backup": {"home": seedA, "seed": seedB}},
			want: want{ID: seedAID, Public: seedAPublic},
		},
		"ReferenceAddedLater": {
			reason: "The seed that was composed stays, so that the only copy is never collected.",
			spec:   ref, status: had, observed: secret(seedA), required: secret(seedA), secrets: map[string]map[string][]byte{"backup": secret(seedA)},
			want: want{ID: seedAID, Public: seedAPublic, Composed: seedA},
		},
		"ReferenceAddedToHidden": {
			reason: "What another owner controls is not ours to compose.",
			spec:   ref, status: had, required: secret(seedA), secrets: map[string]map[string][]byte{"backup": secret(seedA)},
			want: want{ID: seedAID, Public: seedAPublic},
		},
		"ReferenceToAnother": {
			reason: "A reference to another seed is a mismatch, too.",
			spec:   ref, status: had, observed: secret(seedA), required: secret(seedA), secrets: map[string]map[string][]byte{"backup": secret(seedB)},
			want: want{Reason: "SeedMismatch", Messages: []string{seedAID, seedBID, "spec.keys.acceptSeed"}},
		},
		"ReferenceMissing": {
			reason: "Nothing is generated in its place.",
			spec:   ref,
			want:   want{Reason: "SeedMissing", Messages: []string{`"backup"`, `"vpn"`, `"seed"`, "spec.keys.seedSecretRef"}},
		},
		"ReferenceMissingOwnThere": {
			reason: "The own seed is no stand-in for the one that is asked for.",
			spec:   ref, status: had, observed: secret(seedA), required: secret(seedA),
			want: want{Reason: "SeedMissing", Messages: []string{`"backup"`}},
		},
		"ReferenceWithoutKey": {
			reason: "The Secret is there, the seed is not.",
			spec:   ref, secrets: map[string]map[string][]byte{"backup": {"other": seedA}},
			want: want{Reason: "SeedMalformed", Messages: []string{`"backup"`, `"seed"`}},
		},
		"ReferenceMalformed": {
			reason: "A short seed is none.",
			spec:   ref, secrets: map[string]map[string][]byte{"backup": secret(seedA[:31])},
			want: want{Reason: "SeedMalformed", Messages: []string{`"backup"`, "32 raw bytes"}},
		},
		"Malformed": {
			reason: "It is never written over.",
			status: had, observed: secret(seedA[:16]), required: secret(seedA[:16]),
			want: want{Reason: "SeedMalformed", Messages: []string{`"home-wireguard.seed"`, `"seed"`, "32 raw bytes"}},
		},
		"Emptied": {
			reason: "A Secret without the key is malformed, not missing.",
			status: had, observed: map[string][]byte{}, required: map[string][]byte{},
			want: want{Reason: "SeedMalformed"},
		},
		"Mismatch": {
			reason: "Somebody swapped the seed. The message names both.",
			status: had, observed: secret(seedB), required: secret(seedB),
			want: want{Reason: "SeedMismatch", Messages: []string{seedAID, seedBID, "spec.keys.acceptSeed to " + seedBID}},
		},
		"Accepted": {
			reason: "The new seed is meant.",
			spec:   accepting, status: had, observed: secret(seedB), required: secret(seedB),
			want: want{ID: seedBID, Public: seedBPublic, Composed: seedB},
		},
		"AcceptedAnother": {
			reason: "Consent is to one seed.",
			spec:   `{keys: {acceptSeed: 0123456789abcdef}}`, status: had, observed: secret(seedB), required: secret(seedB),
			want: want{Reason: "SeedMismatch"},
		},
		"AcceptedBefore": {
			reason: "Consent that was used up does no harm.",
			spec:   accepting, status: was(seedBID, seedBPublic), observed: secret(seedB), required: secret(seedB),
			want: want{ID: seedBID, Public: seedBPublic, Composed: seedB},
		},
		"AcceptedThenBack": {
			reason: "Consent to a seed is none to the old one's return.",
			spec:   accepting, status: was(seedBID, seedBPublic), observed: secret(seedA), required: secret(seedA),
			want: want{Reason: "SeedMismatch"},
		},
		"AcceptedButGone": {
			reason: "Consent generates nothing.",
			spec:   accepting, status: had,
			want: want{Reason: "SeedMissing"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := inputs(t, orEmpty(tc.spec))
			in.ObservedSeed, in.RequiredSeed, in.SeedFleeting = tc.observed, tc.required, tc.fleeting
			if tc.status != nil {
				in.Status = tc.status
			}
			if tc.secrets != nil {
				in.Secrets = tc.secrets
			}
			random := bytes.NewReader(seedB)
			in.Random = random

			g, err := New(in)
			got := want{Generated: random.Len() != len(seedB)}
			if err != nil {
				failure := &ConditionError{}
				if !errors.As(err, &failure) || failure.Condition != "KeysReady" {
					t.Fatalf("%s\nwant a failure of KeysReady, got %#v", tc.reason, err)
				}
				got.Reason = failure.Reason
				for _, m := range tc.want.Messages {
					if !strings.Contains(failure.Message, m) {
						t.Errorf("%s\nwant %s in the message, got %s", tc.reason, m, failure.Message)
					}
				}
				tc.want.Messages = nil
			} else {
				got.ID, got.Public, got.Fleeting = g.Keys.Seed.ID(), g.Keys.Public.String(), g.Keys.Fleeting
				if g.Keys.ComposeSeed {
					got.Composed = g.Keys.ComposedSeed
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func orEmpty(s string) string {
	if s == "" {
		return "{}"
	}
	return s
}

// TestSeedWithoutRandom holds that a broken random source makes no seed.
func TestSeedWithoutRandom(t *testing.T) {
	in := inputs(t, "{}")
	in.ObservedSeed, in.RequiredSeed = nil, nil
	in.Random = io.LimitReader(bytes.NewReader(seedA), 31)
	if g, err := New(in); err == nil {
		t.Errorf("want an error, got the seed %s", g.Keys.Seed.ID())
	}
}

func TestRotation(t *testing.T) {
	// Of seedA, computed apart from this repository's code.
	for rotation, public := range map[string]string{
		"0": seedAPublic,
		"1": "5X95b0DcRUEQcE+Q8spcN6uRtf0928zz97+O4imJOBE=",
		"7": "jn2kHgp4ho00jtfKpw2NhGeZgloiM6PGMbp0VdYAUSA=",
	} {
		in := inputs(t, `{keys: {rotation: `+rotation+`}, peers: [{name: laptop}]}`)
		// A rotation is no other seed: what status says of the key before is no
		// mismatch.
		in.Status = &v1alpha1.WireguardGatewayStatus{PublicKey: seedAPublic, SeedID: seedAID}
		g := planned(t, in)
		if got := g.Keys.Public.String(); got != public {
			t.Errorf("rotation %s: want %s, got %s", rotation, public, got)
		}
		if got := g.Peers[0].PublicKey.String(); got != "QY28S6n0ZP/puq3/9BAOJlzx3Q8dGZzn5iVmy4pEln0=" {
			t.Errorf("rotation %s of the gateway changed the key of a peer to %s", rotation, got)
		}
	}
}

func TestPeerKeys(t *testing.T) {
	// RFC 7748, section 6.1.
	const (
		private = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo="
		public  = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="
	)
	// Of seedA, computed apart from this repository's code.
	const (
		laptop0    = "SGQHxaNP41bCwuLQJQglDG3H7L2lVqoy6+ndlQa153Y="
		laptop0Pub = "QY28S6n0ZP/puq3/9BAOJlzx3Q8dGZzn5iVmy4pEln0="
		laptop0PSK = "Fu7Jma4d3XXbDA+sV3zE3/QT2AzDDBT1uyUU864WQv4="
		laptop1    = "oMSmLIP6SGx2H7i0OIGxfXOpuWCargc588FqRUokQkQ="
		laptop1Pub = "tyO3v1qNsg1/uAn+auhoLw2KQy6OEDsMOIwvwP4mURc="
		laptop1PSK = "VOR9o5muS93y+b7wXDQf038Yl1UklZ4icx1/Vnfr0fU="
	)
	secrets := map[string]map[string][]byte{
		"own":   {"privateKey": []byte(private + "\n"), "psk": []byte(laptop1PSK)},
		"bad":   {"privateKey": []byte("hello"), "presharedKey": []byte("hello")},
		"empty": {"privateKey": nil},
		"zero":  {"privateKey": []byte(strings.Repeat("A", 43) + "=")},
	}
	type want struct {
		Private, Public, PSK, State string
		Messages                    []string
	}
	cases := map[string]struct {
		reason string
		peer   string
		want   want
	}{
		"Derived":        {"Without a key of its own a peer's is derived.", `{}`, want{Private: laptop0, Public: laptop0Pub, State: "Active"}},
		"Rotated":        {"A number rotates it.", `{keyRotation: 1}`, want{Private: laptop1, Public: laptop1Pub, State: "Active"}},
		"DerivedPSK":     {"So is its preshared key.", `{presharedKey: {generate: true}}`, want{Private: laptop0, Public: laptop0Pub, PSK: laptop0PSK, State: "Active"}},
		"RotatedPSK":     {"Both rotate together.", `{presharedKey: {generate: true}, keyRotation: 1}`, want{Private: laptop1, Public: laptop1Pub, PSK: laptop1PSK, State: "Active"}},
		"Public":         {"There is no private key here at all.", `{publicKey: "` + public + `", keyRotation: 1}`, want{Public: public, State: "Active"}},
		"PublicPSK":      {"A preshared key goes with it.", `{publicKey: "` + public + `", presharedKey: {generate: true}}`, want{Public: public, PSK: laptop0PSK, State: "Active"}},
		"Private":        {"A line break after the key is none of it.", `{privateKeySecretRef: {name: own}}`, want{Private: private, Public: public, State: "Active"}},
		"OwnPSK":         {"Both can be brought.", `{privateKeySecretRef: {name: own}, presharedKey: {secretRef: {name: own, key: psk}}}`, want{Private: private, Public: public, PSK: laptop1PSK, State: "Active"}},
		"NoSecret":       {"The message names Secret and peer.", `{privateKeySecretRef: {name: none}}`, want{State: "Rejected SecretMissing", Messages: []string{`"none"`, `"laptop"`}}},
		"NoKey":          {"The message names Secret, key and peer.", `{privateKeySecretRef: {name: own, key: other}}`, want{State: "Rejected SecretMissing", Messages: []string{`"own"`, `"other"`, `"laptop"`}}},
		"NoPSKSecret":    {"A preshared key that is missing rejects, too.", `{presharedKey: {secretRef: {name: none}}}`, want{Private: laptop0, Public: laptop0Pub, State: "Rejected SecretMissing", Messages: []string{`"none"`, `"laptop"`}}},
		"Malformed":      {"The message says what a key is, not what stands there.", `{privateKeySecretRef: {name: bad}}`, want{State: "Rejected InvalidKey", Messages: []string{`"bad"`, `"privateKey"`, "44 characters"}}},
		"Empty":          {"An empty value is no key.", `{privateKeySecretRef: {name: empty}}`, want{State: "Rejected InvalidKey"}},
		"Zero":           {"All zeros is how an unset key looks.", `{privateKeySecretRef: {name: zero}}`, want{State: "Rejected InvalidKey", Messages: []string{"zeros"}}},
		"MalformedPSK":   {"A preshared key is judged the same.", `{presharedKey: {secretRef: {name: bad}}}`, want{Private: laptop0, Public: laptop0Pub, State: "Rejected InvalidKey", Messages: []string{`"bad"`, `"presharedKey"`}}},
		"RejectedStates": {"A disabled peer without its Secret is rejected.", `{disabled: true, privateKeySecretRef: {name: none}}`, want{State: "Rejected SecretMissing"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			in := inputs(t, `{peers: [`+strings.Replace(tc.peer, "{", "{name: laptop, ", 1)+`]}`)
			in.Secrets = secrets
			p := planned(t, in).Peers[0]
			got := want{State: strings.TrimSpace(p.State + " " + p.Reason)}
			if p.PrivateKey != nil {
				got.Private = p.PrivateKey.String()
			}
			if !p.PublicKey.IsZero() {
				got.Public = p.PublicKey.String()
			}
			if p.PresharedKey != nil {
				got.PSK = p.PresharedKey.String()
			}
			for _, m := range tc.want.Messages {
				if !strings.Contains(p.Message, m) {
					t.Errorf("%s\nwant %s in the message, got %s", tc.reason, m, p.Message)
				}
			}
			if strings.Contains(p.Message, "hello") {
				t.Errorf("the message quotes what may be a key: %s", p.Message)
			}
			tc.want.Messages = nil
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// A seed that was generated in this call may be refused by the API server, which
// has another. Nobody may hold the gateway to it yet.
func TestGenerated(t *testing.T) {
	in := inputs(t, "{}")
	for what, want := range map[string]bool{"nothing there": true, "the seed there": false} {
		t.Run(what, func(t *testing.T) {
			in.ObservedSeed, in.RequiredSeed = nil, nil
			if !want {
				in.RequiredSeed = map[string][]byte{"seed": seedA}
			}
			in.Random = bytes.NewReader(seedB)
			k, err := in.keys()
			if err != nil {
				t.Fatal(err)
			}
			if k.Generated != want {
				t.Errorf("generated is %v, want %v", k.Generated, want)
			}
		})
	}
}
