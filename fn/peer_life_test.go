package fn

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

func TestPeerBeforeGateway(t *testing.T) {
	inBothFlavours(t, func(t *testing.T, c *cluster) {
		t.Helper()
		c.peer("apps", "media", "{}")
		c.settle()
		c.want("WireguardPeer", "apps", "media", "GatewayFound", "FALSE NotFound")
		if _, message := c.condition("WireguardPeer", "apps", "media", "GatewayFound"); message != `There is no WireguardGateway "home" in namespace "vpn": create it, or correct spec.gatewayRef.` {
			t.Errorf("got the message %q", message)
		}
		c.gateway(gatewayAll)
		// The peer comes first once more, before the gateway has its keys.
		c.settleIn(true)
		c.want("WireguardPeer", "apps", "media", "ConfigReady", "TRUE Available")
		if s := c.said.String(); strings.Contains(s, "FATAL") {
			t.Errorf("want a peer that waits for its gateway in quiet, got %s", s)
		}
	})
}

// What is deleted and created again is the same, and its address is free for
// others meanwhile.
func TestPeerAgain(t *testing.T) {
	c := newCluster(t)
	c.gateway(gatewayAll)
	c.peer("apps", "media", "{}")
	c.peer("web", "media", "{}")
	c.settle()
	first, other := c.secret("apps", "media-wireguard.peer")["direct.conf"], c.secret("web", "media-wireguard.peer")["direct.conf"]
	if confLine(first, "Address") == confLine(other, "Address") || confLine(first, "PrivateKey") == confLine(other, "PrivateKey") {
		t.Fatal("two peers of one name in two namespaces are one")
	}
	c.remove("WireguardPeer", "apps", "media")
	c.settle()
	if diff := cmp.Diff([]string{"web/media"}, c.onDevice()); diff != "" {
		t.Errorf("on the device: -want, +got:\n%s", diff)
	}
	c.peer("apps", "media", "{}")
	c.settle()
	if diff := cmp.Diff(first, c.secret("apps", "media-wireguard.peer")["direct.conf"]); diff != "" {
		t.Errorf("created again: -before, +after:\n%s", diff)
	}
	if diff := cmp.Diff(other, c.secret("web", "media-wireguard.peer")["direct.conf"]); diff != "" {
		t.Errorf("the other: -before, +after:\n%s", diff)
	}
	c.peer("apps", "media", "{keyRotation: 1}")
	c.settle()
	if again := c.secret("apps", "media-wireguard.peer")["direct.conf"]; confLine(again, "PrivateKey") == confLine(first, "PrivateKey") || confLine(again, "Address") != confLine(first, "Address") {
		t.Error("want another key and the same address after a rotation")
	}
}

// A gateway that is being deleted loses its seed before it is gone. That is no
// reason for its peers to complain.
func TestGatewayBeingDeleted(t *testing.T) {
	c := newCluster(t)
	c.gateway(gatewayAll)
	c.peer("apps", "media", "{}")
	c.settle()
	home := objectID("WireguardGateway", "vpn", "home")
	c.objects[home].SetDeletionTimestamp(&metav1.Time{Time: c.now})
	c.stale[home] = true
	delete(c.objects, objectID("Secret", "vpn", "home-wireguard.seed"))
	c.settle()
	c.want("WireguardPeer", "apps", "media", "GatewayFound", "FALSE NotFound")
	if got := c.last[objectID("WireguardPeer", "apps", "media")].GetResults(); len(got) > 0 {
		t.Errorf("want a quiet run, got %v", got)
	}
}

