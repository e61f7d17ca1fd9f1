package fn

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/function-sdk-go/logging"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// maxRequest is what etcd takes.
const maxRequest = 3 << 19

// Whatever WireguardPeers ask for, the owner's own peers are served, and nothing
// is too large to be applied.
func TestWireguardPeersFitTheGateway(t *testing.T) {
	const (
		open   = "peerCIDR: 10.0.0.0/8\npeerCIDRv6: \"fd00:8::/64\"\nendpoint: {host: vpn.example.com}\nallowedPeerNamespaces: {from: All, limits: {routes: [\"fd10::/16\"]}}\n"
		shared = open + "peerToPeer: true\n"
	)
	narrow := func(n int, more string) string {
		var b strings.Builder
		b.WriteString("peers:\n")
		for i := range n {
			fmt.Fprintf(&b, "- {name: inline%d, allowedIPs: [10.43.0.0/16]%s}\n", i, more)
		}
		return b.String()
	}
	long := func(s string, n int) string { return s + strings.Repeat("-", 39-len(s)-4) + fmt.Sprintf("%04d", n) }
	plain := func(n int) string {
		var b strings.Builder
		b.WriteString("peers:\n")
		for i := range n {
			fmt.Fprintf(&b, "- {name: %s}\n", long("inline", i))
		}
		return b.String()
	}
	rules := func(n int) string {
		var rs []string
		for k := range n {
			rs = append(rs, fmt.Sprintf("{action: Accept, protocol: TCP, to: {cidr: 10.43.%d.0/24}}", k))
		}
		return "access: [" + strings.Join(rs, ", ") + "]"
	}
	routes := func(i, n int, length int) string {
		var rs []string
		for k := range n {
			rs = append(rs, fmt.Sprintf("\"fd10:%x:%x:abcd:1234:5678:9abc:0/112\"", 0x1000+i, 0x1000+k))
			if length == 64 {
				rs[k] = fmt.Sprintf("\"fd10:%x:%x:abcd::/64\"", i+1, 0x1000+k)
			}
		}
		return "routes: [" + strings.Join(rs, ", ") + "]"
	}
	cases := map[string]struct {
		reason string
		spec   string
		peers  int
		client func(i int) string // nil where they are pods
		served int                // of the WireguardPeers, at least
		inline int
	}{
		"Response": {
			reason: "each narrow configuration has their routes",
			spec:   shared + narrow(50, ""), inline: 50,
			peers: 80, client: func(i int) string { return routes(i, 32, 64) }, served: 10,
		},
		"Tunnel": {
			reason: "in three files, and in QR codes",
			spec:   shared + "gateway: {hostname: vpn.example.com, parentRefs: [{name: public}]}\ntunnel: {}\n" + narrow(20, ", qrCode: true"), inline: 20,
			peers: 80, client: func(i int) string { return routes(i, 32, 64) }, served: 1,
		},
		"NarrowSecret": {
			reason: "those that are disabled have routes, too",
			spec:   shared + narrow(1, ""), inline: 1,
			peers: 700, client: func(i int) string { return "disabled: true, " + routes(i, 32, 64) }, served: 30,
		},
		"Status": {
			reason: "the status has all of their routes",
			spec:   open + "peers: [{name: laptop}]\n", inline: 1,
			peers: 1000, client: func(i int) string { return "disabled: true, " + routes(i, 32, 112) }, served: 30,
		},
		"Plain": {
			reason: "what asks for little is served",
			spec:   shared + narrow(5, ""), inline: 5,
			peers: 960, client: func(i int) string { return routes(i, 1, 112) }, served: 960,
		},
		"Configuration": {
			reason: "the configuration has the addresses of all, whether they are on the device or not",
			spec:   open + plain(1200), inline: 1200,
			peers: 1000, client: func(i int) string { return rules(8) + fmt.Sprintf(", disabled: %t", i%2 == 0) }, served: 100,
		},
		"QRCodes": {
			reason: "a QR code is larger than what it says",
			spec: open + "peers:\n" + func() string {
				var b strings.Builder
				for i := range 130 {
					fmt.Fprintf(&b, "- {name: inline%d, qrCode: true}\n", i)
				}
				return b.String()
			}(), inline: 130,
			peers: 1000, client: func(int) string { return rules(8) }, served: 1,
		},
		"Owner": {
			reason: "the owner's peers alone are nearly all that fits",
			spec:   open + plain(1700), inline: 1700,
			peers: 1000, client: func(int) string { return rules(8) },
		},
		"OwnerAndPods": {
			reason: "pods that find no room have no entry in the status either",
			spec:   open + plain(2050), inline: 2050,
			peers: 1000,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.spec)
			c := &crowd{world: w, f: New(logging.NewNopLogger(), WithClock(func() time.Time { return time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC) }))}
			attach := func(namespace, name string, i int) {
				if tc.client == nil {
					c.attachPods(t, namespace, name)
					return
				}
				c.attach(t, namespace, name, tc.client(i))
			}
			for i := range tc.peers {
				attach(strings.Repeat("n", 63), long("peer", i), i)
			}
			rsp := c.run(t)
			c.check(t, rsp, tc.spec, tc.inline, tc.served)
			before := c.statesIn(rsp)
			// Who sorts first and comes later displaces nobody.
			for i := range 40 {
				attach("aaa", long("later", i), 2000+i)
			}
			rsp = c.run(t)
			c.check(t, rsp, tc.spec, tc.inline, tc.served)
			after := c.statesIn(rsp)
			for id, state := range before {
				if state != "Rejected" && after[id] != state {
					t.Fatalf("%s: %s was %s, and is %q", tc.reason, id, state, after[id])
				}
			}
		})
	}
}

