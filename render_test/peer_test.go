package render_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1/apitest"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/offline"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// TestPeerInvariantsCanFail is for those that are others for peers than for
// gateways.
func TestPeerInvariantsCanFail(t *testing.T) {
	good := again(t, reconciled(t, caseNamed(t, "peer-own-key").run(t)))
	refused := caseNamed(t, "peer-refused").run(t)
	gateway := string(secretData(good.req.GetRequiredResources()["seed.vpn.home-wireguard.seed"].GetItems()[0].GetResource())["seed"])

	for i, tc := range []broken{
		{"1 all or nothing", "does not know of", func(o *outcome) { delete(o.rsp.GetDesired().GetResources(), "attachment") }},
		{"1 all or nothing", "status names a Secret", func(o *outcome) { delete(o.rsp.GetDesired().GetResources(), "config") }},
		{"1 all or nothing", "status names a Secret", func(o *outcome) { delete(statusOf(o.rsp), "secretName") }},
		{"1 all or nothing", "without a configuration is ready", func(o *outcome) {
			o.rsp = proto.CloneOf(refused.rsp)
			o.rsp.Desired.Composite.Ready = fnv1.Ready_READY_UNSPECIFIED
		}},
		{"5 frozen keys", "peer-media", func(o *outcome) {
			rs := o.rsp.GetDesired().GetResources()
			rs["peer-media"] = rs["config"]
		}},
		{"6 no secrets", "the response", func(o *outcome) { statusOf(o.rsp)["seed"] = text(fmt.Sprintf("%x", gateway)) }},
		{"6 no secrets", "the response", func(o *outcome) {
			conf := string(secretData(o.rsp.GetDesired().GetResources()["config"].GetResource())["direct.conf"])
			at(resource(o, "attachment"), "data")["client.json"] = text(conf)
		}},
		{"6 keys are well formed", "another public key", func(o *outcome) { at(statusOf(o.rsp), "gateway")["publicKey"] = text("x") }},
		{"8 conditions", "the conditions are", func(o *outcome) { slices.Reverse(o.rsp.GetConditions()) }},
		{"8 conditions", "do not agree", func(o *outcome) {
			o.rsp.Conditions[3].Status, o.rsp.Conditions[3].Reason = fnv1.Status_STATUS_CONDITION_FALSE, "SeedMissing"
		}},
		{"11 namespaces", "says its namespace", func(o *outcome) { at(resource(o, "attachment"), "metadata")["namespace"] = text("vpn") }},
		{"11 names", "lacks our labels", func(o *outcome) { delete(at(resource(o, "attachment"), "metadata"), "labels") }},
		{"11 zeros", "uid is zero", func(o *outcome) { at(resource(o, "attachment"), "data")["uid"] = structpb.NewStringValue("") }},
	} {
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
}

// TestPodsInvariantsCanFail is for those of a class of pods.
func TestPodsInvariantsCanFail(t *testing.T) {
	good := again(t, reconciled(t, caseNamed(t, "peer-pods").run(t)))
	refused := caseNamed(t, "peer-pods-refused").run(t)
	classes := again(t, reconciled(t, caseNamed(t, "pod-classes").run(t)))
	for i, tc := range []struct {
		broken

		of outcome
	}{
		{broken{"1 all or nothing", "false that there is a wall", func(o *outcome) { delete(o.rsp.GetDesired().GetResources(), "network-policy") }}, good},
		{broken{"1 all or nothing", "false that there is a wall", func(o *outcome) { delete(o.rsp.GetDesired().GetResources(), "network-policy") }}, refused},
		{broken{"1 all or nothing", "join by halves, with or without role", func(o *outcome) { delete(o.rsp.GetDesired().GetResources(), "role") }}, good},
		{broken{"1 all or nothing", "join by halves, with or without injection", func(o *outcome) { delete(o.rsp.GetDesired().GetResources(), "injection") }}, good},
		{broken{"1 all or nothing", "join before their wall", func(o *outcome) {
			delete(o.req.GetObserved().GetResources(), "network-policy")
			delete(o.req.GetObserved().GetResources(), "injection")
		}}, good},
		{broken{"1 all or nothing", "that does not know of them", func(o *outcome) { delete(o.rsp.GetDesired().GetResources(), "attachment") }}, good},
		{broken{"1 all or nothing", "do not agree", func(o *outcome) { o.rsp.Desired.Composite.Ready = fnv1.Ready_READY_FALSE }}, good},
		{broken{"1 all or nothing", "do not agree", func(o *outcome) { o.rsp.Desired.Composite.Ready = fnv1.Ready_READY_UNSPECIFIED }}, refused},
		{broken{"5 frozen keys", "second-policy", func(o *outcome) {
			rs := o.rsp.GetDesired().GetResources()
			rs["second-policy"] = rs["network-policy"]
		}}, good},
		{broken{"1 all or nothing", "two walls", func(o *outcome) {
			rs := o.rsp.GetDesired().GetResources()
			rs["cilium-network-policy"] = rs["network-policy"]
		}}, good},
		{broken{"6 no secrets", "the response", func(o *outcome) {
			e, err := wireguard.DecodeEnrolment(secretData(o.rsp.GetDesired().GetResources()["enrolment"].GetResource())["enrolment.json"])
			if err != nil {
				t.Fatal(err)
			}
			at(resource(o, "injection"), "data")["key"] = text(e.ClassKey.String())
		}}, good},
		{broken{"6 no secrets", "the response", func(o *outcome) {
			statusOf(o.rsp)["peers"].GetListValue().GetValues()[0].GetStructValue().Fields["key"] = text(gatewayConfig(t, o.rsp).PodClasses[0].Key.String())
		}}, classes},
		{broken{"6 keys are well formed", "another public key", func(o *outcome) { at(statusOf(o.rsp), "gateway")["publicKey"] = text("x") }}, good},
		{broken{"8 conditions", "do not agree", func(o *outcome) {
			o.rsp.Conditions[4].Status, o.rsp.Conditions[4].Reason = fnv1.Status_STATUS_CONDITION_FALSE, "SeedMissing"
		}}, good},
		{broken{"both ends agree", "another key than its pods", func(o *outcome) {
			replaceIn(o, "config", "config.json", gatewayConfig(t, o.rsp).PodClasses[0].Key.String(), gatewayConfig(t, o.rsp).PodClasses[1].Key.String())
		}}, classes},
	} {
		t.Run(fmt.Sprintf("%s %d", tc.checker, i), func(t *testing.T) {
			check := checkers[tc.checker]
			if bad := check(t, tc.of); len(bad) > 0 {
				t.Fatalf("it finds fault with a good response: %v", bad)
			}
			o := outcome{req: proto.CloneOf(tc.of.req), rsp: proto.CloneOf(tc.of.rsp), logs: tc.of.logs}
			tc.breaks(&o)
			if bad := check(t, o); !slices.ContainsFunc(bad, func(s string) bool { return strings.Contains(s, tc.says) }) {
				t.Errorf("want a violation with %q, got %v", tc.says, bad)
			}
		})
	}
}

// runPeer renders a WireguardPeer of the tables that the schema is tested with,
// without its gateway.
func runPeer(t *testing.T, c apitest.Case) outcome {
	t.Helper()
	return run(t, offline.Request{Composite: &unstructured.Unstructured{Object: clone(t, c.Object())}})
}

// TestBadPeers: what the schema refuses the function refuses, too.
func TestBadPeers(t *testing.T) {
	for i, c := range apitest.InvalidPeers() {
		t.Run(fmt.Sprintf("%d %s", i, c.Reason), func(t *testing.T) {
			o := runPeer(t, c)
			report(t, "bad input", isFatal(o, "", c.Value))
			for _, name := range keysOf(checkers) {
				report(t, name, checkers[name](t, o))
			}
		})
	}
}

// TestGoodPeers: what the schema takes the function takes, too.
func TestGoodPeers(t *testing.T) {
	for i, c := range apitest.ValidPeers() {
		t.Run(fmt.Sprintf("%d %s", i, c.Reason), func(t *testing.T) {
			o := runPeer(t, c)
			for _, r := range o.rsp.GetResults() {
				t.Errorf("%s\nwant no result, got %s", c.Spec, r.GetMessage())
			}
		})
	}
}
