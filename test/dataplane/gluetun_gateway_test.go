package dataplane

import (
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/crossplane/function-sdk-go/logging"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wireguardgateway/function-wireguard-gateway/fn"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/offline"
	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// egressGateway is a gateway with gluetun, and everything that the function
// composes for it.
type egressGateway struct {
	t        *testing.T
	spec     *unstructured.Unstructured
	composed []*unstructured.Unstructured
}

// egressSpec sends all that peers send to the internet through the provider.
// The phone may reach one port of it only.
var egressSpec = `
apiVersion: wireguardgateway.io/v1alpha1
kind: WireguardGateway
metadata: {name: home, namespace: vpn, uid: gateway}
spec:
  endpoint: {host: ` + gateway4 + `}
  peerCIDR: ` + pool4 + `
  peerCIDRv6: ` + pool6 + `
  peerToPeer: true
  gluetun:
    provider: custom
    credentials: {secretRef: {name: provider}}
    endpoint: {ip: ` + provider4 + `, port: 51821, publicKey: "` + testKey("provider", 0).Public().String() + `"}
    outboundSubnets: [192.168.50.0/24, "fd50::/64"]
  extraContainers:
    - name: dashboard
      image: registry.example.com/dashboard:v1
      ports: [{name: web, containerPort: 8088}]
  peers:
    - name: laptop
    - name: phone
      access: [{action: Accept, to: {cidr: ` + server4 + `/32, ports: ["443"]}}]
    - name: site
      publicKey: "` + testKey("client", 3).Public().String() + `"
      endpoint: 192.0.2.14:51000
      persistentKeepalive: 1
`

const egressInput = `
apiVersion: wireguard.fn.crossplane.io/v1beta1
kind: Input
spec:
  podCIDRs: [10.244.0.0/16]
  serviceCIDRs: [10.43.0.0/16, "fd43::/64", 10.96.0.0/24]
`

func newEgressGateway(t *testing.T) *egressGateway {
	t.Helper()
	return newEgressGatewayOf(t, egressSpec)
}

// newOpenVPNGateway is a gateway with an account for OpenVPN at a provider whose
// servers gluetun knows.
func newOpenVPNGateway(t *testing.T) *egressGateway {
	t.Helper()
	spec := regexp.MustCompile(`(?m)^    endpoint: \{ip.*\n`).ReplaceAllString(egressSpec, "")
	return newEgressGatewayOf(t, strings.Replace(spec, "provider: custom", "provider: protonvpn\n    type: openvpn", 1))
}

func newEgressGatewayOf(t *testing.T, spec string) *egressGateway {
	t.Helper()
	e := &egressGateway{t: t, spec: manifest(t, spec)}
	for range 3 {
		e.render("")
	}
	return e
}

// render runs the function once, with this report of the agent's.
func (e *egressGateway) render(report string) {
	e.t.Helper()
	for _, o := range e.composed {
		if o.GetKind() == "ConfigMap" && report != "" {
			o.Object["data"] = map[string]any{wireguard.ReportKey: report}
		}
	}
	rsp, err := offline.Run(e.t.Context(), fn.New(logging.NewNopLogger()),
		offline.Request{Composite: e.spec, Observed: e.composed, Required: e.composed, Input: manifest(e.t, egressInput)})
	if err != nil {
		e.t.Fatal(err)
	}
	if len(rsp.GetResults()) > 0 {
		e.t.Fatal(rsp.GetResults())
	}
	e.composed = offline.Composed(e.spec, rsp)
	e.spec.Object["status"] = rsp.GetDesired().GetComposite().GetResource().AsMap()["status"]
	conditions := map[string]any{}
	for _, c := range rsp.GetConditions() {
		conditions[c.GetType()] = c.GetReason()
	}
	e.spec.Object["conditions"] = conditions
}

// data returns a value of a composed Secret.
func (e *egressGateway) data(secret, key string) string {
	e.t.Helper()
	for _, o := range e.composed {
		if o.GetKind() != "Secret" || o.GetName() != secret {
			continue
		}
		v, _, _ := unstructured.NestedString(o.Object, "data", key)
		b, err := base64.StdEncoding.DecodeString(v)
		if err != nil {
			e.t.Fatal(err)
		}
		return string(b)
	}
	e.t.Fatalf("nothing composes %s with %s", secret, key)
	return ""
}

func (e *egressGateway) file(key string) string { return e.data("home-wireguard.config", key) }

func (e *egressGateway) config() wireguard.GatewayConfig {
	e.t.Helper()
	c, err := wireguard.DecodeGatewayConfig([]byte(e.file(wireguard.ConfigKey)))
	if err != nil {
		e.t.Fatal(err)
	}
	return c
}

// env is what gluetun's container gets.
func (e *egressGateway) env() map[string]string {
	e.t.Helper()
	out := map[string]string{}
	for _, o := range e.composed {
		if o.GetKind() != "Deployment" {
			continue
		}
		containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "initContainers")
		for _, c := range containers {
			if container := c.(map[string]any); container["name"] == "gluetun" {
				for _, v := range container["env"].([]any) {
					value, _ := v.(map[string]any)["value"].(string)
					out[v.(map[string]any)["name"].(string)] = value
				}
			}
		}
	}
	return out
}

