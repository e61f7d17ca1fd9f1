package fn

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// admissionKinds are those of what package/cluster/injection.yaml installs.
var admissionKinds = []string{
	"MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
}

// admits installs what lets pods join, in a cluster that has every kind.
func (c *cluster) admits() {
	c.t.Helper()
	c.lacks = map[string]bool{}
	for _, kind := range admissionKinds {
		c.apply("apiVersion: admissionregistration.k8s.io/v1\nkind: " + kind + "\nmetadata: {name: wireguard-gateway-injection}")
	}
}

// pods creates the class of pods media of the gateway home, or changes it.
func (c *cluster) pods(namespace, pods string) {
	c.t.Helper()
	c.apply("apiVersion: wireguardgateway.io/v1alpha1\nkind: WireguardPeer\nmetadata: {name: media, namespace: " + namespace +
		"}\nspec: {gatewayRef: {name: home, namespace: vpn}, pods: " + pods + "}")
}

// wallLeadsTo tells what the rules of the wall around the pods media lead to.
func (c *cluster) wallLeadsTo(namespace string) string {
	c.t.Helper()
	o := c.objects[objectID("NetworkPolicy", namespace, "media-wireguard.pods")]
	if o == nil {
		return ""
	}
	b, err := yaml.Marshal(o.Object["spec"])
	if err != nil {
		c.t.Fatal(err)
	}
	return string(b)
}

var joined = []string{
	"ConfigMap media-wireguard.attachment", "ConfigMap media-wireguard.injection", "NetworkPolicy media-wireguard.pods",
	"Role media-wireguard.pods", "RoleBinding media-wireguard.pods", "Secret media-wireguard.enrolment",
}

func TestPodsAreServed(t *testing.T) {
	inBothFlavours(t, func(t *testing.T, c *cluster) {
		t.Helper()
		c.admits()
		c.gateway(`{endpoint: {host: vpn.example.com}, listenPort: 4000, persistentKeepalive: 15, mtu: {direct: 1380}, ` +
			`allowedPeerNamespaces: {from: All, limits: {access: [{action: Accept, to: {cidr: 192.0.2.0/24}}]}}}`)
		c.pods("apps", `{bypassCIDRs: ["fd42::/56", "fd42:0::/56"], implementation: Kernel}`)
		c.settle()

		if diff := cmp.Diff(joined, c.namesOf("apps")); diff != "" {
			t.Errorf("composed: -want, +got:\n%s", diff)
		}
		for condition, want := range map[string]string{
			"SpecValid": "TRUE Valid", "GatewayFound": "TRUE Available", "Permitted": "TRUE Available", "ConfigReady": "TRUE NotRequested", "PodsReady": "TRUE Available",
		} {
			c.want("WireguardPeer", "apps", "media", condition, want)
		}
		if ready := c.last[objectID("WireguardPeer", "apps", "media")].GetDesired().GetComposite().GetReady(); ready == fnv1.Ready_READY_FALSE {
			t.Error("want it ready as its objects are")
		}
		seed := wireguard.Seed([]byte(c.secret("vpn", "home-wireguard.seed")["seed"]))
		key := seed.PodClassKey("apps", "media")
		document := fmt.Sprintf(`{"version":1,"gateway":"vpn/home","gatewayPublicKey":%q,"endpoint":"home-wireguard.vpn.svc.cluster.local:4000","classKey":%q,"mtu":1380,`+
			`"bypassCIDRs":["fd42::/56"],"implementation":"Kernel","persistentKeepalive":15}`, seed.ServerKey(0).Public(), key)
		if diff := cmp.Diff(document, c.secret("apps", "media-wireguard.enrolment")["enrolment.json"]); diff != "" {
			t.Errorf("enrolment: -want, +got:\n%s", diff)
		}
		if wall := c.wallLeadsTo("apps"); strings.Count(wall, "cidr: fd42::/56") != 1 {
			t.Errorf("want the network in the wall once, got\n%s", wall)
		}
		want := map[string]any{
			"image": "ghcr.io/wireguardgateway/agent:v0.1.0", "pullPolicy": "IfNotPresent", "secretName": "media-wireguard.enrolment", "tun": "false",
			"requests": "cpu=10m\nmemory=32Mi\n",
		}
		if diff := cmp.Diff(want, c.objects[objectID("ConfigMap", "apps", "media-wireguard.injection")].Object["data"]); diff != "" {
			t.Errorf("injection: -want, +got:\n%s", diff)
		}

		classes := c.config().PodClasses
		if len(classes) != 1 || classes[0].Namespace != "apps" || classes[0].Name != "media" || classes[0].Key != key || len(classes[0].Access) != 1 {
			t.Errorf("want the class on the gateway, within the owner's limits, got %d classes", len(classes))
		}
		if is, message := c.condition("WireguardGateway", "vpn", "home", "PeersReady"); !strings.HasPrefix(is, "TRUE ") || message != "" {
			t.Errorf("want nothing to be said of the class, got %s: %s", is, message)
		}
		status := c.objects[objectID("WireguardGateway", "vpn", "home")].Object["status"].(map[string]any)
		if diff := cmp.Diff([]any{map[string]any{"name": "media", "namespace": "apps", "pods": true, "state": "Active"}}, status["peers"]); diff != "" {
			t.Errorf("status.peers of the gateway: -want, +got:\n%s", diff)
		}
		if got := fmt.Sprint(status["activePeers"]); got != "0" {
			t.Errorf("want pods not to be counted as peers, got %s", got)
		}
		if got := c.field("WireguardPeer", "media", "status"); got != "map[gateway:map[endpoint:home-wireguard.vpn.svc.cluster.local:4000 publicKey:"+seed.ServerKey(0).Public().String()+"]]" {
			t.Errorf("status of the peer: got %s", got)
		}
	})
}

