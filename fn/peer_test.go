package fn

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
				for _, class := range c.config().PodClasses {
					secrets = append(secrets, class.Key.String(), fmt.Sprintf("%x", class.Key.Key))
				}
			case key == "enrolment.json":
				e, err := wireguard.DecodeEnrolment([]byte(v))
				if err != nil {
					c.t.Error(err)
				}
				secrets = append(secrets, v, e.ClassKey.String())
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
			if got := c.field("WireguardPeer", "media", "status", path); got != want {
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
		if got := c.field("ConfigMap", "media-wireguard.attachment", "metadata", "labels"); got != want {
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
