package netns

import (
	"os"
	"runtime"
	"testing"

	"github.com/vishvananda/netns"
)

// Enter runs the test in a network namespace of its own, which is gone when the
// test is over.
func Enter(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, for a network namespace of its own")
	}
	// The thread is never unlocked, so that it ends with the test and no other
	// goroutine finds itself in the namespace.
	runtime.LockOSThread()
	ns, err := netns.New()
	if err != nil {
		t.Skipf("needs a network namespace of its own: %v", err)
	}
	t.Cleanup(func() { _ = ns.Close() })
}
