package firewall

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/config"
	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

var update = flag.Bool("update", false, "write the golden files")

func newFirewall(t *testing.T) *Firewall {
	t.Helper()
	f := &Firewall{}
	t.Cleanup(f.Close)
	return f
}

func nft(t *testing.T, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("needs nft, of package nftables")
	}
	out, err := exec.Command("nft", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("nft %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func prefixes(ss ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, s := range ss {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

func addrs(ss ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range ss {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

func gateway() *config.Config {
	c := &config.Config{}
	c.Addresses = prefixes("10.8.0.1/24", "fd00:8::1/64")
	c.Egress.Mode = wireguard.EgressDirect
	c.Peers = []wireguard.Peer{
		{Namespace: "vpn", Name: "free", Addresses: addrs("10.8.0.2", "fd00:8::2")},
		{Namespace: "vpn", Name: "bound", Addresses: addrs("10.8.0.3", "fd00:8::3"), Routes: prefixes("192.168.50.0/24"), Access: []wireguard.AccessRule{
			{Action: wireguard.Reject, To: wireguard.AccessDestination{CIDR: netip.MustParsePrefix("10.43.0.0/24")}},
			{Action: wireguard.Accept, Protocol: wireguard.ProtocolTCP, To: wireguard.AccessDestination{
				CIDR: netip.MustParsePrefix("10.43.0.0/16"), Ports: []wireguard.PortRange{{First: 443, Last: 443}, {First: 8000, Last: 8100}},
			}},
			{Action: wireguard.Accept, To: wireguard.AccessDestination{Ports: []wireguard.PortRange{{First: 53, Last: 53}}}},
			{Action: wireguard.Accept, Protocol: wireguard.ProtocolICMP},
		}},
	}
	return c
}

// withPods adds a class of pods with access rules, and two of its pods.
func withPods(c *config.Config) {
	class := wireguard.PodClass{Namespace: "apps", Name: "media", Access: []wireguard.AccessRule{{Action: wireguard.Accept, Protocol: wireguard.ProtocolUDP}}}
	c.PodClasses = []wireguard.PodClass{class}
	c.Pods = []wireguard.Peer{
		{Namespace: "apps", Name: "a", Addresses: addrs("10.244.1.5", "2001:db8:1::5"), Access: class.Access},
		{Namespace: "apps", Name: "b", Addresses: addrs("10.244.1.6"), Access: class.Access},
	}
}

func TestRender(t *testing.T) {
	cases := map[string]struct {
		reason  string
		change  func(*config.Config)
		network Network
	}{
		"direct":      {"peers leave by the interface of the default route", func(*config.Config) {}, Network{IPv4: "eth0", IPv6: "eth0"}},
		"two-uplinks": {"each family leaves by its own", func(*config.Config) {}, Network{IPv4: "eth0", IPv6: "net1"}},
		"no-ipv6":     {"a family without default route leaves nowhere", func(*config.Config) {}, Network{IPv4: "eth0"}},
		"no-uplink":   {"without any, all is dropped", func(*config.Config) {}, Network{}},
		"cluster": {"on a node's network the cluster is behind other interfaces", func(c *config.Config) {
			c.Egress.ClusterCIDRs = prefixes("10.42.0.0/16", "fd42::/48")
		}, Network{IPv4: "eth0", IPv6: "eth0"}},
		"peer-to-peer": {"peers may reach each other where it is asked for", func(c *config.Config) { c.PeerToPeer = true }, Network{IPv4: "eth0", IPv6: "eth0"}},
		"gluetun": {"with gluetun peers leave by its tunnel only", func(c *config.Config) {
			c.Egress.Mode = wireguard.EgressGluetun
		}, Network{IPv4: "eth0", IPv6: "eth0", Addresses: addrs("10.244.0.10", "2001:db8:2::10")}},
		"gluetun-cluster": {"the cluster stays reachable", func(c *config.Config) {
			c.Egress.Mode = wireguard.EgressGluetun
			c.Egress.ClusterCIDRs = prefixes("10.43.0.0/16", "fd43::/48")
			c.LeftOut = prefixes("10.64.0.0/10")
		}, Network{IPv4: "eth0", IPv6: "eth0", Addresses: addrs("10.244.0.10")}},
		"pods": {"pods have one address, inside the tunnel and outside", withPods, Network{IPv4: "eth0", IPv6: "eth0"}},
		"pods-two-uplinks": {"marks are those of each family's uplink, and there may be no pod yet", func(c *config.Config) {
			withPods(c)
			c.Pods = nil
		}, Network{IPv4: "eth0", IPv6: "net1"}},
		"pods-gluetun": {"with gluetun too", func(c *config.Config) {
			withPods(c)
			c.Egress.Mode = wireguard.EgressGluetun
			c.Egress.ClusterCIDRs = prefixes("10.244.0.0/16")
		}, Network{IPv4: "eth0", IPv6: "eth0", Addresses: addrs("10.244.0.10")}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			netns.Enter(t)
			c := gateway()
			tc.change(c)
			f := newFirewall(t)
			if _, err := f.Ensure(Render(c, tc.network)); err != nil {
				t.Fatal(err)
			}
			// As the kernel has it, not as we wrote it.
			got := nft(t, "-n", "list", "ruleset")
			path := filepath.Join("testdata", name+".nft")
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestEnsure(t *testing.T) {
	netns.Enter(t)
	// A table of the same name in another family, and rules that use the same
	// hooks, belong to others.
	nft(t, "add table ip wireguard_gateway; add chain ip wireguard_gateway forward { type filter hook forward priority 0; policy drop; }; add table inet other; add chain inet other x; add rule inet other x tcp dport 80 counter accept")
	others := func() string {
		return nft(t, "list table ip wireguard_gateway") + nft(t, "list table inet other")
	}
	f := newFirewall(t)
	r := Render(gateway(), Network{IPv4: "eth0"})
	ensure := func(step string, r Ruleset, want bool) {
		t.Helper()
		got, err := f.Ensure(r)
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		if got != want {
			t.Errorf("%s: wrote is %t, want %t", step, got, want)
		}
	}
	check := func(step string, want bool) {
		t.Helper()
		got, err := f.Check()
		if err != nil {
			t.Fatalf("%s: %v", step, err)
		}
		if got != want {
			t.Errorf("%s: intact is %t, want %t", step, got, want)
		}
	}

	ensure("first", r, true)
	ensure("again", r, false)
	check("untouched", true)
	full := nft(t, "list table inet wireguard_gateway")

	// Both ways of changing the table, by difference and as a whole.
	changed := gateway()
	changed.Peers = changed.Peers[:1]
	ensure("changed", Render(changed, Network{IPv4: "eth0"}), true)
	ensure("back", r, true)
	changed.PeerToPeer = true
	ensure("changed as a whole", Render(changed, Network{IPv4: "eth0"}), true)
	ensure("back again", r, true)
	if diff := cmp.Diff(full, nft(t, "list table inet wireguard_gateway")); diff != "" {
		t.Errorf("the table depends on what was there before:\n%s", diff)
	}

	check("read", true)
	nft(t, "add rule inet other x udp dport 53 accept")
	check("others' rules changed", true)
	ensure("others' rules changed", r, false)

	// What others change is told from what we wrote once that was learnt.
	learn := func() {
		t.Helper()
		if err := f.Learn(); err != nil {
			t.Fatal(err)
		}
	}
	ensure("changed", Render(changed, Network{IPv4: "eth0"}), true)
	learn()
	nft(t, "add rule inet other x udp dport 54 accept")
	before := others()
	check("others' rules changed after ours", true)
	ensure("changed, and others' rules too", r, true)
	learn()
	nft(t, "add rule inet wireguard_gateway forward accept")
	check("a rule added to ours after it was written", false)
	ensure("a rule added to ours after it was written", r, true)

	nft(t, "flush chain inet wireguard_gateway forward")
	check("our rules flushed", false)
	ensure("our rules flushed", r, true)
	nft(t, "add rule inet wireguard_gateway forward accept")
	check("a rule added to ours", false)
	ensure("a rule added to ours", r, true)
	nft(t, "delete table inet wireguard_gateway")
	check("our table deleted", false)
	ensure("our table deleted", r, true)
	if diff := cmp.Diff(full, nft(t, "list table inet wireguard_gateway")); diff != "" {
		t.Errorf("the table is not what it was:\n%s", diff)
	}

	for range 2 {
		if err := Remove(wireguard.FirewallTable); err != nil {
			t.Fatal(err)
		}
	}
	if got := nft(t, "list tables"); strings.Contains(got, "inet wireguard_gateway") {
		t.Errorf("the table is still there: %s", got)
	}
	if diff := cmp.Diff(before, others()); diff != "" {
		t.Errorf("others' tables changed:\n%s", diff)
	}
}

// Others may take the table away before anybody could look at it.
func TestCheckGone(t *testing.T) {
	netns.Enter(t)
	f := newFirewall(t)
	if _, err := f.Ensure(Render(gateway(), Network{IPv4: "eth0", IPv6: "eth0"})); err != nil {
		t.Fatal(err)
	}
	touched := func(reason string, want bool) {
		t.Helper()
		if got, err := f.Touched(); err != nil || got != want {
			t.Errorf("%s: touched %t, %v", reason, got, err)
		}
	}
	touched("our own changes are no others'", false)
	nft(t, "flush ruleset")
	touched("others' are", true)
	// As if it had been so before Ensure was done.
	g, err := f.sockets.generation()
	if err != nil {
		t.Fatal(err)
	}
	f.state.generation = g
	if intact, err := f.Check(); err != nil || intact {
		t.Errorf("a table that is gone is not intact: %t, %v", intact, err)
	}
	touched("nobody knows", true)
}

// However the peers change, the table has to become what it would be if it
// were written anew.
func TestDifferences(t *testing.T) {
	netns.Enter(t)
	random := rand.New(rand.NewPCG(1, 2))
	draw := func() *config.Config {
		c := gateway()
		c.Peers = nil
		for i := range 60 {
			if random.IntN(3) == 0 {
				continue
			}
			p := wireguard.Peer{Name: fmt.Sprint(i), Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 8, 0, byte(2 + i)}), netip.AddrFrom16([16]byte{0: 0xfd, 3: 8, 15: byte(2 + i)})}}
			if random.IntN(4) == 0 {
				p.Access = []wireguard.AccessRule{{Action: wireguard.Accept, To: wireguard.AccessDestination{Ports: []wireguard.PortRange{{First: 1, Last: uint16(1 + random.IntN(5))}}}}}
			}
			if random.IntN(4) == 0 {
				// Networks within networks, split where a smaller one lies.
				p.Routes = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{172, 16, byte(i), 0}), 24-i%8).Masked()}
			}
			if !slices.ContainsFunc(c.Peers, func(q wireguard.Peer) bool { return len(p.Routes) > 0 && slices.Contains(q.Routes, p.Routes[0]) }) {
				c.Peers = append(c.Peers, p)
			}
		}
		return c
	}
	network := Network{IPv4: "eth0", IPv6: "eth0"}
	f := newFirewall(t)
	small := 0
	for i := range 40 {
		r := Render(draw(), network)
		d, ok := difference(f.applied, r)
		if ok {
			small++
			if err := f.sockets.change(d.write); err != nil {
				t.Fatalf("%d: the difference is refused: %v", i, err)
			}
			f.applied = r
		} else if _, err := f.Ensure(r); err != nil {
			t.Fatal(err)
		}
		got := tableParts(t)
		if err := f.sockets.change(r.write); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tableParts(t), got); diff != "" {
			t.Fatalf("%d: -as a whole, +by difference:\n%s", i, diff)
		}
	}
	if small < 39 {
		t.Errorf("only %d of 39 changes of peers were made by difference", small)
	}
}

