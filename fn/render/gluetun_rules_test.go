package render

import (
	"encoding/json"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// postRule is what both versions of gluetun run. Lines that begin otherwise are
// left out in silence, and what a shell would take apart makes the start fail.
var postRule = regexp.MustCompile(`^(iptables|ip6tables)( [A-Za-z0-9!_./:,-]+)+$`)

// badRule returns why gluetun would not run a line as often as its container
// starts, or run it at all.
func badRule(line string) string {
	words := strings.Fields(line)
	switch {
	case !postRule.MatchString(line):
		return "is not the plain command that both versions run"
	case words[1] != "-A" || !slices.Contains([]string{"INPUT", "OUTPUT", "FORWARD"}, words[2]):
		return "does other than append to a chain that is always there, so that it may fail the next time"
	case words[len(words)-2] != "-j" || words[len(words)-1] != "ACCEPT":
		return "does other than accept"
	}
	return ""
}

func pools(prefixes ...string) []spec.Pool {
	var out []spec.Pool
	for _, p := range prefixes {
		out = append(out, spec.Pool{Prefix: netip.MustParsePrefix(p)})
	}
	return out
}

func TestGluetunRules(t *testing.T) {
	cases := map[string]struct {
		reason  string
		gateway spec.Gateway
		want    []string
	}{
		"IPv4": {"Handshakes may leave by either family, whatever the pools are.", spec.Gateway{Pools: pools("10.8.0.0/24"), ListenPort: 51820}, []string{
			"iptables -A FORWARD -i wg0 -o tun0 -j ACCEPT",
			"iptables -A FORWARD -i wg0 -o wg0 -j ACCEPT",
			"iptables -A FORWARD -i wg0 ! -o tun0 -d 192.168.50.0/24 -j ACCEPT",
			"iptables -A FORWARD -o wg0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
			"iptables -A INPUT -i wg0 -p icmp -j ACCEPT",
			"iptables -A INPUT -i wg0 -p udp --dport 53 -j ACCEPT",
			"iptables -A INPUT -i wg0 -p tcp --dport 53 -j ACCEPT",
			"iptables -A OUTPUT -o wg0 -j ACCEPT",
			"iptables -A OUTPUT ! -o tun0 -p udp --sport 51820 -j ACCEPT",
			"ip6tables -A OUTPUT ! -o tun0 -p udp --sport 51820 -j ACCEPT",
			"ip6tables -A INPUT ! -i tun0 -p ipv6-icmp --icmpv6-type neighbour-solicitation -j ACCEPT",
			"ip6tables -A OUTPUT ! -o tun0 -p ipv6-icmp --icmpv6-type neighbour-advertisement -j ACCEPT",
		}},
		"DualStack": {"Each family has the same rules, and its own networks.", spec.Gateway{Pools: pools("10.8.0.0/24", "fd00:8::/64"), ListenPort: 4500}, []string{
			"iptables -A FORWARD -i wg0 -o tun0 -j ACCEPT",
			"iptables -A FORWARD -i wg0 -o wg0 -j ACCEPT",
			"iptables -A FORWARD -i wg0 ! -o tun0 -d 192.168.50.0/24 -j ACCEPT",
			"iptables -A FORWARD -o wg0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
			"iptables -A INPUT -i wg0 -p icmp -j ACCEPT",
			"iptables -A INPUT -i wg0 -p udp --dport 53 -j ACCEPT",
			"iptables -A INPUT -i wg0 -p tcp --dport 53 -j ACCEPT",
			"iptables -A OUTPUT -o wg0 -j ACCEPT",
			"ip6tables -A FORWARD -i wg0 -o tun0 -j ACCEPT",
			"ip6tables -A FORWARD -i wg0 -o wg0 -j ACCEPT",
			"ip6tables -A FORWARD -i wg0 ! -o tun0 -d fd50::/64 -j ACCEPT",
			"ip6tables -A FORWARD -o wg0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
			"ip6tables -A INPUT -i wg0 -p ipv6-icmp -j ACCEPT",
			"ip6tables -A INPUT -i wg0 -p udp --dport 53 -j ACCEPT",
			"ip6tables -A INPUT -i wg0 -p tcp --dport 53 -j ACCEPT",
			"ip6tables -A OUTPUT -o wg0 -j ACCEPT",
			"iptables -A OUTPUT ! -o tun0 -p udp --sport 4500 -j ACCEPT",
			"ip6tables -A OUTPUT ! -o tun0 -p udp --sport 4500 -j ACCEPT",
			"ip6tables -A INPUT ! -i tun0 -p ipv6-icmp --icmpv6-type neighbour-solicitation -j ACCEPT",
			"ip6tables -A OUTPUT ! -o tun0 -p ipv6-icmp --icmpv6-type neighbour-advertisement -j ACCEPT",
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.gateway.Gluetun = &spec.Gluetun{OutboundSubnets: []netip.Prefix{netip.MustParsePrefix("192.168.50.0/24"), netip.MustParsePrefix("fd50::/64")}}
			got := gluetunRules(&plan.Gateway{Gateway: &tc.gateway})
			lines := strings.Split(strings.TrimSuffix(got, "\n"), "\n")
			if diff := cmp.Diff(tc.want, lines); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
			for _, l := range lines {
				if reason := badRule(l); reason != "" {
					t.Errorf("%q %s", l, reason)
				}
			}
		})
	}
	// What gluetun was seen to ignore or to fail on.
	for _, l := range []string{
		"", "# iptables", " iptables -A INPUT -j ACCEPT", "\tiptables -A INPUT -j ACCEPT", "/sbin/iptables -A INPUT -j ACCEPT", "nft add table x",
		"iptables -A INPUT -j ACCEPT # why", `iptables -A INPUT -m comment --comment "two words" -j ACCEPT`, "iptables -N PEERS", "iptables -A PEERS -j ACCEPT",
		"iptables -P INPUT ACCEPT", "iptables -A INPUT -j ACCEPT\r",
	} {
		if badRule(l) == "" {
			t.Errorf("%q is taken for a good rule", l)
		}
	}
}

func TestGluetunAuth(t *testing.T) {
	g := &plan.Gateway{Keys: plan.Keys{Seed: wireguard.Seed([]byte(strings.Repeat("seed", 8)))}}
	b, err := gluetunAuth(g)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"auth": "apikey", "apikey": g.Keys.Seed.GluetunControlKey()}, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}
