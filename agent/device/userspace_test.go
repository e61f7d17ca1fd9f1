package device

import (
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/ipc"
)

// A failure to listen is over when its cause is.
func TestControlAgain(t *testing.T) {
	if err := os.MkdirAll(controlSockets, 0o755); err != nil || unix.Access(controlSockets, unix.W_OK) != nil {
		t.Skip("needs to write to", controlSockets)
	}
	const name = "test-again"
	_, err := control(name, func(string, *os.File) (net.Listener, error) { return nil, errors.New("too many open files") })
	if err == nil || !strings.Contains(err.Error(), "cannot listen on control socket of test-again: too many open files") {
		t.Fatalf("want the reason, got %v", err)
	}
	socket, err := control(name, ipc.UAPIListen)
	if err != nil {
		t.Fatal(err)
	}
	_ = socket.Close()
}
