package fn

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
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
	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// maxMessage is what Crossplane's gRPC client accepts.
const maxMessage = 4 << 20

// TestLargestGateway finds at how many peers a gateway ends, and what its user
// is told there. The schema lets in 2,000 of them.
func TestLargestGateway(t *testing.T) {
	f := New(logging.NewNopLogger(), WithRandom(forever(make([]byte, 32))))
	for _, peers := range []int{1000, 2000} {
		l := newLoad(t, peers)
		if size := proto.Size(l.response); size >= maxMessage {
			t.Errorf("the response for %d peers is %d bytes, and Crossplane accepts %d", peers, size, maxMessage)
		} else {
			t.Logf("the response for %d peers is %d bytes", peers, size)
		}
	}
	most := 2300
	for ; ; most += 100 {
		rsp := respond(t, f, answered(t, f, firstRequest(t, most)))
		if message := fatalOf(rsp); message != "" {
			t.Logf("%d peers are refused: %s", most, message)
			checkRefusal(t, rsp, message, "spec.peers", fmt.Sprint(plan.MaxResponse))
			return
		}
		if size := proto.Size(rsp); size >= maxMessage {
			t.Fatalf("the response for %d peers is %d bytes, and nobody refused it", most, size)
		}
	}
}

// TestLargestConfig holds that a configuration that no Secret can hold is
// refused, rather than by the API server. Rules are what makes one large.
func TestLargestConfig(t *testing.T) {
	f := New(logging.NewNopLogger(), WithRandom(forever(make([]byte, 32))))
	req := firstRequest(t, 1000)
	rules := []any{}
	for i := range 16 {
		rules = append(rules, map[string]any{"action": "Accept", "protocol": "TCP", "to": map[string]any{"cidr": fmt.Sprintf("10.43.%d.0/24", i), "ports": []any{"443", "8000-8100"}}})
	}
	for _, p := range req.GetObserved().GetComposite().GetResource().GetFields()["spec"].GetStructValue().GetFields()["peers"].GetListValue().GetValues() {
		p.GetStructValue().Fields["access"] = newStruct(t, map[string]any{"a": rules}).GetFields()["a"]
	}
	rsp := respond(t, f, answered(t, f, req))
	message := fatalOf(rsp)
	if message == "" {
		t.Fatal("want a Fatal, got none")
	}
	checkRefusal(t, rsp, message, "spec.peers", "1000 peers", "1048576", "access rules")
}

// TestLargestRequirements holds that all of a response is within what Crossplane
// accepts. Secrets that peers refer to are asked for there.
func TestLargestRequirements(t *testing.T) {
	f := New(logging.NewNopLogger(), WithRandom(forever(make([]byte, 32))))
	req := firstRequest(t, 1800)
	for i, p := range req.GetObserved().GetComposite().GetResource().GetFields()["spec"].GetStructValue().GetFields()["peers"].GetListValue().GetValues() {
		name := fmt.Sprintf("%s-%d", strings.Repeat("s", 190), i)
		maps.Copy(p.GetStructValue().GetFields(), newStruct(t, map[string]any{
			"privateKeySecretRef": map[string]any{"name": name},
			"presharedKey":        map[string]any{"secretRef": map[string]any{"name": "x" + name}},
		}).GetFields())
	}
	req = answered(t, f, req)
	encode := base64.StdEncoding.EncodeToString
	for i, name := range keys(req.GetRequiredResources()) {
		if strings.HasPrefix(name, requireSecretPrefix) {
			key := encode([]byte(encode(fmt.Appendf(nil, "%032d", i))))
			s := newStruct(t, map[string]any{"data": map[string]any{"privateKey": key, "presharedKey": key}})
			req.RequiredResources[name] = &fnv1.Resources{Items: []*fnv1.Resource{{Resource: s}}}
		}
	}
	rsp := respond(t, f, req)
	if size := proto.Size(rsp); size >= maxMessage {
		t.Errorf("the response is %d bytes, and Crossplane accepts %d", size, maxMessage)
	}
	checkRefusal(t, rsp, fatalOf(rsp), "spec.peers", fmt.Sprint(plan.MaxResponse), "Secrets")
}

// TestLargestSites holds that what routes are repeated in is refused where it is
// too large, before it fills the memory.
func TestLargestSites(t *testing.T) {
	f := New(logging.NewNopLogger(), WithRandom(forever(make([]byte, 32))))
	cases := map[string]struct {
		reason string
		narrow int
		says   []string
	}{
		"Status": {"All routes stand in the status, whoever is on the device.", 0, []string{"the gateway with its status is", fmt.Sprint(plan.MaxObject)}},
		"Secret": {"They stand in a narrow configuration, twice.", 1, []string{`the configurations in the Secret "home-wireguard.peer.peer-0000"`, fmt.Sprint(corev1.MaxSecretSize)}},
		"Memory": {"A thousand of these would be gigabytes.", 1000, []string{"peers with allowedIPs", fmt.Sprint(plan.MaxResponse)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			req := firstRequest(t, 2000)
			spec := req.GetObserved().GetComposite().GetResource().GetFields()["spec"].GetStructValue().GetFields()
			maps.Copy(spec, newStruct(t, map[string]any{"peerToPeer": true}).GetFields())
			for i, p := range spec["peers"].GetListValue().GetValues() {
				fields := p.GetStructValue().GetFields()
				delete(fields, "allowedIPs")
				if i < tc.narrow {
					maps.Copy(fields, newStruct(t, map[string]any{"allowedIPs": []any{"10.43.0.0/16"}}).GetFields())
				}
				if i >= 1000 {
					routes := make([]any, 32)
					for k := range routes {
						routes[k] = fmt.Sprintf("fd10:%x:%x:abcd::/64", i, 0x1000+k)
					}
					maps.Copy(fields, newStruct(t, map[string]any{"routes": routes, "disabled": true}).GetFields())
				}
			}
			rsp := respond(t, f, answered(t, f, req))
			checkRefusal(t, rsp, fatalOf(rsp), append(tc.says, "spec.peers")...)
		})
	}
}

