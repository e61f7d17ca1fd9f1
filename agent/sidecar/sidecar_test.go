package sidecar

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/device"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/ipnet"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/source"
	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

func good() wireguard.Enrolment {
	seed := wireguard.Seed{1}
	return wireguard.Enrolment{
		Gateway: "vpn/home", GatewayPublicKey: seed.ServerKey(0).Public(), Endpoint: "home-wireguard.vpn.svc:51820",
		ClassKey: seed.PodClassKey("apps", "media"), MTU: 1420, Implementation: wireguard.ImplementationAuto, PersistentKeepalive: 25,
		BypassCIDRs: []netip.Prefix{netip.MustParsePrefix("10.43.0.1/16")},
	}
}

func TestParseEnrolment(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*wireguard.Enrolment)
		want   string // part of the error, none if empty
	}{
		"Good":              {"as the function writes it", func(*wireguard.Enrolment) {}, ""},
		"Address":           {"the endpoint may be an address", func(e *wireguard.Enrolment) { e.Endpoint = "[fd00::1]:51820" }, ""},
		"NoPort":            {"WireGuard has no default port", func(e *wireguard.Enrolment) { e.Endpoint = "home-wireguard.vpn.svc" }, `endpoint "home-wireguard.vpn.svc" is no name and port`},
		"NoHost":            {"a port alone is no endpoint", func(e *wireguard.Enrolment) { e.Endpoint = ":51820" }, "is no name and port"},
		"ZeroPort":          {"nor is port 0 one", func(e *wireguard.Enrolment) { e.Endpoint = "a:0" }, "has no port from 1 to 65535"},
		"BigPort":           {"nor one that is too great", func(e *wireguard.Enrolment) { e.Endpoint = "a:65536" }, "has no port from 1 to 65535"},
		"NoGatewayKey":      {"the gateway has to be known", func(e *wireguard.Enrolment) { e.GatewayPublicKey = wireguard.Key{} }, "gatewayPublicKey is missing"},
		"NoClassKey":        {"without it there is no key of our own", func(e *wireguard.Enrolment) { e.ClassKey = wireguard.Key{} }, "classKey is missing"},
		"SmallMTU":          {"IPv4 needs 576", func(e *wireguard.Enrolment) { e.MTU = 575 }, "mtu 575 is not within"},
		"NegativeKeepalive": {"keepalives are in seconds", func(e *wireguard.Enrolment) { e.PersistentKeepalive = -1 }, "persistentKeepalive -1 is not within"},
		"Implementation":    {"none that is not known", func(e *wireguard.Enrolment) { e.Implementation = "Magic" }, `implementation "Magic" is not known`},
		"Everything":        {"a network that is everything would leave nothing to the tunnel", func(e *wireguard.Enrolment) { e.BypassCIDRs = []netip.Prefix{netip.MustParsePrefix("::/0")} }, "bypassCIDRs has ::/0, which is everything"},
		"NoNetwork":         {"none that is no network", func(e *wireguard.Enrolment) { e.BypassCIDRs = append(e.BypassCIDRs, netip.Prefix{}) }, "bypassCIDRs[1] is no network"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			e := good()
			tc.change(&e)
			b, err := e.Encode()
			if err != nil {
				t.Fatal(err)
			}
			got, err := parseEnrolment(b)
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s: want %q, got %v", tc.reason, tc.want, err)
				}
				if err != nil && (strings.Contains(err.Error(), e.ClassKey.String()) || strings.Contains(err.Error(), e.GatewayPublicKey.String())) {
					t.Errorf("the error has a key: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			if diff := cmp.Diff("10.43.0.0/16", got.BypassCIDRs[0].String()); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// An enrolment may have a network twice: functions did not look, and one may be
// written with host bits.
func TestParseEnrolmentBypassTwice(t *testing.T) {
	e := good()
	for _, s := range []string{"fd00::/64", "10.43.0.0/16", "10.43.1.0/24", "fd00::/64"} {
		e.BypassCIDRs = append(e.BypassCIDRs, netip.MustParsePrefix(s))
	}
	b, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := parseEnrolment(b)
	if err != nil {
		t.Fatal(err)
	}
	want := []netip.Prefix{netip.MustParsePrefix("10.43.0.0/16"), netip.MustParsePrefix("fd00::/64"), netip.MustParsePrefix("10.43.1.0/24")}
	if diff := cmp.Diff(want, got.BypassCIDRs, cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func TestParseEnrolmentVersions(t *testing.T) {
	b, err := good().Encode()
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]any{}
	if err := json.Unmarshal(b, &fields); err != nil {
		t.Fatal(err)
	}
	encode := func() []byte {
		out, err := json.Marshal(fields)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	fields["new"] = 1
	if _, err := parseEnrolment(encode()); err != nil {
		t.Errorf("an unknown field is accepted: %v", err)
	}
	fields["version"] = 2
	if _, err := parseEnrolment(encode()); err == nil {
		t.Error("an unknown version is refused")
	}
}

func TestReadPod(t *testing.T) {
	cases := map[string]struct {
		reason   string
		uid, ips string
		want     []string
		fails    string
	}{
		"Dual":    {"one address of each family", "1", "10.244.1.5,2001:db8::5", []string{"10.244.1.5", "2001:db8::5"}, ""},
		"IPv6":    {"or of one", "1", "2001:db8::5", []string{"2001:db8::5"}, ""},
		"Mapped":  {"IPv4 is IPv4", "1", "::ffff:10.244.1.5", []string{"10.244.1.5"}, ""},
		"Spaces":  {"spaces do no harm", "1", "10.244.1.5, 2001:db8::5", []string{"10.244.1.5", "2001:db8::5"}, ""},
		"NoUID":   {"the key comes from the UID", "", "10.244.1.5", nil, "POD_UID"},
		"NoIPs":   {"what is sent needs a source", "1", "", nil, "POD_IPS"},
		"Bad":     {"a name is no address", "1", "pod", nil, `"pod" is no address`},
		"TwoIPv4": {"a route has one source", "1", "10.244.1.5,10.244.1.6", nil, "two addresses of one family"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p, err := readPod(func(name string) string {
				return map[string]string{"POD_UID": tc.uid, "POD_IPS": tc.ips, "NODE_NAME": "node-1"}[name]
			})
			if tc.fails != "" {
				if err == nil || !strings.Contains(err.Error(), tc.fails) {
					t.Errorf("%s: want %q, got %v", tc.reason, tc.fails, err)
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			var got []string
			for _, a := range p.addresses {
				got = append(got, a.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestNameservers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "resolv.conf")
	if got, err := nameservers(path); err != nil || len(got) != 0 {
		t.Errorf("without file there are none: %v, %v", got, err)
	}
	content := "# a comment\nsearch cluster.local\nnameserver 10.96.0.10\nnameserver fd00::a\nnameserver fe80::1%eth0\nnameserver x\noptions ndots:5\nnameserver\n"
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := nameservers(path)
	if err != nil {
		t.Fatal(err)
	}
	want := []netip.Addr{netip.MustParseAddr("10.96.0.10"), netip.MustParseAddr("fd00::a"), netip.MustParseAddr("fe80::1")}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// A sync that fails is tried again ever later, and not whenever the tunnel is
// looked at.
func TestFailingSync(t *testing.T) {
	netns.Enter(t)
	if out, err := exec.Command("ip", "link", "add", wireguard.ClientDevice, "type", "veth", "peer", "name", "other").CombinedOutput(); err != nil {
		t.Skipf("needs ip, of package iproute2: %v: %s", err, out)
	}
	log := slog.New(slog.DiscardHandler)
	d, err := device.Open(wireguard.ClientDevice, "", log)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	s := &sidecar{
		log: log, health: newHealth(), enrolment: &enrolment{Enrolment: good()}, device: d,
		pod: pod{uid: "1", addresses: []netip.Addr{netip.MustParseAddr("10.244.1.5")}},
	}
	defer s.firewall.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := s.run(ctx, nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(s.failure, "belongs to somebody else") {
		t.Fatalf("it fails for another reason: %q", s.failure)
	}
	if n := s.retry.failures; n < 2 || n > 8 {
		t.Errorf("it has failed %d times in 2 seconds, want 2 to 8", n)
	}
	// What failed was the enrolment before.
	e := good()
	e.MTU--
	b, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if !s.take(source.Update{Data: b}) || s.retry.failures != 0 {
		t.Errorf("a new enrolment has failed %d times before its first try", s.retry.failures)
	}
}

// What somebody else does to the device is noticed.
func TestIsPeer(t *testing.T) {
	e := &enrolment{Enrolment: good()}
	s := &sidecar{enrolment: e, pod: pod{uid: "1", addresses: []netip.Addr{netip.MustParseAddr("10.244.1.5"), netip.MustParseAddr("2001:db8::5")}}}
	peer := func() wgtypes.Peer {
		return wgtypes.Peer{
			PublicKey: e.GatewayPublicKey.Key, PersistentKeepaliveInterval: 25 * time.Second, AllowedIPs: ipnet.List(s.pod.all()),
			Endpoint: &net.UDPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1},
		}
	}
	cases := map[string]struct {
		reason string
		change func(*wgtypes.Device)
		want   bool
	}{
		"Same":         {"wherever its endpoint is", func(*wgtypes.Device) {}, true},
		"None":         {"it was removed", func(d *wgtypes.Device) { d.Peers = nil }, false},
		"Another":      {"one was added", func(d *wgtypes.Device) { d.Peers = append(d.Peers, peer()) }, false},
		"OtherKey":     {"it is somebody else", func(d *wgtypes.Device) { d.Peers[0].PublicKey = wgtypes.Key{1} }, false},
		"Preshared":    {"a preshared key", func(d *wgtypes.Device) { d.Peers[0].PresharedKey = wgtypes.Key{1} }, false},
		"Keepalive":    {"another keepalive", func(d *wgtypes.Device) { d.Peers[0].PersistentKeepaliveInterval = 0 }, false},
		"FewerAllowed": {"it may not carry everything", func(d *wgtypes.Device) { d.Peers[0].AllowedIPs = d.Peers[0].AllowedIPs[:1] }, false},
		"OtherAllowed": {"it may carry something else", func(d *wgtypes.Device) { d.Peers[0].AllowedIPs[0].Mask = net.CIDRMask(8, 32) }, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := &wgtypes.Device{Peers: []wgtypes.Peer{peer()}}
			tc.change(d)
			if got := s.isPeer(d); got != tc.want {
				t.Errorf("%s: want %t, got %t", tc.reason, tc.want, got)
			}
		})
	}
}

// The counters go on where their source starts anew.
func TestTotal(t *testing.T) {
	n := total{}
	for _, now := range []uint64{5, 9, 0, 3, 2} {
		n.set(now)
	}
	if got := n.value(); got != 9+3+2 {
		t.Errorf("got %v", got)
	}
}
