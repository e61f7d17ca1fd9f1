package fn

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

type ownerReference = metav1.OwnerReference

func typesUID(s string) types.UID { return types.UID(s) }

const (
	gatewayAll    = `{endpoint: {host: vpn.example.com}, allowedPeerNamespaces: {from: All}}`
	gatewayClosed = `{endpoint: {host: vpn.example.com}}`

	aliceKey  = "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo="
	alicesKey = "hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=" // public
)

// inBothFlavours runs a test with namespaced composite resources and with
// claims, whichever side comes first.
func inBothFlavours(t *testing.T, run func(t *testing.T, c *cluster)) {
	t.Helper()
	for name, claims := range map[string]bool{"Namespaced": false, "Claim": true} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.claims = claims
			run(t, c)
			c.keepsSecrets()
		})
	}
}

// keepsSecrets fails where a secret is anywhere but in a Secret: the status, a
// condition, a result, a ConfigMap or a log, in any of the runs.
func (c *cluster) keepsSecrets() {
	c.t.Helper()
	public := c.said.String() + c.logs.String()
	for _, id := range c.composites(false) {
		public += fmt.Sprint(c.objects[id].Object)
	}
	var secrets []string
	for _, o := range c.objects {
		if o.GetKind() == "ConfigMap" {
			public += fmt.Sprint(o.Object)
		}
		if o.GetKind() != "Secret" {
			continue
		}
		for key, v := range c.secret(o.GetNamespace(), o.GetName()) {
			switch {
			case key == "seed":
				seed := wireguard.Seed([]byte(v))
				secrets = append(secrets, v, base64.StdEncoding.EncodeToString([]byte(v)), fmt.Sprintf("%x", v), base64.StdEncoding.EncodeToString(seed.AttachmentKey()))
			case strings.HasSuffix(key, ".conf"):
				secrets = append(secrets, v, confLine(v, "PrivateKey"), confLine(v, "PresharedKey"))
			case key == "config.json":
				secrets = append(secrets, c.config().PrivateKey.String())
			}
		}
	}
	for _, s := range secrets {
		if s != "" && strings.Contains(public, s) {
			c.t.Errorf("a secret of %d characters stands in the open", len(s))
		}
	}
}

func TestPeerIsServed(t *testing.T) {
	inBothFlavours(t, func(t *testing.T, c *cluster) {
		t.Helper()
		c.gateway(gatewayAll)
		c.peer("apps", "media", "{presharedKey: {generate: true}, qrCode: true}")
		c.settle()

		if diff := cmp.Diff([]string{"ConfigMap media-wireguard.attachment", "Secret media-wireguard.peer"}, c.namesOf("apps")); diff != "" {
			t.Errorf("composed: -want, +got:\n%s", diff)
		}
		for _, condition := range []string{"SpecValid", "GatewayFound", "Permitted", "ConfigReady", "PodsReady"} {
			if is, message := c.condition("WireguardPeer", "apps", "media", condition); !strings.HasPrefix(is, "TRUE ") {
				t.Errorf("%s: want True, got %s: %s", condition, is, message)
			}
		}
		data := c.secret("apps", "media-wireguard.peer")
		onDevice := c.config().Peers[0]
		seed := wireguard.Seed([]byte(c.secret("vpn", "home-wireguard.seed")["seed"]))
		private, psk := seed.PeerKey("apps", "media", 0), seed.PresharedKey("apps", "media", 0)
		want := "[Interface]\nAddress = " + onDevice.Addresses[0].String() + "/32\nMTU = 1420\nPrivateKey = " + private.String() +
			"\n\n[Peer]\nPublicKey = " + seed.ServerKey(0).Public().String() + "\nPresharedKey = " + psk.String() +
			"\nAllowedIPs = 0.0.0.0/0\nEndpoint = vpn.example.com:51820\nPersistentKeepalive = 25\n"
		if diff := cmp.Diff(want, data["direct.conf"]); diff != "" {
			t.Errorf("direct.conf: -want, +got:\n%s", diff)
		}
		if got := confLine(data["internal.conf"], "Endpoint"); got != "home-wireguard.vpn.svc.cluster.local:51820" {
			t.Errorf("internal.conf: got the endpoint %q", got)
		}
		if data["direct.png"] == "" || data["direct.txt"] == "" {
			t.Error("want a QR code, got none")
		}
		if onDevice.PublicKey != private.Public() || onDevice.PresharedKey == nil || *onDevice.PresharedKey != psk {
			t.Error("the device knows the client by other keys than it has")
		}
		for path, want := range map[string]string{
			"secretName": "media-wireguard.peer", "addresses": "[" + onDevice.Addresses[0].String() + "]",
			"gateway": "map[endpoint:vpn.example.com:51820 publicKey:" + seed.ServerKey(0).Public().String() + "]",
		} {
			if got := c.field("WireguardPeer", "apps", "media", "status", path); got != want {
				t.Errorf("status.%s: want %q, got %q", path, want, got)
			}
		}
		entry := c.objects[objectID("WireguardGateway", "vpn", "home")].Object["status"].(map[string]any)["peers"].([]any)[0]
		if diff := cmp.Diff(map[string]any{
			"name": "media", "namespace": "apps", "publicKey": private.Public().String(), "addresses": []any{onDevice.Addresses[0].String()},
			"secretName": "media-wireguard.peer", "state": "Active",
		}, entry); diff != "" {
			t.Errorf("status.peers of the gateway: -want, +got:\n%s", diff)
		}
		// Whose it is stands on the objects, for those who look at them.
		want = "map[app.kubernetes.io/instance:home app.kubernetes.io/name:wireguard-gateway wireguardgateway.io/gateway:home wireguardgateway.io/gateway-namespace:vpn wireguardgateway.io/peer:media]"
		if got := c.field("ConfigMap", "apps", "media-wireguard.attachment", "metadata", "labels"); got != want {
			t.Errorf("labels: want %s, got %s", want, got)
		}
	})
}

