package dataplane

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// many is about as many peers as one Secret carries.
const many = 2000

func manyPeers(n int) []wireguard.Peer {
	peers := make([]wireguard.Peer, n)
	for i := range peers {
		// Addresses that are no neighbours, as the function hands them out.
		p := testPeer(i+1, testKey("many", i))
		p.Addresses = []netip.Addr{
			netip.AddrFrom4([4]byte{10, 8, byte(1 + i/120), byte(2*(i%120) + 1)}),
			netip.AddrFrom16([16]byte{0: 0xfd, 3: 8, 13: 1, 14: byte(i / 120), 15: byte(2*(i%120) + 1)}),
		}
		psk := testKey("psk", i)
		p.PresharedKey = &psk
		peers[i] = p
	}
	return peers
}

// A sync of 2,000 peers takes no more than twice as long as wg(8) needs to give
// them to the same device, and a sync of one peer among them is a matter of its
// own size. Where each has access rules of its own, which wg(8) knows nothing
// of, the firewall is the larger part, and only the second holds.
func TestManyPeers(t *testing.T) {
	w := newWorld(t)
	peers := manyPeers(many)
	config := func(peers []wireguard.Peer) wireguard.GatewayConfig {
		c := configWith(peers...)
		c.Addresses = prefixes("10.8.0.1/16", "fd00:8::1/64")
		return c
	}
	for _, access := range []string{"WithoutRules", "RulesOfTheirOwn"} {
		t.Run(access, func(t *testing.T) {
			peers := slices.Clone(peers)
			if access == "RulesOfTheirOwn" {
				for i := range peers {
					peers[i].Access = []wireguard.AccessRule{rule(wireguard.Accept, "", wireguard.ProtocolTCP, fmt.Sprint(1+i))}
				}
			}
			a := w.startAgent(config(nil))
			defer a.Kill()
			idle := rss(t, a)

			// The best of each, since anything else on the machine only adds.
			const never = time.Hour
			standard, full, single := never, never, never
			for range 3 {
				a.apply(config(nil))
				w.emptyDevice(t)
				standard = min(standard, w.syncconf(t, peers))
				w.gateway.Run("wg syncconf wg0 /run/none.conf")
				w.emptyDevice(t)
				full = min(full, a.syncTime(config(peers)))
				for range 4 {
					single = min(single, a.syncTime(config(peers[:many-1])), a.syncTime(config(peers)))
				}
			}
			t.Logf("%d peers: agent %s, wg syncconf %s (%.2f); one peer %s (1/%.0f); memory %d MiB, without peers %d MiB",
				many, full, standard, full.Seconds()/standard.Seconds(), single, full.Seconds()/single.Seconds(), rss(t, a), idle)
			if got := strings.Count(w.gateway.Run("wg show wg0 peers"), "\n"); got != many {
				t.Errorf("the device has %d peers, want %d", got, many)
			}
			if access == "WithoutRules" && full > 2*standard {
				t.Errorf("the sync took %s, more than twice the %s of wg syncconf", full, standard)
			}
			// What is measured is about 1/22: who had which address, and what they may
			// reach, is compared for all of them.
			if single > full/15 {
				t.Errorf("the change of one peer took %s, more than 1/15 of the %s of all", single, full)
			}
		})
	}
}

// emptyDevice waits until the device has no peers.
func (w *world) emptyDevice(t *testing.T) {
	t.Helper()
	netns.WaitFor(t, limit, "an empty device", func() error {
		if out := w.gateway.Run("wg show wg0 peers"); out != "" {
			return fmt.Errorf("%d peers", strings.Count(out, "\n"))
		}
		return nil
	})
}

// syncTime applies a configuration and returns how long it took from its
// arrival, as the agent measures it.
func (a *agent) syncTime(c wireguard.GatewayConfig) time.Duration {
	a.T.Helper()
	const sum = `wireguard_gateway_sync_duration_seconds_sum{cause="config"}`
	before := a.metric(sum)
	a.apply(c)
	return time.Duration((a.metric(sum) - before) * float64(time.Second))
}

// syncconf gives the peers to the device with wg(8), and returns how long that
// takes.
func (w *world) syncconf(t *testing.T, peers []wireguard.Peer) time.Duration {
	t.Helper()
	head := fmt.Sprintf("[Interface]\nPrivateKey = %s\nListenPort = 51820\nFwMark = 51820\n", serverKey)
	w.gateway.Write("none.conf", head)
	b := &strings.Builder{}
	b.WriteString(head)
	for _, p := range peers {
		fmt.Fprintf(b, "[Peer]\nPublicKey = %s\nPresharedKey = %s\nAllowedIPs = %s/32, %s/128\n", p.PublicKey, p.PresharedKey, p.Addresses[0], p.Addresses[1])
	}
	w.gateway.Write("many.conf", b.String())
	start := time.Now()
	w.gateway.Run("wg syncconf wg0 /run/many.conf")
	return time.Since(start)
}

// rss returns the resident memory of the agent, in MiB.
func rss(t *testing.T, a *agent) int {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.Cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), "VmRSS:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kib / 1024
}
