package fn

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"github.com/google/go-cmp/cmp"
)

func TestPeerRejected(t *testing.T) {
	cases := map[string]struct {
		reason string
		peer   func(c *cluster)
		want   string
		says   string
	}{
		"InlineOfOneName": {
			reason: "the owner's own word comes first",
			peer:   func(c *cluster) { c.peer("vpn", "laptop", "{}") },
			want:   "DuplicateName", says: "rename one of them",
		},
		"PublicKey": {
			reason: "every device has its own",
			peer:   func(c *cluster) { c.peer("vpn", "x", "{publicKey: "+alicesKey+"}") },
			want:   "DuplicatePublicKey", says: `peers "vpn/x" and "phone"`,
		},
		"Pin": {
			reason: "an address is one peer's",
			peer:   func(c *cluster) { c.peer("vpn", "x", "{addresses: [10.8.0.50]}") },
			want:   "DuplicateAddress", says: `which peer "phone" has`,
		},
		"Route": {
			reason: "the owner allows no such network",
			peer:   func(c *cluster) { c.peer("vpn", "x", "{routes: [192.168.7.0/24]}") },
			want:   "RouteNotAllowed", says: "192.168.7.0/24",
		},
		"Pool": {
			reason: "the gateway has other addresses",
			peer:   func(c *cluster) { c.peer("vpn", "x", "{addresses: [10.9.0.50]}") },
			want:   "Invalid", says: "10.8.0.0/24",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.gateway(`{endpoint: {host: vpn.example.com}, peers: [{name: laptop}, {name: phone, publicKey: "` + alicesKey + `", addresses: [10.8.0.50]}]}`)
			c.settle()
			before := c.namesOf("vpn")
			device := c.config().Peers
			tc.peer(c)
			c.settle()
			name := "x"
			if tc.want == "DuplicateName" {
				name = "laptop"
			}
			c.want("WireguardPeer", "vpn", name, "ConfigReady", "FALSE "+tc.want)
			_, here := c.condition("WireguardPeer", "vpn", name, "ConfigReady")
			_, there := c.condition("WireguardGateway", "vpn", "home", "PeersReady")
			if !strings.Contains(here, tc.says) || !strings.Contains(there, here) {
				t.Errorf("%s: want %q on both, got\n%s\n%s", tc.reason, tc.says, here, there)
			}
			if diff := cmp.Diff(append(before, "ConfigMap "+name+"-wireguard.attachment"), c.namesOf("vpn"), sorted); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
			if len(c.config().Peers) != len(device) {
				t.Errorf("%s: want it off the device", tc.reason)
			}
			if c.last[objectID("WireguardPeer", "vpn", name)].GetDesired().GetComposite().GetReady() != fnv1.Ready_READY_FALSE {
				t.Errorf("%s: a peer that is rejected is ready", tc.reason)
			}
			// It is over when the cause is.
			c.peer("vpn", name, "{}")
			c.gateway(gatewayClosed)
			c.settle()
			c.want("WireguardPeer", "vpn", name, "ConfigReady", "TRUE Available")
			c.want("WireguardGateway", "vpn", "home", "PeersReady", "TRUE Available")
		})
	}
}

var sorted = cmp.Transformer("sorted", func(s []string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
})