// An inline peer and a WireguardPeer with the same settings get the same
// configurations, but for their keys and addresses.
func TestPeerLikeInline(t *testing.T) {
	const network = `peerCIDRv6: "fd00:8::/64", peerCIDR: 10.8.0.0/24, peerToPeer: true, listenPort: 4000`
	cases := map[string]struct {
		reason, gateway, settings string
		files                     int
	}{
		"Defaults": {"a peer that says nothing goes by the gateway", network + `, dns: {servers: [10.43.0.10]}, endpoint: {host: vpn.example.com}`, `{}`, 2},
		"Everything": {
			"a peer that says everything goes by that",
			network + `, service: {type: NodePort, nodePort: 31820}, endpoint: {host: vpn.example.com}, gateway: {hostname: vpn.example.com, parentRefs: [{name: public}]}, tunnel: {type: wstunnel}`,
			`{allowedIPs: [10.43.0.0/16], dns: {servers: [9.9.9.9], searchDomains: [a.example]}, mtu: 1300, persistentKeepalive: 0, advertisedEndpoint: {host: "2001:db8::7"}}`, 3,
		},
		"NodePort": {"a port that Kubernetes chose is in the gateway's status only", network + `, service: {type: NodePort}`, `{advertisedEndpoint: {host: site.example.com}}`, 2},
		"Balancer": {"so is an address that a load balancer gave", network, `{qrCode: true}`, 4},
		"Gluetun": {
			"behind gluetun there are other defaults",
			network + `, endpoint: {host: vpn.example.com}, gluetun: {provider: mullvad, credentials: {secretRef: {name: vpn}}}`, `{}`, 2,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.apply("apiVersion: v1\nkind: Node\nmetadata: {name: node, labels: {kubernetes.io/os: linux}}\n" +
				"status: {addresses: [{type: InternalIP, address: 192.0.2.7}], conditions: [{type: Ready, status: \"True\"}]}")
			inlined := strings.Replace(tc.settings, "{", "{name: media, ", 1)
			c.gateway("{" + tc.gateway + ", allowedPeerNamespaces: {from: All, limits: {routes: [192.168.0.0/16]}}, " +
				"peers: [{name: site, routes: [192.168.50.0/24]}, " + inlined + "]}")
			c.peer("apps", "media", tc.settings)
			c.peer("web", "branch", "{routes: [192.168.60.0/24]}")
			c.settle()
			inline, peer := c.secret("vpn", "home-wireguard.peer.media"), c.secret("apps", "media-wireguard.peer")
			if len(peer) != tc.files || len(inline) != tc.files {
				t.Fatalf("%s: want %d files, got %d inline and %d of the WireguardPeer", tc.reason, tc.files, len(inline), len(peer))
			}
			mask := func(conf string) string {
				conf = strings.ReplaceAll(conf, confLine(conf, "PrivateKey"), "KEY")
				return strings.Replace(conf, confLine(conf, "Address"), "ADDRESS", 1)
			}
			for key := range inline {
				if !strings.HasSuffix(key, ".conf") {
					continue
				}
				if diff := cmp.Diff(mask(inline[key]), mask(peer[key])); diff != "" {
					t.Errorf("%s: %s: -inline, +WireguardPeer:\n%s", tc.reason, key, diff)
				}
			}
			if name != "Everything" {
				return
			}
			if got, want := confLine(peer["direct.conf"], "AllowedIPs"), "10.43.0.0/16, 10.8.0.0/24, fd00:8::/64, 192.168.50.0/24, 192.168.60.0/24"; got != want {
				t.Errorf("AllowedIPs: want %s, got %s", want, got)
			}
		})
	}
}

