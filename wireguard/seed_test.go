package wireguard

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"strings"
	"testing"
)

// counting and ones are the seeds of the known answers: the bytes 0 to 31, and
// 32 times 0xff. The answers were computed apart from this package, from RFC
// 5869 and RFC 7748 with Python's standard library. None of them may ever
// change: each would be a key of somebody's gateway.
const (
	counting = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
	ones     = "//////////////////////////////////////////8="
)

func seed(t *testing.T, s string) Seed {
	t.Helper()
	out, err := ParseSeed([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestServerKeyKnownAnswers(t *testing.T) {
	cases := []struct {
		seed            string
		rotation        int64
		private, public string
	}{
		{counting, 0, "cASH++eeGx+IbFAwP5WooB4FaGFs2vmsICdOojA5/V4=", "EpIiFFj4a/ZJcY8IUGfzj94oHoGZBl77ryenHCPV1GI="},
		{counting, 1, "0PX0EbGEzgNmJm3MNdLHxWqRZzdAilmsJyJ7e23+AF0=", "UddAidutcbA760eave0Wo2kA/Fo8Du4KK5TQDIMh/mE="},
		{counting, 7, "AIiWXomNhWdYFOeG2GOjBSooaUwjeLZrlI9naUzb5lY=", "nlzY4OiLD6eUgVboBQFxeC8J0J35JdX2SzCvCPRcODc="},
		{ones, 0, "6PFvnPZkasg1oapSGwtRltIKcgyKX+c2Rei+HLa3XEI=", "OQkP07NRHx1P30KUytm0uofBOyZGAIFLwlcREWeG3HE="},
		{ones, 1, "WGBbbL6a2eDPqK6j+ZUT7hHcBmWC5ugOXy5Q60MXDmE=", "5X95b0DcRUEQcE+Q8spcN6uRtf0928zz97+O4imJOBE="},
		{ones, 7, "aFtvH/ydm8ms4Zki/nY2GkJMlZMGd+IHTs1awDGfMlI=", "jn2kHgp4ho00jtfKpw2NhGeZgloiM6PGMbp0VdYAUSA="},
	}
	for _, tc := range cases {
		k := seed(t, tc.seed).ServerKey(tc.rotation)
		if k.String() != tc.private {
			t.Errorf("ServerKey(%d) of %s: want %s, got %s", tc.rotation, tc.seed, tc.private, k)
		}
		if got := k.Public().String(); got != tc.public {
			t.Errorf("public key of ServerKey(%d) of %s: want %s, got %s", tc.rotation, tc.seed, tc.public, got)
		}
	}
}

func TestPeerKeyKnownAnswers(t *testing.T) {
	cases := []struct {
		seed                       string
		namespace, name            string
		rotation                   int64
		private, public, preshared string
	}{
		{
			counting, "vpn", "laptop", 0,
			"0A7TCFAuYjd79PmOEy79g/6iOVaMXYGr4EyTa2Cb6ms=", "q9OBmbqr0FSA+jnjbL7Hj4x1CCQSHAUJFTIhZMX1mnw=",
			"SzUUvJfRKlALgU3f26Ygg7zWFu6BRSJ3BpTVU0kge/s=",
		},
		{
			counting, "vpn", "laptop", 1,
			"+M0cCBdlXfHO9y1Zf8ImUyVnZbO1aJWnrdXqY6rMAU4=", "bjTgbPuwkIqix7Z8kjhwHgHedEnat1utT89CKwVX5WU=",
			"p5SyK3hSQmeSbxhciJCU78WN+73I9GgAXyQF5gMpv9Q=",
		},
		{
			counting, "vpn", "phone", 0,
			"kGtwdE/8cAuXDsbtf2vS5Ti6YCixekeXY21aRv7/9VE=", "6dvzpwyEvNJq94m2AcUGEUgs+T6gDMkgEzC8C7CLQ0A=",
			"xAgWy9CCeIrW/PWb8Yr6iS5Dr8aBj9X3j+7qAeM08Xc=",
		},
		{
			counting, "apps", "laptop", 0,
			"OKuNuuzhN9IFd9kP58g4dLM2rL/Yldv4KJLxko0RD1U=", "BTCeBdDref63Kg1nbkpdmpBuCGYZX2FBck3EXwo7sRk=",
			"Fv2DUrq8uR+8iSDQIN5pvTSkxVnZ1vUWPTYxf+asUbE=",
		},
		{
			ones, "vpn", "laptop", 0,
			"SGQHxaNP41bCwuLQJQglDG3H7L2lVqoy6+ndlQa153Y=", "QY28S6n0ZP/puq3/9BAOJlzx3Q8dGZzn5iVmy4pEln0=",
			"Fu7Jma4d3XXbDA+sV3zE3/QT2AzDDBT1uyUU864WQv4=",
		},
		{
			ones, "vpn", "laptop", 1,
			"oMSmLIP6SGx2H7i0OIGxfXOpuWCargc588FqRUokQkQ=", "tyO3v1qNsg1/uAn+auhoLw2KQy6OEDsMOIwvwP4mURc=",
			"VOR9o5muS93y+b7wXDQf038Yl1UklZ4icx1/Vnfr0fU=",
		},
		{
			ones, "apps", "laptop", 0,
			"aC/uArjy3jhCywLsT0SHyjgFuqX1/MpoD0VCAGpxV04=", "vElyzaWiieIYkg7kBSyxgr5JkUv+KP/WaV5cPGmefGM=",
			"1MVpayV+x4yWoF9k/Uf51+1nvx5KKXUovQs8N9cZvk0=",
		},
	}
	for _, tc := range cases {
		s := seed(t, tc.seed)
		k := s.PeerKey(tc.namespace, tc.name, tc.rotation)
		if k.String() != tc.private {
			t.Errorf("PeerKey(%s, %s, %d): want %s, got %s", tc.namespace, tc.name, tc.rotation, tc.private, k)
		}
		if got := k.Public().String(); got != tc.public {
			t.Errorf("public key of PeerKey(%s, %s, %d): want %s, got %s", tc.namespace, tc.name, tc.rotation, tc.public, got)
		}
		if got := s.PresharedKey(tc.namespace, tc.name, tc.rotation).String(); got != tc.preshared {
			t.Errorf("PresharedKey(%s, %s, %d): want %s, got %s", tc.namespace, tc.name, tc.rotation, tc.preshared, got)
		}
	}
}

func TestOtherDerivationsKnownAnswers(t *testing.T) {
	type answers struct{ id, attachment, class, pod, podPublic, tunnel, gluetun string }
	cases := map[string]answers{
		counting: {
			id:         "73ae928e833bcc0c",
			attachment: "3P7VxU+kKOJrmFyuj0+ZIXC3rMcZed66aEg+pRe73kM=",
			class:      "dcelFHlyBcvoLQ/52W0eQnzaRx7XJNQR8HaxBezuvsA=",
			pod:        "6IIhwXTGgftdmVRZUSog3f5a5Hjb40H5yoEJjdJ/MmE=",
			podPublic:  "I54WrX+3YumYLBZGvNy71rOObG81X/a1zlzZ7KeHo1A=",
			tunnel:     "b26cd841bf4813afe27835762875458b",
			gluetun:    "55f90c8bf4f5c23e8f5c522df589dc14d19451ba62cbd81dfcf1ce8f3d5c9e13",
		},
		ones: {
			id:         "23d530d57164d24f",
			attachment: "lXD8fnHbyCXNWLQ7LFuX4LeVp7knsVa4n92bVrL3pFI=",
			class:      "CGdvgoCXDmPfIG1GsqVmzSDtcTNvfOxIUf5xGovDcmU=",
			pod:        "2OVgPE6j/FiESyChf28MTwvFMEmtPmzw8EruO33rrnI=",
			podPublic:  "Pr8L0jv51M0lp2hcsOc0cyWxZ3zH3wKggYFjeNPczAs=",
			tunnel:     "234ebbd642ca9fa0e43e228d813dff11",
			gluetun:    "96bd1224ed6dd1f36e2db587eb77b0870b606458f0e9e9f965c57d0b1f729e93",
		},
	}
	for in, want := range cases {
		s := seed(t, in)
		class := s.PodClassKey("apps", "media")
		pod := PodKey(class, "7a1c9f5e-2b0d-4c6e-9a53-0d7d4a1f6b11")
		got := answers{
			id:         s.ID(),
			attachment: base64.StdEncoding.EncodeToString(s.AttachmentKey()),
			class:      class.String(),
			pod:        pod.String(),
			podPublic:  pod.Public().String(),
			tunnel:     s.TunnelPathPrefix(),
			gluetun:    s.GluetunControlKey(),
		}
		if got != want {
			t.Errorf("seed %s:\nwant %+v\ngot  %+v", in, want, got)
		}
	}
}

// TestDerivedKeysAreApart holds that no two uses of a seed have a key in
// common.
func TestDerivedKeysAreApart(t *testing.T) {
	s := seed(t, counting)
	keys := map[string]string{}
	add := func(use string, b []byte) {
		h := hex.EncodeToString(b)
		if other, ok := keys[h]; ok {
			t.Errorf("%s and %s are the same key", use, other)
		}
		keys[h] = use
	}
	add("the seed", s[:])
	add("the attachment key", s.AttachmentKey())
	for _, r := range []int64{0, 1, 10} {
		k := s.ServerKey(r)
		add("a server key", k.Key[:])
		for _, name := range []string{"a", "b", "server", "a-0"} {
			for _, namespace := range []string{"a", "b"} {
				p, psk := s.PeerKey(namespace, name, r), s.PresharedKey(namespace, name, r)
				add("a peer's key", p.Key[:])
				add("a preshared key", psk.Key[:])
			}
		}
	}
	for _, name := range []string{"a", "b"} {
		class := s.PodClassKey("a", name)
		add("a class key", class.Key[:])
		pod := PodKey(class, "uid")
		add("a pod's key", pod.Key[:])
	}
}

func TestParseSeed(t *testing.T) {
	raw := bytes.Repeat([]byte{0xa5}, 32)
	encoded := base64.StdEncoding.EncodeToString(raw)
	whitespace := append(bytes.Repeat([]byte{' '}, 31), '\n')
	cases := map[string]struct {
		reason string
		in     []byte
		want   []byte // nil: refused
	}{
		"Raw":             {"32 bytes are a seed as they are.", raw, raw},
		"RawWhitespace":   {"Raw bytes are not trimmed, whatever they are.", whitespace, whitespace},
		"Base64":          {"What wg genkey prints is a seed.", []byte(encoded), raw},
		"Base64LineBreak": {"A line break after it comes from the shell.", []byte(encoded + "\n"), raw},
		"Empty":           {"A Secret without the key is no seed.", nil, nil},
		"Short":           {"31 bytes are none.", raw[:31], nil},
		"Long":            {"33 bytes are none: a line break after raw bytes may be one of them.", append(bytes.Clone(raw), '\n'), nil},
		"Base64Short":     {"Base64 of 31 bytes is none.", []byte(base64.StdEncoding.EncodeToString(raw[:31])), nil},
		"Base64Long":      {"Base64 of 33 bytes is none.", []byte(base64.StdEncoding.EncodeToString(append(bytes.Clone(raw), 1))), nil},
		"Base64URL":       {"The URL alphabet is another one.", []byte(strings.Repeat("_", 43) + "="), nil},
		"NotCanonical":    {"Bits after the end are a typing error.", []byte(encoded[:42] + "V="), nil},
		"Hex":             {"Hexadecimal is none.", []byte(hex.EncodeToString(raw)), nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ParseSeed(tc.in)
			if tc.want == nil {
				if err == nil {
					t.Fatalf("%s\nwant an error, got seed %x", tc.reason, got)
				}
				if len(tc.in) > 0 && strings.Contains(err.Error(), string(tc.in)) {
					t.Errorf("the error quotes the value: %v", err)
				}
				return
			}
			if err != nil || !bytes.Equal(got[:], tc.want) {
				t.Errorf("%s\nwant %x, got %x, error %v", tc.reason, tc.want, got, err)
			}
		})
	}
}
