package route

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What gluetun leaves in a pod's main table, and in tables of its own, with
// each type of VPN.
var (
	pod = []string{
		"link add eth0 type veth peer name other", "link set other up",
		"addr add 10.244.0.10/24 dev eth0", "addr add 2001:db8::10/64 dev eth0 nodad", "link set eth0 up",
		"route add default via 10.244.0.1", "-6 route add default via 2001:db8::1",
		"route add default via 10.244.0.1 dev eth0 table 200", "-6 route add default via 2001:db8::1 dev eth0 table 200",
		"rule add pref 100 from 10.244.0.10 table 200", "-6 rule add pref 100 from 2001:db8::10 table 200",
		"link add wg0 type veth peer name peers", "link set peers up",
		"addr add 10.8.0.1/24 dev wg0", "addr add fd00:8::1/64 dev wg0 nodad", "link set wg0 up",
	}
	tun0 = []string{
		"link add tun0 type veth peer name provider", "link set provider up",
		"addr add 10.96.0.2/16 dev tun0", "addr add fd64::1000/64 dev tun0 nodad", "link set tun0 up",
	}
	byWireGuard = []string{
		"route add default dev tun0 table 51820", "-6 route add default dev tun0 table 51820",
		"rule add pref 101 not fwmark 51820 table 51820", "-6 rule add pref 101 not fwmark 51820 table 51820",
	}
	byOpenVPN = []string{
		"route add 198.51.100.10/32 via 10.244.0.1", "route add 0.0.0.0/1 via 10.96.0.1", "route add 128.0.0.0/1 via 10.96.0.1",
	}
	byOpenVPN6 = []string{
		"-6 route add ::/3 dev tun0", "-6 route add 2000::/4 dev tun0", "-6 route add 3000::/4 dev tun0", "-6 route add fc00::/7 dev tun0",
	}
)

// ensureTunnel is what a sync does.
func ensureTunnel(t *testing.T) Tunnel {
	t.Helper()
	found, err := FindTunnel("tun0")
	must(t, err)
	must(t, EnsureRules(TunnelRules("wg0", prefixes("10.8.0.0/24", "fd00:8::/64"), prefixes("10.43.0.0/16", "fd43::/64"), found)))
	must(t, EnsureTunnelRoutes(found))
	return found
}

// way returns by which device a packet leaves, and none where the kernel knows
// no way.
func way(t *testing.T, line string) string {
	t.Helper()
	out, err := tryIP(t, line)
	if err != nil {
		return "none"
	}
	_, device, _ := strings.Cut(out, " dev ")
	return strings.Fields(device)[0]
}

