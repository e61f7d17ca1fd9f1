package fn

import (
	"slices"
	"strings"
	"testing"

	"github.com/crossplane/function-sdk-go/logging"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
)

func TestRouteReady(t *testing.T) {
	const generation = 3
	parent := func(namespace, name, section string) gatewayv1.ParentReference {
		r := gatewayv1.ParentReference{Name: gatewayv1.ObjectName(name)}
		if namespace != "" {
			r.Namespace = new(gatewayv1.Namespace(namespace))
		}
		if section != "" {
			r.SectionName = new(gatewayv1.SectionName(section))
		}
		return r
	}
	condition := func(kind gatewayv1.RouteConditionType, status metav1.ConditionStatus, seen int64, reason string) metav1.Condition {
		return metav1.Condition{Type: string(kind), Status: status, ObservedGeneration: seen, Reason: reason, Message: "says " + reason + "."}
	}
	accepted := condition(gatewayv1.RouteConditionAccepted, metav1.ConditionTrue, generation, "Accepted")
	resolved := condition(gatewayv1.RouteConditionResolvedRefs, metav1.ConditionTrue, generation, "ResolvedRefs")
	refused := condition(gatewayv1.RouteConditionAccepted, metav1.ConditionFalse, generation, "NotAllowedByListeners")
	says := func(ref gatewayv1.ParentReference, controller string, conditions ...metav1.Condition) gatewayv1.RouteParentStatus {
		return gatewayv1.RouteParentStatus{ParentRef: ref, ControllerName: gatewayv1.GatewayController(controller), Conditions: conditions}
	}
	public, internal := parent("ingress", "public", "https"), parent("", "internal", "")

	cases := map[string]struct {
		why     string
		route   *route
		want    []gatewayv1.ParentReference
		ready   bool
		reason  string
		message string // a part of it
	}{
		"NoRoute": {
			why: "It was not applied yet.", route: nil, want: []gatewayv1.ParentReference{public},
			reason: "Pending", message: "does not exist yet",
		},
		"NoAnswer": {
			why: "No controller may ever come.", route: &route{}, want: []gatewayv1.ParentReference{public},
			reason: "Pending", message: `HTTPRoute at Gateway "ingress/public", listener "https": no controller has answered yet`,
		},
		"Served": {
			why: "Both conditions hold.", route: &route{parents: []gatewayv1.RouteParentStatus{says(public, "a/b", accepted, resolved)}},
			want: []gatewayv1.ParentReference{public}, ready: true, reason: "Available",
		},
		"Refused": {
			why: "The parent's own words say what to do.", route: &route{parents: []gatewayv1.RouteParentStatus{says(public, "a/b", refused, resolved)}},
			want:   []gatewayv1.ParentReference{public},
			reason: "NotAllowedByListeners", message: `listener "https": Accepted is False, reason NotAllowedByListeners: says NotAllowedByListeners.`,
		},
		"Unresolved": {
			why: "An accepted route may lead nowhere.", route: &route{parents: []gatewayv1.RouteParentStatus{says(public, "a/b", accepted, condition(gatewayv1.RouteConditionResolvedRefs, metav1.ConditionFalse, generation, "BackendNotFound"))}},
			want:   []gatewayv1.ParentReference{public},
			reason: "BackendNotFound", message: "ResolvedRefs is False, reason BackendNotFound",
		},
		"Unknown": {
			why: "A controller may not know yet.", route: &route{parents: []gatewayv1.RouteParentStatus{says(public, "a/b", condition(gatewayv1.RouteConditionAccepted, metav1.ConditionUnknown, generation, "Pending"), resolved)}},
			want:   []gatewayv1.ParentReference{public},
			reason: "Pending", message: "Accepted is Unknown",
		},
		"AcceptedOnly": {
			why: "The other condition is missing.", route: &route{parents: []gatewayv1.RouteParentStatus{says(public, "a/b", accepted)}},
			want:   []gatewayv1.ParentReference{public},
			reason: "Pending", message: "has not judged ResolvedRefs of the latest change",
		},
		"OldAccepted": {
			why: "It speaks of the route before the change.", route: &route{parents: []gatewayv1.RouteParentStatus{says(public, "a/b", condition(gatewayv1.RouteConditionAccepted, metav1.ConditionTrue, generation-1, "Accepted"), resolved)}},
			want:   []gatewayv1.ParentReference{public},
			reason: "Pending", message: "has not judged Accepted of the latest change",
		},
		"OldRefusal": {
			why: "The change may have been the cure.", route: &route{parents: []gatewayv1.RouteParentStatus{says(public, "a/b", condition(gatewayv1.RouteConditionAccepted, metav1.ConditionFalse, generation-1, "NotAllowedByListeners"), resolved)}},
			want:   []gatewayv1.ParentReference{public},
			reason: "Pending", message: "has not judged Accepted of the latest change",
		},
		"OldResolved": {
			why: "Each condition has its own generation.", route: &route{parents: []gatewayv1.RouteParentStatus{says(public, "a/b", accepted, condition(gatewayv1.RouteConditionResolvedRefs, metav1.ConditionTrue, generation-1, "ResolvedRefs"))}},
			want:   []gatewayv1.ParentReference{public},
			reason: "Pending", message: "has not judged ResolvedRefs of the latest change",
		},
		"TwoParents": {
			why: "Every parent has to serve it.", route: &route{parents: []gatewayv1.RouteParentStatus{says(internal, "a/b", accepted, resolved), says(public, "a/b", accepted, resolved)}},
			want: []gatewayv1.ParentReference{public, internal}, ready: true, reason: "Available",
		},
		"OneOfTwo": {
			why: "The message names the one that does not.", route: &route{parents: []gatewayv1.RouteParentStatus{says(public, "a/b", accepted, resolved), says(internal, "a/b", refused, resolved)}},
			want:   []gatewayv1.ParentReference{public, internal},
			reason: "NotAllowedByListeners", message: `HTTPRoute at Gateway "internal": Accepted is False`,
		},
		"OtherParent": {
			why: "A parent that nobody asks for does not count.", route: &route{parents: []gatewayv1.RouteParentStatus{says(internal, "a/b", accepted, resolved)}},
			want:   []gatewayv1.ParentReference{public},
			reason: "Pending", message: "no controller has answered yet",
		},
		"OtherRefuses": {
			why: "A parent that nobody asks for any more may refuse.", route: &route{parents: []gatewayv1.RouteParentStatus{says(internal, "a/b", refused), says(public, "a/b", accepted, resolved)}},
			want: []gatewayv1.ParentReference{public}, ready: true, reason: "Available",
		},
		"OtherListener": {
			why: "Another listener of the same Gateway is another parent.", route: &route{parents: []gatewayv1.RouteParentStatus{says(parent("ingress", "public", "http"), "a/b", accepted, resolved)}},
			want:   []gatewayv1.ParentReference{public},
			reason: "Pending", message: "no controller has answered yet",
		},
		"OtherNamespace": {
			why: "A Gateway of the same name elsewhere is another parent.", route: &route{parents: []gatewayv1.RouteParentStatus{says(parent("other", "internal", ""), "a/b", accepted, resolved)}},
			want:   []gatewayv1.ParentReference{internal},
			reason: "Pending", message: "no controller has answered yet",
		},
		"DefaultsFilled": {
			why: "A controller may write out what we leave out.", route: &route{parents: []gatewayv1.RouteParentStatus{says(gatewayv1.ParentReference{
				Group: ptr.To(gatewayv1.Group(gatewayv1.GroupName)), Kind: ptr.To(gatewayv1.Kind("Gateway")), Namespace: ptr.To(gatewayv1.Namespace("vpn")), Name: "internal",
			}, "a/b", accepted, resolved)}},
			want: []gatewayv1.ParentReference{internal}, ready: true, reason: "Available",
		},
		"TwoControllers": {
			why: "A former controller's refusal stays until somebody removes it.", route: &route{parents: []gatewayv1.RouteParentStatus{says(public, "old/a", refused, resolved), says(public, "new/b", accepted, resolved)}},
			want: []gatewayv1.ParentReference{public}, ready: true, reason: "Available",
		},
		"TwoControllersNone": {
			why: "The refusal says more than the one that is silent.", route: &route{parents: []gatewayv1.RouteParentStatus{says(public, "a/b", refused, resolved), says(public, "c/d")}},
			want:   []gatewayv1.ParentReference{public},
			reason: "NotAllowedByListeners", message: "Accepted is False",
		},
		"HalfEach": {
			why: "Two halves of two controllers serve nothing.", route: &route{parents: []gatewayv1.RouteParentStatus{says(public, "a/b", accepted), says(public, "c/d", resolved)}},
			want:   []gatewayv1.ParentReference{public},
			reason: "Pending", message: "of the latest change yet",
		},
		"NoReason": {
			why: "A refusal without reason is one.", route: &route{parents: []gatewayv1.RouteParentStatus{says(public, "a/b", condition(gatewayv1.RouteConditionAccepted, metav1.ConditionFalse, generation, ""), resolved)}},
			want:   []gatewayv1.ParentReference{public},
			reason: "Error", message: "Accepted is False",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if tc.route != nil {
				tc.route.kind, tc.route.namespace, tc.route.generation = "HTTPRoute", "vpn", generation
			}
			ready, reason, message := routeReady(tc.route, tc.want)
			if ready != tc.ready || reason != tc.reason || !strings.Contains(message, tc.message) {
				t.Errorf("%s\nwant %t, %s, %q\ngot  %t, %s, %q", tc.why, tc.ready, tc.reason, tc.message, ready, reason, message)
			}
		})
	}
}