func TestDisabledAndExpired(t *testing.T) {
	c := newCluster(t)
	c.gateway(gatewayAll)
	c.peer("apps", "paused", "{disabled: true}")
	c.peer("apps", "soon", `{expiresAt: "2026-06-01T12:00:20Z"}`)
	c.settle()
	c.want("WireguardPeer", "apps", "paused", "ConfigReady", "TRUE Disabled")
	c.want("WireguardPeer", "apps", "soon", "ConfigReady", "TRUE Available")
	if ttl := c.last[objectID("WireguardPeer", "apps", "soon")].GetMeta().GetTtl().AsDuration(); ttl != 20*time.Second {
		t.Errorf("TTL: want 20s, got %s", ttl)
	}
	if ttl := c.last[objectID("WireguardPeer", "apps", "paused")].GetMeta().GetTtl().AsDuration(); ttl != time.Minute {
		t.Errorf("TTL: want the platform's, got %s", ttl)
	}
	c.now = c.now.Add(time.Minute)
	c.settle()
	c.want("WireguardPeer", "apps", "soon", "ConfigReady", "TRUE Expired")
	if got := c.onDevice(); len(got) != 0 {
		t.Errorf("want nobody on the device, got %v", got)
	}
	if c.secret("apps", "paused-wireguard.peer") == nil || c.secret("apps", "soon-wireguard.peer") == nil {
		t.Error("want both Secrets kept")
	}
}

// Every path has every condition, in one order.
func TestPeerConditionsAreClosed(t *testing.T) {
	const yes, no, unknown = fnv1.Status_STATUS_CONDITION_TRUE, fnv1.Status_STATUS_CONDITION_FALSE, fnv1.Status_STATUS_CONDITION_UNKNOWN
	for name, tc := range map[string]struct {
		reason, manifest string
		want             []fnv1.Status
	}{
		"Invalid":   {"syntax is refused at once", `{gatewayRef: {name: home}, client: {mtu: 1}}`, []fnv1.Status{no, unknown, unknown, unknown, unknown}},
		"Undecoded": {"what is no spec at all too", `{gatewayRef: {name: home}, client: {mtu: wide}}`, []fnv1.Status{no, unknown, unknown, unknown, unknown}},
		"NotFound":  {"nothing is known of a gateway that is not there", `{gatewayRef: {name: home}}`, []fnv1.Status{yes, no, unknown, unknown, yes}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.apply("apiVersion: wireguardgateway.io/v1alpha1\nkind: WireguardPeer\nmetadata: {name: media, namespace: apps}\nspec: " + tc.manifest)
			c.settle()
			var types []string
			var statuses []fnv1.Status
			for _, condition := range c.last[objectID("WireguardPeer", "apps", "media")].GetConditions() {
				types = append(types, condition.GetType())
				statuses = append(statuses, condition.GetStatus())
			}
			if diff := cmp.Diff([]string{"SpecValid", "GatewayFound", "Permitted", "ConfigReady", "PodsReady"}, types); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.want, statuses); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// A configuration that no Secret holds is refused, and what was there stays.
func TestPeerTooLarge(t *testing.T) {
	c := newCluster(t)
	var sites []string
	for i := range 400 {
		routes := make([]string, 32)
		for k := range routes {
			routes[k] = fmt.Sprintf("\"fd10:%x:%x:abcd:1234:5678:9abc:0/112\"", 0x1000+i, 0x1000+k)
		}
		sites = append(sites, fmt.Sprintf("{name: site%d, disabled: true, routes: [%s]}", i, strings.Join(routes, ", ")))
	}
	const spec = "endpoint: {host: vpn.example.com}, peerCIDR: 10.8.0.0/16, allowedPeerNamespaces: {from: All}, peerToPeer: true"
	c.gateway("{" + spec + "}")
	c.peer("apps", "media", "{allowedIPs: [10.43.0.0/16]}")
	c.settle()
	before := c.secret("apps", "media-wireguard.peer")
	c.gateway("{" + spec + ", peers: [" + strings.Join(sites, ", ") + "]}")
	c.settle()
	is, message := c.condition("WireguardPeer", "apps", "media", "SpecValid")
	if is != "FALSE TooLarge" || !strings.Contains(message, `spec.client: Too many: the configurations in the Secret "media-wireguard.peer" are`) {
		t.Errorf("want it refused, got %s: %s", is, message)
	}
	if got := c.secret("apps", "media-wireguard.peer"); len(got) == 0 || got["direct.conf"] != before["direct.conf"] {
		t.Errorf("want the Secret that was there, got %d files", len(got))
	}
}