// Consent that is given and withdrawn takes pods on and off at once. The wall
// around them stands before, meanwhile and after.
func TestPodsConsent(t *testing.T) {
	inBothFlavours(t, func(t *testing.T, c *cluster) {
		t.Helper()
		wallOnly := func(when, reason string) {
			t.Helper()
			c.want("WireguardPeer", "apps", "media", "PodsReady", "FALSE "+reason)
			if diff := cmp.Diff([]string{"NetworkPolicy media-wireguard.pods"}, c.namesOf("apps")); diff != "" {
				t.Errorf("%s: composed: -want, +got:\n%s", when, diff)
			}
			if wall := c.wallLeadsTo("apps"); strings.Contains(wall, "51820") || strings.Contains(wall, "vpn") || !strings.Contains(wall, "port: 53") {
				t.Errorf("%s: want a wall that leads to no gateway, got\n%s", when, wall)
			}
			if rsp := c.last[objectID("WireguardPeer", "apps", "media")]; rsp.GetDesired().GetComposite().GetReady() != fnv1.Ready_READY_FALSE {
				t.Errorf("%s: want it not ready", when)
			}
		}
		served := func(when string) {
			t.Helper()
			c.want("WireguardPeer", "apps", "media", "PodsReady", "TRUE Available")
			if diff := cmp.Diff(joined, c.namesOf("apps")); diff != "" {
				t.Errorf("%s: composed: -want, +got:\n%s", when, diff)
			}
			if wall := c.wallLeadsTo("apps"); !strings.Contains(wall, "port: 51820") || !strings.Contains(wall, "kubernetes.io/metadata.name: vpn") {
				t.Errorf("%s: want a wall that leads to the gateway, got\n%s", when, wall)
			}
			if n := len(c.config().PodClasses); n != 1 {
				t.Errorf("%s: want one class on the gateway, got %d", when, n)
			}
		}
		c.admits()
		c.pods("apps", "{}")
		c.settle()
		wallOnly("before the gateway", "WaitingForGateway")
		c.gateway(gatewayClosed)
		c.settle()
		wallOnly("not let in", "WaitingForGateway")
		if n := len(c.config().PodClasses); n != 0 {
			t.Errorf("not let in: want no class on the gateway, got %d", n)
		}
		c.gateway(gatewayAll)
		// The peer comes first once more, and composes its wall before the gateway has
		// its seed.
		c.settleIn(true)
		served("let in")
		first := c.secret("apps", "media-wireguard.enrolment")["enrolment.json"]
		c.gateway(gatewayClosed)
		c.settle()
		wallOnly("withdrawn", "WaitingForGateway")
		if n := len(c.config().PodClasses); n != 0 {
			t.Errorf("withdrawn: want no class on the gateway, got %d", n)
		}
		c.gateway(gatewayAll)
		c.settle()
		served("let in again")
		if diff := cmp.Diff(first, c.secret("apps", "media-wireguard.enrolment")["enrolment.json"]); diff != "" {
			t.Errorf("let in again: -before, +after:\n%s", diff)
		}
		c.remove("WireguardGateway", "vpn", "home")
		c.settle()
		wallOnly("gateway gone", "WaitingForGateway")
		if s := c.said.String(); strings.Contains(s, "FATAL") {
			t.Error("want all of this in quiet")
		}
	})
}

