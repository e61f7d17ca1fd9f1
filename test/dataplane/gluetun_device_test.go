package dataplane

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// A new device does not forward IPv4 before the agent has told it to. The agent
// does so when the network changes, but no more than once a second, and may
// find out before that the new tunnel answers: it is not ready in between.
func TestGluetunNewDevice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.provider()
	w.server.echo(443)
	e := newEgressGateway(t)
	e.write(w.gateway)
	g := w.newGluetun(e.env(), e.file(wireguard.PostRulesKey))
	// For now nobody answers the agent through the tunnel.
	p.NFT("table inet silent { chain f { type filter hook forward priority 0; ip daddr { 1.1.1.1, 8.8.8.8 } drop; meta nfproto ipv6 drop; }; }")
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	one, two := p.count("wgp0", "ip daddr 1.1.1.1 tcp dport 443"), p.count("wgp0", "ip daddr 8.8.8.8 tcp dport 443")
	a := w.runAgent()
	a.refuses(t, "not up yet")

	// It asks both in turn, and waits three seconds for each. Within the last of
	// them gluetun starts another tunnel, which answers.
	asked := func(count func() int) {
		t.Helper()
		before := count()
		netns.WaitFor(t, limit, "the agent to ask", func() error {
			if n := count(); n == before {
				return fmt.Errorf("still %d packets", n)
			}
			return nil
		})
	}
	asked(one)
	asked(two)
	time.Sleep(2300 * time.Millisecond)
	g.stop()
	p.Run("nft delete table inet silent")
	if err := g.up(); err != nil {
		t.Fatal(err)
	}
	netns.WaitFor(t, limit, "readiness", func() error {
		code, body, err := a.get("/readyz")
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})
	if got := g.Run("cat /proc/sys/net/ipv4/conf/tun0/forwarding"); got != "1\n" {
		t.Errorf("the agent is ready, and forwarding by the new device is %s", got)
	}
}
