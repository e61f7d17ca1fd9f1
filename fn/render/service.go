package render

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
)

// service exposes the WireGuard port. What belongs to another type of Service
// is left out: the API server would refuse it.
func service(g *plan.Gateway) *corev1.Service {
	in := g.Service
	s := &corev1.Service{
		ObjectMeta: meta(g, names.Workload(g.Name)),
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceType(in.Type),
			Selector: names.Selector(g.Name),
			Ports: []corev1.ServicePort{{
				Name:       spec.PortNameWireGuard,
				Protocol:   corev1.ProtocolUDP,
				Port:       int32(g.ListenPort),
				TargetPort: intstr.FromString(spec.PortNameWireGuard),
			}},
		},
	}
	// Ours win: selectors and queries depend on them.
	own := s.Labels
	s.Labels = maps.Clone(in.Labels)
	if s.Labels == nil {
		s.Labels = map[string]string{}
	}
	maps.Copy(s.Labels, own)
	s.Annotations = in.Annotations
	if in.IPFamilyPolicy != "" {
		s.Spec.IPFamilyPolicy = new(corev1.IPFamilyPolicy(in.IPFamilyPolicy))
	}
	for _, f := range in.IPFamilies {
		s.Spec.IPFamilies = append(s.Spec.IPFamilies, corev1.IPFamily(f))
	}
	if in.Type != v1alpha1.ServiceClusterIP {
		s.Spec.Ports[0].NodePort = in.NodePort
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicy(in.ExternalTrafficPolicy)
	}
	if in.Type == v1alpha1.ServiceLoadBalancer {
		loadBalancer(&s.Spec, in)
		return s
	}
	if _, ok := s.Annotations[corev1.AnnotationLoadBalancerSourceRangesKey]; ok {
		s.Annotations = maps.Clone(s.Annotations)
		delete(s.Annotations, corev1.AnnotationLoadBalancerSourceRangesKey)
	}
	return s
}

// tunnelService exposes the WebSocket tunnel to the Gateway. Some Gateways carry
// WebSockets only to ports that say they speak it.
func tunnelService(g *plan.Gateway) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: meta(g, names.Tunnel(g.Name)),
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceTypeClusterIP,
			Selector: names.Selector(g.Name),
			Ports: []corev1.ServicePort{{
				Name:        spec.PortNameTunnel,
				Protocol:    corev1.ProtocolTCP,
				AppProtocol: new("kubernetes.io/ws"),
				Port:        spec.TunnelPort,
				TargetPort:  intstr.FromString(spec.PortNameTunnel),
			}},
		},
	}
}

func loadBalancer(s *corev1.ServiceSpec, in v1alpha1.Service) {
	s.LoadBalancerIP = in.LoadBalancerIP
	s.LoadBalancerSourceRanges = slices.Clone(in.LoadBalancerSourceRanges)
	if in.LoadBalancerClass != "" {
		s.LoadBalancerClass = new(in.LoadBalancerClass)
	}
	if in.HealthCheckPort != 0 {
		s.Ports = append(s.Ports, corev1.ServicePort{
			Name:       spec.PortNameHTTP,
			Protocol:   corev1.ProtocolTCP,
			Port:       in.HealthCheckPort,
			TargetPort: intstr.FromString(spec.PortNameHTTP),
		})
	}
}
