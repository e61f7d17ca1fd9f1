package plan

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

func TestExpiry(t *testing.T) {
	const at = "2026-06-01T12:00:00Z" // now
	cases := map[string]struct {
		reason string
		spec   string
		states map[string]string
		next   time.Time
	}{
		"Past":          {"It is over.", `{peers: [{name: a, expiresAt: "2026-06-01T11:59:59Z"}]}`, map[string]string{"a": "Expired"}, time.Time{}},
		"Now":           {"From then on means then, too.", `{peers: [{name: a, expiresAt: "` + at + `"}]}`, map[string]string{"a": "Expired"}, time.Time{}},
		"Next":          {"A second is left.", `{peers: [{name: a, expiresAt: "2026-06-01T12:00:01Z"}]}`, map[string]string{"a": "Active"}, now.Add(time.Second)},
		"Zone":          {"Time zones are times.", `{peers: [{name: a, expiresAt: "2026-06-01T14:00:01+02:00"}]}`, map[string]string{"a": "Active"}, now.Add(time.Second)},
		"First":         {"The next to expire is the first of them.", `{peers: [{name: a, expiresAt: "2027-01-01T00:00:00Z"}, {name: b, expiresAt: "2026-06-02T12:00:00Z"}, {name: c, expiresAt: "2026-05-01T00:00:00Z"}]}`, map[string]string{"a": "Active", "b": "Active", "c": "Expired"}, now.Add(24 * time.Hour)},
		"Disabled":      {"Who is disabled does not expire.", `{peers: [{name: a, disabled: true, expiresAt: "2027-01-01T00:00:00Z"}]}`, map[string]string{"a": "Disabled"}, time.Time{}},
		"DisabledPast":  {"Disabled says more.", `{peers: [{name: a, disabled: true, expiresAt: "2026-01-01T00:00:00Z"}]}`, map[string]string{"a": "Disabled"}, time.Time{}},
		"NeverExpiring": {"Without a time there is none.", `{peers: [{name: a}]}`, map[string]string{"a": "Active"}, time.Time{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := planned(t, inputs(t, tc.spec))
			if diff := cmp.Diff(tc.states, statesOf(g)); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
			if !g.NextExpiry.Equal(tc.next) {
				t.Errorf("%s\nwant the next expiry at %s, got %s", tc.reason, tc.next, g.NextExpiry)
			}
		})
	}
}

