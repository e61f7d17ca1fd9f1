package render_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"
)

// peersOf returns the list of peers in a request's spec, nil where there is
// none.
func peersOf(req *fnv1.RunFunctionRequest) *structpb.ListValue {
	return specOf(req)["peers"].GetListValue()
}

func specOf(req *fnv1.RunFunctionRequest) map[string]*structpb.Value {
	s := req.GetObserved().GetComposite().GetResource().GetFields()["spec"].GetStructValue()
	if s.GetFields() == nil {
		s.Fields = map[string]*structpb.Value{}
	}
	return s.GetFields()
}

func nameOf(peer *structpb.Value) string {
	return peer.GetStructValue().GetFields()["name"].GetStringValue()
}

func peerNamed(name string) *structpb.Value {
	return structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"name": text(name)}})
}

// served is what a peer has that must not change.
type served struct {
	State, Addresses, PublicKey string
}

func peersServed(rsp *fnv1.RunFunctionResponse) map[string]served {
	out := map[string]served{}
	for _, v := range statusOf(rsp)["peers"].GetListValue().GetValues() {
		p := v.GetStructValue().GetFields()
		var ips []string
		for _, ip := range p["addresses"].GetListValue().GetValues() {
			ips = append(ips, ip.GetStringValue())
		}
		out[nameOf(v)] = served{p["state"].GetStringValue(), strings.Join(ips, " "), p["publicKey"].GetStringValue()}
	}
	return out
}

// moved tells which peers but the one that was touched have another address,
// key, Secret or place on the device. Rejected peers may be served once
// another makes room.
func moved(tb testing.TB, before, after outcome, touched string) (bad []string) {
	tb.Helper()
	was, is := peersServed(before.rsp), peersServed(after.rsp)
	for _, name := range keysOf(was) {
		if name == touched || was[name].State == "Rejected" {
			continue
		}
		if was[name] != is[name] {
			bad = append(bad, fmt.Sprintf("%s was %+v and is %+v", name, was[name], is[name]))
		}
		key := "peer-" + name
		if diff := cmp.Diff(before.rsp.GetDesired().GetResources()[key], after.rsp.GetDesired().GetResources()[key], protocmp.Transform()); diff != "" {
			bad = append(bad, fmt.Sprintf("the Secret of %s changes: -before, +after:\n%s", name, diff))
		}
	}
	// One that is not observed any more may be the user's own by now.
	if seed := after.rsp.GetDesired().GetResources()["seed"]; seed != nil {
		if !proto.Equal(before.rsp.GetDesired().GetResources()["seed"].GetResource(), seed.GetResource()) {
			bad = append(bad, "the seed changes")
		}
	}
	if was, is := gatewayConfig(tb, before.rsp).PrivateKey, gatewayConfig(tb, after.rsp).PrivateKey; was != is {
		bad = append(bad, "the gateway's key changes")
	}
	return bad
}

// steadyCases are the gateways that compose something, in their steady state.
func steadyCases(t *testing.T) map[string]outcome {
	t.Helper()
	out := map[string]outcome{}
	for _, c := range cases(t) {
		first := c.run(t)
		if first.fatal() || isPeer(first) {
			continue
		}
		// Twice, since a node port is known in the second pass only.
		out[c.name] = again(t, reconciled(t, again(t, reconciled(t, first))))
	}
	return out
}