// Pods join once the wall outside of them stands: where the API server refuses
// it, there is nothing to join with. What is there already stays, whatever
// becomes of the wall.
func TestPodsJoinBehindTheirWall(t *testing.T) {
	const injection = "ConfigMap media-wireguard.injection"
	cases := map[string]struct {
		reason string
		pods   string
		lacks  string
		waits  bool
	}{
		"Kubernetes": {"it stands first", "{}", "", true},
		"Cilium":     {"of whatever kind it is", "{networkPolicy: {type: Cilium}}", "", true},
		"None":       {"there is none to wait for", "{networkPolicy: {type: None}}", "", false},
		"NoKind":     {"PodsReady tells that there will be none", "{networkPolicy: {type: Cilium}}", "CiliumNetworkPolicy", false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.admits()
			c.gateway(gatewayAll)
			c.settle()
			c.lacks[tc.lacks] = true
			c.pods("apps", tc.pods)
			media := objectID("WireguardPeer", "apps", "media")
			joins := func() bool { return slices.Contains(c.namesOf("apps"), injection) }
			noWall := func() {
				maps.DeleteFunc(c.objects, func(id string, _ *unstructured.Unstructured) bool {
					return strings.HasSuffix(id, "NetworkPolicy apps/media-wireguard.pods")
				})
			}
			for range 3 {
				c.reconcile(media)
				noWall()
				if joins() == tc.waits {
					t.Fatalf("%s: it is %t that pods join without a wall", tc.reason, joins())
				}
			}
			c.settle()
			if !joins() {
				t.Errorf("%s: want pods to join, got %v", tc.reason, c.namesOf("apps"))
			}
			noWall()
			for range 3 {
				c.reconcile(media)
				if !joins() {
					t.Errorf("%s: want what is there to stay", tc.reason)
				}
			}
		})
	}
}

// A namespace that is not let in learns nothing, and the gateway's Secrets are
// not read for it.
func TestPodsRefusedLearnNothing(t *testing.T) {
	c := newCluster(t)
	c.admits()
	c.gateway(gatewayClosed)
	c.pods("apps", "{networkPolicy: {type: None}}")
	c.settle()
	c.learnsNothing("apps")
	c.want("WireguardPeer", "apps", "media", "Permitted", "FALSE NamespaceNotAllowed")
}

// Crossplane would not delete a network policy of one kind whose key one of the
// other kind takes, and what either of them allows is allowed.
func TestOneNetworkPolicy(t *testing.T) {
	c := newCluster(t)
	c.admits()
	c.gateway(gatewayAll)
	for _, step := range []struct{ policy, want string }{
		{"Kubernetes", "NetworkPolicy"}, {"Cilium", "CiliumNetworkPolicy"}, {"Kubernetes", "NetworkPolicy"}, {"None", ""}, {"Cilium", "CiliumNetworkPolicy"},
	} {
		c.pods("apps", "{networkPolicy: {type: "+step.policy+"}}")
		c.settle()
		var got []string
		for _, o := range c.namesOf("apps") {
			if kind, _, _ := strings.Cut(o, " "); strings.HasSuffix(kind, "NetworkPolicy") {
				got = append(got, kind)
			}
		}
		if strings.Join(got, " ") != step.want {
			t.Errorf("%s: want %q, got %q", step.policy, step.want, got)
		}
	}
}