func TestDNS(t *testing.T) {
	const (
		platform = `{clusterDNS: 10.43.0.10}`
		resolver = `gluetun: {provider: mullvad, credentials: {secretRef: {name: c}}}`
	)
	cases := map[string]struct {
		reason         string
		spec, platform string
		want           string
	}{
		"Nothing":         {"No server is invented.", `{peers: [{name: a}]}`, `{}`, ""},
		"Cluster":         {"The platform's is the default.", `{peers: [{name: a}]}`, platform, "10.43.0.10"},
		"Gateway":         {"Explicit servers win, verbatim and in order.", `{dns: {servers: [8.8.8.8, 1.1.1.1]}, peers: [{name: a}]}`, platform, "8.8.8.8 1.1.1.1"},
		"GatewayDomains":  {"Domains come after servers, and nothing of the cluster's with them.", `{dns: {servers: [8.8.8.8], searchDomains: [example.com, lan]}, peers: [{name: a}]}`, platform, "8.8.8.8 example.com lan"},
		"OnlyDomains":     {"Domains go with the default server.", `{dns: {searchDomains: [lan]}, peers: [{name: a}]}`, platform, "10.43.0.10 lan"},
		"DomainsAlone":    {"Without any server there is nothing to search.", `{dns: {searchDomains: [lan]}, peers: [{name: a}]}`, `{}`, ""},
		"Peer":            {"A peer's own replaces the gateway's as a whole.", `{dns: {servers: [8.8.8.8], searchDomains: [lan]}, peers: [{name: a, dns: {servers: [9.9.9.9]}}]}`, platform, "9.9.9.9"},
		"PeerDomains":     {"As a whole means the servers, too.", `{dns: {servers: [8.8.8.8]}, peers: [{name: a, dns: {searchDomains: [lab]}}]}`, platform, "10.43.0.10 lab"},
		"PeerNothing":     {"An empty block takes the gateway's away.", `{dns: {servers: [8.8.8.8], searchDomains: [lan]}, peers: [{name: a, dns: {}}]}`, platform, "10.43.0.10"},
		"PeerNothingAtAl": {"Then there may be nothing left.", `{dns: {servers: [8.8.8.8]}, peers: [{name: a, dns: {}}]}`, `{}`, ""},
		"OtherFamily":     {"A client without IPv4 in its tunnel does not reach a default of IPv4.", `{peerCIDRv6: "fd00::/64", peers: [{name: a}]}`, platform, ""},
		"OtherFamily6":    {"Nor one without IPv6 a default of IPv6.", `{peers: [{name: a}]}`, `{clusterDNS: "fd43::a"}`, ""},
		"BothFamilies":    {"One with both does.", `{peerCIDR: 10.8.0.0/24, peerCIDRv6: "fd00::/64", peers: [{name: a}]}`, `{clusterDNS: "fd43::a"}`, "fd43::a"},
		"Split":           {"A default beside the tunnel is none.", `{peers: [{name: a, allowedIPs: [192.168.50.0/24]}]}`, platform, ""},
		"SplitWith":       {"One in the tunnel stays.", `{peers: [{name: a, allowedIPs: [192.168.50.0/24, 10.43.0.0/16]}]}`, platform, "10.43.0.10"},
		"SplitDomains":    {"Without it there is nothing to search.", `{dns: {searchDomains: [lan]}, peers: [{name: a, allowedIPs: [192.168.50.0/24]}]}`, platform, ""},
		"SplitGateway":    {"The gateway's are meant, wherever they are.", `{dns: {servers: [192.168.1.1, "fd01::1"], searchDomains: [lan]}, peers: [{name: a, allowedIPs: [192.168.50.0/24]}]}`, platform, "192.168.1.1 fd01::1 lan"},
		"SplitPeer":       {"So are the peer's.", `{peers: [{name: a, allowedIPs: [192.168.50.0/24], dns: {servers: ["fd01::1", 192.168.1.1]}}]}`, platform, "fd01::1 192.168.1.1"},
		"SplitSites":      {"What the list gains counts.", `{peerToPeer: true, peers: [{name: a, allowedIPs: [192.168.50.0/24]}, {name: b, routes: [172.20.0.0/16]}]}`, `{clusterDNS: 172.20.0.10}`, "172.20.0.10"},
		"Egress":          {"Behind gluetun its resolver is the default, on the gateway's own addresses.", `{peerCIDR: 10.8.0.0/24, peerCIDRv6: "fd00::/64", ` + resolver + `, peers: [{name: a}]}`, platform, "10.8.0.1 fd00::1"},
		"EgressSplit":     {"A query to it must not go beside the tunnel.", `{` + resolver + `, peers: [{name: a, allowedIPs: [192.168.50.0/24]}]}`, platform, ""},
		"EgressOneFamily": {"What is left is what the tunnel leads to.", `{peerCIDR: 10.8.0.0/24, peerCIDRv6: "fd00::/64", ` + resolver + `, peers: [{name: a, allowedIPs: ["::/0"]}]}`, platform, "fd00::1"},
		"EgressSites":     {"The pools are in the list with peerToPeer.", `{peerToPeer: true, ` + resolver + `, peers: [{name: a, allowedIPs: [192.168.50.0/24]}]}`, platform, "10.8.0.1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := planned(t, inputsOn(t, tc.spec, tc.platform))
			if got := strings.Join(g.Peers[0].DNS, " "); got != tc.want {
				t.Errorf("%s\nwant %q, got %q", tc.reason, tc.want, got)
			}
		})
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
			s += "\npeerCIDR: 10.8.0.0/24\npeerCIDRv6: \"fd00:8::/64\""
		}
		t.Run(fmt.Sprintf("gluetun=%t,cluster=%t,gateway=%t,peer=%t,dual=%t", gluetun, cluster, gateway, peer, dual), func(t *testing.T) {
			g := planned(t, inputsOn(t, s, platform))
			if got := strings.Join(g.Peers[0].DNS, " "); got != want {
				t.Errorf("want %q, got %q", want, got)
			}
		})
	}
}