// TestNobodyMoves: adding, removing, reordering or disabling peers, and loss of
// the status, change nothing for any other peer.
func TestNobodyMoves(t *testing.T) {
	for name, before := range steadyCases(t) {
		t.Run(name, func(t *testing.T) {
			change := func(what, touched string, edit func(req *fnv1.RunFunctionRequest)) {
				t.Helper()
				req := reconciled(t, before)
				edit(req)
				after := again(t, req)
				if after.fatal() {
					t.Fatalf("%s: %v", what, after.rsp.GetResults())
				}
				report(t, "4 nobody moves, "+what, moved(t, before, after, touched))
				// And it stays so.
				report(t, "4 nobody moves, after "+what, moved(t, before, again(t, reconciled(t, after)), touched))
			}
			for _, added := range []string{"a", "aaaa", "m", "zzzz", "0"} {
				change("adding "+added, added, func(req *fnv1.RunFunctionRequest) {
					if peersOf(req) == nil {
						specOf(req)["peers"] = structpb.NewListValue(&structpb.ListValue{})
					}
					peersOf(req).Values = append([]*structpb.Value{peerNamed(added)}, peersOf(req).GetValues()...)
				})
			}
			for i, p := range peersOf(before.req).GetValues() {
				// What is behind a site is in the lists of others.
				if p.GetStructValue().GetFields()["routes"] != nil {
					continue
				}
				change("removing "+nameOf(p), nameOf(p), func(req *fnv1.RunFunctionRequest) {
					peersOf(req).Values = slices.Delete(peersOf(req).GetValues(), i, i+1)
				})
				change("disabling "+nameOf(p), nameOf(p), func(req *fnv1.RunFunctionRequest) {
					peersOf(req).GetValues()[i].GetStructValue().Fields["disabled"] = structpb.NewBoolValue(true)
				})
				change("rotating "+nameOf(p), nameOf(p), func(req *fnv1.RunFunctionRequest) {
					peersOf(req).GetValues()[i].GetStructValue().Fields["keyRotation"] = structpb.NewNumberValue(9)
				})
			}
			change("reordering", "", func(req *fnv1.RunFunctionRequest) { slices.Reverse(peersOf(req).GetValues()) })
			change("loss of status", "", func(req *fnv1.RunFunctionRequest) {
				delete(req.GetObserved().GetComposite().GetResource().GetFields(), "status")
			})
			change("loss of status but for the key", "", func(req *fnv1.RunFunctionRequest) {
				delete(at(req.GetObserved().GetComposite().GetResource().GetFields(), "status"), "peers")
			})
			change("loss of the configuration", "", func(req *fnv1.RunFunctionRequest) { delete(req.GetObserved().GetResources(), "config") })
		})
	}
}

// TestNobodyMovesCanFail sees the comparison fail.
func TestNobodyMovesCanFail(t *testing.T) {
	before := again(t, reconciled(t, caseNamed(t, "steady-state").run(t)))
	for name, tc := range map[string]struct {
		says   string
		breaks func(o *outcome)
	}{
		"Address": {"laptop was", func(o *outcome) {
			p := statusOf(o.rsp)["peers"].GetListValue().GetValues()[0].GetStructValue().GetFields()
			p["addresses"].GetListValue().Values[0] = text("10.8.0.9")
		}},
		"Secret": {"the Secret of laptop changes", func(o *outcome) { replaceIn(o, "peer-laptop", "direct.conf", "MTU = 1420", "MTU = 1400") }},
		"Gone":   {"the Secret of laptop changes", func(o *outcome) { delete(o.rsp.GetDesired().GetResources(), "peer-laptop") }},
		"Seed": {"the seed changes", func(o *outcome) {
			at(resource(o, "seed"), "data")["seed"] = text(base64.StdEncoding.EncodeToString(newSeed))
		}},
		"Key": {"the gateway's key changes", func(o *outcome) {
			replaceIn(o, "config", "config.json", gatewayConfig(t, o.rsp).PrivateKey.String(), "dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=")
		}},
	} {
		after := outcome{req: before.req, rsp: proto.CloneOf(before.rsp)}
		tc.breaks(&after)
		if bad := moved(t, before, after, ""); !slices.ContainsFunc(bad, func(s string) bool { return strings.Contains(s, tc.says) }) {
			t.Errorf("%s: want %q, got %v", name, tc.says, bad)
		}
	}
}

// TestNeverRotates: whatever is lost, a gateway with a seed keeps it, and one
// without is not given another.
func TestNeverRotates(t *testing.T) {
	for name, before := range steadyCases(t) {
		t.Run(name, func(t *testing.T) {
			if before.rsp.GetDesired().GetResources()["seed"] == nil {
				return
			}
			hidden := reconciled(t, before)
			delete(hidden.GetObserved().GetResources(), "seed")
			after := again(t, hidden)
			report(t, "3 never rotates, hidden from observed", moved(t, before, after, ""))

			gone := reconciled(t, before)
			delete(gone.GetObserved().GetResources(), "seed")
			gone.RequiredResources["seed"] = &fnv1.Resources{}
			o := again(t, gone)
			if specOf(gone)["keys"].GetStructValue().GetFields()["seedSecretRef"] != nil {
				report(t, "3 never rotates, own seed gone", moved(t, withoutSeed(before), withoutSeed(o), ""))
				return
			}
			if c := o.rsp.GetConditions()[1]; !o.fatal() || c.GetType() != "KeysReady" || c.GetReason() != "SeedMissing" {
				t.Errorf("without its seed it must be Fatal, KeysReady=False, SeedMissing, got %v", c)
			}
			report(t, "1 all or nothing", allOrNothing(t, o))
		})
	}
}

