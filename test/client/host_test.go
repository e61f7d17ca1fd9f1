package client

import (
	"testing"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
)

// host is a host with a resolv.conf of its own.
type host struct {
	*netns.Host
}

func newHost(t *testing.T, name string) *host {
	t.Helper()
	return &host{netns.New(t, name, "touch /run/resolv.conf", "mount --bind /run/resolv.conf /etc/resolv.conf")}
}