// crowd is a gateway with what WireguardPeers attach to it by.
type crowd struct {
	*world

	f           *Function
	attachments []*fnv1.Resource
}

var crowdSeed = wireguard.Seed([]byte(strings.Repeat("seed", 8)))

func (c *crowd) attach(t *testing.T, namespace, name, client string) {
	t.Helper()
	settings := v1alpha1.Client{}
	if err := yaml.UnmarshalStrict([]byte("{"+client+"}"), &settings); err != nil {
		t.Fatal(err)
	}
	settings.PublicKey = crowdSeed.PeerKey(namespace, name, 0).Public().String()
	b, err := json.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	c.attachSettings(t, namespace, name, b)
}

func (c *crowd) attachPods(t *testing.T, namespace, name string) {
	t.Helper()
	c.attachSettings(t, namespace, name, []byte(`{"pods":true}`))
}

func (c *crowd) attachSettings(t *testing.T, namespace, name string, settings []byte) {
	t.Helper()
	uid := namespace + "-" + name
	mac := wireguard.Attachment{Gateway: "vpn/home", Namespace: namespace, Name: name, UID: uid, Client: settings}.MAC(crowdSeed.AttachmentKey())
	c.attachments = append(c.attachments, &fnv1.Resource{Resource: toStruct(t, map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{
			"namespace": namespace, "name": name + "-wireguard.attachment",
			"ownerReferences": []any{map[string]any{"apiVersion": "wireguardgateway.io/v1alpha1", "kind": "WireguardPeer", "name": name, "uid": uid, "controller": true}},
		},
		"data": map[string]any{"client.json": string(settings), "uid": uid, "mac": mac},
	})})
}

// once runs the function.
func (c *crowd) once(t *testing.T) *fnv1.RunFunctionResponse {
	t.Helper()
	req := c.request(t, respond(t, c.f, c.request(t, nil)).GetRequirements())
	req.RequiredResources[requireSeed] = &fnv1.Resources{Items: []*fnv1.Resource{{Resource: toStruct(t, map[string]any{
		"data": map[string]any{"seed": base64.StdEncoding.EncodeToString(crowdSeed[:])},
	})}}}
	req.RequiredResources[requireAttachments] = &fnv1.Resources{Items: c.attachments}
	return respond(t, c.f, req)
}

// run runs the function, and again with what it returned, which must be the same.
func (c *crowd) run(t *testing.T) *fnv1.RunFunctionResponse {
	t.Helper()
	var last *fnv1.RunFunctionResponse
	for range 2 {
		rsp := c.once(t)
		if message := fatalOf(rsp); message != "" {
			t.Fatal(message)
		}
		if last != nil && (!equalJSON(t, c.composite["status"], statusIn(rsp)) || !maps.Equal(data(t, last, "config"), data(t, rsp, "config"))) {
			t.Fatal("once observed, something else is desired")
		}
		last = rsp
		c.objects = map[string]map[string]any{"config": rsp.GetDesired().GetResources()["config"].GetResource().AsMap()}
		c.composite["status"] = statusIn(rsp)
	}
	return last
}

func statusIn(rsp *fnv1.RunFunctionResponse) any {
	return rsp.GetDesired().GetComposite().GetResource().AsMap()["status"]
}

