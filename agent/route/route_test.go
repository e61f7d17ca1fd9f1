package route

import (
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
)

// inNamespace runs the test in a network namespace of its own, in which lo is up.
func inNamespace(t *testing.T) {
	t.Helper()
	netns.Enter(t)
	ip(t, "link set lo up")
}

// ip runs ip(8) with each line.
func ip(t *testing.T, lines ...string) string {
	t.Helper()
	all := ""
	for _, l := range lines {
		out, err := tryIP(t, l)
		if err != nil {
			t.Fatalf("ip %s: %v\n%s", l, err, out)
		}
		all += out
	}
	return all
}

// tryIP runs ip(8) once.
func tryIP(t *testing.T, line string) (string, error) {
	t.Helper()
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs ip, of package iproute2")
	}
	b, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput()
	return string(b), err
}

// must fails the test on an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func prefixes(ss ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range ss {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// words normalises the output of ip(8).
func words(s string) []string {
	var out []string
	for l := range strings.Lines(s) {
		out = append(out, strings.Join(strings.Fields(l), " "))
	}
	return out
}

func TestFindUplink(t *testing.T) {
	cases := map[string]struct {
		reason string
		setup  []string
		want   Uplink
	}{
		"None": {"a namespace without routes has no uplink", nil, Uplink{}},
		"Dual": {"one interface may serve both families", []string{
			"route add default via 10.244.0.1 dev eth0", "-6 route add default via 2001:db8::1 dev eth0",
		}, Uplink{IPv4: "eth0", IPv6: "eth0", MTU: 1450, Addresses: addrs("10.244.0.10", "2001:db8::10")}},
		"Split": {"each family may have its own, and the smaller MTU counts", []string{
			"route add default via 10.244.0.1 dev eth0", "-6 route add default via fd01::1 dev eth1",
		}, Uplink{IPv4: "eth0", IPv6: "eth1", MTU: 1400, Addresses: addrs("10.244.0.10", "2001:db8::10", "10.1.0.10", "fd01::10")}},
		"Metric": {"the best metric wins", []string{
			"route add default via 10.1.0.1 dev eth1 metric 50", "route add default via 10.244.0.1 dev eth0 metric 20",
		}, Uplink{IPv4: "eth0", MTU: 1450, Addresses: addrs("10.244.0.10", "2001:db8::10")}},
		"OwnDevice": {"our device is no uplink", []string{
			"route add default dev wg0 metric 1", "route add default via 10.244.0.1 dev eth0 metric 20",
		}, Uplink{IPv4: "eth0", MTU: 1450, Addresses: addrs("10.244.0.10", "2001:db8::10")}},
		"OtherTable": {"gluetun's table does not count", []string{
			"route add default dev eth1 table 51820", "rule add pref 101 table 51820", "route add default via 10.244.0.1 dev eth0",
		}, Uplink{IPv4: "eth0", MTU: 1450, Addresses: addrs("10.244.0.10", "2001:db8::10")}},
		"Blackhole": {"a route that leads nowhere is none", []string{"route add blackhole default"}, Uplink{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inNamespace(t)
			ip(t, "link add eth0 mtu 1450 type veth peer name peer0", "link add eth1 mtu 1400 type veth peer name peer1", "link add wg0 type veth peer name peer2",
				"link set peer0 up", "link set peer1 up", "link set peer2 up", "link set wg0 up", "addr add 10.8.0.1/24 dev wg0",
				"addr add 10.244.0.10/24 dev eth0", "addr add 2001:db8::10/64 dev eth0 nodad", "link set eth0 up",
				"addr add 10.1.0.10/24 dev eth1", "addr add fd01::10/64 dev eth1 nodad", "link set eth1 up")
			ip(t, tc.setup...)
			got, err := FindUplink("wg0")
			must(t, err)
			if diff := cmp.Diff(tc.want, got, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func addrs(ss ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range ss {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func TestDeviceMTU(t *testing.T) {
	cases := map[string]struct {
		reason                   string
		uplink, configured, want int
		ipv6                     bool
	}{
		"Configured": {"the configured one where it fits", 1500, 1420, 1420, true},
		"Smaller":    {"less where the uplink is smaller", 1450, 1420, 1370, true},
		"Larger":     {"never more than configured", 9000, 1420, 1420, true},
		"Unknown":    {"the configured one without uplink", 0, 1420, 1420, true},
		"FloorIPv6":  {"IPv6 does not run on less than 1280", 1300, 1420, 1280, true},
		"NoIPv6":     {"IPv4 runs on less", 1300, 1420, 1220, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := (Uplink{MTU: tc.uplink}).DeviceMTU(tc.configured, tc.ipv6); got != tc.want {
				t.Errorf("%s: got %d, want %d", tc.reason, got, tc.want)
			}
		})
	}
}

func TestEnsureAddresses(t *testing.T) {
	inNamespace(t)
	ip(t, "link add wg0 type veth peer name peer0", "link set wg0 up", "link set peer0 up")
	cases := []struct {
		reason string
		want   []netip.Prefix
	}{
		{"first addresses", prefixes("10.8.0.1/24", "fd00:8::1/64")},
		{"no change", prefixes("10.8.0.1/24", "fd00:8::1/64")},
		{"another address of the same network, which the kernel takes along", prefixes("10.8.0.9/24", "fd00:8::1/64")},
		{"another prefix length", prefixes("10.8.0.9/16", "fd00:8::1/48")},
		{"other pools", prefixes("10.9.0.1/24")},
		{"none", nil},
	}
	for _, tc := range cases {
		must(t, EnsureAddresses("wg0", tc.want))
		var got []string
		for f := range strings.FieldsSeq(ip(t, "-o addr show dev wg0 scope global")) {
			if p, err := netip.ParsePrefix(f); err == nil {
				got = append(got, p.String())
			}
		}
		var want []string
		for _, p := range tc.want {
			want = append(want, p.String())
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
		}
	}
}

func TestEnsureRoutes(t *testing.T) {
	inNamespace(t)
	ip(t, "link add wg0 type veth peer name peer0", "addr add 10.8.0.1/24 dev wg0", "link set wg0 up", "link set peer0 up",
		"route add 172.16.0.0/24 dev wg0", "route add 172.17.0.0/24 dev peer0")
	theirs := func() []string { return words(ip(t, "route show proto boot")) }
	before := theirs()
	ours := func() []string {
		out := words(ip(t, "route show proto 86"))
		return append(out, words(ip(t, "-6 route show proto 86"))...)
	}
	ensure := func(want []Unrouted, networks ...string) {
		t.Helper()
		got, err := EnsureRoutes("wg0", prefixes(networks...))
		must(t, err)
		if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
			t.Errorf("unrouted: -want, +got:\n%s", diff)
		}
	}
	ensure(nil, "192.168.50.0/24", "fd50::/64")
	if diff := cmp.Diff([]string{"192.168.50.0/24 dev wg0 scope link", "fd50::/64 dev wg0 metric 1024 pref medium"}, ours()); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	ensure(nil, "192.168.50.0/24", "192.168.51.0/24")
	if diff := cmp.Diff([]string{"192.168.50.0/24 dev wg0 scope link", "192.168.51.0/24 dev wg0 scope link"}, ours()); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	// What somebody else has stays, and the others get theirs.
	ensure([]Unrouted{{netip.MustParsePrefix("172.17.0.0/24"), "the pod has another route to it"}}, "172.17.0.0/24", "192.168.52.0/24")
	if diff := cmp.Diff([]string{"192.168.52.0/24 dev wg0 scope link"}, ours()); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	// So it is where the device has no IPv6.
	ip(t, "link set wg0 mtu 1200")
	ensure([]Unrouted{{netip.MustParsePrefix("fd50::/64"), "wg0 has no IPv6"}}, "fd50::/64", "192.168.53.0/24")
	if diff := cmp.Diff([]string{"192.168.53.0/24 dev wg0 scope link"}, ours()); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	ensure(nil)
	if got := ours(); len(got) > 0 {
		t.Errorf("routes are left: %v", got)
	}
	if diff := cmp.Diff(before, theirs()); diff != "" {
		t.Errorf("routes of others changed:\n%s", diff)
	}
}

func TestNetworks(t *testing.T) {
	inNamespace(t)
	list := func() []string {
		t.Helper()
		all, err := Networks("eth0", "tun0")
		must(t, err)
		var out []string
		for _, n := range all {
			out = append(out, n.String()+" "+n.Device)
		}
		slices.Sort(out)
		return out
	}
	if got := list(); len(got) > 0 {
		t.Errorf("without them: got %v", got)
	}
	ip(t, "link add wg0 type veth peer name peer0", "addr add 10.8.0.1/24 dev wg0", "addr add fd00:8::1/64 dev wg0 nodad",
		"link add eth0 type veth peer name peer1", "addr add 10.244.0.10/24 dev eth0", "addr add 10.1.0.1/32 dev eth0", "addr add 2001:db8::10/64 dev eth0 nodad",
		"link add tun0 type veth peer name peer2", "addr add 10.9.0.6 peer 10.9.0.5/30 dev tun0")
	want := []string{"10.1.0.1/32 eth0", "10.244.0.10/24 eth0", "10.9.0.5/30 tun0", "10.9.0.6/32 tun0", "2001:db8::10/64 eth0"}
	if diff := cmp.Diff(want, list()); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func TestEnsureRules(t *testing.T) {
	inNamespace(t)
	ip(t, "rule add pref 77 from 192.0.2.1 table 100", "rule add pref 91 iif wg0 table 200", "-6 rule add pref 98 to fe80::/64 table main")
	list := func() []string {
		return append(words(ip(t, "rule show")), words(ip(t, "-6 rule show"))...)
	}
	before := list()
	// A network may be in several lists.
	rules := TunnelRules("wg0", prefixes("10.8.0.0/24", "fd00:8::/64", "10.8.0.0/24"), prefixes("10.43.0.0/16", "10.43.0.0/16"), Tunnel{})
	for range 2 {
		must(t, EnsureRules(rules))
	}
	want := []string{
		"0: from all lookup local", "77: from 192.0.2.1 lookup 100",
		"89: from all to 10.43.0.0/16 iif wg0 [detached] lookup main proto 86",
		"90: from all to 10.8.0.0/24 lookup main proto 86",
		"91: from all iif wg0 [detached] lookup 200", "91: from all iif wg0 [detached] lookup 51820 proto 86",
		"91: from all iif wg0 [detached] lookup 51822 proto 86", "92: from all iif wg0 [detached] unreachable proto 86",
		"32766: from all lookup main", "32767: from all lookup default",
		"0: from all lookup local",
		"90: from all to fd00:8::/64 lookup main proto 86",
		"91: from all iif wg0 [detached] lookup 51820 proto 86", "91: from all iif wg0 [detached] lookup 51822 proto 86",
		"92: from all iif wg0 [detached] unreachable proto 86",
		"98: from all to fe80::/64 lookup main", "32766: from all lookup main",
	}
	if diff := cmp.Diff(want, list()); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	must(t, EnsureRules(nil))
	if diff := cmp.Diff(before, list()); diff != "" {
		t.Errorf("rules of others changed:\n%s", diff)
	}
}

func TestRemoveStaleRule(t *testing.T) {
	inNamespace(t)
	ip(t, "link add tun0 type veth peer name peer0", "rule add pref 101 not fwmark 51820 table 51820", "-6 rule add pref 101 not fwmark 51820 table 51820",
		"rule add pref 101 from 192.0.2.1 table 7", "rule add pref 91 iif wg0 table 51820")
	remove := func(want bool) {
		t.Helper()
		got, err := RemoveStaleRule("tun0")
		must(t, err)
		if got != want {
			t.Errorf("removed is %t, want %t", got, want)
		}
	}
	remove(false) // the tunnel is there
	ip(t, "link del tun0")
	remove(true)
	remove(false)
	want := []string{
		"0: from all lookup local", "91: from all iif wg0 [detached] lookup 51820", "101: from 192.0.2.1 lookup 7",
		"32766: from all lookup main", "32767: from all lookup default",
	}
	if diff := cmp.Diff(want, words(ip(t, "rule show"))); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if got := ip(t, "-6 rule show"); strings.Contains(got, "101:") {
		t.Errorf("the IPv6 rule is still there: %s", got)
	}
}

func TestEnsureForwarding(t *testing.T) {
	inNamespace(t)
	ip(t, "link add eth0 type veth peer name eth1")
	for _, want := range []bool{true, false} {
		changed, err := EnsureForwarding("eth0")
		must(t, err)
		if changed != want {
			t.Errorf("changed is %t, want %t", changed, want)
		}
	}
	for device, want := range map[string]string{"eth0": "1", "eth1": "0", "all": "0"} {
		if got := strings.TrimSpace(command(t, "cat", "/proc/sys/net/ipv4/conf/"+device+"/forwarding")); got != want {
			t.Errorf("forwarding of %s is %s, want %s", device, got, want)
		}
	}
	if _, err := EnsureForwarding("no-such-device"); err == nil {
		t.Error("an interface that is not there is an error")
	}
	if on, err := ForwardsIPv6(); err != nil || on {
		t.Errorf("a new namespace forwards no IPv6: got %t, %v", on, err)
	}
}

func TestWatch(t *testing.T) {
	inNamespace(t)
	changed, err := Watch(t.Context())
	must(t, err)
	for _, change := range []string{"link add eth0 type veth peer name eth1", "addr add 10.0.0.1/24 dev eth0", "link set eth0 up", "rule add pref 77 table 7"} {
		ip(t, change)
		select {
		case <-changed:
		case <-time.After(5 * time.Second):
			t.Errorf("%q was not noticed", change)
		}
		// What belongs to the same change comes within a moment.
		for quiet := false; !quiet; {
			select {
			case <-changed:
			case <-time.After(100 * time.Millisecond):
				quiet = true
			}
		}
	}
}
