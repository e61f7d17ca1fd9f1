package dataplane

import (
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
)

// The agent is killed under traffic and started again: the firewall stays, and
// clients that were connected notice next to nothing, since the gateway calls
// them.
//
// Clients call too, and not only when they have heard nothing for 15 s: one whose
// handshake was answered before its timer was set calls again 5 s later. That
// would hide whether the gateway calls, so that calls of clients are dropped.
func TestKillAndRestart(t *testing.T) {
	const away = 5 * time.Second // far longer than clients notice
	for _, restore := range []bool{true, false} {
		name := "Restore"
		if !restore {
			name = "WithoutEndpoints"
		}
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.server.echo(7000)
			c := w.client(1)
			on := configWith(c.peer)
			a := w.startAgent(on)
			const call = "udp dport 51820 @th,64,8 1" // a handshake initiation
			calls := w.router.count("r-client1", call)
			c.up()
			b := c.Beacon(server4, 7000)
			b.Answered(t, time.Now())
			if calls() == 0 {
				t.Fatal("the client is connected, and no call of it was seen")
			}
			w.router.NFT(`table netdev mute { chain ingress { type filter hook ingress device "r-client1" priority 0; ` + call + ` drop; }; }`)
			time.Sleep(1500 * time.Millisecond) // for the agent to see where the client is
			inClear := w.peersInClear()
			table := w.gateway.Run("nft -s list table inet wireguard_gateway")

			killed := time.Now()
			a.Kill()
			if got := w.gateway.Run("nft -s list table inet wireguard_gateway"); got != table {
				t.Errorf("the firewall is another after the kill:\n%s", got)
			}
			if !restore {
				w.gateway.Exec("rm", "/var/lib/wireguard-gateway/endpoints.json")
			}
			a = w.runAgent()
			a.waitReady(on)
			back := time.Now()
			if restore {
				b.Answered(t, back)
			} else {
				time.Sleep(away)
			}
			_, gap := b.End(killed)
			t.Logf("ready after %s, longest time without answer %s", back.Sub(killed), gap)
			switch {
			case restore && gap > time.Second:
				t.Errorf("clients had no answer for %s", gap)
			case !restore && gap < away:
				// The negative control: this is what the file is for.
				t.Errorf("clients were back after %s without any endpoint: the test shows nothing", gap)
			}
			if n := inClear(); n != 0 {
				t.Errorf("%d packets left with a peer's own address", n)
			}
			if restore {
				// The keepalive that wakes clients is not left on.
				netns.WaitFor(t, limit, "the configured keepalive", func() error {
					return want(w.gateway.Run("wg show wg0 persistent-keepalive"), "off")
				})
			}
		})
	}
}

// Whenever the agent is killed, also within its first moments, the firewall is
// there if the device is, no packet leaves as it should not, and the next
// agent puts everything right.
func TestKillAnyMoment(t *testing.T) {
	w := newWorld(t)
	w.server.echo(7000)
	c := w.client(1)
	on := configWith(c.peer)
	w.gateway.Write("config/config.json", encode(t, on))
	c.up()
	b := c.Beacon(server4, 7000)
	inClear := w.peersInClear()
	random := rand.New(rand.NewPCG(3, 3))
	for range 15 {
		a := w.runAgent()
		time.Sleep(time.Duration(random.IntN(250)) * time.Millisecond)
		_, noDevice := w.gateway.Try("ip", "link", "show", "wg0")
		if _, noTable := w.gateway.Try("nft", "list", "table", "inet", "wireguard_gateway"); noDevice == nil && noTable != nil {
			t.Error("the device was there before the firewall")
		}
		a.Signal(syscall.SIGKILL)
		<-a.Done
	}
	a := w.runAgent()
	a.waitReady(on)
	// No agent lived long enough to see where the client is, so that the
	// client has to notice by itself.
	b.Answered(t, time.Now())
	c.expect(t, "after all", map[string]bool{"udp " + server4 + " 7000": true, "udp " + server6 + " 7000": true})
	if n := inClear(); n != 0 {
		t.Errorf("%d packets left with a peer's own address", n)
	}
}

// The agent ends at once when it is told to, and leaves the firewall.
func TestStop(t *testing.T) {
	w := newWorld(t)
	a := w.startAgent(configWith(w.client(1).peer))
	start := time.Now()
	a.Signal(syscall.SIGTERM)
	a.Wait(limit)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	w.gateway.Run("nft list table inet wireguard_gateway")
	w.gateway.Exec(agentBinary, "remove")
	if out, err := w.gateway.Try("nft", "list", "table", "inet", "wireguard_gateway"); err == nil {
		t.Errorf("the firewall is still there after it was removed:\n%s", out)
	}
}
