package gateway

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/config"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/route"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/tunnel"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

func TestMissingFiles(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"openvpn-user": "u", "openvpn-password": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cases := map[string]struct {
		reason string
		dir    string
		needed []string
		want   []string
	}{
		"None":    {"nothing is needed", dir, nil, nil},
		"There":   {"what is there is not missing", dir, []string{"openvpn-user"}, nil},
		"Empty":   {"gluetun cannot use an empty one", dir, []string{"openvpn-user", "openvpn-password"}, []string{"openvpn-password"}},
		"Missing": {"nor one that is not there", dir, []string{"wireguard-private-key", "openvpn-user"}, []string{"wireguard-private-key"}},
		"NoDir":   {"without Secret all of them are missing", filepath.Join(dir, "none"), []string{"openvpn-user"}, []string{"openvpn-user"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, missingFiles(tc.dir, tc.needed)); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// The states in which nothing passes. That of a tunnel that is up needs a
// tunnel, so the tests of the data plane have it.
func TestTunnelState(t *testing.T) {
	gone := tunnel.Seen{Device: 1 << 30, Up: true}
	missing := []string{"no-such-file"}
	cases := map[string]struct {
		reason  string
		gateway gateway
		needs   []string
		state   string
		says    string
	}{
		"Starting":    {"it was never up", gateway{}, nil, wireguard.EgressTunnelStarting, "is not up yet"},
		"Down":        {"it was up", gateway{tunnelUp: true}, nil, wireguard.EgressTunnelDown, "is down"},
		"Gone":        {"what was seen of a device says nothing without it", gateway{tunnelUp: true, seen: gone}, nil, wireguard.EgressTunnelDown, "is down"},
		"Credentials": {"without credentials it cannot come up", gateway{}, missing, wireguard.EgressCredentialsMissing, "credentials lack no-such-file"},
		"TakenAway":   {"nor can it come back", gateway{tunnelUp: true}, missing, wireguard.EgressCredentialsMissing, "credentials lack no-such-file"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := &config.Config{}
			c.Egress.Credentials = tc.needs
			state, says := tc.gateway.tunnelState(c)
			if state != tc.state || !strings.Contains(says, tc.says) {
				t.Errorf("%s: want %s and %q, got %s and %q", tc.reason, tc.state, tc.says, state, says)
			}
		})
	}
}

// A gateway of which nothing can leave is not ready. One of which something
// can says what cannot.
func TestNoWayOut(t *testing.T) {
	const pool4, pool6 = "10.8.0.1/24", "fd00:8::1/64"
	eth4, eth6, both := route.Uplink{IPv4: "eth0"}, route.Uplink{IPv6: "eth0"}, route.Uplink{IPv4: "eth0", IPv6: "eth0"}
	site := func(n string) func(*config.Config) {
		return func(c *config.Config) {
			c.Peers = []wireguard.Peer{{Routes: []netip.Prefix{netip.MustParsePrefix(n)}}}
		}
	}
	cases := map[string]struct {
		reason string
		pools  []string
		change func(*config.Config)
		uplink route.Uplink
		want   string   // part of why it is not ready
		limits []string // parts of what it says all the same
	}{
		"IPv4":        {"the usual", []string{pool4}, nil, eth4, "", nil},
		"IPv6":        {"a cluster with IPv6 only", []string{pool6}, nil, eth6, "", nil},
		"Both":        {"both of both", []string{pool4, pool6}, nil, both, "", nil},
		"More":        {"nobody needs the other family", []string{pool6}, nil, both, "", nil},
		"None":        {"no way at all", []string{pool4}, nil, route.Uplink{}, "the pod has no default route", nil},
		"NoneOfBoth":  {"nor for both", []string{pool4, pool6}, nil, route.Uplink{}, "the pod has no default route", nil},
		"OnlyIPv4":    {"the way is the other family's", []string{pool4}, nil, eth6, "no IPv4 default route, and the gateway no IPv6 pool", nil},
		"OnlyIPv6":    {"either way", []string{pool6}, nil, eth4, "no IPv6 default route, and the gateway no IPv4 pool", nil},
		"OneOfBoth":   {"one of both pools has a way", []string{pool4, pool6}, nil, eth4, "", []string{"no IPv6 default route"}},
		"OtherOfBoth": {"or the other", []string{pool4, pool6}, nil, eth6, "", []string{"no IPv4 default route"}},
		"Site":        {"a site's network of the other family has one", []string{pool6}, site("172.16.0.0/16"), eth4, "", []string{"no IPv6 default route"}},
		"SameSite":    {"one of the same has not", []string{pool6}, site("fd00:9::/64"), eth4, "no IPv6 default route", nil},
		"Pods":        {"pods have the families of the cluster", []string{pool6}, func(c *config.Config) { c.PodClasses = make([]wireguard.PodClass, 1) }, eth4, "", []string{"no IPv6 default route"}},
		"Among":       {"peers have each other", []string{pool6}, func(c *config.Config) { c.PeerToPeer = true }, eth4, "", []string{"no IPv6 default route"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := &config.Config{}
			c.Egress.Mode = wireguard.EgressDirect
			for _, p := range tc.pools {
				c.Addresses = append(c.Addresses, netip.MustParsePrefix(p))
			}
			if tc.change != nil {
				tc.change(c)
			}
			if got := noWayOut(c, tc.uplink); (got != "") != (tc.want != "") || !strings.Contains(got, tc.want) {
				t.Errorf("%s: not ready for %q, want %q", tc.reason, got, tc.want)
			}
			got := limits(c, tc.uplink)
			if len(got) != len(tc.limits) {
				t.Fatalf("%s: says %q, want %q", tc.reason, got, tc.limits)
			}
			for i, want := range tc.limits {
				if !strings.Contains(got[i], want) {
					t.Errorf("%s: says %q, want %q", tc.reason, got[i], want)
				}
			}
		})
	}
}