// A gateway that is created again at once may find the seed of the former one,
// which garbage collection is about to take. It is not held to that.
func TestGatewayCreatedAgain(t *testing.T) {
	home, id := objectID("WireguardGateway", "vpn", "home"), objectID("Secret", "vpn", "home-wireguard.seed")
	for name, tc := range map[string]struct {
		reason string
		claims bool
		change func(seed *unstructured.Unstructured) // what the API server makes of it
		gone   bool
	}{
		"Adopted": {reason: "it is the new gateway's by the time that garbage collection comes"},
		"Refused": {reason: "the API server lets nobody else control it", claims: true, change: func(*unstructured.Unstructured) {}, gone: true},
		"Deletion": {reason: "it was on its way already", change: func(seed *unstructured.Unstructured) {
			seed.SetDeletionTimestamp(&metav1.Time{Time: time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)})
			seed.GetOwnerReferences()[0].UID = "uid-2"
		}, gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.claims = tc.claims
			c.gateway(gatewayAll)
			c.settle()
			seed := c.objects[id]
			c.remove("WireguardGateway", "vpn", "home")
			c.objects[id] = seed
			c.gateway(gatewayAll)
			for range 3 {
				c.reconcile(home)
				if tc.change != nil {
					tc.change(seed)
					c.objects[id] = seed
				}
				c.want("WireguardGateway", "vpn", "home", "KeysReady", "TRUE Available")
			}
			status := c.objects[home].Object["status"].(map[string]any)
			if held := status["seedID"] != nil || status["publicKey"] != nil; held == tc.gone {
				t.Errorf("%s: want the gateway held to it: %t, got %v", tc.reason, !tc.gone, status)
			}
			if tc.gone {
				delete(c.objects, id)
			}
			c.settle()
			c.want("WireguardGateway", "vpn", "home", "KeysReady", "TRUE Available")
			if same := cmp.Equal(seed.Object["data"], c.objects[id].Object["data"]); same == tc.gone {
				t.Errorf("%s: want the same seed: %t", tc.reason, !tc.gone)
			}
		})
	}
}

func TestGatewayGoneAndRestored(t *testing.T) {
	c := newCluster(t)
	c.gateway(gatewayAll)
	c.peer("apps", "media", "{}")
	c.settle()
	first := c.secret("apps", "media-wireguard.peer")["direct.conf"]
	seed := c.secret("vpn", "home-wireguard.seed")["seed"]

	c.remove("WireguardGateway", "vpn", "home")
	c.settle()
	c.want("WireguardPeer", "apps", "media", "GatewayFound", "FALSE NotFound")
	if got := c.namesOf("apps"); len(got) != 0 {
		t.Errorf("want nothing composed, got %v", got)
	}
	c.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: backup, namespace: vpn}\ndata: {seed: " + base64.StdEncoding.EncodeToString([]byte(seed)) + "}")
	c.gateway(`{endpoint: {host: vpn.example.com}, allowedPeerNamespaces: {from: All}, keys: {seedSecretRef: {name: backup}}}`)
	c.settle()
	if diff := cmp.Diff(first, c.secret("apps", "media-wireguard.peer")["direct.conf"]); diff != "" {
		t.Errorf("restored: -before, +after:\n%s", diff)
	}
}

// What was asked before is answered again, though it is asked no more. It must
// not fail what is right by now.
func TestAnswersOfBefore(t *testing.T) {
	const work = "apiVersion: wireguardgateway.io/v1alpha1\nkind: WireguardGateway\nmetadata: {name: work, namespace: other}\nspec: {endpoint: {host: work.example.com}, allowedPeerNamespaces: {from: All}, %s}"
	secret := func(namespace, key string, seed string) string {
		return fmt.Sprintf("apiVersion: v1\nkind: Secret\nmetadata: {name: backup, namespace: %s}\ndata: {%s: %s}", namespace, key, base64.StdEncoding.EncodeToString([]byte(seed)))
	}
	from := func(ref string) string {
		return "{endpoint: {host: vpn.example.com}, allowedPeerNamespaces: {from: All}, keys: {" + ref + "}}"
	}
	toWork := func(c *cluster) {
		c.apply("apiVersion: wireguardgateway.io/v1alpha1\nkind: WireguardPeer\nmetadata: {name: media, namespace: apps}\nspec: {gatewayRef: {name: work, namespace: other}, client: {}}")
	}
	lose := func(c *cluster) {
		delete(c.objects, objectID("Secret", "vpn", "home-wireguard.seed"))
		c.settle()
		c.want("WireguardPeer", "apps", "media", "ConfigReady", "FALSE SeedMissing")
	}
	for name, tc := range map[string]struct {
		reason string
		change func(c *cluster, seed string)
	}{
		"Restored": {"the gateway has its seed from another Secret", func(c *cluster, seed string) {
			lose(c)
			c.apply(secret("vpn", "seed", seed))
			c.gateway(from("seedSecretRef: {name: backup}"))
		}},
		"OtherKey": {"the seed has another key in it", func(c *cluster, seed string) {
			c.apply(secret("vpn", "home", seed))
			c.gateway(from("seedSecretRef: {name: backup, key: home}"))
		}},
		"Accepted": {"the gateway's owner wants another seed", func(c *cluster, _ string) {
			seed := strings.Repeat("x", 32)
			c.apply(secret("vpn", "seed", seed))
			c.gateway(from("seedSecretRef: {name: backup}, acceptSeed: " + wireguard.Seed([]byte(seed)).ID()))
		}},
		"GatewayWithBackup": {"the peer goes to a gateway with a Secret of its own", func(c *cluster, _ string) {
			c.apply(secret("other", "seed", strings.Repeat("x", 32)))
			c.apply(fmt.Sprintf(work, "keys: {seedSecretRef: {name: backup}}"))
			c.settle()
			toWork(c)
		}},
		"GatewayWithoutSeed": {"the peer leaves a gateway that lost its seed", func(c *cluster, _ string) {
			lose(c)
			c.apply(fmt.Sprintf(work, "keys: {}"))
			c.settle()
			toWork(c)
		}},
		"GatewayInvalid": {"the peer leaves a gateway that cannot be read", func(c *cluster, _ string) {
			c.gateway("{allowedPeerNamespaces: {from: All}, peerCIDR: 10.8.0.1/24}")
			c.apply(fmt.Sprintf(work, "keys: {}"))
			c.settle()
			c.want("WireguardPeer", "apps", "media", "ConfigReady", "FALSE GatewayInvalid")
			toWork(c)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.gateway(gatewayAll)
			c.peer("apps", "media", "{}")
			c.settle()
			tc.change(c, c.secret("vpn", "home-wireguard.seed")["seed"])
			c.settle()
			if is, message := c.condition("WireguardPeer", "apps", "media", "ConfigReady"); is != "TRUE Available" {
				t.Errorf("%s: it is %s: %s", tc.reason, is, message)
			}
		})
	}
}