// tableParts returns the table's chains and sets in an order of their own,
// since the kernel lists them in the order in which they were made.
func tableParts(t *testing.T) []string {
	t.Helper()
	parts := strings.Split(nft(t, "-n", "list table inet wireguard_gateway"), "\n\n")
	for i, p := range parts {
		p = strings.TrimPrefix(strings.TrimSpace(p), "table inet wireguard_gateway {")
		parts[i] = strings.TrimRight(strings.TrimSpace(p), "\n\t }")
	}
	slices.Sort(parts)
	return parts
}

// A table that cannot be written must leave the one before in force.
func TestEnsureFailure(t *testing.T) {
	netns.Enter(t)
	f := newFirewall(t)
	r := Render(gateway(), Network{IPv4: "eth0"})
	if _, err := f.Ensure(r); err != nil {
		t.Fatal(err)
	}
	before := nft(t, "list table inet wireguard_gateway")

	broken := Render(gateway(), Network{IPv4: "eth1"})
	broken.chains = append(broken.chains, chain{name: "broken", rules: []rule{match(jump("no-such-chain"))}})
	if _, err := f.Ensure(broken); err == nil {
		t.Fatal("a rule to a chain that is not there was taken")
	}
	if diff := cmp.Diff(before, nft(t, "list table inet wireguard_gateway")); diff != "" {
		t.Errorf("the failure left traces:\n%s", diff)
	}
	if wrote, err := f.Ensure(r); err != nil || !wrote {
		t.Errorf("after a failure nothing is known of the table: wrote %t, error %v", wrote, err)
	}
}

