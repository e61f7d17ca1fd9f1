package tunnel

import (
	"net"
	"testing"
)

func TestProbe(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	const nobody = "127.0.0.1:1"
	cases := map[string]struct {
		reason    string
		device    string
		addresses []string
		works     bool
	}{
		"Answers":  {"a connection is an answer", "lo", []string{l.Addr().String()}, true},
		"One":      {"one of both families is enough", "lo", []string{nobody, l.Addr().String()}, true},
		"Nobody":   {"a refusal is none", "lo", []string{nobody}, false},
		"NoDevice": {"nothing is reached by a device that is not there, whatever the routes say", "tun-none", []string{l.Addr().String()}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if err := probe(t.Context(), tc.device, tc.addresses); (err == nil) != tc.works {
				t.Errorf("%s: %v", tc.reason, err)
			}
		})
	}
}
