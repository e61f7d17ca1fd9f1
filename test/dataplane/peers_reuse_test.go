package dataplane

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// pushed counts what a client gets of the pusher.
func (c *client) pushed() func() int {
	return c.count("wgc0", fmt.Sprintf("udp sport %d", pushPort))
}

// talk opens a TCP connection that echoes. What it returns uses it once.
func (h *host) talk(address string) func() error {
	h.T.Helper()
	conn, err := h.dial("tcp", address)
	if err != nil {
		h.T.Fatal(err)
	}
	h.T.Cleanup(func() { _ = conn.Close() })
	return func() error {
		_ = conn.SetDeadline(time.Now().Add(limit))
		return exchange(conn)
	}
}

// The address of a peer passes to another: it gets nothing that is meant for the
// one before. Others notice nothing.
func TestPeerAddressPasses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		others bool // keep their connections
		route  bool // is what the other gets
		pass   func(w *world, a *agent, on wireguard.GatewayConfig)
	}{
		"AtOnce": {"one goes and the other comes in one configuration", true, false, func(_ *world, a *agent, on wireguard.GatewayConfig) {
			a.apply(on)
		}},
		"Route": {"the other has it as the network behind it", true, true, func(_ *world, a *agent, on wireguard.GatewayConfig) {
			a.apply(on)
		}},
		"Unseen": {"the agent was away meanwhile", true, false, func(w *world, a *agent, on wireguard.GatewayConfig) {
			time.Sleep(1500 * time.Millisecond) // for the agent to see where the clients are
			a.Kill()
			a.write(encode(w.t, on))
			w.runAgent().waitReady(on)
		}},
		"Unknown": {"and nobody knows who had it", false, false, func(w *world, a *agent, on wireguard.GatewayConfig) {
			a.Kill()
			w.gateway.Run("rm /var/lib/wireguard-gateway/owners")
			a.write(encode(w.t, on))
			w.runAgent().waitReady(on)
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.server.echo(443)
			w.pusher()
			from, to, other := w.client(1), w.client(2), w.client(3)
			if tc.route {
				to.peer.Routes = from.peer.AllowedIPs()
			} else {
				to.peer.Addresses = from.peer.Addresses
			}
			a := w.startAgent(configWith(from.peer, other.peer))
			from.up()
			other.up()
			goesOn := other.talk(net.JoinHostPort(server4, "443"))
			from.call()
			tc.pass(w, a, configWith(to.peer, other.peer))
			to.up()
			got := to.pushed()
			to.expect(t, tc.reason, map[string]bool{"tcp " + server4 + " 443": true, "tcp " + server6 + " 443": true})
			time.Sleep(time.Second)
			if n := got(); n != 0 {
				t.Errorf("%s: the new peer got %d packets of the old one", tc.reason, n)
			}
			if tc.others {
				if err := goesOn(); err != nil {
					t.Errorf("%s: a connection of another peer has ended: %v", tc.reason, err)
				}
			}
			// It would get what is its own.
			to.call()
			if got() == 0 {
				t.Error("the counter counts nothing")
			}
		})
	}
}

// A peer with another key is the same peer: its connections go on.
func TestPeerKeyRotates(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.server.echo(443)
	w.pusher()
	c := w.client(1)
	a := w.startAgent(configWith(c.peer))
	c.up()
	c.call()
	c.down()
	c.key = testKey("client", 7)
	c.peer.PublicKey = c.key.Public()
	a.apply(configWith(c.peer))
	c.up()
	got := c.pushed()
	c.expect(t, "with another key", map[string]bool{"tcp " + server4 + " 443": true})
	netns.WaitFor(t, limit, "more of what the server pushes", func() error {
		if got() == 0 {
			return fmt.Errorf("nothing")
		}
		return nil
	})
}