func TestManyPeers(t *testing.T) {
	netns.Enter(t)
	c := gateway()
	c.Addresses = prefixes("10.8.0.1/16", "fd00:8::1/64")
	c.Peers = nil
	for i := range 3000 {
		p := wireguard.Peer{Name: "p", Addresses: []netip.Addr{
			netip.AddrFrom4([4]byte{10, 8, byte(1 + i/128), byte(2 * (i % 128))}),
			netip.AddrFrom16([16]byte{0: 0xfd, 3: 8, 13: 1, 14: byte(i / 128), 15: byte(2 * (i % 128))}),
		}}
		// One list each is the worst case: no two peers share a chain.
		if i%3 == 0 {
			p.Access = []wireguard.AccessRule{{Action: wireguard.Accept, To: wireguard.AccessDestination{CIDR: netip.PrefixFrom(p.Addresses[0], 32)}}}
		}
		c.Peers = append(c.Peers, p)
	}
	f := newFirewall(t)
	start := time.Now()
	if _, err := f.Ensure(Render(c, Network{IPv4: "eth0"})); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d peers, a third of them with rules of their own: %s", len(c.Peers), time.Since(start))
	table := nft(t, "list table inet wireguard_gateway")
	if got, want := strings.Count(table, ": accept")+strings.Count(table, ": goto access-"), 2*len(c.Peers); got != want {
		t.Errorf("the maps have %d entries, want %d", got, want)
	}
}
