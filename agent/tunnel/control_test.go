package tunnel

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const testKey = "c2VjcmV0LWtleS1vZi10aGUtdGVzdA"

// server answers as gluetun's control server does, to its key alone.
func server(t *testing.T, answers map[string]string) string {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, known := answers[r.RequestURI]
		switch {
		case r.Header.Get("X-Api-Key") != testKey:
			w.WriteHeader(http.StatusUnauthorized)
		case r.Method != http.MethodGet || !known:
			w.WriteHeader(http.StatusNotFound)
		case strings.HasPrefix(answer, "http"):
			http.Redirect(w, r, answer, http.StatusMovedPermanently)
		default:
			_, _ = w.Write([]byte(answer))
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

func TestExit(t *testing.T) {
	const role = `{"auth":"apikey","apikey":"` + testKey + `"}`
	const full = `{"public_ip":"198.51.100.10","country":"CH","city":"Testville","hostname":"h","location":"0.000000,0.000000"}`
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		t.Errorf("another server was asked, with the key %q", r.Header.Get("X-Api-Key"))
	}))
	t.Cleanup(elsewhere.Close)
	cases := map[string]struct {
		reason   string
		role     string
		ip, port string // answers, none where empty
		want     Exit
		err      string // part of it
	}{
		"Pinned":      {"version 3.41 has one port as a number", role, full, `{"port":41230}`, Exit{"198.51.100.10", "CH", []int{41230}}, ""},
		"PinnedPorts": {"and several as a list", role, full, `{"ports":[41230,41231]}`, Exit{"198.51.100.10", "CH", []int{41230, 41231}}, ""},
		"Next":        {"the next version has both", role, full, `{"port":41230,"ports":[41230,41231]}`, Exit{"198.51.100.10", "CH", []int{41230, 41231}}, ""},
		"NoPort":      {"no port is a zero", role, full, `{"port":0}`, Exit{"198.51.100.10", "CH", nil}, ""},
		"NextNoPort":  {"or an empty list beside it", role, full, `{"port":0,"ports":[]}`, Exit{"198.51.100.10", "CH", nil}, ""},
		"NotFetched":  {"the address is empty until it is known", role, `{"public_ip":""}`, `{"port":0}`, Exit{}, ""},
		"Omitted":     {"what is not known is left out", role, `{"public_ip":"2001:db8:3::10"}`, `{}`, Exit{"2001:db8:3::10", "", nil}, ""},
		"NoAddress":   {"what is no address is not passed on", role, `{"public_ip":"<b>","country":"CH"}`, `{"port":1}`, Exit{"", "", []int{1}}, ""},
		"LongCountry": {"nor is what is no name", role, `{"public_ip":"198.51.100.10","country":"` + strings.Repeat("x", 65) + `"}`, `{}`, Exit{"198.51.100.10", "", nil}, ""},
		"Control":     {"nor control characters", role, `{"public_ip":"198.51.100.10","country":"C\u001bH"}`, `{}`, Exit{"198.51.100.10", "", nil}, ""},
		"BadPort":     {"nor what is no port", role, full, `{"port":70000,"ports":[-1,8]}`, Exit{"198.51.100.10", "CH", []int{8}}, ""},
		"NoForward":   {"one answer is better than none", role, full, "", Exit{"198.51.100.10", "CH", nil}, "gluetun answers 404 to /v1/portforward"},
		"NoIP":        {"whichever it is", role, "", `{"port":8}`, Exit{"", "", []int{8}}, "gluetun answers 404 to /v1/publicip/ip"},
		"NoJSON":      {"an answer that is none", role, "<html>", `{}`, Exit{}, "gluetun's answer to /v1/publicip/ip is not understood"},
		"Long":        {"an answer without end", role, `{"country":"` + strings.Repeat("x", maxAnswer), `{}`, Exit{}, "is not understood"},
		"Redirect":    {"the key goes nowhere else", role, elsewhere.URL, `{}`, Exit{}, "gluetun answers 301 to /v1/publicip/ip"},
		"OtherKey":    {"another key", `{"auth":"apikey","apikey":"other"}`, full, `{}`, Exit{}, "gluetun answers 401"},
		"NoKey":       {"a role without key", `{"auth":"none"}`, full, `{}`, Exit{}, "holds no key"},
		"BadRole":     {"a role that is no JSON", testKey, full, `{}`, Exit{}, "holds no key"},
		"NoRole":      {"no role", "", full, `{}`, Exit{}, "no such file"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			answers := map[string]string{}
			for path, answer := range map[string]string{pathPublicIP: tc.ip, pathPorts: tc.port} {
				if answer != "" {
					answers[path] = answer
				}
			}
			auth := filepath.Join(t.TempDir(), "auth.json")
			if tc.role != "" {
				if err := os.WriteFile(auth, []byte(tc.role), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			got, err := newControl(server(t, answers), auth).exit(t.Context())
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
			if (err != nil) != (tc.err != "") || err != nil && !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: want error %q, got %v", tc.reason, tc.err, err)
			}
			if err != nil && strings.Contains(err.Error(), testKey) {
				t.Errorf("the error has the key: %v", err)
			}
		})
	}
	t.Run("NotThere", func(t *testing.T) {
		auth := filepath.Join(t.TempDir(), "auth.json")
		if err := os.WriteFile(auth, []byte(role), 0o600); err != nil {
			t.Fatal(err)
		}
		s := httptest.NewServer(http.NotFoundHandler())
		s.Close()
		if _, err := newControl(s.URL, auth).exit(t.Context()); err == nil {
			t.Error("want an error where nobody listens")
		}
	})
}