// Where the seed is lost or another, nothing of the peer changes, and it says
// why.
func TestSeedLost(t *testing.T) {
	cases := map[string]struct {
		reason string
		breaks func(c *cluster)
		want   string
	}{
		"Missing": {reason: "it was deleted", want: "FALSE SeedMissing", breaks: func(c *cluster) {
			delete(c.objects, objectID("Secret", "vpn", "home-wireguard.seed"))
		}},
		"Malformed": {reason: "somebody wrote over it", want: "FALSE SeedMalformed", breaks: func(c *cluster) {
			c.objects[objectID("Secret", "vpn", "home-wireguard.seed")].Object["data"] = map[string]any{"seed": "AAAA"}
		}},
		"Other": {reason: "another would change every key", want: "FALSE SeedMismatch", breaks: func(c *cluster) {
			c.objects[objectID("Secret", "vpn", "home-wireguard.seed")].Object["data"] = map[string]any{"seed": base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", 32)))}
		}},
		"Renamed": {reason: "the gateway is told to use one that is not there", want: "FALSE SeedMissing", breaks: func(c *cluster) {
			c.gateway(`{allowedPeerNamespaces: {from: All}, keys: {seedSecretRef: {name: gone}}}`)
		}},
		"Invalid": {reason: "the gateway's spec cannot be read", want: "FALSE GatewayInvalid", breaks: func(c *cluster) {
			c.gateway(`{allowedPeerNamespaces: {from: All}, peerCIDR: 10.8.0.1/24}`)
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.gateway(gatewayAll)
			c.peer("apps", "media", "{}")
			c.settle()
			before := c.secret("apps", "media-wireguard.peer")["direct.conf"]
			tc.breaks(c)
			c.settle()
			c.want("WireguardPeer", "apps", "media", "ConfigReady", tc.want)
			c.want("WireguardPeer", "apps", "media", "SpecValid", "TRUE Valid")
			if after := c.secret("apps", "media-wireguard.peer")["direct.conf"]; after != before {
				t.Errorf("%s: the configuration changed", tc.reason)
			}
			if !strings.Contains(fmt.Sprint(c.last[objectID("WireguardPeer", "apps", "media")].GetResults()), "nothing was changed") {
				t.Errorf("%s: want a result that says that nothing was changed", tc.reason)
			}
		})
	}
}

// Neither side moves anybody when a status is lost.
func TestStatusLost(t *testing.T) {
	c := newCluster(t)
	c.gateway(`{endpoint: {host: vpn.example.com}, allowedPeerNamespaces: {from: All}, peerCIDR: 10.8.0.0/28}`)
	for i := range 8 {
		c.peer("apps", fmt.Sprintf("p%d", i), "{}")
	}
	c.settle()
	before := c.secret("apps", "p3-wireguard.peer")["direct.conf"]
	for _, id := range c.composites(false) {
		delete(c.objects[id].Object, "status")
	}
	c.settle()
	if diff := cmp.Diff(before, c.secret("apps", "p3-wireguard.peer")["direct.conf"]); diff != "" {
		t.Errorf("-before, +after:\n%s", diff)
	}

	// While the gateway has not run again, the peer keeps what it knows.
	delete(c.objects[objectID("WireguardGateway", "vpn", "home")].Object, "status")
	c.stale[objectID("WireguardGateway", "vpn", "home")] = true
	c.settle()
	if diff := cmp.Diff(before, c.secret("apps", "p3-wireguard.peer")["direct.conf"]); diff != "" {
		t.Errorf("-before, +after:\n%s", diff)
	}
	c.want("WireguardPeer", "apps", "p3", "ConfigReady", "FALSE Pending")
}

// A peer that goes to another gateway has nothing of the one before: its address
// may be somebody else's there.
func TestPeerChangesGateway(t *testing.T) {
	cases := map[string]struct{ reason, namespace, name, keys string }{
		"OtherName":      {"it has keys of its own", "vpn", "work", ""},
		"OtherNamespace": {"it has the same keys, as after a restore, and the same name", "other", "home", ", keys: {seedSecretRef: {name: backup}}"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBothFlavours(t, func(t *testing.T, c *cluster) {
				t.Helper()
				c.gateway(gatewayAll)
				c.peer("apps", "media", "{}")
				c.settle()
				if got := confLine(c.secret("apps", "media-wireguard.peer")["direct.conf"], "Address"); got != "10.8.0.253/32" {
					t.Fatalf("want an address that another peer of the other gateway has, got %s", got)
				}
				seed := base64.StdEncoding.EncodeToString([]byte(c.secret("vpn", "home-wireguard.seed")["seed"]))
				c.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: backup, namespace: other}\ndata: {seed: " + seed + "}")
				c.apply("apiVersion: wireguardgateway.io/v1alpha1\nkind: WireguardGateway\nmetadata: {name: " + tc.name + ", namespace: " + tc.namespace +
					"}\nspec: {endpoint: {host: work.example.com}, allowedPeerNamespaces: {from: All}, peers: [{name: boss, addresses: [10.8.0.253]}]" + tc.keys + "}")
				c.settle()

				c.stale[objectID("WireguardGateway", tc.namespace, tc.name)] = true
				c.apply("apiVersion: wireguardgateway.io/v1alpha1\nkind: WireguardPeer\nmetadata: {name: media, namespace: apps}\nspec: {gatewayRef: {name: " +
					tc.name + ", namespace: " + tc.namespace + "}, client: {}}")
				c.settle()
				c.want("WireguardPeer", "apps", "media", "ConfigReady", "FALSE WaitingForAddress")
				if got := c.secret("apps", "media-wireguard.peer"); got != nil {
					t.Errorf("%s: want no configuration before it has given an address, got one with %s", tc.reason, confLine(got["direct.conf"], "Address"))
				}
				if got := c.field("WireguardPeer", "media", "status", "addresses"); got != "" {
					t.Errorf("%s: want no addresses in the status, got %s", tc.reason, got)
				}

				c.stale = map[string]bool{}
				c.settle()
				c.want("WireguardPeer", "apps", "media", "ConfigReady", "TRUE Available")
				conf := c.secret("apps", "media-wireguard.peer")["direct.conf"]
				if confLine(conf, "Address") != "10.8.0.254/32" || confLine(conf, "Endpoint") != "work.example.com:51820" {
					t.Errorf("%s: want its configuration then, got one with %s and %s", tc.reason, confLine(conf, "Address"), confLine(conf, "Endpoint"))
				}
			})
		})
	}
}

