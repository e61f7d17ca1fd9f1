package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
)

// TestNobodyMoves walks through lives of a gateway: whatever happens to others,
// a peer keeps its addresses while it is there, unless it gets what it pins.
func TestNobodyMoves(t *testing.T) {
	for _, pools := range []string{
		"peerCIDR: 10.8.0.0/26", "peerCIDR: 10.8.0.0/24", "peerCIDR: 10.0.0.0/8",
		`peerCIDR: 10.8.0.0/26, peerCIDRv6: "fd00:8::/64"`, `peerCIDR: 10.8.0.0/27, peerCIDRv6: "fd00:8::/122"`,
	} {
		for life := range uint64(5) {
			r := splitmix{life}
			had := map[string]string{}
			pins := map[string]string{}
			var g *Gateway
			for step := range 20 {
				// Whoever the dice name is there, in an order that they name.
				var peers []string
				for i := range 40 {
					if r.next()%3 == 0 {
						continue
					}
					name := fmt.Sprintf("p%d", i)
					if r.next()%10 == 0 {
						pins[name] = ""
						if r.next()%3 > 0 {
							pins[name] = fmt.Sprintf("10.8.0.%d", 2+r.next()%29)
						}
					}
					p := "{name: " + name
					if pins[name] != "" {
						p += ", addresses: [" + pins[name] + "]"
					}
					if r.next()%5 == 0 {
						p += ", disabled: true"
					}
					peers = append(peers, p+"}")
				}
				for i := range peers {
					j := int(r.next() % uint64(i+1))
					peers[i], peers[j] = peers[j], peers[i]
				}
				in := inputs(t, "{"+pools+", peers: ["+strings.Join(peers, ", ")+"]}")
				if g != nil {
					in.Status, in.ObservedConfig = statusOf(g), configOf(t, g)
					// One of them is lost now and then, which must not matter.
					switch r.next() % 4 {
					case 0:
						in.Status = &v1alpha1.WireguardGatewayStatus{}
					case 1:
						in.ObservedConfig = nil
					}
				}
				g = planned(t, in)
				got := addressesOf(g)
				seen := map[string]string{}
				for name, ips := range got {
					for before := range strings.FieldsSeq(had[name]) {
						if now := strings.Fields(ips); !slices.Contains(now, before) && !slices.Contains(now, pins[name]) {
							t.Fatalf("%s, life %d, step %d: %s moved from %s to %q", pools, life, step, name, had[name], ips)
						}
					}
					for ip := range strings.FieldsSeq(ips) {
						if other, ok := seen[ip]; ok {
							t.Fatalf("%s, life %d, step %d: %s and %s share %s", pools, life, step, name, other, ip)
						}
						seen[ip] = name
					}
				}
				had = got
			}
		}
	}
}

// TestLossOfAllState holds that nearly all addresses come back by their hashes
// alone, in a pool with room to spare.
func TestLossOfAllState(t *testing.T) {
	var all []string
	for i := range 1000 {
		all = append(all, fmt.Sprintf("peer-%d", i))
	}
	const pool = "peerCIDR: 10.0.0.0/8\n"
	before := addressesOf(planned(t, inputs(t, pool+peersSpec(all...))))
	// A quarter of them goes, and the state with them.
	after := addressesOf(planned(t, inputs(t, pool+peersSpec(all[250:]...))))
	moved := 0
	for name, ip := range after {
		if before[name] != ip {
			moved++
		}
	}
	if moved > 7 {
		t.Errorf("want at most 1 in 100 to move, got %d of %d", moved, len(after))
	}
}

func TestReservations(t *testing.T) {
	g := planned(t, inputs(t, `{peers: [{name: laptop}, {name: phone, disabled: true}, {name: tablet, privateKeySecretRef: {name: none}}]}`))
	want := map[string][]string{}
	for name, ip := range addressesOf(g) {
		want["vpn/"+name] = []string{ip}
	}
	got := map[string][]string{}
	for id, ips := range g.Config().Reservations {
		for _, ip := range ips {
			got[id] = append(got[id], ip.String())
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("every peer with an address has it reserved: -want, +got:\n%s", diff)
	}
	if len(g.Config().Peers) != 1 {
		t.Errorf("want one peer on the device, got %d", len(g.Config().Peers))
	}
}