const bothRoutes = `
peers: [{name: laptop}]
tunnel: {}
gateway:
  hostname: vpn.example.com
  parentRefs: [{name: public, namespace: ingress, sectionName: https}]
  udpRoute: {enabled: true, parentRefs: [{name: public, namespace: ingress, sectionName: wireguard}]}
monitoring: {podMonitor: {enabled: true}}
`

// TestRoutesObserved holds that the routes' own status decides, and nothing
// else of theirs.
func TestRoutesObserved(t *testing.T) {
	w := newWorld(t, bothRoutes)
	rsp := w.reconcile(t)
	if status, reason, message := conditionOf(rsp, "RouteReady"); status != fnv1.Status_STATUS_CONDITION_FALSE || reason != "Pending" {
		t.Errorf("want RouteReady to wait for the Gateway, got %s %s %s", status, reason, message)
	}
	judge := func(key, section string, status string) {
		o := w.objects[key]
		o["metadata"].(map[string]any)["generation"] = 1.0
		var conditions []any
		for _, c := range []string{"Accepted", "ResolvedRefs"} {
			conditions = append(conditions, map[string]any{"type": c, "status": status, "reason": "Judged", "message": "of " + section, "observedGeneration": 1.0, "lastTransitionTime": "2030-01-01T00:00:00Z"})
		}
		o["status"] = map[string]any{"parents": []any{map[string]any{
			"parentRef":      map[string]any{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "public", "namespace": "ingress", "sectionName": section},
			"controllerName": "example.com/controller",
			"conditions":     conditions,
		}}}
	}
	judge(names.KeyHTTPRoute, "https", "True")
	judge(names.KeyUDPRoute, "wireguard", "False")
	rsp = w.run(t)
	if status, reason, message := conditionOf(rsp, "RouteReady"); status != fnv1.Status_STATUS_CONDITION_FALSE || reason != "Judged" || !strings.Contains(message, "UDPRoute at") {
		t.Errorf("want the UDPRoute's refusal, got %s %s %s", status, reason, message)
	}
	ready := rsp.GetDesired().GetResources()
	if ready[names.KeyHTTPRoute].GetReady() != fnv1.Ready_READY_TRUE || ready[names.KeyUDPRoute].GetReady() != fnv1.Ready_READY_FALSE {
		t.Errorf("want each route judged by itself, got %s and %s", ready[names.KeyHTTPRoute].GetReady(), ready[names.KeyUDPRoute].GetReady())
	}
	judge(names.KeyUDPRoute, "wireguard", "True")
	again := w.run(t)
	if status, reason, _ := conditionOf(again, "RouteReady"); status != fnv1.Status_STATUS_CONDITION_TRUE || reason != "Available" {
		t.Errorf("want RouteReady, got %s %s", status, reason)
	}
	if diff := cmp.Diff(desired(t, rsp), desired(t, again)); diff != "" {
		t.Errorf("a route's status must change no object: -before, +after:\n%s", diff)
	}
}