// A Secret that is there stays as it is until the gateway has given addresses of
// its new pools.
func TestPoolChanges(t *testing.T) {
	const one, two = "peerCIDR: 10.8.0.0/24", `peerCIDR: 10.8.0.0/24, peerCIDRv6: "fd00:8::/120"`
	cases := map[string]struct {
		reason, before, after string
		meanwhile             string
		want                  string
	}{
		"Other":   {reason: "the address is in no pool any more", before: one, after: "peerCIDR: 10.9.0.0/24", meanwhile: "FALSE WaitingForAddress", want: "10.9.0.253/32"},
		"Smaller": {reason: "the address is the gateway's own now", before: one, after: "peerCIDR: 10.8.0.252/30", meanwhile: "FALSE WaitingForAddress", want: "10.8.0.254/32"},
		"Second":  {reason: "the address is one of two", before: one, after: two, meanwhile: "FALSE WaitingForAddress", want: "10.8.0.253/32, fd00:8::fd/128"},
		"Less":    {reason: "the gateway has given what is left", before: two, after: one, meanwhile: "TRUE Available", want: "10.8.0.253/32"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			inBothFlavours(t, func(t *testing.T, c *cluster) {
				t.Helper()
				gateway := func(pools string) {
					c.gateway("{" + pools + ", endpoint: {host: vpn.example.com}, allowedPeerNamespaces: {from: All}}")
				}
				gateway(tc.before)
				c.peer("apps", "media", "{qrCode: true}")
				c.settle()
				before, status := c.secret("apps", "media-wireguard.peer"), c.field("WireguardPeer", "media", "status")

				gateway(tc.after)
				c.stale[objectID("WireguardGateway", "vpn", "home")] = true
				c.settle()
				c.want("WireguardPeer", "apps", "media", "ConfigReady", tc.meanwhile)
				if tc.meanwhile != "TRUE Available" {
					// Whatever else changes, and without what others have put there.
					c.objects[objectID("Secret", "apps", "media-wireguard.peer")].Object["data"].(map[string]any)["notes"] = "bm90ZXM="
					c.peer("apps", "media", "{qrCode: true, mtu: 1300}")
					c.settle()
					if diff := cmp.Diff(before, c.secret("apps", "media-wireguard.peer")); diff != "" {
						t.Errorf("%s: -before, +meanwhile:\n%s", tc.reason, diff)
					}
					if diff := cmp.Diff(status, c.field("WireguardPeer", "media", "status")); diff != "" {
						t.Errorf("%s: status: -before, +meanwhile:\n%s", tc.reason, diff)
					}
					if got := c.last[objectID("WireguardPeer", "apps", "media")].GetDesired().GetComposite().GetReady(); got != fnv1.Ready_READY_FALSE {
						t.Errorf("%s: a peer without an address is ready", tc.reason)
					}
				}

				c.stale = map[string]bool{}
				c.settle()
				c.want("WireguardPeer", "apps", "media", "ConfigReady", "TRUE Available")
				if got := confLine(c.secret("apps", "media-wireguard.peer")["direct.conf"], "Address"); got != tc.want {
					t.Errorf("%s: want %s then, got %s", tc.reason, tc.want, got)
				}
			})
		})
	}
}

