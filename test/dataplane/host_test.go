package dataplane

import (
	"net"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
)

// dialTimeout is how long a connection may take that is dropped on the way.
const dialTimeout = 2 * time.Second

// host is a host with the agent's state directory.
type host struct {
	*netns.Host

	counters int
}

func newHost(t *testing.T, name string) *host {
	t.Helper()
	return &host{Host: netns.New(t, name, "mount -t tmpfs none /var/lib", "mkdir /var/lib/wireguard-gateway")}
}

// dialQuietly opens a TCP connection from a goroutine that may outlive the test.
func (h *host) dialQuietly(address string) (c net.Conn, err error) {
	done := make(chan error)
	go func() {
		done <- h.Here(func() { c, err = net.DialTimeout("tcp", address, dialTimeout) })
	}()
	if entered := <-done; entered != nil {
		return nil, entered
	}
	return c, err
}

// dial opens a connection from the host.
func (h *host) dial(network, address string) (c net.Conn, err error) {
	h.Within(func() { c, err = net.DialTimeout(network, address, dialTimeout) })
	return c, err
}

// listen opens a TCP listener on the host.
func (h *host) listen(address string) net.Listener {
	h.T.Helper()
	var l net.Listener
	var err error
	h.Within(func() { l, err = net.Listen("tcp", address) })
	if err != nil {
		h.T.Fatal(err)
	}
	h.T.Cleanup(func() { _ = l.Close() })
	return l
}