// TestManyErrors holds that a spec full of errors costs no more than one that
// has none, and that its user is told in few words.
func TestManyErrors(t *testing.T) {
	f := New(logging.NewNopLogger())
	req := firstRequest(t, 2000)
	for i, p := range req.GetObserved().GetComposite().GetResource().GetFields()["spec"].GetStructValue().GetFields()["peers"].GetListValue().GetValues() {
		routes := make([]any, 32)
		for k := range routes {
			routes[k] = fmt.Sprintf("10.8.%d.%d/32", i%256, k)
		}
		p.GetStructValue().Fields["routes"] = newStruct(t, map[string]any{"r": routes}).GetFields()["r"]
	}
	start := time.Now()
	message := fatalOf(respond(t, f, req))
	// It took minutes where all were joined, and takes a second.
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("64,000 errors took %s", took)
	}
	for _, s := range []string{"spec.peers[0].routes[0]", "spec.peers[0].routes[9]", "63990 more"} {
		if !strings.Contains(message, s) {
			t.Errorf("want %q in the message, got %.1000s", s, message)
		}
	}
	if strings.Contains(message, "routes[10]") || len(message) > 4000 {
		t.Errorf("want ten errors, got %d bytes: %.3000s", len(message), message)
	}
}

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
		client func(i int) string
		served int // of the WireguardPeers, at least
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
			spec: open + "peers:\n" + func() string {
				var b strings.Builder
				for i := range 1200 {
					fmt.Fprintf(&b, "- {name: %s}\n", long("inline", i))
				}
				return b.String()
			}(), inline: 1200,
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
			spec: open + "peers:\n" + func() string {
				var b strings.Builder
				for i := range 1700 {
					fmt.Fprintf(&b, "- {name: %s}\n", long("inline", i))
				}
				return b.String()
			}(), inline: 1700,
			peers: 1000, client: func(int) string { return rules(8) },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.spec)
			c := &crowd{world: w, f: New(logging.NewNopLogger(), WithClock(func() time.Time { return time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC) }))}
			for i := range tc.peers {
				c.attach(t, strings.Repeat("n", 63), long("peer", i), tc.client(i))
			}
			rsp := c.run(t)
			c.check(t, rsp, tc.spec, tc.inline, tc.served)
			before := c.statesIn(rsp)
			// Who sorts first and comes later displaces nobody.
			for i := range 40 {
				c.attach(t, "aaa", long("later", i), tc.client(2000+i))
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
	uid := namespace + "-" + name
	mac := wireguard.Attachment{Gateway: "vpn/home", Namespace: namespace, Name: name, UID: uid, Client: b}.MAC(crowdSeed.AttachmentKey())
	c.attachments = append(c.attachments, &fnv1.Resource{Resource: toStruct(t, map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{
			"namespace": namespace, "name": name + "-wireguard.attachment",
			"ownerReferences": []any{map[string]any{"apiVersion": "wireguardgateway.io/v1alpha1", "kind": "WireguardPeer", "name": name, "uid": uid, "controller": true}},
		},
		"data": map[string]any{"client.json": string(b), "uid": uid, "mac": mac},
	})})
}

// run runs the function, and again with what it returned, which must be the same.
func (c *crowd) run(t *testing.T) *fnv1.RunFunctionResponse {
	t.Helper()
	var last *fnv1.RunFunctionResponse
	for range 2 {
		req := c.request(t, respond(t, c.f, c.request(t, nil)).GetRequirements())
		req.RequiredResources[requireSeed] = &fnv1.Resources{Items: []*fnv1.Resource{{Resource: toStruct(t, map[string]any{
			"data": map[string]any{"seed": base64.StdEncoding.EncodeToString(crowdSeed[:])},
		})}}}
		req.RequiredResources[requireAttachments] = &fnv1.Resources{Items: c.attachments}
		rsp := respond(t, c.f, req)
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

func answered(t *testing.T, f *Function, req *fnv1.RunFunctionRequest) *fnv1.RunFunctionRequest {
	t.Helper()
	req.RequiredResources = map[string]*fnv1.Resources{}
	for name := range respond(t, f, req).GetRequirements().GetResources() {
		req.RequiredResources[name] = &fnv1.Resources{}
	}
	return req
}

func fatalOf(rsp *fnv1.RunFunctionResponse) string {
	i := slices.IndexFunc(rsp.GetResults(), func(r *fnv1.Result) bool { return r.GetSeverity() == fnv1.Severity_SEVERITY_FATAL })
	if i < 0 {
		return ""
	}
	return rsp.GetResults()[i].GetMessage()
}

func checkRefusal(t *testing.T, rsp *fnv1.RunFunctionResponse, message string, says ...string) {
	t.Helper()
	for _, s := range says {
		if !strings.Contains(message, s) {
			t.Errorf("want %q in the message, got %s", s, message)
		}
	}
	if len(rsp.GetDesired().GetResources()) > 0 {
		t.Error("want nothing changed, got desired resources")
	}
	if c := rsp.GetConditions()[0]; c.GetType() != "SpecValid" || c.GetReason() != "TooLarge" {
		t.Errorf("want SpecValid with reason TooLarge, got %v", c)
	}
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
