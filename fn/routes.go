package fn

import (
	"cmp"
	"fmt"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/render"
)

// route is what routes of every kind have in common.
type route struct {
	kind       string
	namespace  string
	generation int64
	parents    []gatewayv1.RouteParentStatus
}

// routeReady tells whether every parent that the route asks for has accepted it
// at its current generation. It says which has not, and why in that parent's
// own words.
func routeReady(r *route, want []gatewayv1.ParentReference) (ready bool, reason, message string) {
	if r == nil {
		return false, reasonPending, "The route does not exist yet."
	}
	for _, ref := range want {
		if reason, message := parentRefuses(r, ref); reason != "" {
			return false, reason, fmt.Sprintf("%s at %s: %s", r.kind, describeParent(ref), message)
		}
	}
	return true, reasonAvailable, ""
}

func describeParent(ref gatewayv1.ParentReference) string {
	name := string(ref.Name)
	if ref.Namespace != nil {
		name = string(*ref.Namespace) + "/" + name
	}
	s := fmt.Sprintf("%s %q", ptr.Deref(ref.Kind, "Gateway"), name)
	if ref.SectionName != nil {
		s += fmt.Sprintf(", listener %q", *ref.SectionName)
	}
	return s
}

// parentRefuses returns why a parent does not serve the route. Both are empty
// where it does. The route may have several answers for one parent, and one that
// accepts it is enough: another may be left over from a former controller. A
// refusal is told before an answer that is still to come.
func parentRefuses(r *route, ref gatewayv1.ParentReference) (reason, message string) {
	reason, message = reasonPending, "no controller has answered yet; is there one for it, and does the listener exist?"
	for i := range r.parents {
		p := &r.parents[i]
		if !sameParent(p.ParentRef, ref, r.namespace) {
			continue
		}
		why, words := refusal(p.Conditions, r.generation)
		if why == "" {
			return "", ""
		}
		if reason == reasonPending {
			reason, message = why, words
		}
	}
	return reason, message
}

// refusal returns the first condition that keeps a parent from serving a route.
func refusal(conditions []metav1.Condition, generation int64) (reason, message string) {
	for _, t := range []gatewayv1.RouteConditionType{gatewayv1.RouteConditionAccepted, gatewayv1.RouteConditionResolvedRefs} {
		c := meta.FindStatusCondition(conditions, string(t))
		switch {
		case c == nil || c.ObservedGeneration < generation:
			return reasonPending, fmt.Sprintf("its controller has not judged %s of the latest change yet", t)
		case c.Status != metav1.ConditionTrue:
			return cmp.Or(c.Reason, reasonError), fmt.Sprintf("%s is %s, reason %s: %s", t, c.Status, c.Reason, c.Message)
		}
	}
	return "", ""
}

// sameParent compares two references with their defaults filled in.
func sameParent(a, b gatewayv1.ParentReference, namespace string) bool {
	return reflect.DeepEqual(fullParent(a, namespace), fullParent(b, namespace))
}

func fullParent(r gatewayv1.ParentReference, namespace string) gatewayv1.ParentReference {
	r.Group = new(ptr.Deref(r.Group, gatewayv1.GroupName))
	r.Kind = new(ptr.Deref(r.Kind, "Gateway"))
	r.Namespace = new(ptr.Deref(r.Namespace, gatewayv1.Namespace(namespace)))
	return r
}

// routesWanted returns the parents that each route of the gateway asks for, by
// the route's key.
func routesWanted(g *plan.Gateway) map[string][]gatewayv1.ParentReference {
	want := map[string][]gatewayv1.ParentReference{}
	if g.Tunnel != nil {
		want[names.KeyHTTPRoute] = render.ParentRefs(g.GatewayAPI.ParentRefs)
	}
	if g.GatewayAPI.UDPRoute != nil {
		want[names.KeyUDPRoute] = render.ParentRefs(g.GatewayAPI.UDPRoute.ParentRefs)
	}
	return want
}

// routes tells whether every route that was asked for is served.
func (c *conditions) routes(g *plan.Gateway, o *observed, lacks missingKinds) {
	want := routesWanted(g)
	if len(want) == 0 {
		c.true(conditionRouteReady, reasonNotRequested, "")
		return
	}
	var missing []string
	if g.Tunnel != nil && lacks[render.HTTPRouteKind] {
		missing = append(missing, leftOut("HTTPRoute", "the Gateway API"))
	}
	if g.GatewayAPI.UDPRoute != nil && lacks[render.UDPRouteKind] {
		missing = append(missing, leftOut("UDPRoute", "the Gateway API, 1.6 or later"))
	}
	if len(missing) > 0 {
		c.false(conditionRouteReady, reasonKindMissing, strings.Join(missing, " "))
		return
	}
	for _, key := range []string{names.KeyHTTPRoute, names.KeyUDPRoute} {
		if _, ok := want[key]; !ok {
			continue
		}
		if ready, reason, message := routeReady(o.routes[key], want[key]); !ready {
			c.false(conditionRouteReady, reason, message)
			return
		}
	}
	c.true(conditionRouteReady, reasonAvailable, "")
}

func leftOut(kind, from string) string {
	return fmt.Sprintf("%s is left out, because the cluster has no such kind: install the definitions of %s.", kind, from)
}