func TestAllowedIPs(t *testing.T) {
	const sites = `{name: site-b, routes: [192.168.50.0/24]}, {name: site-c, routes: [192.168.60.0/24, "fd60::/64"], disabled: true}, {name: site-d, routes: [192.168.70.0/24], privateKeySecretRef: {name: none}}`
	cases := map[string]struct {
		reason string
		spec   string
		want   string
	}{
		"Default":       {"Everything of the one family.", `{peers: [{name: a}]}`, "0.0.0.0/0"},
		"IPv6Only":      {"No IPv4 where there is none.", `{peerCIDRv6: "fd00::/64", peers: [{name: a}]}`, "::/0"},
		"DualStack":     {"Everything of both.", `{peerCIDR: 10.8.0.0/24, peerCIDRv6: "fd00::/64", peers: [{name: a}]}`, "0.0.0.0/0 ::/0"},
		"Split":         {"What the user names, in that order.", `{peers: [{name: a, allowedIPs: [10.43.0.0/16, 10.42.0.0/16]}]}`, "10.43.0.0/16 10.42.0.0/16"},
		"SplitSites":    {"Without peerToPeer nothing is added.", `{peers: [{name: a, allowedIPs: [10.43.0.0/16]}, ` + sites + `]}`, "10.43.0.0/16"},
		"PeerToPeer":    {"With it, the pools and the networks behind others are: a client drops what it does not expect.", `{peerToPeer: true, peers: [{name: a, allowedIPs: [10.43.0.0/16]}, ` + sites + `]}`, "10.43.0.0/16 10.8.0.0/24 192.168.50.0/24 192.168.60.0/24 fd60::/64"},
		"Covered":       {"What is within the list is not added.", `{peerToPeer: true, peers: [{name: a, allowedIPs: [10.0.0.0/8, 192.168.0.0/16]}, ` + sites + `]}`, "10.0.0.0/8 192.168.0.0/16 fd60::/64"},
		"Same":          {"Nor what is in it.", `{peerToPeer: true, peers: [{name: a, allowedIPs: [10.8.0.0/24]}]}`, "10.8.0.0/24"},
		"Within":        {"A part of the pool is not the pool.", `{peerToPeer: true, peers: [{name: a, allowedIPs: [10.8.0.50/32]}]}`, "10.8.0.50/32 10.8.0.0/24"},
		"OwnRoutes":     {"A site does not route its own network into the tunnel.", `{peerToPeer: true, peers: [{name: a, routes: [192.168.40.0/24], allowedIPs: [10.43.0.0/16]}, ` + sites + `]}`, "10.43.0.0/16 10.8.0.0/24 192.168.50.0/24 192.168.60.0/24 fd60::/64"},
		"DefaultStays":  {"Everything needs no addition.", `{peerToPeer: true, peers: [{name: a}, ` + sites + `]}`, "0.0.0.0/0"},
		"BothPools":     {"Both pools are added.", `{peerCIDR: 10.8.0.0/24, peerCIDRv6: "fd00::/64", peerToPeer: true, peers: [{name: a, allowedIPs: [10.43.0.0/16]}]}`, "10.43.0.0/16 10.8.0.0/24 fd00::/64"},
		"EverythingOne": {"Everything of one family covers none of the other.", `{peerCIDR: 10.8.0.0/24, peerCIDRv6: "fd00::/64", peerToPeer: true, peers: [{name: a, allowedIPs: [0.0.0.0/0]}]}`, "0.0.0.0/0 fd00::/64"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, n := range peerOf(t, planned(t, inputs(t, tc.spec)), "a").AllowedIPs {
				got = append(got, n.String())
			}
			if s := strings.Join(got, " "); s != tc.want {
				t.Errorf("%s\nwant %s, got %s", tc.reason, tc.want, s)
			}
		})
	}
}

