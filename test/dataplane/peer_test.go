package dataplane

import (
	"encoding/base64"
	"slices"
	"testing"

	"github.com/crossplane/function-sdk-go/logging"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/wireguardgateway/function-wireguard-gateway/fn"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/offline"
	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// rendered are a gateway and a WireguardPeer of another namespace, and what the
// function composes for both.
type rendered struct {
	t             *testing.T
	gateway, peer *unstructured.Unstructured
	composed      map[types.UID][]*unstructured.Unstructured
}

func manifest(t *testing.T, s string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(s), &o.Object); err != nil {
		t.Fatal(err)
	}
	return o
}

// settle renders both in turn, each with what the other has become, as often as
// they need.
func (r *rendered) settle() {
	r.t.Helper()
	for range 4 {
		for _, xr := range []*unstructured.Unstructured{r.gateway, r.peer} {
			in := offline.Request{Composite: xr, Observed: r.composed[xr.GetUID()]}
			in.Required = slices.Concat([]*unstructured.Unstructured{r.gateway, r.peer}, r.composed[r.gateway.GetUID()], r.composed[r.peer.GetUID()])
			rsp, err := offline.Run(r.t.Context(), fn.New(logging.NewNopLogger()), in)
			if err != nil {
				r.t.Fatal(err)
			}
			if len(rsp.GetResults()) > 0 {
				r.t.Fatalf("%s: %v", xr.GetKind(), rsp.GetResults())
			}
			objects := offline.Composed(xr, rsp)
			for _, o := range objects {
				o.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: xr.GetAPIVersion(), Kind: xr.GetKind(), Name: xr.GetName(), UID: xr.GetUID(), Controller: new(true)}})
			}
			r.composed[xr.GetUID()] = objects
			xr.Object["status"] = rsp.GetDesired().GetComposite().GetResource().AsMap()["status"]
		}
	}
}

// data returns a value of a composed Secret, empty where there is none.
func (r *rendered) data(xr *unstructured.Unstructured, secret, key string) string {
	r.t.Helper()
	for _, o := range r.composed[xr.GetUID()] {
		if o.GetKind() != "Secret" || o.GetName() != secret {
			continue
		}
		v, _, _ := unstructured.NestedString(o.Object, "data", key)
		b, err := base64.StdEncoding.DecodeString(v)
		if err != nil {
			r.t.Fatal(err)
		}
		return string(b)
	}
	return ""
}

func (r *rendered) config() wireguard.GatewayConfig {
	r.t.Helper()
	c, err := wireguard.DecodeGatewayConfig([]byte(r.data(r.gateway, "home-wireguard.config", "config.json")))
	if err != nil {
		r.t.Fatal(err)
	}
	return c
}

// A client of another namespace reaches the gateway with the configuration in
// its Secret, and what the gateway's owner lets it reach, whatever it asks for.
// When the owner takes its consent back, it reaches nothing any more.
func TestWireguardPeer(t *testing.T) {
	t.Parallel()
	r := &rendered{
		t: t,
		gateway: manifest(t, `
apiVersion: wireguardgateway.io/v1alpha1
kind: WireguardGateway
metadata: {name: home, namespace: vpn, uid: gateway}
spec:
  endpoint: {host: `+gateway4+`}
  allowedPeerNamespaces:
    from: Names
    names: [apps]
    limits:
      access: [{action: Accept, to: {cidr: 203.0.113.0/24, ports: ["443", "53"]}}]
`),
		peer: manifest(t, `
apiVersion: wireguardgateway.io/v1alpha1
kind: WireguardPeer
metadata: {name: media, namespace: apps, uid: peer}
spec:
  gatewayRef: {name: home, namespace: vpn}
  client:
    presharedKey: {generate: true}
    access: [{action: Accept}]
`),
		composed: map[types.UID][]*unstructured.Unstructured{},
	}
	r.settle()

	w := newWorld(t)
	w.server.echo(53, 443, 8050)
	a := w.startAgent(r.config())
	c := w.client(1)
	conf := r.data(r.peer, "media-wireguard.peer", "direct.conf")
	if conf == "" {
		t.Fatal("the peer has no configuration")
	}
	c.upConf(conf)
	reached := map[string]bool{"tcp " + server4 + " 443": true, "udp " + server4 + " 53": true, "tcp " + server4 + " 8050": false, "icmp " + server4: false}
	c.expect(t, "let in, within the owner's limits", reached)

	if err := unstructured.SetNestedMap(r.gateway.Object, map[string]any{"from": "Same"}, "spec", "allowedPeerNamespaces"); err != nil {
		t.Fatal(err)
	}
	r.settle()
	if got := r.composed[r.peer.GetUID()]; len(got) > 0 {
		t.Errorf("withdrawn: want nothing composed, got %d objects", len(got))
	}
	a.apply(r.config())
	for what := range reached {
		reached[what] = false
	}
	c.expect(t, "withdrawn", reached)

	// The owner changes its mind: the client connects again as it is.
	if err := unstructured.SetNestedMap(r.gateway.Object, map[string]any{"from": "All"}, "spec", "allowedPeerNamespaces"); err != nil {
		t.Fatal(err)
	}
	r.settle()
	a.apply(r.config())
	for what := range reached {
		reached[what] = true
	}
	// WireGuard notices after 15 seconds without an answer that it has to begin
	// anew.
	netns.WaitFor(t, limit, "the client to connect again", func() error { return c.probe("icmp " + server4) })
	c.expect(t, "let in again, without limits", reached)
}
