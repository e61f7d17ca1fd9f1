package spec

import (
	"net/netip"

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
	for i, r := range s.LoadBalancerSourceRanges {
		// Load balancers take host bits for zero, so they are not refused here.
		if _, err := netip.ParsePrefix(r); err != nil {
			p.refuse(path.Child("loadBalancerSourceRanges").Index(i), r, "is no network: write address and prefix length, such as 192.0.2.0/24")
		}
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

func (p *parser) keys(path *field.Path, g *Gateway) {
	k := deref(p.spec.Keys, v1alpha1.Keys{})
	g.Keys = Keys{AcceptSeed: k.AcceptSeed, Rotation: k.Rotation}
	p.between(path.Child("rotation"), int(k.Rotation), 0, maxRotation)
	if r := k.SeedSecretRef; r != nil {
		g.Keys.SeedSecret = p.secretKey(path.Child("seedSecretRef"), r.Name, r.Key, v1alpha1.DefaultSeedKey)
	}
	if k.AcceptSeed != "" && !isSeedID(k.AcceptSeed) {
		p.refuse(path.Child("acceptSeed"), k.AcceptSeed, "is no seed ID: it is 16 hexadecimal digits, as in status.seedID")
	}
}

func isSeedID(s string) bool {
	if len(s) != 16 {
		return false
	}
	for _, c := range s {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