func TestTunnel(t *testing.T) {
	const peer4, peer6 = " from 10.8.0.2 iif wg0", " from fd00:8::2 iif wg0"
	type ways struct{ Peer4, Peer6, Cluster4, Cluster6, Own4, Own6 string }
	closed := ways{"none", "none", "eth0", "eth0", "eth0", "eth0"}
	open := closed
	open.Peer4, open.Peer6 = "tun0", "tun0"
	only4 := closed
	only4.Peer4 = "tun0"
	cases := map[string]struct {
		reason              string
		setup               []string
		main4, main6, found bool
		want                ways
		table               []string
	}{
		"None":      {"without tunnel peers reach the cluster only", nil, false, false, false, closed, nil},
		"Fresh":     {"a device that nothing leads into is no tunnel yet", tun0, false, false, false, closed, nil},
		"Down":      {"nor is one that is not up", slices.Concat(tun0, byOpenVPN, []string{"link set tun0 down"}), false, false, false, closed, nil},
		"WireGuard": {"WireGuard has a table of gluetun's, and ours stays empty", slices.Concat(tun0, byWireGuard), false, false, true, open, nil},
		"OpenVPN": {
			"OpenVPN has routes in the main table, which is no way to the cluster then", slices.Concat(tun0, byOpenVPN, byOpenVPN6),
			true, true, true, open,
			[]string{"default dev tun0 table 51822 proto 86 scope link", "default dev tun0 table 51822 proto 86 metric 1024 pref medium"},
		},
		"OpenVPN4": {
			"a provider without IPv6 gets none", slices.Concat(tun0, byOpenVPN),
			true, false, true, only4,
			[]string{"default dev tun0 table 51822 proto 86 scope link"},
		},
		"OpenVPNDefault": {"some providers replace the default route", slices.Concat(tun0, []string{
			"route add 198.51.100.10/32 via 10.244.0.1", "route del default", "route add default via 10.96.0.1",
		}), true, false, true, only4, []string{"default dev tun0 table 51822 proto 86 scope link"}},
		"ClusterInTunnel": {
			"a provider's network is no way to the cluster, whatever it is", slices.Concat(tun0, byOpenVPN, []string{"route add 10.43.0.0/16 via 10.96.0.1"}),
			true, false, true, only4,
			[]string{"default dev tun0 table 51822 proto 86 scope link"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inNamespace(t)
			ip(t, pod...)
			ip(t, tc.setup...)
			forward(t, "wg0")
			for range 2 {
				got := ensureTunnel(t)
				if (got.Index != 0) != tc.found || got.mainIPv4 != tc.main4 || got.mainIPv6 != tc.main6 {
					t.Errorf("%s: found %+v", tc.reason, got)
				}
			}
			got := ways{
				Peer4: way(t, "route get 203.0.113.10"+peer4), Peer6: way(t, "route get 2001:db8:4::10"+peer6),
				Cluster4: way(t, "route get 10.43.0.10"+peer4), Cluster6: way(t, "route get fd43::10"+peer6),
				Own4: way(t, "route get 192.0.2.14 mark 51820"), Own6: way(t, "route get 2001:db8:101::2 mark 51820"),
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.table, tunnelTableOf(t)); diff != "" {
				t.Errorf("%s: our table: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// tunnelTableOf returns our table of the tunnel, of both families.
func tunnelTableOf(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, l := range words(ip(t, "route show table all")) {
		if strings.Contains(l, "table 51822") {
			out = append(out, l)
		}
	}
	return out
}

// A tunnel comes and goes, and peers have it or nothing.
func TestTunnelComesAndGoes(t *testing.T) {
	inNamespace(t)
	ip(t, pod...)
	ip(t, "route add 192.0.2.1/32 dev other table 51822") // somebody else's
	forward(t, "wg0")
	const theirs = "192.0.2.1 dev other table 51822 scope link"
	before := append(words(ip(t, "rule show")), words(ip(t, "-6 rule show"))...)
	check := func(reason, want string, routes int) {
		t.Helper()
		for _, to := range []string{"203.0.113.10 from 10.8.0.2", "2001:db8:4::10 from fd00:8::2"} {
			if got := way(t, "route get "+to+" iif wg0"); got != want {
				t.Errorf("%s: %s leaves by %s, want %s", reason, to, got, want)
			}
		}
		if got := tunnelTableOf(t); len(got) != routes+1 || !slices.Contains(got, theirs) {
			t.Errorf("%s: our table is %q", reason, got)
		}
	}
	up := slices.Concat(tun0, byOpenVPN, byOpenVPN6)
	ensureTunnel(t)
	check("none yet", "none", 0)
	ip(t, up...)
	check("before a sync", "none", 0)
	ensureTunnel(t)
	check("up", "tun0", 2)
	ip(t, "link del tun0")
	check("the device is gone", "none", 0)
	ip(t, slices.Concat(tun0, byOpenVPN[1:], byOpenVPN6)...) // a killed OpenVPN leaves the first
	check("another device, before a sync", "none", 0)
	ensureTunnel(t)
	check("another device", "tun0", 2)
	// OpenVPN takes its routes away ahead of the device.
	ip(t, "route del 0.0.0.0/1", "route del 128.0.0.0/1", "-6 route del ::/3", "-6 route del 2000::/4", "-6 route del 3000::/4", "-6 route del fc00::/7")
	ensureTunnel(t)
	check("nothing leads into it", "none", 0)
	ip(t, slices.Concat(byOpenVPN[1:], byOpenVPN6)...)
	ensureTunnel(t)
	ip(t, byWireGuard...)
	ensureTunnel(t)
	check("gluetun has its own", "tun0", 0)
	ip(t, "rule del pref 101", "-6 rule del pref 101", "route flush table 51820", "-6 route flush table 51820")
	ensureTunnel(t)
	check("it has none again", "tun0", 2)

	must(t, EnsureRules(nil))
	must(t, EnsureTunnelRoutes(Tunnel{}))
	if got := tunnelTableOf(t); len(got) != 1 {
		t.Errorf("removed: our table is %q", got)
	}
	if diff := cmp.Diff(before, append(words(ip(t, "rule show")), words(ip(t, "-6 rule show"))...)); diff != "" {
		t.Errorf("removed: rules, -want, +got:\n%s", diff)
	}
}

// What OpenVPN does with the default route makes its tunnel no uplink.
func TestFindUplinkBesideTunnel(t *testing.T) {
	inNamespace(t)
	ip(t, pod...)
	ip(t, tun0...)
	ip(t, "route del default", "route add default via 10.96.0.1")
	got, err := FindUplink("wg0", "tun0")
	must(t, err)
	want := Uplink{IPv6: "eth0", MTU: 1500, Addresses: addrs("10.244.0.10", "2001:db8::10")}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// forward makes the kernel forward what comes in by a device, of both families.
func forward(t *testing.T, device string) {
	t.Helper()
	_, err := EnsureForwarding(device)
	must(t, err)
	command(t, "sysctl", "-qw", "net.ipv6.conf.all.forwarding=1")
}

// The server of an OpenVPN chooses a network, which may be the gateway's.
func TestTunnelClash(t *testing.T) {
	cases := map[string]struct {
		reason string
		setup  []string
		want   string
	}{
		"None":      {"there is no tunnel", nil, "invalid Prefix"},
		"Other":     {"the tunnel has a network of its own", slices.Concat(tun0, byOpenVPN), "invalid Prefix"},
		"Same":      {"OpenVPN's routes lead to the gateway's device", slices.Concat(tun0, []string{"addr add 10.8.0.7/24 dev tun0"}), "10.8.0.0/24"},
		"Same6":     {"IPv6 is no other", slices.Concat(tun0, byOpenVPN, []string{"addr add fd00:8::7/48 dev tun0 nodad"}), "fd00:8::/48"},
		"Within":    {"peers' answers would go into the tunnel", slices.Concat(tun0, byOpenVPN, []string{"addr add 10.8.0.130/25 dev tun0"}), "10.8.0.128/25"},
		"Wide":      {"a wider one leaves peers theirs, where OpenVPN's routes are by its device", slices.Concat(tun0, byOpenVPN, []string{"addr add 10.8.9.7/16 dev tun0"}), "invalid Prefix"},
		"Single":    {"a single address has no network", slices.Concat(tun0, []string{"addr add 10.8.0.7/32 dev tun0"}), "invalid Prefix"},
		"WireGuard": {"gluetun's table leads by the device, whatever its network", slices.Concat(tun0, byWireGuard, []string{"addr add 10.8.0.7/24 dev tun0"}), "invalid Prefix"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inNamespace(t)
			ip(t, pod...)
			ip(t, tc.setup...)
			found, err := FindTunnel("tun0")
			must(t, err)
			if got := found.Clash(prefixes("10.8.0.1/24", "fd00:8::1/64")).String(); got != tc.want {
				t.Errorf("%s: want %s, got %s", tc.reason, tc.want, got)
			}
		})
	}
}