func TestPodsReady(t *testing.T) {
	const level = "apiVersion: v1\nkind: Namespace\nmetadata: {name: apps, labels: {pod-security.kubernetes.io/enforce: %s}}"
	cases := map[string]struct {
		reason  string
		pods    string
		change  func(c *cluster)
		want    string
		message string // a part of it
	}{
		"Privileged": {"the namespace admits everything", "{}", func(c *cluster) { c.apply(fmt.Sprintf(level, "privileged")) }, "TRUE Available", ""},
		"NoBypass":   {"it is worth a word", "{}", nil, "TRUE Available", "not even the cluster's DNS"},
		"Bypass":     {"there is nothing to say", "{bypassCIDRs: [10.43.0.0/16]}", nil, "TRUE Available", ""},
		"Baseline":   {"it forbids NET_ADMIN", "{}", func(c *cluster) { c.apply(fmt.Sprintf(level, "baseline")) }, "FALSE PodSecurity", "pod-security.kubernetes.io/enforce=baseline"},
		"Restricted": {"it forbids more", "{}", func(c *cluster) { c.apply(fmt.Sprintf(level, "restricted")) }, "FALSE PodSecurity", "set the label to privileged"},
		"OldKubernetes": {
			"it has no policies that change pods", "{}", func(c *cluster) { c.lacks["MutatingAdmissionPolicy"] = true },
			"FALSE KindMissing", "Kubernetes 1.36 or later",
		},
		"NothingInstalled": {"labelled pods would start as they are", "{}", func(c *cluster) {
			for _, kind := range admissionKinds {
				delete(c.objects, objectID(kind, "", "wireguard-gateway-injection"))
			}
		}, "FALSE AdmissionMissing", "apply package/cluster/injection.yaml"},
		"BindingMissing": {"a policy that is not bound does nothing", "{}", func(c *cluster) {
			delete(c.objects, objectID("ValidatingAdmissionPolicyBinding", "", "wireguard-gateway-injection"))
		}, "FALSE AdmissionMissing", `no ValidatingAdmissionPolicyBinding "wireguard-gateway-injection"`},
		"LeakFirst": {"what lets pods start outside of the tunnel is said first", "{}", func(c *cluster) {
			c.apply(fmt.Sprintf(level, "baseline"))
			delete(c.objects, objectID("MutatingAdmissionPolicy", "", "wireguard-gateway-injection"))
		}, "FALSE AdmissionMissing", "start without the sidecar"},
		"NoCilium":  {"there is no wall", "{networkPolicy: {type: Cilium}}", func(c *cluster) { c.lacks["CiliumNetworkPolicy"] = true }, "FALSE KindMissing", "set spec.pods.networkPolicy.type to Kubernetes"},
		"Cilium":    {"the kind is there", "{networkPolicy: {type: Cilium}}", nil, "TRUE Available", ""},
		"NotNeeded": {"a kind that is not asked for may be missing", "{networkPolicy: {type: None}}", func(c *cluster) { c.lacks["CiliumNetworkPolicy"] = true }, "TRUE Available", ""},
		"OldCrossplane": {"it cannot tell, so all is taken for granted", "{networkPolicy: {type: Cilium}}", func(c *cluster) {
			c.lacks = nil
			for _, kind := range admissionKinds {
				delete(c.objects, objectID(kind, "", "wireguard-gateway-injection"))
			}
		}, "TRUE Available", ""},
		"OldGateway": {"its function does not know of pods, and does not take them", "{}", func(c *cluster) {
			c.settle()
			home := objectID("WireguardGateway", "vpn", "home")
			c.stale[home] = true
			delete(c.objects[home].Object["status"].(map[string]any), "peers")
		}, "FALSE Pending", "look at the conditions of the gateway"},
		"Rejected": {"the gateway's owner has to look at it", "{}", func(c *cluster) {
			c.settle()
			home := objectID("WireguardGateway", "vpn", "home")
			c.stale[home] = true
			c.objects[home].Object["status"].(map[string]any)["peers"] = []any{map[string]any{"name": "media", "namespace": "apps", "pods": true, "state": "Rejected", "reason": "TooLarge", "message": "no room"}}
		}, "FALSE TooLarge", "no room"},
		"SeedMissing": {"nothing is changed", "{}", func(c *cluster) {
			c.settle()
			delete(c.objects, objectID("Secret", "vpn", "home-wireguard.seed"))
		}, "FALSE SeedMissing", "nothing was changed"},
		"GatewayInvalid": {"nothing is changed", "{}", func(c *cluster) {
			c.settle()
			c.gateway(`{allowedPeerNamespaces: {from: All}, peerCIDR: 10.8.0.1/24}`)
		}, "FALSE GatewayInvalid", "nothing was changed"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t)
			c.admits()
			c.gateway(gatewayAll)
			c.pods("apps", tc.pods)
			if tc.change != nil {
				tc.change(c)
			}
			c.settle()
			c.want("WireguardPeer", "apps", "media", "PodsReady", tc.want)
			if _, message := c.condition("WireguardPeer", "apps", "media", "PodsReady"); !strings.Contains(message, tc.message) || (message != "" && strings.Contains(tc.pods, "bypass")) {
				t.Errorf("%s: want a message with %q, got %q", tc.reason, tc.message, message)
			}
			wall := slices.ContainsFunc(c.namesOf("apps"), func(s string) bool { return strings.HasSuffix(s, "NetworkPolicy media-wireguard.pods") })
			if want := !strings.Contains(tc.pods, "None") && name != "NoCilium"; wall != want {
				t.Errorf("%s: it is %t that there is a wall", tc.reason, wall)
			}
			if joins := c.secret("apps", "media-wireguard.enrolment") != nil; joins == (name == "Rejected") {
				t.Errorf("%s: it is %t that pods can join", tc.reason, joins)
			}
		})
	}
}

