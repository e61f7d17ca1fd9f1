package route

import (
	"errors"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
)

// command runs a program in the namespace.
func command(t *testing.T, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(args[0]); err != nil {
		t.Skipf("needs %s", args[0])
	}
	out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

// podTableOf returns the table of pods, of both families, without what the
// kernel adds.
func podTableOf(t *testing.T) []string {
	t.Helper()
	out := words(ip(t, "route show table all"))
	out = slices.DeleteFunc(out, func(l string) bool { return !strings.Contains(l, "table 51821") })
	for i, l := range out {
		l, _, _ = strings.Cut(strings.ReplaceAll(l, "dev lo ", ""), " metric")
		l = strings.TrimSuffix(l, " pref medium")
		out[i] = strings.ReplaceAll(l, "table 51821 proto 86", "x")
	}
	slices.Sort(out)
	return out
}

func TestPodRoutes(t *testing.T) {
	inNamespace(t)
	ip(t, "link add wg0 type veth peer name other", "link set wg0 up", "link set other up",
		"route add 192.0.2.1/32 dev other table 51821") // somebody else's
	const theirs = "192.0.2.1 dev other table 51821 scope link"
	check := func(reason string, want ...string) {
		t.Helper()
		want = append(want, theirs)
		slices.Sort(want)
		if diff := cmp.Diff(want, podTableOf(t)); diff != "" {
			t.Errorf("%s: -want, +got:\n%s", reason, diff)
		}
	}
	must(t, EnsurePodRoutes("wg0", addrs("10.244.1.5", "2001:db8::5")))
	check("routed", "10.244.1.5 dev wg0 x scope link", "2001:db8::5 dev wg0 x")
	must(t, Block(addrs("10.244.1.5", "2001:db8::5", "10.244.1.6")))
	check("blocked, whether routed or not", "blackhole 10.244.1.5 x", "blackhole 10.244.1.6 x", "blackhole 2001:db8::5 x")
	must(t, Block(addrs("10.244.1.5", "2001:db8::5")))
	check("blocked again", "blackhole 10.244.1.5 x", "blackhole 10.244.1.6 x", "blackhole 2001:db8::5 x")
	must(t, EnsurePodRoutes("wg0", addrs("10.244.1.5", "2001:db8::5")))
	check("routed in the place of blocks, and others deleted", "10.244.1.5 dev wg0 x scope link", "2001:db8::5 dev wg0 x")

	// A device that was made again has lost its routes.
	ip(t, "link del wg0")
	if got := podTableOf(t); len(got) != 0 {
		t.Errorf("routes without device: %v", got)
	}
	ip(t, "link add wg0 type veth peer name other", "link set wg0 up", "link set other up", "route add 192.0.2.1/32 dev other table 51821")
	must(t, EnsurePodRoutes("wg0", addrs("10.244.1.5", "2001:db8::6")))
	check("routed again", "10.244.1.5 dev wg0 x scope link", "2001:db8::6 dev wg0 x")
	must(t, Block(addrs("2001:db8::6")))
	must(t, RemovePodRoutes())
	check("removed")
}

// A pod has IPv6 where the device has none. It gets its IPv4 all the same.
func TestPodRoutesWithoutIPv6(t *testing.T) {
	cases := map[string]struct{ reason, off, on string }{
		"Sysctl":   {"somebody has switched it off", "sysctl -qw net.ipv6.conf.wg0.disable_ipv6=1", "sysctl -qw net.ipv6.conf.wg0.disable_ipv6=0"},
		"SmallMTU": {"below 1280 the kernel takes it off a device", "ip link set wg0 mtu 1200", "ip link set wg0 mtu 1280"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inNamespace(t)
			ip(t, "link add wg0 type veth peer name other", "link set wg0 up", "link set other up")
			must(t, EnsureRules(PodRules(0xca6c)))
			command(t, strings.Fields(tc.off)...)
			must(t, EnsurePodRoutes("wg0", addrs("10.244.1.5", "2001:db8::5")))
			if diff := cmp.Diff([]string{"10.244.1.5 dev wg0 x scope link"}, podTableOf(t)); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
			must(t, Block(addrs("2001:db8::5")))
			must(t, EnsurePodRoutes("wg0", addrs("10.244.1.5", "2001:db8::5")))
			command(t, strings.Fields(tc.on)...)
			must(t, EnsurePodRoutes("wg0", addrs("10.244.1.5", "2001:db8::5")))
			if diff := cmp.Diff([]string{"10.244.1.5 dev wg0 x scope link", "2001:db8::5 dev wg0 x"}, podTableOf(t)); diff != "" {
				t.Errorf("%s, and on again: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestPodRules(t *testing.T) {
	inNamespace(t)
	must(t, EnsureRules(PodRules(0xca6c)))
	must(t, EnsureRules(PodRules(0xca6c)))
	for _, family := range []string{"", "-6 "} {
		if diff := cmp.Diff([]string{"88: not from all fwmark 0xca6c lookup 51821 proto 86"}, words(ip(t, family+"rule show pref 88"))); diff != "" {
			t.Errorf("-want, +got:\n%s", diff)
		}
	}
	// Before those that keep peers in gluetun's tunnel, of which there may be some
	// for a network that pods are in.
	rules := slices.Concat(PodRules(0xca6c), TunnelRules("wg0", nil, prefixes("10.244.0.0/16"), Tunnel{}))
	must(t, EnsureRules(rules))
	if got := words(ip(t, "rule")); len(got) != 8 || !strings.HasPrefix(got[1], "88:") || !strings.HasPrefix(got[2], "89:") {
		t.Errorf("got rules %q", got)
	}
	must(t, EnsureRules(nil))
	if got := words(ip(t, "rule")); len(got) != 3 {
		t.Errorf("got rules %q", got)
	}
}

func TestForget(t *testing.T) {
	inNamespace(t)
	run := func(line string) string { return command(t, strings.Fields(line)...) }
	for _, l := range []string{
		"-I -p udp -s 10.244.1.5 -d 192.0.2.1 --sport 1 --dport 2 -t 60",
		"-I -p udp -s 192.0.2.1 -d 10.244.1.5 --sport 1 --dport 2 -t 60",
		"-I -p udp -s 192.0.2.1 -d 10.96.0.1 -r 10.244.1.5 -q 192.0.2.1 --sport 1 --dport 4 --reply-port-src 4 --reply-port-dst 1 -t 60",
		"-I -p udp -s 10.244.1.6 -d 192.0.2.1 --sport 1 --dport 2 -t 60",
		"-I -p udp -s 2001:db8::5 -d 2001:db8::1 --sport 1 --dport 2 -t 60",
		"-I -p udp -s 2001:db8::6 -d 2001:db8::1 --sport 1 --dport 2 -t 60",
	} {
		run("conntrack " + l)
	}
	must(t, Forget(nil))
	if n := strings.Count(run("conntrack -L"), "sport=1"); n != 6 {
		t.Fatalf("got %d connections before, want 6", n)
	}
	must(t, Forget(addrs("10.244.1.5", "2001:db8::5")))
	out := run("conntrack -L")
	if strings.Contains(out, "10.244.1.5") || strings.Contains(out, "2001:db8::5") || !strings.Contains(out, "10.244.1.6") || !strings.Contains(out, "2001:db8::6") {
		t.Errorf("got connections\n%s", out)
	}
	must(t, Forget(addrs("10.244.1.5", "2001:db8::5")))
}

func TestForgetFlows(t *testing.T) {
	inNamespace(t)
	run := func(line string) string { return command(t, strings.Fields(line)...) }
	for _, l := range []string{
		"-I -p udp -s 10.8.0.2 -d 192.0.2.1 -r 192.0.2.1 -q 10.244.0.10 --sport 1 --dport 53 --reply-port-src 53 --reply-port-dst 9 -t 60 -m 5",
		"-I -p tcp -s 10.8.0.2 -d 10.96.0.1 -r 10.244.1.5 -q 10.244.0.10 --sport 1 --dport 80 --reply-port-src 8080 --reply-port-dst 9 --state ESTABLISHED -t 60",
		"-I -p udp -s fd00:8::2 -d 2001:db8::1 --sport 1 --dport 53 -t 60",
	} {
		run("conntrack " + l)
	}
	var got []Flow
	see := func(f Flow) bool {
		if !slices.ContainsFunc(f.Ends[:], netip.Addr.IsLoopback) {
			got = append(got, f)
		}
		return f.Protocol == unix.IPPROTO_TCP
	}
	must(t, ForgetFlows(see))
	end := netip.MustParseAddr
	want := []Flow{
		{[4]netip.Addr{end("10.8.0.2"), end("10.96.0.1"), end("10.244.1.5"), end("10.244.0.10")}, end("10.8.0.2"), netip.MustParseAddrPort("10.244.1.5:8080"), unix.IPPROTO_TCP, 0},
		{[4]netip.Addr{end("10.8.0.2"), end("192.0.2.1"), end("192.0.2.1"), end("10.244.0.10")}, end("10.8.0.2"), netip.MustParseAddrPort("192.0.2.1:53"), unix.IPPROTO_UDP, 5},
		{[4]netip.Addr{end("fd00:8::2"), end("2001:db8::1"), end("2001:db8::1"), end("fd00:8::2")}, end("fd00:8::2"), netip.MustParseAddrPort("[2001:db8::1]:53"), unix.IPPROTO_UDP, 0},
	}
	slices.SortFunc(got, func(a, b Flow) int { return a.Destination.Compare(b.Destination) })
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.AddrPort{})); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if out := run("conntrack -L"); strings.Contains(out, "tcp") || strings.Count(out, "dport=53") != 2 {
		t.Errorf("got connections\n%s", out)
	}
}

// Without nf_conntrack_netlink the kernel does not know the request.
func TestForgetFlowsUnknown(t *testing.T) {
	inNamespace(t)
	const unregistered = 63
	flowSubsystem = unregistered
	t.Cleanup(func() { flowSubsystem = unix.NFNL_SUBSYS_CTNETLINK })
	if err := ForgetFlows(func(Flow) bool { return true }); !errors.Is(err, ErrCannotForget) {
		t.Errorf("got %v", err)
	}
}

// A connection that cannot be forgotten keeps no other.
func TestForgetAll(t *testing.T) {
	cases := map[string]struct {
		reason string
		errs   []error
		want   error
	}{
		"All":       {"nothing is left", []error{nil, nil}, nil},
		"Offloaded": {"the kernel goes on with it", []error{nil, unix.EBUSY, nil}, ErrCannotForget},
		"Failed":    {"it is there still", []error{unix.ENOMEM, nil, unix.EPERM}, unix.ENOMEM},
		"Both":      {"what may be tried again comes first", []error{unix.EBUSY, unix.ENOMEM, unix.EBUSY}, unix.ENOMEM},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			seen := 0
			err := forgetAll(make([]flow, len(tc.errs)), func(flow) error {
				seen++
				return tc.errs[seen-1]
			})
			if !errors.Is(err, tc.want) || seen != len(tc.errs) {
				t.Errorf("%s: got %v after %d connections", tc.reason, err, seen)
			}
		})
	}
}

func FuzzFlow(f *testing.F) {
	f.Add([]byte{2, 0, 0, 0, 20, 0, 1, 128, 16, 0, 1, 128, 8, 0, 1, 0, 10, 244, 1, 5})
	f.Add([]byte{2, 0, 0, 0, 3, 0, 1, 128})
	of := netip.MustParseAddr("10.244.1.5")
	f.Fuzz(func(t *testing.T, b []byte) {
		ends := flow(b).read().Ends
		if slices.Contains(ends[:], of) && !strings.Contains(string(b), "\x0a\xf4\x01\x05") {
			t.Error("an address is found that is not there")
		}
	})
}
