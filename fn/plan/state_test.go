package plan

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// peerStatuses are those of active peers with the given addresses, by name,
// separated by spaces.
func peerStatuses(addresses map[string]string) []v1alpha1.PeerStatus {
	var out []v1alpha1.PeerStatus
	for name, ips := range addresses {
		out = append(out, v1alpha1.PeerStatus{Name: name, Namespace: "vpn", State: v1alpha1.PeerActive, Addresses: strings.Fields(ips)})
	}
	return out
}

// reservations are a configuration that knows of addresses only.
func reservations(t *testing.T, addresses map[string]string) []byte {
	t.Helper()
	if addresses == nil {
		return nil
	}
	c := wireguard.GatewayConfig{Reservations: map[string][]netip.Addr{}}
	for name, ips := range addresses {
		c.Reservations["vpn/"+name] = mustAddrs(strings.Fields(ips)...)
	}
	b, err := c.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func mustAddrs(ss ...string) []netip.Addr {
	out := make([]netip.Addr, 0, len(ss))
	for _, s := range ss {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}