// TestMissingKinds holds that a kind that the cluster lacks is left out and
// named, and takes nothing else with it.
func TestMissingKinds(t *testing.T) {
	all := append(slices.Clone(base), names.KeyHTTPRoute, names.KeyPodMonitor, names.KeyTunnelService, names.KeyUDPRoute)
	slices.Sort(all)
	cases := map[string]struct {
		why   string
		lacks map[string]bool
		out   []string
		route []string // parts of RouteReady's message
		spec  []string // parts of SpecValid's message
	}{
		"OldCrossplane": {"It cannot tell, so everything is composed.", nil, nil, nil, nil},
		"HasAll":        {"Nothing is missing.", map[string]bool{}, nil, nil, nil},
		"NoUDPRoute":    {"The Gateway API before 1.6 has HTTPRoutes only.", map[string]bool{"UDPRoute": true}, []string{names.KeyUDPRoute}, []string{"UDPRoute is left out", "1.6 or later"}, nil},
		"NoGatewayAPI":  {"Both are named.", map[string]bool{"UDPRoute": true, "HTTPRoute": true}, []string{names.KeyUDPRoute, names.KeyHTTPRoute}, []string{"HTTPRoute is left out", "UDPRoute is left out"}, nil},
		"NoPrometheus":  {"There is no operator.", map[string]bool{"PodMonitor": true}, []string{names.KeyPodMonitor}, nil, []string{"PodMonitor is left out", "the Prometheus operator"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, bothRoutes)
			w.lacks = tc.lacks
			rsp := w.reconcile(t)
			if diff := cmp.Diff(without(all, tc.out...), keys(rsp.GetDesired().GetResources())); diff != "" {
				t.Errorf("%s\nkeys: -want, +got:\n%s", tc.why, diff)
			}
			status, reason, message := conditionOf(rsp, "RouteReady")
			if (reason == "KindMissing") != (len(tc.route) > 0) || status != fnv1.Status_STATUS_CONDITION_FALSE {
				t.Errorf("%s\ngot RouteReady %s, %s: %s", tc.why, status, reason, message)
			}
			for _, part := range tc.route {
				if !strings.Contains(message, part) {
					t.Errorf("want RouteReady to say %q, got %q", part, message)
				}
			}
			status, reason, message = conditionOf(rsp, "SpecValid")
			if (reason == "KindMissing") != (len(tc.spec) > 0) || status != fnv1.Status_STATUS_CONDITION_TRUE {
				t.Errorf("%s\ngot SpecValid %s, %s: %s", tc.why, status, reason, message)
			}
			for _, part := range tc.spec {
				if !strings.Contains(message, part) {
					t.Errorf("want SpecValid to say %q, got %q", part, message)
				}
			}
			if asked := len(rsp.GetRequirements().GetSchemas()); (asked == 3) != (tc.lacks != nil) {
				t.Errorf("want schemas required where Crossplane can answer, got %d", asked)
			}
		})
	}
	t.Run("NotAsked", func(t *testing.T) {
		if rsp := newWorld(t, `{peers: [{name: laptop}]}`).reconcile(t); len(rsp.GetRequirements().GetSchemas()) > 0 {
			t.Errorf("want no schemas required where nothing needs them, got %v", rsp.GetRequirements().GetSchemas())
		}
	})
	t.Run("Installed", func(t *testing.T) {
		w := newWorld(t, bothRoutes)
		w.lacks["UDPRoute"] = true
		w.reconcile(t)
		w.lacks = map[string]bool{}
		if rsp := w.reconcile(t); rsp.GetDesired().GetResources()[names.KeyUDPRoute] == nil {
			t.Error("want the UDPRoute once its kind is there, got none")
		}
	})
}

// TestTypeOfField holds that a value of another type is named by the path that
// the user wrote.
func TestTypeOfField(t *testing.T) {
	w := newWorld(t, `gateway: {hostname: 1}`)
	rsp, err := New(logging.NewNopLogger()).RunFunction(t.Context(), w.request(t, nil))
	if err != nil {
		t.Fatal(err)
	}
	const want = "spec.gateway.hostname: Invalid value: cannot be a JSON number"
	if _, _, message := conditionOf(rsp, "SpecValid"); message != want {
		t.Errorf("want %q, got %q", want, message)
	}
}