func withoutSeed(o outcome) outcome {
	o.rsp = proto.CloneOf(o.rsp)
	delete(o.rsp.GetDesired().GetResources(), "seed")
	return o
}

// TestNoNeedlessRestart: the pod template is the same after every change that a
// running pod can take up, and another after those that it cannot.
func TestNoNeedlessRestart(t *testing.T) {
	template := func(o outcome) *structpb.Value {
		return resource(&o, "deployment")["spec"].GetStructValue().GetFields()["template"]
	}
	set := func(path string, json string) func(spec map[string]*structpb.Value) {
		v := &structpb.Value{}
		if err := v.UnmarshalJSON([]byte(json)); err != nil {
			t.Fatal(err)
		}
		return func(spec map[string]*structpb.Value) { spec[path] = v }
	}
	same := map[string]func(spec map[string]*structpb.Value){
		"no peers":       set("peers", `[]`),
		"more peers":     set("peers", `[{"name":"a"},{"name":"b","presharedKey":{"generate":true}},{"name":"c","disabled":true}]`),
		"addresses":      set("peers", `[{"name":"laptop","addresses":["10.8.0.99"]}]`),
		"access":         set("peers", `[{"name":"laptop","access":[{"action":"Reject"}]}]`),
		"routes":         set("peers", `[{"name":"laptop","routes":["192.168.77.0/24"],"endpoint":"198.51.100.9:51820"}]`),
		"QR code":        set("peers", `[{"name":"laptop","qrCode":true,"mtu":1280,"keyRotation":3}]`),
		"expiry":         set("peers", `[{"name":"laptop","expiresAt":"2026-01-01T00:00:00Z"}]`),
		"reserved":       set("reservedAddresses", `["10.8.0.2-10.8.0.100"]`),
		"DNS":            set("dns", `{"servers":["9.9.9.9"],"searchDomains":["lan"]}`),
		"endpoint":       set("endpoint", `{"host":"other.example.com","port":443}`),
		"keepalive":      set("persistentKeepalive", `0`),
		"peer to peer":   set("peerToPeer", `true`),
		"MTU":            set("mtu", `{"direct":1300}`),
		"key":            set("keys", `{"rotation":4}`),
		"Service":        set("service", `{"type":"NodePort","nodePort":31999,"annotations":{"a":"b"},"externalTrafficPolicy":"Local"}`),
		"health check":   set("service", `{"healthCheckPort":9000}`),
		"policy":         set("networkPolicy", `{"enabled":true}`),
		"budget":         set("podDisruptionBudget", `{"enabled":true}`),
		"another IPv4":   set("peerCIDR", `"10.99.0.0/16"`),
		"pod monitor":    set("monitoring", `{"podMonitor":{"enabled":true,"interval":"10s"}}`),
		"Gateway's name": set("gateway", `{"hostname":"gw.example.com","udpRoute":{"enabled":true,"parentRefs":[{"name":"public"}]}}`),
	}
	other := map[string]func(spec map[string]*structpb.Value){
		"port":           set("listenPort", `4500`),
		"IPv6":           set("peerCIDRv6", `"fd00:8::/64"`),
		"implementation": set("implementation", `"Kernel"`),
		"forwarding":     set("ipForwarding", `"PodSysctl"`),
		"pod":            set("pod", `{"annotations":{"a":"b"}}`),
		"resources":      set("resources", `{"limits":{"memory":"1Gi"}}`),
		"container":      set("extraContainers", `[{"name":"a","image":"b"}]`),
	}
	before := again(t, reconciled(t, caseNamed(t, "steady-state").run(t)))
	for want, edits := range map[bool]map[string]func(map[string]*structpb.Value){true: same, false: other} {
		for name, edit := range edits {
			req := reconciled(t, before)
			spec := specOf(req)
			if name == "IPv6" {
				spec["peerCIDR"] = text("10.8.0.0/24")
			}
			edit(spec)
			o := again(t, req)
			if o.fatal() {
				t.Fatalf("%s: %v", name, o.rsp.GetResults())
			}
			if diff := cmp.Diff(template(before), template(o), protocmp.Transform()); (diff == "") != want {
				t.Errorf("%s: want the same pod template: %t, got -before, +after:\n%s", name, want, diff)
			}
		}
	}
}
