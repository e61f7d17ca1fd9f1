package gateway

import (
	"bytes"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/config"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/pods"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// having makes owners of "name network network" each.
func having(lines ...string) owners {
	names := map[netip.Prefix]string{}
	for _, l := range lines {
		f := strings.Fields(l)
		for _, n := range f[1:] {
			names[netip.MustParsePrefix(n)] = f[0]
		}
	}
	return owners{newByNetwork(names)}
}

func TestOwnersLeft(t *testing.T) {
	phone := "vpn/phone 10.8.0.2/32 fd00:8::2/128"
	addresses := []string{"10.8.0.2", "fd00:8::2", "192.168.50.1", "192.168.51.1", "fd50::1"}
	cases := map[string]struct {
		reason        string
		before, after owners
		left          []string // of the addresses
	}{
		"Same":       {"nothing has changed", having(phone), having(phone), nil},
		"Comes":      {"nobody had it", having(), having(phone), nil},
		"Goes":       {"nobody gets what is sent there", having(phone), having(), nil},
		"Passes":     {"somebody else has it", having(phone), having("vpn/tv 10.8.0.2/32", "vpn/phone fd00:8::2/128"), []string{"10.8.0.2"}},
		"Route":      {"networks pass too", having("vpn/site 192.168.0.0/16"), having("vpn/other 192.168.0.0/16"), []string{"192.168.50.1", "192.168.51.1"}},
		"Part":       {"a part of it is somebody else's", having("vpn/site 192.168.0.0/16"), having("vpn/site 192.168.0.0/16", "vpn/other 192.168.50.0/24"), []string{"192.168.50.1"}},
		"PartBack":   {"and comes back", having("vpn/site 192.168.0.0/16", "vpn/other 192.168.50.0/24"), having("vpn/site 192.168.0.0/16"), []string{"192.168.50.1"}},
		"Around":     {"what others have within it stays theirs", having("vpn/site 192.168.0.0/16", "vpn/other 192.168.50.0/24"), having("vpn/other 192.168.50.0/24"), nil},
		"Own":        {"a route within one's own makes no difference", having("vpn/site fd50::/32"), having("vpn/site fd50::/32 fd50::/64"), nil},
		"OwnGone":    {"nor does its end", having("vpn/site fd50::/32 fd50::/64"), having("vpn/site fd50::/32"), nil},
		"NobodyKnew": {"it may have been anybody's", having("unknown 10.8.0.0/24"), having(phone), []string{"10.8.0.2"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var left []string
			for _, s := range addresses {
				a := netip.MustParseAddr(s)
				if tc.before.left(tc.after, netip.PrefixFrom(a, a.BitLen())) {
					left = append(left, s)
				}
			}
			if diff := cmp.Diff(tc.left, left); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
			if got := tc.before.anyLeft(tc.after); got != (len(tc.left) > 0) {
				t.Errorf("%s: connections are looked at: %t", tc.reason, got)
			}
		})
	}
}

// Who had what last is remembered until somebody has it again.
func TestOwnersRemembered(t *testing.T) {
	address := netip.MustParsePrefix("10.8.0.2/32")
	gone := having()
	_, all := having("vpn/phone 10.8.0.2/32").remember(gone)
	_, all = all.remember(gone)
	if all.left(having("vpn/phone 10.8.0.2/32"), address) {
		t.Error("it comes back to whom it was")
	}
	if !all.left(having("vpn/tv 10.8.0.2/32"), address) {
		t.Error("another has it now")
	}
	many := map[netip.Prefix]string{}
	for i := range maxFormer + 1 {
		many[netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 8, byte(i >> 8), byte(i)}), 32)] = "vpn/phone"
	}
	before, all := owners{newByNetwork(many)}.remember(gone)
	if len(all.values) > 0 || !before.left(gone, address) {
		t.Errorf("want too many forgotten at once, got %d remembered", len(all.values))
	}
}

