package gateway

import (
	"net/netip"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/config"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/metrics"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/route"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// What leaves without masquerade shows the peer's own address, but there is also
// what needs none.
func TestShown(t *testing.T) {
	cases := map[string]struct {
		reason   string
		to, back string // who answers, and where answers go to
		want     bool
	}{
		"Masqueraded": {"answers go to the gateway", "203.0.113.10", "10.244.0.10", false},
		"Own":         {"answers go to an address that nobody knows outside", "203.0.113.10", "10.8.0.2", true},
		"OwnIPv6":     {"or should not know", "2001:db8::1", "fd00:8::2", true},
		"Peer":        {"peers talk to each other with their own", "10.8.0.3", "10.8.0.2", false},
		"Route":       {"and to the network behind one", "192.168.50.1", "10.8.0.2", false},
		"Resolver":    {"the gateway answers by itself", "10.8.0.1", "10.8.0.2", false},
		"Gateway":     {"whatever its address", "10.244.0.10", "10.8.0.2", false},
	}
	c := &config.Config{GatewayConfig: wireguard.GatewayConfig{
		Addresses: []netip.Prefix{netip.MustParsePrefix("10.8.0.1/24"), netip.MustParsePrefix("fd00:8::1/64")},
		Peers:     []wireguard.Peer{{Routes: []netip.Prefix{netip.MustParsePrefix("192.168.50.0/24")}}},
	}}
	own := []netip.Addr{netip.MustParseAddr("10.244.0.10")}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			source := netip.MustParseAddr("10.8.0.2")
			to, back := netip.MustParseAddr(tc.to), netip.MustParseAddr(tc.back)
			if to.Is6() {
				source = netip.MustParseAddr("fd00:8::2")
			}
			f := route.Flow{Ends: [4]netip.Addr{source, to, to, back}, Source: source, Destination: netip.AddrPortFrom(to, 443)}
			if got := shown(f, c, accessByNetwork(c), own); got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
}

// A second look at everything follows a firewall that was gone.
func TestForgetAgain(t *testing.T) {
	now := time.Unix(1000, 0)
	g := &gateway{access: accessByNetwork(&config.Config{}), next: schedule{forget: now.Add(forgetAfter)}}
	if got := g.next.earliest(); !got.Equal(now.Add(forgetAfter)) {
		t.Errorf("want it after %s, got it after %s", forgetAfter, got.Sub(now))
	}
	for _, tc := range []struct {
		at      time.Time
		cause   string
		checked bool // what peers may open is known to be so
	}{{now, "", true}, {now.Add(forgetAfter), metrics.CauseDrift, false}, {now.Add(time.Hour), "", false}} {
		if got := g.cause(tc.at); got != tc.cause || (g.access.values != nil) != tc.checked {
			t.Errorf("after %s: got cause %q, and known access %t", tc.at.Sub(now), got, g.access.values != nil)
		}
	}
}
