package wireguard

import (
	"bytes"
	"strings"
	"testing"
)

func FuzzParseKey(f *testing.F) {
	f.Add(aliceKey)
	f.Add(" " + aliceKey + "\n")
	f.Add(strings.Repeat("A", 43) + "=")
	f.Fuzz(func(t *testing.T, s string) {
		k, err := ParseKey(s)
		if err != nil {
			if len(s) > 8 && strings.Contains(err.Error(), s) {
				t.Errorf("the error quotes the value: %v", err)
			}
			return
		}
		if k.String() != strings.TrimSpace(s) {
			t.Errorf("%q was read as %q", s, k)
		}
	})
}

func FuzzParseSeed(f *testing.F) {
	f.Add([]byte(counting))
	f.Add(bytes.Repeat([]byte{0}, 32))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseSeed(b)
		if err != nil {
			if len(b) > 8 && bytes.Contains([]byte(err.Error()), b) {
				t.Errorf("the error quotes the value: %v", err)
			}
			return
		}
		again, err := ParseSeed(s[:])
		if err != nil || again != s {
			t.Errorf("the raw form of %q is another seed, error %v", b, err)
		}
	})
}

func FuzzParsePortRange(f *testing.F) {
	f.Add("443")
	f.Add("8000-8100")
	f.Add("65535-1")
	f.Fuzz(func(t *testing.T, s string) {
		r, err := ParsePortRange(s)
		if err != nil {
			return
		}
		if r.First == 0 || r.First > r.Last {
			t.Fatalf("%q was read as %v", s, r)
		}
		if again, err := ParsePortRange(r.String()); err != nil || again != r {
			t.Errorf("%v does not survive its text form %q: %v, error %v", r, r, again, err)
		}
	})
}

// What was decoded is encoded the same from then on: each wing reads what it
// wrote itself, and must not see a change.
func FuzzDecodeGatewayConfig(f *testing.F) {
	f.Add([]byte(fullConfig))
	f.Add([]byte(`{"version":1,"peers":null,"reservations":{"a/b":null},"extra":1}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		settles(t, b, func(b []byte) ([]byte, error) {
			c, err := DecodeGatewayConfig(b)
			if err != nil {
				return nil, err
			}
			return c.Encode()
		})
	})
}

func FuzzDecodeReport(f *testing.F) {
	f.Add([]byte(`{"version":1,"ready":false,"reasons":["a"],"egress":{"state":"TunnelUp","forwardedPorts":[1]}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		settles(t, b, func(b []byte) ([]byte, error) {
			r, err := DecodeReport(b)
			if err != nil {
				return nil, err
			}
			return r.Encode()
		})
	})
}

func FuzzDecodeEnrolment(f *testing.F) {
	f.Add([]byte(`{"version":1,"gateway":"vpn/home","classKey":"` + aliceKey + `","bypassCIDRs":["10.42.0.0/16"]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		settles(t, b, func(b []byte) ([]byte, error) {
			e, err := DecodeEnrolment(b)
			if err != nil {
				return nil, err
			}
			return e.Encode()
		})
	})
}

func settles(t *testing.T, b []byte, pass func([]byte) ([]byte, error)) {
	t.Helper()
	b, err := pass(b)
	if err != nil {
		return
	}
	// Empty lists go in the first passes.
	for range 2 {
		if b, err = pass(b); err != nil {
			t.Fatal(err)
		}
	}
	again, err := pass(b)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, again) {
		t.Errorf("it changes from pass to pass:\n%s\n%s", b, again)
	}
}