func TestMTU(t *testing.T) {
	g := planned(t, inputs(t, `{mtu: {direct: 1400}, peers: [{name: a}, {name: b, mtu: 1280}, {name: c, mtu: 9000}]}`))
	for name, want := range map[string]int{"a": 1400, "b": 1280, "c": 1400} {
		if got := peerOf(t, g, name).MTU; got != want {
			t.Errorf("%s: want %d, got %d: a peer's is a cap", name, want, got)
		}
	}
}

func TestConfigPeers(t *testing.T) {
	g := planned(t, inputs(t, `{persistentKeepalive: 20, peers: [
		{name: a}, {name: b, persistentKeepalive: 10}, {name: c, endpoint: "198.51.100.9:51820"}, {name: d, endpoint: "[2001:db8::9]:51820", persistentKeepalive: 5},
		{name: e, endpoint: "198.51.100.9:51821", persistentKeepalive: 0}, {name: f, disabled: true}, {name: g, expiresAt: "2020-01-01T00:00:00Z"}, {name: h, privateKeySecretRef: {name: none}}]}`))
	type peer struct {
		Name, Endpoint string
		Keepalive      int
	}
	// A keepalive of the gateway's own only goes where it dials: others would
	// be woken for nothing.
	want := []peer{{"a", "", 0}, {"b", "", 0}, {"c", "198.51.100.9:51820", 20}, {"d", "[2001:db8::9]:51820", 5}, {"e", "198.51.100.9:51821", 0}}
	var got []peer
	for _, p := range g.Config().Peers {
		got = append(got, peer{p.Name, p.Endpoint, p.PersistentKeepalive})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	for name, keepalive := range map[string]int{"a": 20, "b": 10, "e": 0} {
		if got := g.ClientConfig(peerOf(t, g, name), "x:1").PersistentKeepalive; got != keepalive {
			t.Errorf("client %s: want a keepalive of %d, got %d", name, keepalive, got)
		}
	}
}

// TestConfigWithoutPrivateKeys holds that the agent never sees a client's.
func TestConfigWithoutPrivateKeys(t *testing.T) {
	g := planned(t, inputs(t, `{peers: [{name: a, presharedKey: {generate: true}}, {name: b}]}`))
	config := string(configOf(t, g))
	for i := range g.Peers {
		if strings.Contains(config, g.Peers[i].PrivateKey.String()) {
			t.Errorf("the private key of %s is in it", g.Peers[i].Name)
		}
	}
	if n := strings.Count(config, g.Peers[0].PublicKey.String()); n != 1 {
		t.Errorf("want each public key once, got %d", n)
	}
	if strings.Contains(config, g.Keys.Public.String()) {
		t.Error("the gateway's public key follows from its private one")
	}
}

func TestPeersSorted(t *testing.T) {
	want := configOf(t, planned(t, inputs(t, peersSpec("a", "b", "c", "d"))))
	got := configOf(t, planned(t, inputs(t, peersSpec("c", "a", "d", "b"))))
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("the order in the spec must not matter: -want, +got:\n%s", diff)
	}
}

func TestAccess(t *testing.T) {
	g := planned(t, inputs(t, `{peers: [{name: a, access: [{action: Accept, to: {cidr: 10.43.0.20/32, ports: ["443"]}, protocol: TCP}, {action: Reject, protocol: UDP}]}, {name: b}]}`))
	c := g.Config()
	if len(c.Peers[0].Access) != 2 || c.Peers[0].Access[0].Action != wireguard.Accept || c.Peers[0].Access[1].Protocol != wireguard.ProtocolUDP {
		t.Errorf("want both rules in their order, got %+v", c.Peers[0].Access)
	}
	if diff := cmp.Diff([]wireguard.AccessRule(nil), c.Peers[1].Access, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("a peer without rules may go anywhere: %s", diff)
	}
}