// write mounts what the pod's containers find.
func (e *egressGateway) write(h *host) {
	e.t.Helper()
	h.Write("config/"+wireguard.ConfigKey, e.file(wireguard.ConfigKey))
	h.Write("config/"+wireguard.GluetunAuthKey, e.file(wireguard.GluetunAuthKey))
	e.credentials(h)
}

// credentials mounts the user's Secret.
func (e *egressGateway) credentials(h *host) {
	e.t.Helper()
	for _, name := range e.config().Egress.Credentials {
		h.Write("secrets/gluetun/"+name, "x")
	}
}

// device starts a device for the gateway's peers that is not the agent's, with
// this configuration of wg(8).
func (e *egressGateway) device(h *host, conf string) *netns.Process {
	e.t.Helper()
	h.Write("wg0.conf", conf)
	p := h.wireguardGo("wg0")
	on := e.config()
	for _, a := range on.Addresses {
		h.Run("ip addr add " + a.String() + " dev wg0")
	}
	h.Run(fmt.Sprintf("ip link set wg0 mtu %d up", on.MTU))
	h.Sysctl("net.ipv4.conf.wg0.forwarding=1")
	return p
}

// outlive kills the agent and leaves its peers their device, as it is where the
// kernel has WireGuard. Not every machine's has, so wireguard-go stands in for
// it. The gateway calls the peers, which know of nothing.
func (e *egressGateway) outlive(a *agent) *netns.Process {
	e.t.Helper()
	conf := a.host.Run("wg showconf wg0")
	a.Kill()
	return e.device(a.host, strings.ReplaceAll(conf, "Endpoint = ", "PersistentKeepalive = 1\nEndpoint = "))
}

// syncs writes configurations with other access rules each, and waits for each
// to be in the firewall before the next one comes, so that no two are one. The
// last one is as it was. The function is called ahead of each.
func (a *agent) syncs(t *testing.T, c wireguard.GatewayConfig, n int, ahead func(i int)) {
	t.Helper()
	const counter, failures = `wireguard_gateway_sync_duration_seconds_count{cause="config"}`, "wireguard_gateway_sync_errors_total"
	before, failed := a.metric(counter), a.metric(failures)
	original := encode(t, c)
	c.Peers = slices.Clone(c.Peers)
	phone := slices.IndexFunc(c.Peers, func(p wireguard.Peer) bool { return p.Name == "phone" })
	inFirewall := func(part string) {
		t.Helper()
		netns.WaitFor(t, limit, "a sync", func() error {
			out, err := a.host.Try("nft", "list", "table", "inet", "wireguard_gateway")
			return errors.Join(err, want(out, part))
		})
	}
	for i := range n {
		ahead(i)
		port := strconv.Itoa(1000 + i)
		c.Peers[phone].Access = []wireguard.AccessRule{rule(wireguard.Accept, "", wireguard.ProtocolTCP, port)}
		a.write(encode(t, c))
		inFirewall("dport " + port)
	}
	a.write(original)
	inFirewall("daddr " + server4 + " tcp dport 443")
	// The firewall comes before the end of a sync.
	netns.WaitFor(t, limit, "the last sync", func() error {
		if got := int(a.metric(counter) - before); got != n+1 {
			return fmt.Errorf("%d syncs of %d", got, n+1)
		}
		return nil
	})
	if got := a.metric(failures) - failed; got != 0 {
		t.Errorf("%v syncs have failed", got)
	}
	t.Logf("%d configurations were %d syncs, and each was seen in the firewall", n+1, n+1)
}

// pastOurRules takes peers to the pod's own way out ahead of the agent's rules,
// so that the firewall alone is left.
func (g *standIn) pastOurRules() {
	g.T.Helper()
	for _, ip := range []string{"ip", "ip -6"} {
		g.Run(ip + " rule add iif wg0 lookup main pref 50")
	}
}

func (g *standIn) behindOurRules() {
	g.T.Helper()
	for _, ip := range []string{"ip", "ip -6"} {
		g.Run(ip + " rule del pref 50")
	}
}

// connect brings up a peer's tunnel from its Secret.
func (e *egressGateway) connect(c *client, peer string) {
	e.t.Helper()
	// wg-quick hands resolvers to resolvconf(8), which is not there.
	conf := regexp.MustCompile(`(?m)^DNS = .*\n`).ReplaceAllString(e.data("home-wireguard.peer."+peer, "direct.conf"), "")
	c.upConf(conf)
}

// address returns a peer's IPv4 address.
func (e *egressGateway) address(peer string) string {
	e.t.Helper()
	for _, p := range e.config().Peers {
		if p.Name == peer {
			return p.Addresses[0].String()
		}
	}
	e.t.Fatalf("no peer %s", peer)
	return ""
}
