package fn

import (
	"strings"
	"testing"

	"github.com/crossplane/function-sdk-go/logging"
)

type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic("out of luck") }

// The process serves all gateways of a cluster, and one cannot end it.
func TestPanic(t *testing.T) {
	w := newWorld(t, "endpoint: {host: vpn.example.com}")
	f := New(logging.NewNopLogger(), WithRandom(panicking{}))
	rsp := respond(t, f, w.request(t, respond(t, f, w.request(t, nil)).GetRequirements()))
	if message := fatalOf(rsp); !strings.Contains(message, "out of luck") {
		t.Errorf("want a fatal result that says what happened, got %q", message)
	}
}
