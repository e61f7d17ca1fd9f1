package spec

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

func (p *parser) listenPort(path *field.Path, g *Gateway) {
	p.between(path, g.ListenPort, 1, 65535)
	if g.ListenPort == wireguard.HTTPPort {
		p.refuse(path, g.ListenPort, "is the port of the agent's health and metrics: use another")
	}
}

func (p *parser) endpoint(path *field.Path, g *Gateway) {
	e := p.spec.Endpoint
	if e == nil {
		return
	}
	if e.Host != "" {
		g.Endpoint.Host = p.host(path.Child("host"), e.Host)
	}
	p.port(path.Child("port"), e.Port)
	g.Endpoint.Port = int(e.Port)
}

func (p *parser) service(path *field.Path, g *Gateway) {
	s := deref(p.spec.Service, v1alpha1.Service{})
	s.Type = defaulted(s.Type, v1alpha1.DefaultServiceType)
	p.sourceRanges(path, &s)
	g.Service = s

	p.oneOf(path.Child("type"), s.Type, v1alpha1.ServiceLoadBalancer, v1alpha1.ServiceNodePort, v1alpha1.ServiceClusterIP)
	p.annotations(path.Child("annotations"), s.Annotations)
	p.labels(path.Child("labels"), s.Labels)
	p.ownLabels(path.Child("labels"), s.Labels)
	if s.LoadBalancerIP != "" {
		p.address(path.Child("loadBalancerIP"), s.LoadBalancerIP, s.LoadBalancerIP)
	}
	if c := s.LoadBalancerClass; c != "" && len(validation.IsQualifiedName(c)) > 0 {
		p.refuse(path.Child("loadBalancerClass"), c, "is no class of load balancers: write it as a label key, such as example.com/class")
	}
	if s.ExternalTrafficPolicy != "" {
		p.oneOf(path.Child("externalTrafficPolicy"), s.ExternalTrafficPolicy, "Cluster", "Local")
	}
	p.port(path.Child("nodePort"), s.NodePort)
	p.port(path.Child("healthCheckPort"), s.HealthCheckPort)
	if s.IPFamilyPolicy != "" {
		p.oneOf(path.Child("ipFamilyPolicy"), s.IPFamilyPolicy, "SingleStack", "PreferDualStack", "RequireDualStack")
	}
	for i, f := range s.IPFamilies {
		p.oneOf(path.Child("ipFamilies").Index(i), f, "IPv4", "IPv6")
		if i > 0 && f == s.IPFamilies[0] {
			p.errs = append(p.errs, field.Duplicate(path.Child("ipFamilies").Index(i), f))
		}
	}
	if s.IPFamilyPolicy == "SingleStack" && len(s.IPFamilies) > 1 {
		p.refuse(path.Child("ipFamilyPolicy"), s.IPFamilyPolicy, "has one family, and ipFamilies has two: name one, or set it to PreferDualStack")
	}
	if len(s.IPFamilies) > 2 {
		p.errs = append(p.errs, field.TooMany(path.Child("ipFamilies"), len(s.IPFamilies), 2))
	}
}

// sourceRanges turns what the user wrote into what Kubernetes takes, in the field
// and in the annotation that it reads where there is no field.
func (p *parser) sourceRanges(path *field.Path, s *v1alpha1.Service) {
	var ranges []string
	for i, r := range s.LoadBalancerSourceRanges {
		ranges = p.sourceRange(path.Child("loadBalancerSourceRanges").Index(i), r, ranges)
	}
	s.LoadBalancerSourceRanges = ranges

	const key = corev1.AnnotationLoadBalancerSourceRangesKey
	in := strings.TrimSpace(s.Annotations[key])
	if in == "" || len(ranges) > 0 || s.Type != v1alpha1.ServiceLoadBalancer {
		return
	}
	var annotated []string
	for r := range strings.SplitSeq(in, ",") {
		annotated = p.sourceRange(path.Child("annotations").Key(key), strings.TrimSpace(r), annotated)
	}
	s.Annotations = maps.Clone(s.Annotations)
	s.Annotations[key] = strings.Join(annotated, ",")
}

// sourceRange adds a network. Load balancers take host bits as zero, and Kubernetes
// did so until 1.36, so they are not refused here.
func (p *parser) sourceRange(path *field.Path, s string, to []string) []string {
	n, err := netip.ParsePrefix(s)
	switch {
	case err != nil:
		p.refuse(path, s, "is no network: write address and prefix length, such as 192.0.2.0/24")
	case n.Addr().Is4In6():
		p.refuse(path, s, "is an IPv4 network in IPv6 form: write it as IPv4")
	case !slices.Contains(to, n.Masked().String()):
		to = append(to, n.Masked().String())
	}
	return to
}