func (c *crowd) check(t *testing.T, rsp *fnv1.RunFunctionResponse, spec string, inline, served int) {
	t.Helper()
	if size := proto.Size(rsp); size > maxMessage {
		t.Errorf("the response is %d bytes", size)
	}
	if b, err := json.Marshal(c.composite); err != nil || len(b) > maxRequest {
		t.Errorf("the gateway is %d bytes, %v", len(b), err)
	}
	secrets := 0
	for key := range rsp.GetDesired().GetResources() {
		size := 0
		for _, v := range data(t, rsp, key) {
			size += len(v)
		}
		if size > corev1.MaxSecretSize {
			t.Errorf("the Secret %s is %d bytes", key, size)
		}
		if strings.HasPrefix(key, "peer-") {
			secrets++
			if _, ok := data(t, rsp, key)["direct.png"]; ok != strings.Contains(spec, "qrCode") {
				t.Fatalf("the Secret %s has a QR code: %t", key, ok)
			}
		}
	}
	states := map[string]int{}
	for id, state := range c.statesIn(rsp) {
		if strings.HasPrefix(id, "vpn/") && state != "Active" {
			t.Errorf("%s of the owner is %s", id, state)
		}
		if !strings.HasPrefix(id, "vpn/") {
			states[state]++
		}
	}
	t.Logf("the response is %d bytes, the WireguardPeers %v", proto.Size(rsp), states)
	if served > 0 && states["Rejected"] == 0 && len(c.attachments) > states["Active"]+states["Disabled"] {
		t.Error("nobody is told that there is no room")
	}
	if got := states["Active"] + states["Disabled"]; secrets != inline || got < served {
		t.Errorf("want %d inline peers and at least %d WireguardPeers served, got %d and %d", inline, served, secrets, got)
	}
}

func (c *crowd) statesIn(rsp *fnv1.RunFunctionResponse) map[string]string {
	out := map[string]string{}
	for _, v := range rsp.GetDesired().GetComposite().GetResource().GetFields()["status"].GetStructValue().GetFields()["peers"].GetListValue().GetValues() {
		p := v.GetStructValue().GetFields()
		out[p["namespace"].GetStringValue()+"/"+p["name"].GetStringValue()] = p["state"].GetStringValue()
	}
	return out
}

// TestServedStayWithoutRoom: bounds from above are for newcomers. Who is served
// stays, however much the owner's own peers grow, and whatever was lost.
func TestServedStayWithoutRoom(t *testing.T) {
	spec := func(peers int) string {
		var b strings.Builder
		b.WriteString("peerCIDR: 10.0.0.0/8\nendpoint: {host: vpn.example.com}\nallowedPeerNamespaces: {from: All}\npeers:\n")
		for i := range peers {
			fmt.Fprintf(&b, "- {name: inline%d, qrCode: true}\n", i)
		}
		return b.String()
	}
	w := newWorld(t, spec(190))
	c := &crowd{world: w, f: New(logging.NewNopLogger(), WithClock(func() time.Time { return time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC) }))}
	want := map[string]string{}
	for i := range 3 {
		name := fmt.Sprintf("peer%d", i)
		c.attach(t, "team", name, "addresses: []")
		want["team/"+name] = v1alpha1.PeerActive
	}
	check := func(when string) {
		t.Helper()
		got := c.statesIn(c.run(t))
		for id := range got {
			if strings.HasPrefix(id, "vpn/") {
				delete(got, id)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want, +got:\n%s", when, diff)
		}
	}
	check("with 190 peers")
	for _, n := range []int{205, 209, 220, 250} {
		c.set(t, spec(n))
		check(fmt.Sprintf("with %d peers", n))
	}
	c.objects = nil
	check("without the configuration")

	// There is no room even to tell a newcomer, who is counted.
	c.attach(t, "late", "comer", "addresses: []")
	check("with a newcomer")
}

// manyRules are rules that take much room, as far as the schema allows.
func manyRules(n, ports int) string {
	var ps, rules []string
	for k := range ports {
		ps = append(ps, fmt.Sprintf(`"%d-%d"`, 10000+k*100, 10050+k*100))
	}
	for i := range n {
		rules = append(rules, fmt.Sprintf("{action: Accept, protocol: TCP, to: {cidr: 10.43.%d.0/24, ports: [%s]}}", i, strings.Join(ps, ",")))
	}
	return "access: [" + strings.Join(rules, ", ") + "]"
}

