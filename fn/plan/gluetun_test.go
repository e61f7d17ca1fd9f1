package plan

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const (
	gluetunSpec = "gluetun: {provider: protonvpn, credentials: {secretRef: {name: proton}}, outboundSubnets: [192.168.50.0/24, \"fd50::/64\"]}"
	dualSpec    = "\npeerCIDR: 10.8.0.0/24\npeerCIDRv6: \"fd00:8::/64\""
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

func TestGluetunRules(t *testing.T) {
	cases := map[string]struct {
		reason, spec string
		want         []string
	}{
		"IPv4": {"Handshakes may leave by either family, whatever the pools are.", gluetunSpec, []string{
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
		"DualStack": {"Each family has the same rules, and its own networks.", gluetunSpec + dualSpec + "\nlistenPort: 4500", []string{
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
			got := planned(t, inputs(t, tc.spec)).GluetunRules()
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
	g := planned(t, inputs(t, gluetunSpec))
	b, err := g.GluetunAuth()
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

// TestDNSThroughGluetun goes through all combinations of who may name a
// resolver: an explicit one wins, then gluetun's, then the cluster's.
func TestDNSThroughGluetun(t *testing.T) {
	for i := range 1 << 5 {
		has := func(bit int) bool { return i&(1<<bit) != 0 }
		gluetun, cluster, gateway, peer, dual := has(0), has(1), has(2), has(3), has(4)
		s, platform, want := "", "{}", ""
		if cluster {
			platform, want = "{clusterDNS: 10.43.0.10}", "10.43.0.10"
		}
		if gluetun {
			s += gluetunSpec + "\n"
			want = "10.8.0.1"
			if dual {
				want += " fd00:8::1"
			}
		}
		if gateway {
			s += "dns: {servers: [8.8.8.8]}\n"
			want = "8.8.8.8"
		}
		if peer {
			s += "peers: [{name: a, dns: {servers: [9.9.9.9]}}]"
			want = "9.9.9.9"
		} else {
			s += "peers: [{name: a}]"
		}
		if dual {
			s += dualSpec
		}
		t.Run(fmt.Sprintf("gluetun=%t,cluster=%t,gateway=%t,peer=%t,dual=%t", gluetun, cluster, gateway, peer, dual), func(t *testing.T) {
			g := planned(t, inputsOn(t, s, platform))
			if got := strings.Join(g.Peers[0].DNS, " "); got != want {
				t.Errorf("want %q, got %q", want, got)
			}
		})
	}
}
