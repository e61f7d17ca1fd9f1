package render_test

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"testing"

	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// broken is a response that was good, with one thing wrong in it.
type broken struct {
	checker string
	says    string // part of the violation
	breaks  func(o *outcome)
}

func resource(o *outcome, key string) map[string]*structpb.Value {
	return o.rsp.GetDesired().GetResources()[key].GetResource().GetFields()
}

func at(m map[string]*structpb.Value, path ...string) map[string]*structpb.Value {
	for _, p := range path {
		m = m[p].GetStructValue().GetFields()
	}
	return m
}

func pod(o *outcome) map[string]*structpb.Value {
	return at(resource(o, "deployment"), "spec", "template", "spec")
}

func container(o *outcome) map[string]*structpb.Value {
	return pod(o)["containers"].GetListValue().GetValues()[0].GetStructValue().GetFields()
}

// double appends a copy of the first entry of a list.
func double(v *structpb.Value) {
	l := v.GetListValue()
	l.Values = append(l.Values, proto.CloneOf(l.GetValues()[0]))
}

func text(s string) *structpb.Value { return structpb.NewStringValue(s) }

func empty() *structpb.Value { return structpb.NewStructValue(&structpb.Struct{}) }

func TestInvariantsCanFail(t *testing.T) {
	good := again(t, reconciled(t, caseNamed(t, "steady-state").run(t)))
	refused := caseNamed(t, "invalid").run(t)
	private := base64.StdEncoding.EncodeToString(secretData(good.rsp.GetDesired().GetResources()["seed"].GetResource())["seed"])
	serverKey := gatewayConfig(t, good.rsp).PrivateKey.String()
	conf := string(secretData(good.rsp.GetDesired().GetResources()["peer-laptop"].GetResource())["direct.conf"])

	cases := []broken{
		{"1 all or nothing", "without service", func(o *outcome) { delete(o.rsp.GetDesired().GetResources(), "service") }},
		{"1 all or nothing", "without seed", func(o *outcome) { delete(o.rsp.GetDesired().GetResources(), "seed") }},
		{"1 all or nothing", "peer laptop", func(o *outcome) { delete(o.rsp.GetDesired().GetResources(), "peer-laptop") }},
		{"1 all or nothing", "peer phone is not in status", func(o *outcome) {
			statusOf(o.rsp)["peers"].GetListValue().Values = statusOf(o.rsp)["peers"].GetListValue().GetValues()[:1]
		}},
		{"1 all or nothing", "neither a gateway", func(o *outcome) { o.rsp.Desired, o.rsp.Requirements = nil, nil }},
		{"1 all or nothing", "not passed through", func(o *outcome) {
			o.req.Desired = &fnv1.State{Resources: map[string]*fnv1.Resource{"bucket": {Ready: fnv1.Ready_READY_TRUE}}}
		}},
		{"1 all or nothing", "Fatal response changes", func(o *outcome) { o.rsp.Results = refused.rsp.GetResults() }},
		{"5 frozen keys", "gateway-config", func(o *outcome) {
			rs := o.rsp.GetDesired().GetResources()
			rs["gateway-config"] = rs["config"]
		}},
		{"6 no secrets", "the logs", func(o *outcome) { o.logs += "seed " + private }},
		{"6 no secrets", "the response", func(o *outcome) { statusOf(o.rsp)["publicKey"] = text(serverKey) }},
		{"6 no secrets", "the response", func(o *outcome) { o.rsp.Conditions[0].Message = new("the seed is " + private) }},
		{"6 no secrets", "in hex", func(o *outcome) { o.rsp.Conditions[0].Message = new(fmt.Sprintf("%x", seedOf(o))) }},
		{"6 no secrets", "as numbers", func(o *outcome) { o.rsp.Conditions[0].Message = new(fmt.Sprintf("%d", seedOf(o))) }},
		{"6 no secrets", "the response", func(o *outcome) { at(resource(o, "deployment"), "metadata", "labels")["seed"] = text(serverKey) }},
		{"6 no secrets", "direct.conf", func(o *outcome) {
			resource(o, "status")["data"] = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"conf": text(conf)}})
		}},
		{"6 no secrets", "stringData", func(o *outcome) { resource(o, "config")["stringData"] = empty() }},
		{"6 keys are well formed", "is no key", func(o *outcome) { replaceIn(o, "peer-laptop", "direct.conf", "PrivateKey = ", "PrivateKey = A") }},
		{"6 keys are well formed", "another public key", func(o *outcome) { statusOf(o.rsp)["publicKey"] = text("x") }},
		{"both ends agree", "the device expects PresharedKey", func(o *outcome) { replaceIn(o, "peer-laptop", "internal.conf", "PresharedKey = ", "PresharedKey = A") }},
		{"both ends agree", "the device expects Address", func(o *outcome) {
			replaceIn(o, "peer-laptop", "direct.conf", "Address = 10.8.0.199", "Address = 10.8.0.198")
		}},
		{"both ends agree", "another key than the device", func(o *outcome) {
			replaceIn(o, "peer-phone", "direct.conf", "PrivateKey = ", "PrivateKey = dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=\nOther = ")
		}},
		{"both ends agree", "no configuration", func(o *outcome) { delete(o.rsp.GetDesired().GetResources(), "peer-phone") }},
		{"both ends agree", "status has another", func(o *outcome) { statusOf(o.rsp)["publicKey"] = text("x") }},
		{"narrow requirements", "selects by nothing", func(o *outcome) { o.rsp.GetRequirements().GetResources()["seed"].Match = nil }},
		{"narrow requirements", "of any namespace", func(o *outcome) { o.rsp.GetRequirements().GetResources()["seed"].Namespace = nil }},
		{"narrow requirements", "has no kind", func(o *outcome) { o.rsp.GetRequirements().GetResources()["seed"].Kind = "" }},
		{"narrow requirements", "an empty label", func(o *outcome) {
			o.rsp.GetRequirements().GetResources()["seed"].Match = &fnv1.ResourceSelector_MatchLabels{MatchLabels: &fnv1.MatchLabels{Labels: map[string]string{"a": ""}}}
		}},
		{"7 explicit readiness", "is not said", func(o *outcome) { o.rsp.GetDesired().GetResources()["role"].Ready = fnv1.Ready_READY_UNSPECIFIED }},
		{"7 explicit readiness", "before it is there", func(o *outcome) { delete(o.req.GetObserved().GetResources(), "role") }},
		{"8 quiet", "without need", func(o *outcome) {
			o.rsp.Results = []*fnv1.Result{{Severity: fnv1.Severity_SEVERITY_NORMAL, Message: "I was run"}}
		}},
		{"8 quiet", "no TTL", func(o *outcome) { o.rsp.Meta.Ttl = nil }},
		{"8 conditions", "the conditions are", func(o *outcome) { o.rsp.Conditions = o.rsp.GetConditions()[1:] }},
		{"8 conditions", "the conditions are", func(o *outcome) { slices.Reverse(o.rsp.GetConditions()) }},
		{"8 conditions", "not one word", func(o *outcome) { o.rsp.Conditions[2].Reason = "" }},
		{"8 conditions", "not for the claim", func(o *outcome) { o.rsp.Conditions[2].Target = nil }},
		{"8 conditions", "does not say why", func(o *outcome) { o.rsp.Conditions[4].Status = fnv1.Status_STATUS_CONDITION_FALSE }},
		{"8 conditions", "do not agree", func(o *outcome) { o.rsp.Results = refused.rsp.GetResults() }},
		{"9 fail closed", "asks for gluetun", func(o *outcome) {
			at(o.req.GetObserved().GetComposite().GetResource().GetFields(), "spec")["gluetun"] = empty()
		}},
		{"11 clean objects", "has a status", func(o *outcome) { resource(o, "deployment")["status"] = empty() }},
		{"11 clean objects", "metadata.uid", func(o *outcome) { at(resource(o, "config"), "metadata")["uid"] = text("x") }},
		{"11 clean objects", "metadata.managedFields", func(o *outcome) { at(resource(o, "config"), "metadata")["managedFields"] = text("x") }},
		{"11 clean objects", "creationTimestamp is null", func(o *outcome) {
			at(resource(o, "deployment"), "spec", "template", "metadata")["creationTimestamp"] = structpb.NewNullValue()
		}},
		{"11 clean objects", "status.peers is null", func(o *outcome) { statusOf(o.rsp)["peers"] = structpb.NewNullValue() }},
		{"11 clean objects", `says "home%!s(MISSING)"`, func(o *outcome) { pod(o)["serviceAccountName"] = text("home%!s(MISSING)") }},
		{"11 meaningful empties", "is empty and says nothing", func(o *outcome) { container(o)["resources"] = empty() }},
		{"11 meaningful empties", "is an empty list", func(o *outcome) { pod(o)["initContainers"] = structpb.NewListValue(&structpb.ListValue{}) }},
		{"11 meaningful empties", "a volume of nothing", func(o *outcome) {
			delete(pod(o)["volumes"].GetListValue().GetValues()[1].GetStructValue().GetFields(), "emptyDir")
		}},
		{"11 zeros", "hostNetwork is zero", func(o *outcome) { pod(o)["hostNetwork"] = structpb.NewBoolValue(false) }},
		{"11 zeros", "minReadySeconds is zero", func(o *outcome) {
			at(resource(o, "deployment"), "spec")["minReadySeconds"] = structpb.NewNumberValue(0)
		}},
		{"11 zeros", "schedulerName is zero", func(o *outcome) { pod(o)["schedulerName"] = text("") }},
		{"11 names", "breaks generated names", func(o *outcome) {
			o.rsp.GetDesired().GetResources()["Config"] = o.rsp.GetDesired().GetResources()["config"]
		}},
		{"11 names", "are both", func(o *outcome) {
			o.rsp.GetDesired().GetResources()["config-2"] = o.rsp.GetDesired().GetResources()["config"]
		}},
		{"11 names", "has the name", func(o *outcome) { at(resource(o, "service"), "metadata")["name"] = text("1home") }},
		{"11 names", "has the name", func(o *outcome) { at(resource(o, "config"), "metadata")["name"] = text("") }},
		{"11 names", "lacks our labels", func(o *outcome) { delete(at(resource(o, "role"), "metadata"), "labels") }},
		{"11 names", "has the label", func(o *outcome) { at(resource(o, "role"), "metadata", "labels")["a"] = text("b c") }},
		{"11 namespaces", "says its namespace", func(o *outcome) { at(resource(o, "role"), "metadata")["namespace"] = text("apps") }},
		{"11 namespaces", "lives in no namespace", func(o *outcome) { resource(o, "role")["kind"] = text("ClusterRole") }},
		{"11 namespaces", "and the claim in", func(o *outcome) {
			delete(metadata(o.req.GetObserved().GetComposite().GetResource()), "namespace")
			at(o.req.GetObserved().GetComposite().GetResource().GetFields(), "spec")["claimRef"] = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{"namespace": text("vpn")}})
		}},
		{"11 pods", "volume config is there twice", func(o *outcome) { double(pod(o)["volumes"]) }},
		{"11 pods", "container agent is there twice", func(o *outcome) { double(pod(o)["containers"]) }},
		{"11 pods", "port 51820/UDP is there twice", func(o *outcome) { double(container(o)["ports"]) }},
		{"11 pods", "mount path", func(o *outcome) { double(container(o)["volumeMounts"]) }},
		{"11 pods", "which is no volume", func(o *outcome) {
			pod(o)["volumes"].GetListValue().Values = pod(o)["volumes"].GetListValue().GetValues()[1:]
		}},
		{"11 pods", "probes the port", func(o *outcome) { at(container(o), "readinessProbe", "httpGet")["port"] = text("metrics") }},
		{"11 pods", "is privileged", func(o *outcome) { at(container(o), "securityContext")["privileged"] = structpb.NewBoolValue(true) }},
		{"11 pods", "other capabilities", func(o *outcome) {
			at(container(o), "securityContext", "capabilities")["add"].GetListValue().Values[0] = text("NET_RAW")
		}},
		{"11 pods", "more rights", func(o *outcome) { delete(at(container(o), "securityContext"), "readOnlyRootFilesystem") }},
		{"11 pods", "not the first container", func(o *outcome) { container(o)["name"] = text("main") }},
		{"11 pods", "the seed is mounted", func(o *outcome) {
			at(pod(o)["volumes"].GetListValue().GetValues()[0].GetStructValue().GetFields(), "secret")["secretName"] = text("home-wireguard.seed")
		}},
		{"11 pods", "does not select its own", func(o *outcome) {
			delete(at(resource(o, "deployment"), "spec", "template", "metadata", "labels"), "app.kubernetes.io/name")
		}},
		{"11 pods", "not the one for ever", func(o *outcome) { at(resource(o, "deployment"), "spec", "selector", "matchLabels")["a"] = text("b") }},
		{"11 pods", "two pods with one key", func(o *outcome) { at(resource(o, "deployment"), "spec", "strategy")["type"] = text("RollingUpdate") }},
		{"11 pods", "does not get past gluetun", func(o *outcome) {
			env := &structpb.Value{}
			if err := env.UnmarshalJSON([]byte(`[{"name": "FIREWALL_INPUT_PORTS", "value": "51820,9587"}]`)); err != nil {
				panic(err)
			}
			container(o)["env"] = env
		}},
		{"11 pods", "the kubelet on port 9588 of agent does not get past gluetun", func(o *outcome) {
			for key, json := range map[string]string{
				"env":       `[{"name": "FIREWALL_INPUT_PORTS", "value": "51820,9586"}]`,
				"lifecycle": `{"preStop": {"httpGet": {"port": 9588}}}`,
			} {
				v := &structpb.Value{}
				if err := v.UnmarshalJSON([]byte(json)); err != nil {
					panic(err)
				}
				container(o)[key] = v
			}
		}},
		{"11 status only", "has spec", func(o *outcome) { o.rsp.GetDesired().GetComposite().GetResource().GetFields()["spec"] = empty() }},
		{"11 status only", "connection details", func(o *outcome) { o.rsp.GetDesired().GetComposite().ConnectionDetails = map[string][]byte{"a": nil} }},
		{"11 status only", "conditions stand in the status", func(o *outcome) { statusOf(o.rsp)["conditions"] = empty() }},
	}
	seen := map[string]bool{}
	for i, tc := range cases {
		seen[tc.checker] = true
		t.Run(fmt.Sprintf("%s %d", tc.checker, i), func(t *testing.T) {
			check := checkers[tc.checker]
			if bad := check(t, good); len(bad) > 0 {
				t.Fatalf("it finds fault with a good response: %v", bad)
			}
			o := outcome{req: proto.CloneOf(good.req), rsp: proto.CloneOf(good.rsp), logs: good.logs}
			tc.breaks(&o)
			if bad := check(t, o); !slices.ContainsFunc(bad, func(s string) bool { return strings.Contains(s, tc.says) }) {
				t.Errorf("want a violation with %q, got %v", tc.says, bad)
			}
		})
	}
	for name := range checkers {
		if !seen[name] {
			t.Errorf("nothing has seen %q failing", name)
		}
	}
}