// A site keeps its network, and its Secret, while a peer that sorts before it
// waits for that network.
func TestRouteStays(t *testing.T) {
	const config = "home-wireguard.config"
	cases := map[string]struct {
		reason string
		change func(c *cluster, office func(routes string))
	}{
		"RouteAdded":    {"it announces one more", func(_ *cluster, office func(string)) { office("[192.168.50.0/24, 192.168.51.0/24]") }},
		"ConfigDeleted": {"the status knows it, too", func(c *cluster, _ func(string)) { delete(c.objects, objectID("Secret", "vpn", config)) }},
		"ConfigEmptied": {"the status knows it, too", func(c *cluster, _ func(string)) {
			delete(c.objects[objectID("Secret", "vpn", config)].Object, "data")
		}},
		"ConfigEdited": {"the status knows it, too", func(c *cluster, _ func(string)) {
			c.objects[objectID("Secret", "vpn", config)].Object["data"] = map[string]any{"config.json": "e30="} // {}
		}},
		"StatusLost": {"the configuration knows it, too", func(c *cluster, _ func(string)) {
			delete(c.objects[objectID("WireguardGateway", "vpn", "home")].Object, "status")
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			office := func(routes string) {
				c.gateway(`{endpoint: {host: vpn.example.com}, peers: [{name: office, routes: ` + routes + `}], allowedPeerNamespaces: {from: All, limits: {routes: [192.168.0.0/16]}}}`)
			}
			office("[192.168.50.0/24]")
			c.settle()
			c.peer("apps", "media", `{routes: [192.168.50.0/24]}`)
			c.settle()
			before := c.secret("vpn", "home-wireguard.peer.office")
			tc.change(c, office)
			c.settle()
			if diff := cmp.Diff([]string{"vpn/office"}, c.onDevice()); diff != "" {
				t.Errorf("%s: on the device: -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(before, c.secret("vpn", "home-wireguard.peer.office")); diff != "" {
				t.Errorf("%s: the Secret of the site: -before, +after:\n%s", tc.reason, diff)
			}
			c.want("WireguardPeer", "apps", "media", "ConfigReady", "FALSE RouteConflict")
		})
	}
}