// withQRCodes is a gateway with so many inline peers, and limits for others.
func withQRCodes(inline int, limits string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "peerCIDR: 10.0.0.0/8\nendpoint: {host: vpn.example.com}\nallowedPeerNamespaces: {from: All, limits: {%s}}\npeers:\n", limits)
	for i := range inline {
		fmt.Fprintf(&b, "- {name: %s-%04d, qrCode: true}\n", strings.Repeat("i", 34), i)
	}
	return b.String()
}

// TestGrowthStopsNobody: those that are served may ask for more, as long as
// everything still fits and leaves something to the gateway's owner. Else they are
// rejected, whoever of them it was, and nobody else is.
func TestGrowthStopsNobody(t *testing.T) {
	for name, tc := range map[string]struct {
		was           string
		inline, ports int
	}{
		"Active":   {"addresses: []", 195, 32},
		"Disabled": {"disabled: true", 195, 32},
		"Just":     {"addresses: []", 190, 30}, // without what is left to the owner it would fit
	} {
		t.Run(name, func(t *testing.T) {
			const peers = 56
			c := &crowd{world: newWorld(t, withQRCodes(tc.inline, "")), f: New(logging.NewNopLogger(), WithClock(func() time.Time { return time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC) }))}
			attach := func(client string) {
				c.attachments = nil
				c.attach(t, "other", "quiet", "addresses: []")
				for i := range peers {
					c.attach(t, "team", fmt.Sprintf("peer%02d", i), client)
				}
			}
			attach(tc.was)
			c.check(t, c.run(t), "qrCode", tc.inline, peers+1)

			attach(manyRules(32, tc.ports))
			rsp := c.run(t)
			c.check(t, rsp, "qrCode", tc.inline, 1)
			const more = 5
			c.set(t, withQRCodes(tc.inline+more, ""))
			rsp = c.run(t)
			c.check(t, rsp, "qrCode", tc.inline+more, 1)
			if got := c.statesIn(rsp)["other/quiet"]; got != v1alpha1.PeerActive {
				t.Errorf("who asked for nothing is %q", got)
			}
		})
	}
}

// TestOwnersLimitsRejectNobody: what the owner allows all WireguardPeers may make
// the gateway too large. Then the owner is told, and they stay as they are.
func TestOwnersLimitsRejectNobody(t *testing.T) {
	const inline = 200
	for name, lose := range map[string]bool{"Limits": false, "LimitsAndConfiguration": true} {
		t.Run(name, func(t *testing.T) {
			c := &crowd{world: newWorld(t, withQRCodes(inline, "")), f: New(logging.NewNopLogger(), WithClock(func() time.Time { return time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC) }))}
			for i := range 56 {
				c.attach(t, "team", fmt.Sprintf("peer%02d", i), "addresses: []")
			}
			c.check(t, c.run(t), "qrCode", inline, 56)
			c.set(t, withQRCodes(inline, manyRules(32, 32)))
			if lose {
				c.objects = nil
			}
			if message := fatalOf(c.once(t)); !strings.Contains(message, "spec.peers: Too many") {
				t.Errorf("want the owner to be told, got %q", message)
			}
		})
	}
}

// TestNoQRCodeTakesNoRoom: a configuration that is too long for a QR code has
// none.
func TestNoQRCodeTakesNoRoom(t *testing.T) {
	var b strings.Builder
	b.WriteString("peerCIDR: 10.8.0.0/16\npeerToPeer: true\nendpoint: {host: vpn.example.com}\nallowedPeerNamespaces: {from: All}\npeers:\n")
	for i := range 6 {
		var routes []string
		for j := range 32 {
			routes = append(routes, fmt.Sprintf("192.168.%d.%d/30", 100+i, 4*j))
		}
		fmt.Fprintf(&b, "- {name: site%d, routes: [%s]}\n", i, strings.Join(routes, ", "))
	}
	for i := range 40 {
		fmt.Fprintf(&b, "- {name: inline%d, qrCode: true, allowedIPs: [10.43.0.0/16]}\n", i)
	}
	w := newWorld(t, b.String())
	c := &crowd{world: w, f: New(logging.NewNopLogger(), WithClock(func() time.Time { return time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC) }))}
	c.attach(t, "team", "peer", "addresses: []")
	if got := c.statesIn(c.run(t))["team/peer"]; got != v1alpha1.PeerActive {
		t.Errorf("the peer is %q, and there is plenty of room", got)
	}
}