func seedOf(o *outcome) []byte {
	return secretData(o.rsp.GetDesired().GetResources()["seed"].GetResource())["seed"]
}

// replaceIn changes what is in a Secret.
func replaceIn(o *outcome, key, dataKey, before, after string) {
	data := at(resource(o, key), "data")
	b, err := base64.StdEncoding.DecodeString(data[dataKey].GetStringValue())
	if err != nil {
		panic(err)
	}
	data[dataKey] = text(base64.StdEncoding.EncodeToString([]byte(strings.Replace(string(b), before, after, 1))))
}

// TestFixpointCanFail and its like: a comparison of two runs sees a difference.
func TestFixpointCanFail(t *testing.T) {
	before := again(t, reconciled(t, caseNamed(t, "steady-state").run(t)))
	for name, breaks := range map[string]func(o *outcome){
		"Object":    func(o *outcome) { pod(o)["serviceAccountName"] = text("other") },
		"Readiness": func(o *outcome) { o.rsp.GetDesired().GetResources()["role"].Ready = fnv1.Ready_READY_FALSE },
		"Condition": func(o *outcome) { o.rsp.Conditions[0].Message = new("now") },
		"Result":    func(o *outcome) { o.rsp.Results = []*fnv1.Result{{Message: "again"}} },
		"Status":    func(o *outcome) { statusOf(o.rsp)["activePeers"] = structpb.NewNumberValue(7) },
	} {
		after := outcome{req: before.req, rsp: proto.CloneOf(before.rsp)}
		breaks(&after)
		if len(notFixed(t, before, after)) == 0 {
			t.Errorf("%s: a change goes unseen", name)
		}
	}
}