// Without file the device tells who had what, as on a node's network, where it
// outlives the pod.
func TestOwnersOnDevice(t *testing.T) {
	key := func(b byte) wgtypes.Key { return wgtypes.Key{b} }
	networks := func(ss ...string) []netip.Prefix {
		var out []netip.Prefix
		for _, s := range ss {
			out = append(out, netip.MustParsePrefix(s))
		}
		return out
	}
	peer := func(name string, k byte, address string, routes ...string) wireguard.Peer {
		return wireguard.Peer{
			Namespace: "vpn", Name: name, PublicKey: wireguard.Key{Key: key(k)},
			Addresses: []netip.Addr{netip.MustParseAddr(address)}, Routes: networks(routes...),
		}
	}
	site := peer("site", 1, "10.8.0.2", "10.0.0.0/8")
	pod := wireguard.Peer{PublicKey: wireguard.Key{Key: key(9)}, Addresses: []netip.Addr{netip.MustParseAddr("10.244.1.5")}}
	addresses := []string{"10.8.0.2", "10.8.0.3", "10.1.2.3", "10.244.1.5", "192.168.50.1"}
	all := map[string]byte{"10.8.0.2/32": 1, "10.0.0.0/8": 1}
	cases := map[string]struct {
		reason  string
		device  map[string]byte // network to key
		peers   []wireguard.Peer
		pods    []wireguard.Peer
		classes int
		left    []string // of the addresses
	}{
		"Same":      {"the peer has had it", all, []wireguard.Peer{site}, nil, 0, []string{"10.8.0.3"}},
		"None":      {"there was no device, and the node's own connections are not the pools'", nil, []wireguard.Peer{site}, nil, 0, []string{"10.8.0.2", "10.8.0.3"}},
		"Passes":    {"another peer had it", map[string]byte{"10.8.0.2/32": 2, "10.0.0.0/8": 1}, []wireguard.Peer{site}, nil, 0, []string{"10.8.0.2", "10.8.0.3"}},
		"Route":     {"another peer had the network", map[string]byte{"10.8.0.2/32": 1, "10.0.0.0/8": 2}, []wireguard.Peer{site}, nil, 0, []string{"10.8.0.3", "10.1.2.3", "10.244.1.5"}},
		"Gone":      {"somebody else may have it next", map[string]byte{"10.8.0.2/32": 1, "192.168.50.0/24": 2}, []wireguard.Peer{peer("site", 1, "10.8.0.2")}, nil, 0, []string{"10.8.0.3", "192.168.50.1"}},
		"RouteGone": {"its own peer has it no longer, and nobody else", map[string]byte{"10.8.0.2/32": 1, "192.168.50.0/24": 1}, []wireguard.Peer{peer("site", 1, "10.8.0.2")}, nil, 0, []string{"10.8.0.3"}},
		"Pod":       {"pods have owners of their own", map[string]byte{"10.8.0.2/32": 1, "10.0.0.0/8": 1, "10.244.1.5/32": 9}, []wireguard.Peer{site}, []wireguard.Peer{pod}, 1, []string{"10.8.0.3"}},
		"PodUnseen": {"pods are found after the start", map[string]byte{"10.8.0.2/32": 1, "10.244.1.5/32": 9}, []wireguard.Peer{peer("site", 1, "10.8.0.2")}, nil, 1, []string{"10.8.0.3"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			device := map[netip.Prefix]wgtypes.Key{}
			for n, k := range tc.device {
				device[netip.MustParsePrefix(n)] = key(k)
			}
			c := &config.Config{GatewayConfig: wireguard.GatewayConfig{
				Addresses: networks("10.8.0.1/24"), Peers: tc.peers, PodClasses: make([]wireguard.PodClass, tc.classes),
			}}
			c.Pods = tc.pods
			before, after := ownersOnDevice(c, device), ownersOfPeers(c)
			var left []string
			for _, s := range addresses {
				a := netip.MustParseAddr(s)
				if before.left(after, netip.PrefixFrom(a, a.BitLen())) {
					left = append(left, s)
				}
			}
			if diff := cmp.Diff(tc.left, left); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestOwnersFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "owners")
	read := func() map[netip.Prefix]string {
		t.Helper()
		got, err := (&ownersFile{path: path}).read()
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if got := read(); got != nil {
		t.Errorf("without file nobody knows, got %v", got)
	}
	f := ownersFile{path: path}
	for _, o := range []owners{having(), having("vpn/phone 10.8.0.2/32 fd00:8::2/128")} {
		if err := f.write(o.values); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(o.values, read(), cmpopts.EquateComparable(netip.Prefix{})); diff != "" {
			t.Errorf("-want, +got:\n%s", diff)
		}
	}
	if err := os.WriteFile(path, []byte("version 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, err := f.read(); err == nil || got != nil {
		t.Errorf("another version says nothing, got %v, %v", got, err)
	}
	// A directory stands in its way, as a full disk would.
	if err := os.Mkdir(filepath.Join(dir, ".owners"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := f.write(having().values); err == nil {
		t.Error("want an error")
	}
	if got := read(); got != nil {
		t.Errorf("what is no longer true is left in the file: %v", got)
	}
}

// A full disk is said once, and again after it had room.
func TestUnkept(t *testing.T) {
	cases := map[string]struct {
		warning string
		keep    func(*gateway) error
	}{
		"Owners": {"cannot keep owners of addresses for a restart", func(g *gateway) error { return g.forgetLeft(&config.Config{}) }},
		"Pods":   {"cannot keep pods for a restart", func(g *gateway) error { g.keepPods(); return nil }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			log := &bytes.Buffer{}
			g := &gateway{log: slog.New(slog.NewTextHandler(log, nil)), owners: having()}
			g.ownersFile.path, g.pods.file.Path = filepath.Join(dir, ownersPath), filepath.Join(dir, podsFile)
			keep := func(warnings int) {
				t.Helper()
				if err := tc.keep(g); err != nil {
					t.Fatal(err)
				}
				if n := strings.Count(log.String(), tc.warning); n != warnings {
					t.Errorf("want %d warnings, got %d: %s", warnings, n, log)
				}
			}
			keep(1)
			keep(1)
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			keep(1)
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
			// Something else is to be kept now.
			g.ownersFile.written, g.pods.wanted = nil, []pods.Served{{}}
			keep(2)
		})
	}
}
