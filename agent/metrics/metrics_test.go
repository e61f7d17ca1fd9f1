package metrics

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/config"
)

func TestApplied(t *testing.T) {
	r := prometheus.NewRegistry()
	m := New(r)
	c := &config.Config{}
	c.Addresses = []netip.Prefix{netip.MustParsePrefix("10.8.0.1/29"), netip.MustParsePrefix("fd00:8::1/126")}
	c.Reservations = map[string][]netip.Addr{
		"vpn/a": {netip.MustParseAddr("10.8.0.2"), netip.MustParseAddr("fd00:8::2")},
		"vpn/b": {netip.MustParseAddr("10.8.0.3")},
		"vpn/c": {netip.MustParseAddr("192.0.2.1")},
	}
	m.Applied(c, time.Unix(1700000000, 0))
	want := `
# HELP wireguard_gateway_config_applied_timestamp_seconds When the configuration in force was applied, in seconds since 1970.
# TYPE wireguard_gateway_config_applied_timestamp_seconds gauge
wireguard_gateway_config_applied_timestamp_seconds 1.7e+09
# HELP wireguard_gateway_pool_addresses Addresses of the pool that peers can have.
# TYPE wireguard_gateway_pool_addresses gauge
wireguard_gateway_pool_addresses{pool="10.8.0.0/29"} 5
wireguard_gateway_pool_addresses{pool="fd00:8::/126"} 2
# HELP wireguard_gateway_pool_addresses_used Addresses of the pool that peers have, on the device or not.
# TYPE wireguard_gateway_pool_addresses_used gauge
wireguard_gateway_pool_addresses_used{pool="10.8.0.0/29"} 2
wireguard_gateway_pool_addresses_used{pool="fd00:8::/126"} 1
`
	err := testutil.GatherAndCompare(r, strings.NewReader(want), "wireguard_gateway_config_applied_timestamp_seconds",
		"wireguard_gateway_pool_addresses", "wireguard_gateway_pool_addresses_used")
	if err != nil {
		t.Error(err)
	}

	// Pools that are gone leave nothing behind.
	c.Addresses = c.Addresses[:1]
	m.Applied(c, time.Now())
	if n, err := testutil.GatherAndCount(r, "wireguard_gateway_pool_addresses"); err != nil || n != 1 {
		t.Errorf("got %d pools, %v, want 1", n, err)
	}
}
