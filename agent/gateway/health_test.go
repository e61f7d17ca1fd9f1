package gateway

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestReadyz(t *testing.T) {
	cases := map[string]struct {
		reason   string
		applied  string
		failing  []string
		warnings []string
		code     int
		body     string
	}{
		"Ready":    {"a gateway that works is ready", "h", nil, nil, http.StatusOK, "ok\nconfiguration h is in force\n"},
		"Failing":  {"every reason is told", "", []string{"a", "b"}, nil, http.StatusServiceUnavailable, "a\nb\n"},
		"Warnings": {"what does not keep it from working is told too", "h", nil, []string{"w"}, http.StatusOK, "ok\nw\nconfiguration h is in force\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			h := newHealth()
			h.set(tc.applied, tc.failing, tc.warnings)
			r := httptest.NewRecorder()
			h.readyz(r, nil)
			if r.Code != tc.code {
				t.Errorf("%s: got %d, want %d", tc.reason, r.Code, tc.code)
			}
			if diff := cmp.Diff(tc.body, r.Body.String()); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestSchedule(t *testing.T) {
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	cases := map[string]struct {
		reason string
		s      schedule
		want   time.Time
	}{
		"Never":    {"nothing is due", schedule{}, time.Time{}},
		"Earliest": {"the earliest counts", schedule{expiry: now.Add(time.Hour), retry: now, network: now.Add(time.Second)}, now},
		"One":      {"one that is never due does not", schedule{network: now}, now},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.s.earliest(); !got.Equal(tc.want) {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}
