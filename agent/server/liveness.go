package server

import (
	"fmt"
	"net/http"
	"sync"
	"time"
)

// stuck is how long a loop may go without a turn before it counts as hanging. It
// is several times the longest sync that was measured.
const stuck = time.Minute

// Liveness answers the liveness probe for a program that runs in one loop. It is
// safe for concurrent use.
type Liveness struct {
	program string

	mu   sync.Mutex
	turn time.Time
}

// NewLiveness returns one for a loop that begins now. Its answers call the
// program by the name.
func NewLiveness(program string) *Liveness {
	return &Liveness{program: program, turn: time.Now()}
}

// Alive notes a turn of the loop.
func (l *Liveness) Alive(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn = now
}

// Healthz answers the probe. It fails only where a restart helps.
func (l *Liveness) Healthz(w http.ResponseWriter, _ *http.Request) {
	l.mu.Lock()
	idle := time.Since(l.turn)
	l.mu.Unlock()
	if idle > stuck {
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintf(w, "the %s has been hanging for %s\n", l.program, idle.Round(time.Second))
		return
	}
	_, _ = fmt.Fprintln(w, "ok")
}