func TestPeerOwnKeys(t *testing.T) {
	inBothFlavours(t, func(t *testing.T, c *cluster) {
		t.Helper()
		c.gateway(gatewayAll)
		c.peer("apps", "device", "{publicKey: "+alicesKey+"}")
		c.peer("apps", "brought", "{privateKeySecretRef: {name: mine}}")
		c.settle()
		c.want("WireguardPeer", "apps", "device", "ConfigReady", "TRUE Available")
		if conf := c.secret("apps", "device-wireguard.peer")["direct.conf"]; confLine(conf, "PrivateKey") != "" || conf == "" {
			t.Errorf("want a configuration without a private key, got %q", conf)
		}
		c.want("WireguardPeer", "apps", "brought", "ConfigReady", "FALSE SecretMissing")
		if diff := cmp.Diff([]string{"vpn/", "apps/device"}, append([]string{"vpn/"}, c.onDevice()...)); diff != "" {
			t.Errorf("on the device: -want, +got:\n%s", diff)
		}

		// The peer's own namespace has it, not the gateway's.
		key := base64.StdEncoding.EncodeToString([]byte(aliceKey))
		c.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: mine, namespace: vpn}\ndata: {privateKey: " + key + "}")
		c.settle()
		c.want("WireguardPeer", "apps", "brought", "ConfigReady", "FALSE SecretMissing")
		c.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: mine, namespace: apps}\ndata: {privateKey: " + key + "}")
		c.remove("WireguardPeer", "apps", "device")
		c.settle()
		c.want("WireguardPeer", "apps", "brought", "ConfigReady", "TRUE Available")
		if got := c.config().Peers[0].PublicKey.String(); got != alicesKey {
			t.Errorf("public key: want %s, got %s", alicesKey, got)
		}
	})
}

func TestConsent(t *testing.T) {
	inBothFlavours(t, func(t *testing.T, c *cluster) {
		t.Helper()
		c.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: apps, labels: {vpn: \"yes\"}}")
		c.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: web}")
		c.gateway(gatewayClosed)
		c.peer("apps", "media", "{}")
		c.peer("web", "media", "{}")
		c.settle()
		for _, namespace := range []string{"apps", "web"} {
			c.want("WireguardPeer", namespace, "media", "Permitted", "FALSE NamespaceNotAllowed")
			c.want("WireguardPeer", namespace, "media", "GatewayFound", "TRUE Available")
			c.learnsNothing(namespace)
		}

		c.gateway(`{endpoint: {host: vpn.example.com}, allowedPeerNamespaces: {from: Selector, selector: {matchLabels: {vpn: "yes"}}}}`)
		c.settle()
		c.want("WireguardPeer", "apps", "media", "ConfigReady", "TRUE Available")
		c.want("WireguardPeer", "web", "media", "Permitted", "FALSE NamespaceNotAllowed")
		c.learnsNothing("web")
		first := c.secret("apps", "media-wireguard.peer")["direct.conf"]

		// What the label gave, its loss takes.
		c.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: apps}")
		c.settle()
		c.want("WireguardPeer", "apps", "media", "Permitted", "FALSE NamespaceNotAllowed")
		c.learnsNothing("apps")
		if got := c.onDevice(); len(got) != 0 {
			t.Errorf("want nobody on the device, got %v", got)
		}

		c.gateway(`{endpoint: {host: vpn.example.com}, allowedPeerNamespaces: {from: Names, names: [apps]}}`)
		c.settle()
		if diff := cmp.Diff(first, c.secret("apps", "media-wireguard.peer")["direct.conf"]); diff != "" {
			t.Errorf("let in again: -before, +after:\n%s", diff)
		}
	})
}

