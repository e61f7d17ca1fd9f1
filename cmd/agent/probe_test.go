package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestProbe(t *testing.T) {
	ready := true
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/startupz" && !ready {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = w.Write([]byte("one\ntwo\n"))
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	}))
	address := strings.TrimPrefix(s.URL, "http://")
	cases := map[string]struct {
		reason  string
		ready   bool
		startup bool
		address string
		want    string // part of the error, none if empty
	}{
		"Ready":    {"all is well", true, false, address, ""},
		"NotReady": {"the reasons are one line", false, false, address, "not ready: one; two"},
		"Startup":  {"what was up once has started", false, true, address, ""},
		"Nobody":   {"nobody listens", true, false, "127.0.0.1:1", "cannot ask the client"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ready = tc.ready
			err := (&probeCommand{Startup: tc.startup, Address: tc.address}).Run(t.Context())
			switch {
			case tc.want == "" && err != nil:
				t.Errorf("%s: %v", tc.reason, err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("%s: want %q, got %v", tc.reason, tc.want, err)
			}
		})
	}
	s.Close()
}
