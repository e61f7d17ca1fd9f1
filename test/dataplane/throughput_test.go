package dataplane

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
)

// The agent's gateway passes what plain wireguard-go passes with rules that
// were written by hand. Both stand side by side, and take turns.
func TestThroughput(t *testing.T) {
	const want, rounds, each = 0.95, 6, 3 * time.Second
	w := newWorld(t)
	w.server.iperf(5201)
	c := w.client(1)
	w.startAgent(configWith(c.peer))
	c.up()

	plain := w.attach("plain", "10.245.0.10/24", "10.245.0.1/24", "2001:db8:20::10/64", "2001:db8:20::1/64")
	other := w.client(2)
	plain.Sysctl("net.ipv4.ip_forward=1")
	plain.Write("wg0.conf", fmt.Sprintf("[Interface]\nPrivateKey = %s\nListenPort = 51820\n[Peer]\nPublicKey = %s\nAllowedIPs = 10.8.0.3/32\n", serverKey, other.peer.PublicKey))
	plain.Start("env", "LOG_LEVEL=error", wireguardGoBinary, "-f", "wg0")
	netns.WaitFor(t, limit, "wireguard-go", func() error {
		_, err := plain.Try("wg", "setconf", "wg0", "/run/wg0.conf")
		return err
	})
	for _, l := range []string{"ip addr add 10.8.0.1/24 dev wg0", "ip link set wg0 mtu 1420 up"} {
		plain.Run(l)
	}
	plain.NFT(`table ip plain { chain p { type nat hook postrouting priority 100; ip saddr 10.8.0.0/24 oifname "eth0" masquerade; }; }`)
	cc := other.clientConfig()
	cc.Endpoint = "10.245.0.10:51820"
	cc.Addresses = []netip.Prefix{netip.MustParsePrefix("10.8.0.3/32")}
	other.upWith(cc)

	// The best of each, since anything else on the machine only takes away.
	var agent, standard float64
	for round := range rounds {
		agent = max(agent, c.transfer(server4, 5201, each)().End.Received.BitsPerSecond)
		standard = max(standard, other.transfer(server4, 5201, each)().End.Received.BitsPerSecond)
		t.Logf("agent %.0f Mbit/s, plain wireguard-go %.0f Mbit/s: %.2f", agent/1e6, standard/1e6, agent/standard)
		if round > 0 && agent >= want*standard {
			return
		}
	}
	t.Errorf("the agent's gateway passes %.2f of plain wireguard-go, want %.2f", agent/standard, want)
}
