package wireguard

import (
	"encoding/json"
	"strings"
	"testing"
)

// aliceKey and alicePublic are from RFC 7748, section 6.1.
const (
	aliceKey    = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo="
	alicePublic = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo="
)

func TestPublic(t *testing.T) {
	k, err := ParseKey(aliceKey)
	if err != nil {
		t.Fatal(err)
	}
	if got := k.Public().String(); got != alicePublic {
		t.Errorf("want %s, got %s", alicePublic, got)
	}
}

func TestParseKey(t *testing.T) {
	cases := map[string]struct {
		reason string
		in     string
		valid  bool
	}{
		"Base64":        {"44 characters of base64 are a key.", aliceKey, true},
		"LineBreak":     {"The shell leaves a line break.", aliceKey + "\n", true},
		"WhiteSpace":    {"People paste white space around it.", " \t" + aliceKey + "\r\n", true},
		"Zero":          {"All zeros is for the caller to judge.", strings.Repeat("A", 43) + "=", true},
		"Empty":         {"Nothing is no key.", "", false},
		"Short":         {"A character is missing.", aliceKey[1:], false},
		"Long":          {"There is one too many.", "A" + aliceKey, false},
		"NoPadding":     {"Without padding it is not what wg prints.", aliceKey[:43], false},
		"WrongAlphabet": {"The URL alphabet is another one.", strings.Repeat("-", 43) + "=", false},
		"InnerBreak":    {"A line break inside is a broken key.", aliceKey[:20] + "\n" + aliceKey[21:], false},
		"NotCanonical":  {"wg refuses bits after the end.", aliceKey[:42] + "p=", false},
		"Hex":           {"Hexadecimal is another form.", strings.Repeat("0f", 22), false},
		"NotASCII":      {"44 characters may be more bytes.", strings.Repeat("é", 44), false},
		"32Bytes":       {"Raw bytes are not the text form.", strings.Repeat("\x01", 32), false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			k, err := ParseKey(tc.in)
			if (err == nil) != tc.valid {
				t.Fatalf("%s\nwant valid %t, got error %v", tc.reason, tc.valid, err)
			}
			if err == nil {
				if got := k.String(); got != strings.TrimSpace(tc.in) {
					t.Errorf("want %s, got %s", strings.TrimSpace(tc.in), got)
				}
				return
			}
			if tc.in != "" && strings.Contains(err.Error(), strings.TrimSpace(tc.in)) {
				t.Errorf("the error quotes the value, which may be a private key: %v", err)
			}
		})
	}
}

func TestKeyJSON(t *testing.T) {
	in := struct {
		Key      Key  `json:"key"`
		Optional *Key `json:"optional,omitempty"`
	}{}
	want := `{"key":"` + aliceKey + `"}`
	if err := json.Unmarshal([]byte(want), &in); err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("want %s, got %s", want, got)
	}
	if in.Key.IsZero() || !(Key{}).IsZero() {
		t.Error("only a key of zeros is zero")
	}
}