// learnsNothing fails where the peer media of a namespace that is not let in has
// got anything, or was told anything of the gateway.
func (c *cluster) learnsNothing(namespace string) {
	c.t.Helper()
	if got := c.namesOf(namespace); len(got) != 0 {
		c.t.Errorf("%s: want nothing composed, got %v", namespace, got)
	}
	rsp := c.last[objectID("WireguardPeer", namespace, "media")]
	if got := fmt.Sprint(rsp.GetDesired().GetComposite().GetResource().AsMap()["status"]); got != "map[]" {
		c.t.Errorf("%s: want an empty status, got %s", namespace, got)
	}
	if rsp.GetDesired().GetComposite().GetReady() != fnv1.Ready_READY_FALSE {
		c.t.Errorf("%s: a peer without a configuration is ready", namespace)
	}
	for key, s := range rsp.GetRequirements().GetResources() {
		if s.GetKind() == "Secret" {
			c.t.Errorf("%s: the Secret %s (%s) is read for a namespace that is not let in", namespace, s.GetMatchName(), key)
		}
	}
	public := wireguard.Seed([]byte(c.secret("vpn", "home-wireguard.seed")["seed"])).ServerKey(0).Public().String()
	if text := fmt.Sprint(rsp); strings.Contains(text, public) || strings.Contains(text, "vpn.example.com") || strings.Contains(text, "10.8.0.") {
		c.t.Errorf("%s: it learns of the gateway: %s", namespace, text)
	}
}

// Whose peer it is follows from its namespace. Everything else of it, tenants can
// write.
func TestPeerOfAnotherNamespace(t *testing.T) {
	c := newCluster(t)
	c.gateway(`{endpoint: {host: vpn.example.com}, allowedPeerNamespaces: {from: Names, names: [apps]}}`)
	c.apply(`apiVersion: wireguardgateway.io/v1alpha1
kind: WireguardPeer
metadata:
  name: media
  namespace: web
  labels: {crossplane.io/claim-name: media, crossplane.io/claim-namespace: apps}
spec:
  claimRef: {apiVersion: wireguardgateway.io/v1alpha1, kind: WireguardPeer, name: media, namespace: apps}
  gatewayRef: {name: home, namespace: vpn}`)
	c.settle()
	c.want("WireguardPeer", "web", "media", "Permitted", "FALSE NamespaceNotAllowed")
	c.learnsNothing("web")
}

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
	after := c.secret("apps", "p3-wireguard.peer")
	if diff := cmp.Diff(before, after["direct.conf"]); after != nil && confLine(after["internal.conf"], "Address") != confLine(before, "Address") {
		t.Errorf("-before, +after:\n%s", diff)
	}
	c.want("WireguardPeer", "apps", "p3", "ConfigReady", "FALSE Pending")
}

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

