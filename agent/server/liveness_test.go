package server

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

func TestHealthz(t *testing.T) {
	l := NewLiveness("agent")
	for idle, want := range map[time.Duration]int{
		0: http.StatusOK, stuck / 2: http.StatusOK, 2 * stuck: http.StatusServiceUnavailable,
	} {
		l.Alive(time.Now().Add(-idle))
		r := httptest.NewRecorder()
		l.Healthz(r, nil)
		if r.Code != want {
			t.Errorf("%s without a turn of the loop: got %d, want %d", idle, r.Code, want)
		}
	}
}
