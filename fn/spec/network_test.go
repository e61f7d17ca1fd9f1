package spec

import (
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPools(t *testing.T) {
	cases := map[string]struct {
		reason string
		spec   string
		want   []string // pool and server address
	}{
		"Default":   {"A gateway needs a pool.", `{}`, []string{"10.8.0.0/24 10.8.0.1"}},
		"IPv4":      {"The first host is the server.", `{peerCIDR: 10.9.0.0/16}`, []string{"10.9.0.0/16 10.9.0.1"}},
		"IPv6":      {"An IPv6 pool alone brings no IPv4.", `{peerCIDRv6: "fd00:8::/64"}`, []string{"fd00:8::/64 fd00:8::1"}},
		"Both":      {"IPv4 stands first.", `{peerCIDR: 10.9.0.0/16, peerCIDRv6: "fd00:8::/64"}`, []string{"10.9.0.0/16 10.9.0.1", "fd00:8::/64 fd00:8::1"}},
		"Smallest":  {"There is room for one peer.", `{peerCIDR: 10.9.0.4/30, peerCIDRv6: "fd00::4/126"}`, []string{"10.9.0.4/30 10.9.0.5", "fd00::4/126 fd00::5"}},
		"Canonical": {"Other spellings mean the same.", `{peerCIDRv6: "FD00:0008:0::/64"}`, []string{"fd00:8::/64 fd00:8::1"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, p := range accepted(t, tc.spec).Pools {
				got = append(got, p.Prefix.String()+" "+p.Server().String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestPoolsRefused(t *testing.T) {
	testRefusals(t, map[string]refusal{
		"NoCIDR":        {"The message shows the form.", `{peerCIDR: ten}`, []string{`spec.peerCIDR: Invalid value: "ten": is no network: write address and prefix length, such as 10.8.0.0/24`}},
		"NoLength":      {"An address is no pool.", `{peerCIDR: 10.8.0.0}`, []string{`spec.peerCIDR: Invalid value: "10.8.0.0": is no network`}},
		"HostBits":      {"The message gives the canonical form.", `{peerCIDR: 10.8.0.1/24}`, []string{`spec.peerCIDR: Invalid value: "10.8.0.1/24": has host bits set: write 10.8.0.0/24`}},
		"HostBitsv6":    {"The message gives the canonical form.", `{peerCIDRv6: "fd00::1/64"}`, []string{`spec.peerCIDRv6: Invalid value: "fd00::1/64": has host bits set: write fd00::/64`}},
		"TooSmall":      {"There is no room for a peer.", `{peerCIDR: 10.8.0.0/31}`, []string{`spec.peerCIDR: Invalid value: "10.8.0.0/31": is too small: a pool is /30 or larger`}},
		"TooSmallv6":    {"There is no room for a peer.", `{peerCIDRv6: "fd00::/127"}`, []string{`spec.peerCIDRv6: Invalid value: "fd00::/127": is too small: a pool is /126 or larger`}},
		"Everything":    {"Nobody means that.", `{peerCIDR: 0.0.0.0/0}`, []string{`spec.peerCIDR: Invalid value: "0.0.0.0/0": is everything`}},
		"Everythingv6":  {"Nobody means that.", `{peerCIDRv6: "::/0"}`, []string{`spec.peerCIDRv6: Invalid value: "::/0": is everything`}},
		"WrongFamily":   {"Each family has its field.", `{peerCIDR: "fd00::/64"}`, []string{`spec.peerCIDR: Invalid value: "fd00::/64": is no IPv4 network`}},
		"WrongFamilyv6": {"Each family has its field.", `{peerCIDR: 10.8.0.0/24, peerCIDRv6: 10.9.0.0/24}`, []string{`spec.peerCIDRv6: Invalid value: "10.9.0.0/24": is no IPv6 network`}},
		"Overlap":       {"IPv4 in IPv6 form would be the same pool twice.", `{peerCIDR: 10.8.0.0/24, peerCIDRv6: "::ffff:10.8.0.0/120"}`, []string{`spec.peerCIDRv6: Invalid value: "::ffff:10.8.0.0/120": is an IPv4 network in IPv6 form`}},
		"LineBreak":     {"Nothing that breaks a line gets through.", `{peerCIDR: "10.8.0.0/24\n"}`, []string{`spec.peerCIDR: Invalid value: "10.8.0.0/24\n": is no network`}},
		"Zone":          {"A zone is for one machine only.", `{peerCIDRv6: "fe80::%eth0/64"}`, []string{`spec.peerCIDRv6: Invalid value: "fe80::%eth0/64": is no network`}},
	})
}

// TestIPv4Dropped holds that nobody loses IPv4 by adding IPv6.
func TestIPv4Dropped(t *testing.T) {
	const had = `{addresses: ["10.8.0.1"]}`
	cases := map[string]struct {
		reason       string
		spec, status string
		want         []string
	}{
		"Dropped": {
			"The default pool would go, and with it every peer's address.", `{peerCIDRv6: "fd00::/64"}`, had,
			[]string{`spec.peerCIDR: Required value: the gateway has the IPv4 address 10.8.0.1`},
		},
		"Kept":     {"Both may be there.", `{peerCIDR: 10.8.0.0/24, peerCIDRv6: "fd00::/64"}`, had, nil},
		"Changed":  {"Who names another pool means it.", `{peerCIDR: 10.9.0.0/24}`, had, nil},
		"New":      {"A new gateway may be without IPv4.", `{peerCIDRv6: "fd00::/64"}`, `{}`, nil},
		"IPv6Only": {"A gateway without IPv4 stays so.", `{peerCIDRv6: "fd00::/64"}`, `{addresses: ["fd00::1"]}`, nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, errs := parseWith(t, "home", tc.spec, tc.status)
			checkErrors(t, tc.reason, tc.want, errs)
		})
	}
}

func TestReserved(t *testing.T) {
	g := accepted(t, `{reservedAddresses: ["10.8.0.2-10.8.0.9", "10.8.0.20", "fd00::-fd00::ffff"]}`)
	addr := netip.MustParseAddr
	want := []Range{
		{addr("10.8.0.2"), addr("10.8.0.9")},
		{addr("10.8.0.20"), addr("10.8.0.20")},
		{addr("fd00::"), addr("fd00::ffff")},
	}
	if diff := cmp.Diff(want, g.Reserved, netTypes); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	for ip, in := range map[string]bool{"10.8.0.1": false, "10.8.0.2": true, "10.8.0.9": true, "10.8.0.10": false, "fd00::1": false} {
		if got := want[0].Contains(addr(ip)); got != in {
			t.Errorf("%s in 10.8.0.2-10.8.0.9: want %t, got %t", ip, in, got)
		}
	}
}

func TestReservedRefused(t *testing.T) {
	testRefusals(t, map[string]refusal{
		"UpsideDown": {"The message gives the right form.", `{reservedAddresses: ["10.8.0.9-10.8.0.2"]}`, []string{`spec.reservedAddresses[0]: Invalid value: "10.8.0.9-10.8.0.2": is upside down: write 10.8.0.2-10.8.0.9`}},
		"Mixed":      {"A range has one family.", `{reservedAddresses: ["10.8.0.9-fd00::1"]}`, []string{`spec.reservedAddresses[0]: Invalid value: "10.8.0.9-fd00::1": mixes IPv4 and IPv6`}},
		"Network":    {"A network is no range.", `{reservedAddresses: ["10.8.0.0/28"]}`, []string{`spec.reservedAddresses[0]: Invalid value: "10.8.0.0/28": is no single address`}},
		"Half":       {"A range has two ends.", `{reservedAddresses: ["10.8.0.9-"]}`, []string{`spec.reservedAddresses[0]: Invalid value: "10.8.0.9-": is no address`}},
		"Mapped":     {"An IPv4 address has one form.", `{reservedAddresses: ["::ffff:10.8.0.9"]}`, []string{`spec.reservedAddresses[0]: Invalid value: "::ffff:10.8.0.9": is an IPv4 address in IPv6 form: write 10.8.0.9`}},
		"Index":      {"The message names the place.", `{reservedAddresses: ["10.8.0.9", "nine"]}`, []string{`spec.reservedAddresses[1]: Invalid value: "nine": is no address`}},
	})
}

func TestAssignable(t *testing.T) {
	v4 := Pool{Prefix: netip.MustParsePrefix("10.8.0.0/24")}
	v6 := Pool{Prefix: netip.MustParsePrefix("fd00::/120")}
	cases := map[string]struct {
		pool Pool
		ip   string
		want bool
	}{
		"Network":     {v4, "10.8.0.0", false},
		"Server":      {v4, "10.8.0.1", false},
		"First":       {v4, "10.8.0.2", true},
		"Last":        {v4, "10.8.0.254", true},
		"Broadcast":   {v4, "10.8.0.255", false},
		"Outside":     {v4, "10.8.1.2", false},
		"OtherFamily": {v4, "fd00::2", false},
		"Anycast":     {v6, "fd00::", false},
		"Serverv6":    {v6, "fd00::1", false},
		"Firstv6":     {v6, "fd00::2", true},
		"Lastv6":      {v6, "fd00::ff", true}, // IPv6 has no broadcast.
		"Outsidev6":   {v6, "fd00::100", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.pool.Assignable(netip.MustParseAddr(tc.ip)); got != tc.want {
				t.Errorf("%s in %s: want %t, got %t", tc.ip, tc.pool.Prefix, tc.want, got)
			}
		})
	}
}

func TestMTU(t *testing.T) {
	cases := map[string]struct {
		reason         string
		spec           string
		direct, tunnel int
	}{
		"Default":  {"WireGuard over IPv6 fits 1500 bytes.", `{}`, 1420, 1360},
		"Direct":   {"The tunnel has its own.", `{mtu: {direct: 1400}}`, 1400, 1360},
		"Smaller":  {"The tunnel's is never above the device's.", `{mtu: {direct: 1300}}`, 1300, 1300},
		"Tunnel":   {"Each can be set.", `{mtu: {tunnel: 1280}}`, 1420, 1280},
		"Jumbo":    {"These are the outermost.", `{mtu: {direct: 9000, tunnel: 576}}`, 9000, 576},
		"IPv6Edge": {"IPv6 needs 1280.", `{peerCIDRv6: "fd00::/64", mtu: {direct: 1280}}`, 1280, 1280},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := accepted(t, tc.spec)
			if g.MTU != tc.direct || g.TunnelMTU != tc.tunnel {
				t.Errorf("%s\nwant %d and %d, got %d and %d", tc.reason, tc.direct, tc.tunnel, g.MTU, g.TunnelMTU)
			}
		})
	}
	testRefusals(t, map[string]refusal{
		"TooSmall":   {"Every IPv4 host takes 576.", `{mtu: {direct: 575, tunnel: 576}}`, []string{`spec.mtu.direct: Invalid value: 575: is out of range: use 576 to 9000`}},
		"TooLarge":   {"There are no larger frames.", `{mtu: {direct: 9001}}`, []string{`spec.mtu.direct: Invalid value: 9001: is out of range`}},
		"Negative":   {"It is no size.", `{mtu: {tunnel: -1}}`, []string{`spec.mtu.tunnel: Invalid value: -1: is out of range`}},
		"BelowIPv6":  {"The message says why.", `{peerCIDRv6: "fd00::/64", mtu: {direct: 1279, tunnel: 1280}}`, []string{`spec.mtu.direct: Invalid value: 1279: is below what IPv6 needs: use at least 1280`}},
		"Peer":       {"A peer's cap has the same bounds.", `{peers: [{name: a, mtu: 500}]}`, []string{`spec.peers[0].mtu: Invalid value: 500: is out of range`}},
		"PeerIPv6":   {"A peer's cap has the same bounds.", `{peerCIDRv6: "fd00::/64", peers: [{name: a, mtu: 1279}]}`, []string{`spec.peers[0].mtu: Invalid value: 1279: is below what IPv6 needs`}},
		"TunnelIPv6": {"The tunnel carries IPv6 too.", `{peerCIDRv6: "fd00::/64", mtu: {tunnel: 1000}}`, []string{`spec.mtu.tunnel: Invalid value: 1000: is below what IPv6 needs`}},
	})
}

func TestDNS(t *testing.T) {
	g := accepted(t, `{dns: {servers: ["9.9.9.9", "FD00::53"], searchDomains: [example.com, Lab.Example.com, lan, example.com.]}}`)
	want := &DNS{
		Servers:       []netip.Addr{netip.MustParseAddr("9.9.9.9"), netip.MustParseAddr("fd00::53")},
		SearchDomains: []string{"example.com", "Lab.Example.com", "lan", "example.com."},
	}
	if diff := cmp.Diff(want, g.DNS, netTypes); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	testRefusals(t, map[string]refusal{
		"Name":      {"A server is an address: its name could not be resolved.", `{dns: {servers: [dns.example.com]}}`, []string{`spec.dns.servers[0]: Invalid value: "dns.example.com": is no address`}},
		"Mask":      {"A server is one address.", `{dns: {servers: ["9.9.9.9/32"]}}`, []string{`spec.dns.servers[0]: Invalid value: "9.9.9.9/32": is no single address`}},
		"Zone":      {"A zone is for one machine only.", `{dns: {servers: ["fe80::1%eth0"]}}`, []string{`spec.dns.servers[0]: Invalid value: "fe80::1%eth0": has a zone`}},
		"LineBreak": {"It would be a line of the configuration.", `{dns: {searchDomains: ["lan\nPostUp = reboot"]}}`, []string{`spec.dns.searchDomains[0]: Invalid value: "lan\nPostUp = reboot": is no DNS name`}},
		"Comma":     {"It would be another entry.", `{dns: {searchDomains: ["lan,9.9.9.9"]}}`, []string{`spec.dns.searchDomains[0]: Invalid value: "lan,9.9.9.9": is no DNS name`}},
		"Numbers":   {"wg-quick would take it for a server.", `{dns: {searchDomains: ["9.9.9.9"]}}`, []string{`spec.dns.searchDomains[0]: Invalid value: "9.9.9.9": is no DNS name`}},
		"Empty":     {"It would be an empty entry.", `{dns: {searchDomains: [""]}}`, []string{`spec.dns.searchDomains[0]: Invalid value: "": is no DNS name`}},
		"Peer":      {"A peer's own are judged the same.", `{peers: [{name: a, dns: {servers: [x], searchDomains: ["-"]}}]}`, []string{`spec.peers[0].dns.servers[0]: Invalid value: "x"`, `spec.peers[0].dns.searchDomains[0]: Invalid value: "-"`}},
	})
}
