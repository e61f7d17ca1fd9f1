package render

import (
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
)

// httpRoute leads the tunnel's path on the Gateway to its Service. The lists of
// a route are atomic: every field that the API server would default in them is
// written out, so that what is applied is what is there.
func httpRoute(g *plan.Gateway) *gatewayv1.HTTPRoute {
	m := meta(g, names.Workload(g.Name))
	m.Annotations = g.GatewayAPI.Annotations
	return &gatewayv1.HTTPRoute{
		ObjectMeta: m,
		Spec: gatewayv1.HTTPRouteSpec{
			CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: ParentRefs(g.GatewayAPI.ParentRefs)},
			Hostnames:       []gatewayv1.Hostname{gatewayv1.Hostname(g.GatewayAPI.Hostname)},
			Rules: []gatewayv1.HTTPRouteRule{{
				Matches: []gatewayv1.HTTPRouteMatch{{Path: &gatewayv1.HTTPPathMatch{
					Type:  new(gatewayv1.PathMatchPathPrefix),
					Value: new("/" + g.TunnelPathPrefix()),
				}}},
				BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: backend(names.Tunnel(g.Name), spec.TunnelPort)}},
				// A WebSocket is one request that lasts for days.
				Timeouts: &gatewayv1.HTTPRouteTimeouts{
					Request:        new(gatewayv1.Duration("0s")),
					BackendRequest: new(gatewayv1.Duration("0s")),
				},
			}},
		},
	}
}

// udpRoute leads a UDP listener of the Gateway to the gateway's Service.
func udpRoute(g *plan.Gateway) *gatewayv1.UDPRoute {
	m := meta(g, names.Workload(g.Name))
	m.Annotations = g.GatewayAPI.Annotations
	return &gatewayv1.UDPRoute{
		ObjectMeta: m,
		Spec: gatewayv1.UDPRouteSpec{
			CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: ParentRefs(g.GatewayAPI.UDPRoute.ParentRefs)},
			Rules: []gatewayv1.UDPRouteRule{{
				BackendRefs: []gatewayv1.BackendRef{backend(names.Workload(g.Name), g.ListenPort)},
			}},
		},
	}
}

// ParentRefs returns the user's with their defaults written out. The namespace
// has none: where it is absent it is the route's own.
func ParentRefs(in []v1alpha1.ParentReference) []gatewayv1.ParentReference {
	out := make([]gatewayv1.ParentReference, 0, len(in))
	for _, r := range in {
		ref := gatewayv1.ParentReference{
			Group: new(gatewayv1.Group(gatewayv1.GroupName)),
			Kind:  new(gatewayv1.Kind("Gateway")),
			Name:  gatewayv1.ObjectName(r.Name),
		}
		if r.Group != nil {
			ref.Group = new(gatewayv1.Group(*r.Group))
		}
		if r.Kind != "" {
			ref.Kind = new(gatewayv1.Kind(r.Kind))
		}
		if r.Namespace != "" {
			ref.Namespace = new(gatewayv1.Namespace(r.Namespace))
		}
		if r.SectionName != "" {
			ref.SectionName = new(gatewayv1.SectionName(r.SectionName))
		}
		if r.Port != 0 {
			ref.Port = new(r.Port)
		}
		out = append(out, ref)
	}
	return out
}

func backend(service string, port int) gatewayv1.BackendRef {
	return gatewayv1.BackendRef{
		BackendObjectReference: gatewayv1.BackendObjectReference{
			Group: new(gatewayv1.Group("")),
			Kind:  new(gatewayv1.Kind("Service")),
			Name:  gatewayv1.ObjectName(service),
			Port:  new(int32(port)),
		},
		Weight: new(int32(1)),
	}
}
