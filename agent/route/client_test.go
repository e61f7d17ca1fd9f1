package route

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func addresses4and6(ss ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range ss {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func TestClientRules(t *testing.T) {
	inNamespace(t)
	before4, before6 := words(ip(t, "-4 rule")), words(ip(t, "-6 rule"))
	dual := ClientRules(addresses4and6("10.244.1.5", "2001:db8::5"), prefixes("10.96.0.0/16", "fd96::/64", "10.96.0.0/16", "fd96::/64"))
	// As the kernel has them, and the second time there is nothing to do.
	for range 2 {
		must(t, EnsureRules(dual))
		want := []string{
			"0: from all lookup local", "99: from all fwmark 0xca6d lookup 51820 proto 86",
			"101: from all to 10.96.0.0/16 lookup main proto 86", "102: not from all fwmark 0xca6c lookup 51820 proto 86",
			"32766: from all lookup main", "32767: from all lookup default",
		}
		if diff := cmp.Diff(want, words(ip(t, "-4 rule"))); diff != "" {
			t.Errorf("IPv4: -want, +got:\n%s", diff)
		}
		want[2] = "101: from all to fd96::/64 lookup main proto 86"
		if diff := cmp.Diff(want[:5], words(ip(t, "-6 rule"))); diff != "" {
			t.Errorf("IPv6: -want, +got:\n%s", diff)
		}
	}
	// A family that the pod does not have has no rules.
	must(t, EnsureRules(ClientRules(addresses4and6("10.244.1.5"), nil)))
	if diff := cmp.Diff(before6, words(ip(t, "-6 rule"))); diff != "" {
		t.Errorf("IPv6: -want, +got:\n%s", diff)
	}
	must(t, EnsureRules(nil))
	if diff := cmp.Diff(before4, words(ip(t, "-4 rule"))); diff != "" {
		t.Errorf("IPv4: -want, +got:\n%s", diff)
	}
}

func TestEnsureClientRoutes(t *testing.T) {
	inNamespace(t)
	ip(t, "link add eth0 type veth peer name peer", "link add wgc0 type veth peer name far",
		"addr add 10.244.1.5/24 dev eth0", "addr add 2001:db8::5/64 dev eth0 nodad", "link set eth0 up")
	pod := addresses4and6("10.244.1.5", "2001:db8::5")
	must(t, EnsureUnnumbered("wgc0"))
	ip(t, "link set wgc0 up")
	if out := ip(t, "addr show dev wgc0"); strings.Contains(out, "inet") {
		t.Errorf("the device has an address: %s", out)
	}
	for _, want := range []bool{true, false} {
		changed, err := EnsureClientRoutes("wgc0", pod)
		if err != nil || changed != want {
			t.Errorf("changed: want %t, got %t, %v", want, changed, err)
		}
		if out := ip(t, "route show table 51820"); !strings.Contains(out, "default dev wgc0 proto 86 src 10.244.1.5") {
			t.Errorf("IPv4: %s", out)
		}
		if out := ip(t, "-6 route show table 51820"); !strings.Contains(out, "default dev wgc0 proto 86 src 2001:db8::5") {
			t.Errorf("IPv6: %s", out)
		}
	}
	// Of another source it is put right.
	ip(t, "addr add 10.244.1.6/24 dev eth0", "route replace default dev wgc0 src 10.244.1.6 proto 86 table 51820")
	if changed, err := EnsureClientRoutes("wgc0", pod); err != nil || !changed {
		t.Errorf("changed: %t, %v", changed, err)
	}
	if out := ip(t, "route show table 51820"); !strings.Contains(out, "src 10.244.1.5") || strings.Contains(out, "src 10.244.1.6") {
		t.Errorf("IPv4: %s", out)
	}
}

func TestEnsureConf(t *testing.T) {
	inNamespace(t)
	ip(t, "link add eth0 type veth peer name peer")
	for _, want := range []bool{true, false} {
		changed, err := EnsureConf("eth0", ReversePath)
		if err != nil || changed != want {
			t.Errorf("changed: want %t, got %t, %v", want, changed, err)
		}
	}
	if _, err := EnsureConf("eth1", ReversePath); err == nil {
		t.Error("an interface that is not there is an error")
	}
}

func TestInterfaces(t *testing.T) {
	inNamespace(t)
	ip(t, "link add eth0 type veth peer name peer", "link set eth0 up", "link add net1 type veth peer name far",
		"link add br0 type bridge", "link set net1 master br0", "link set net1 up", "link set br0 up")
	up, top, err := Interfaces()
	must(t, err)
	slices.Sort(up)
	slices.Sort(top)
	if diff := cmp.Diff([]string{"br0", "eth0", "net1"}, up); diff != "" {
		t.Errorf("up: -want, +got:\n%s", diff)
	}
	// Both ends of a pair are each other's parent here, which they are not in
	// a pod.
	if diff := cmp.Diff([]string{"br0"}, slices.DeleteFunc(top, func(s string) bool { return s == "eth0" })); diff != "" {
		t.Errorf("top: -want, +got:\n%s", diff)
	}
}