// A class of pods changes nothing for anybody else: no peer's address, key or
// Secret, and not the gateway's pod.
func TestPodsMoveNobody(t *testing.T) {
	c := newCluster(t)
	c.admits()
	const spec = "{endpoint: {host: vpn.example.com}, allowedPeerNamespaces: {from: All}, peers: [{name: laptop}, {name: media}]}"
	c.gateway(spec)
	c.peer("apps", "phone", "{}")
	c.settle()
	others := func() map[string]string {
		out := map[string]string{"deployment": fmt.Sprint(c.objects[objectID("Deployment", "vpn", "home-wireguard")].Object)}
		for _, at := range [][2]string{{"vpn", "home-wireguard.peer.laptop"}, {"vpn", "home-wireguard.peer.media"}, {"apps", "phone-wireguard.peer"}} {
			maps.Copy(out, map[string]string{at[1]: fmt.Sprint(c.secret(at[0], at[1]))})
		}
		for _, p := range c.config().Peers {
			out[p.Namespace+"/"+p.Name] = fmt.Sprint(p)
		}
		return out
	}
	before := others()
	c.pods("apps", "{}")
	c.pods("vpn", "{}") // An inline peer has this name.
	c.settle()
	if diff := cmp.Diff(before, others()); diff != "" {
		t.Errorf("-before, +after:\n%s", diff)
	}
	c.want("WireguardPeer", "apps", "media", "PodsReady", "TRUE Available")
	c.want("WireguardPeer", "vpn", "media", "PodsReady", "FALSE DuplicateName")
	c.want("WireguardGateway", "vpn", "home", "PeersReady", "FALSE PeersRejected")
	if classes := c.config().PodClasses; len(classes) != 1 || classes[0].Namespace != "apps" {
		t.Errorf("want the one class without an inline peer of its name, got %d", len(classes))
	}
	if c.secret("vpn", "media-wireguard.enrolment") != nil {
		t.Error("want pods refused at admission that the gateway rejects")
	}
}

// A client that becomes a class of pods, and one again, is never both.
func TestClientBecomesPods(t *testing.T) {
	inBothFlavours(t, func(t *testing.T, c *cluster) {
		t.Helper()
		c.admits()
		c.gateway(gatewayAll)
		c.peer("apps", "media", "{}")
		c.settle()
		first := c.secret("apps", "media-wireguard.peer")["direct.conf"]
		c.pods("apps", "{}")
		c.settle()
		if diff := cmp.Diff(joined, c.namesOf("apps")); diff != "" {
			t.Errorf("pods: -want, +got:\n%s", diff)
		}
		if got := c.onDevice(); len(got) != 0 || len(c.config().PodClasses) != 1 {
			t.Errorf("pods: want a class and no peer, got %v and %d classes", got, len(c.config().PodClasses))
		}
		c.peer("apps", "media", "{}")
		c.settle()
		if len(c.config().PodClasses) != 0 {
			t.Error("client: want no class of pods")
		}
		if diff := cmp.Diff(first, c.secret("apps", "media-wireguard.peer")["direct.conf"]); diff != "" {
			t.Errorf("client again: -before, +after:\n%s", diff)
		}
		if diff := cmp.Diff([]string{"ConfigMap media-wireguard.attachment", "Secret media-wireguard.peer"}, c.namesOf("apps")); diff != "" {
			t.Errorf("client again: -want, +got:\n%s", diff)
		}
	})
}
