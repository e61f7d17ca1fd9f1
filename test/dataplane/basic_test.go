package dataplane

import (
	"strings"
	"testing"
)

// pings tells how many of three pings to an address were answered.
func (h *host) pings(address string) int {
	h.T.Helper()
	out, _ := h.Try("ping", "-n", "-c3", "-i0.2", "-W5", address)
	return strings.Count(out, "bytes from")
}

// Clients reach the internet with the configuration that they were given, by
// IPv4 and IPv6, and are seen there as the gateway.
func TestClientToInternet(t *testing.T) {
	w := newWorld(t)
	c := w.client(1)
	a := w.startAgent(configWith(c.peer))
	c.up()
	for _, address := range []string{server4, server6, "10.8.0.1", "fd00:8::1"} {
		if got := c.pings(address); got != 3 {
			t.Errorf("%d of 3 pings to %s were answered", got, address)
		}
	}
	for family, address := range map[string]struct{ server, gateway string }{"4": {server4, gateway4}, "6": {"[" + server6 + "]", "[" + gateway6 + "]"}} {
		l := w.server.listen(address.server + ":7000")
		seen := make(chan string, 1)
		go func() {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			seen <- conn.RemoteAddr().String()
			_ = conn.Close()
		}()
		conn, err := c.dial("tcp"+family, address.server+":7000")
		if err != nil {
			t.Errorf("IPv%s: %v", family, err)
			continue
		}
		_ = conn.Close()
		if got := <-seen; !strings.HasPrefix(got, address.gateway+":") {
			t.Errorf("IPv%s: the server sees %s, want the gateway's %s", family, got, address.gateway)
		}
	}
	if t.Failed() {
		t.Log(a.Out, w.gateway.Run("nft list ruleset"), w.gateway.Run("wg show"), c.Run("wg show"), c.Run("ip rule"))
	}
}