func TestPodsAreNotSupportedYet(t *testing.T) {
	c := newCluster(t)
	c.gateway(gatewayAll)
	c.apply("apiVersion: wireguardgateway.io/v1alpha1\nkind: WireguardPeer\nmetadata: {name: media, namespace: apps}\nspec: {gatewayRef: {name: home, namespace: vpn}, pods: {}}")
	c.settle()
	c.want("WireguardPeer", "apps", "media", "SpecValid", "TRUE Valid")
	c.want("WireguardPeer", "apps", "media", "Permitted", "TRUE Available")
	c.want("WireguardPeer", "apps", "media", "ConfigReady", "TRUE NotRequested")
	c.want("WireguardPeer", "apps", "media", "PodsReady", "FALSE NotSupported")
	if got := c.namesOf("apps"); len(got) != 0 {
		t.Errorf("want nothing composed, got %v", got)
	}
	if c.last[objectID("WireguardPeer", "apps", "media")].GetDesired().GetComposite().GetReady() != fnv1.Ready_READY_FALSE {
		t.Error("want a peer whose pods cannot join not to be ready")
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

// Attachments that were forged, copied or kept are counted, and change nothing.
func TestAttachmentsOfOthers(t *testing.T) {
	c := newCluster(t)
	c.gateway(`{endpoint: {host: vpn.example.com}, allowedPeerNamespaces: {from: Names, names: [apps, web]}}`)
	c.peer("apps", "media", "{}")
	c.settle()
	valid := c.objects[objectID("ConfigMap", "apps", "media-wireguard.attachment")].DeepCopy()
	config := c.secret("vpn", "home-wireguard.config")["config.json"]

	put := func(namespace, name string, change func(o *unstructured.Unstructured)) {
		o := valid.DeepCopy()
		o.SetNamespace(namespace)
		o.SetName(name)
		if change != nil {
			change(o)
		}
		// Nothing that Crossplane made owns it.
		c.objects[idOf(o)] = o
	}
	put("web", "media-wireguard.attachment", nil)
	put("apps", "video-wireguard.attachment", nil)
	put("other", "media-wireguard.attachment", nil)
	put("apps", "forged-wireguard.attachment", func(o *unstructured.Unstructured) {
		o.Object["data"] = map[string]any{"client.json": `{"publicKey":"` + alicesKey + `","addresses":["10.8.0.2"]}`, "uid": "uid-2", "mac": "AAAA"}
	})
	c.settle()
	if got := c.secret("vpn", "home-wireguard.config")["config.json"]; got != config {
		t.Error("an attachment that nobody vouches for changed the gateway")
	}
	if is, message := c.condition("WireguardGateway", "vpn", "home", "PeersReady"); is != "TRUE Available" || message != "4 attachments were not accepted" {
		t.Errorf("want them counted, got %s: %q", is, message)
	}
	if status := fmt.Sprint(c.objects[objectID("WireguardGateway", "vpn", "home")].Object["status"]); strings.Contains(status, "video") || strings.Contains(status, "forged") || strings.Contains(status, "other") {
		t.Errorf("want no names of them, got %s", status)
	}

	// What is put back after its WireguardPeer is gone has no owner to vouch for
	// it; with one that is gone, garbage collection takes it.
	c.remove("WireguardPeer", "apps", "media")
	valid.SetOwnerReferences(nil)
	c.objects[idOf(valid)] = valid
	c.settle()
	if got := c.onDevice(); len(got) != 0 {
		t.Errorf("a replay is on the device: %v", got)
	}
}

// A closed gateway does not even look at what other namespaces label for it.
func TestClosedGatewayLooksAtItsOwnNamespaceOnly(t *testing.T) {
	c := newCluster(t)
	c.gateway(gatewayClosed)
	c.settle()
	s := c.last[objectID("WireguardGateway", "vpn", "home")].GetRequirements().GetResources()["attachments"]
	if s.GetNamespace() != "vpn" || s.GetMatchLabels().GetLabels()["wireguardgateway.io/gateway"] != "home" || s.GetMatchLabels().GetLabels()["wireguardgateway.io/gateway-namespace"] != "vpn" {
		t.Errorf("want its own attachments in its own namespace, got %v", s)
	}
	c.gateway(gatewayAll)
	c.settle()
	s = c.last[objectID("WireguardGateway", "vpn", "home")].GetRequirements().GetResources()["attachments"]
	if s.Namespace != nil || len(s.GetMatchLabels().GetLabels()) != 2 {
		t.Errorf("want its own attachments in all namespaces, got %v", s)
	}
}

// Fifty peers of ten namespaces settle, and whoever was there first stays, in
// whichever order they are seen.
func TestManyPeers(t *testing.T) {
	var configs []string
	for _, reverse := range []bool{false, true} {
		c := newCluster(t)
		c.gateway(gatewayAll)
		for i := range 50 {
			c.peer(fmt.Sprintf("team%d", i%10), fmt.Sprintf("p%d", i), "{}")
		}
		c.settleIn(reverse)
		for i := range 50 {
			c.want("WireguardPeer", fmt.Sprintf("team%d", i%10), fmt.Sprintf("p%d", i), "ConfigReady", "TRUE Available")
		}
		configs = append(configs, c.secret("vpn", "home-wireguard.config")["config.json"])
	}
	if len(configs[0]) == 0 {
		t.Error("want a configuration, got none")
	}
}
