package spec

import (
	"slices"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

func (p *parser) access(path *field.Path, rules []v1alpha1.AccessRule) []wireguard.AccessRule {
	var out []wireguard.AccessRule
	for i, in := range rules {
		at := path.Index(i)
		rule := wireguard.AccessRule{Action: in.Action, Protocol: defaulted(in.Protocol, wireguard.ProtocolAny)}
		p.oneOf(at.Child("action"), rule.Action, wireguard.Accept, wireguard.Reject)
		p.oneOf(at.Child("protocol"), rule.Protocol, wireguard.ProtocolAny, wireguard.ProtocolTCP, wireguard.ProtocolUDP, wireguard.ProtocolICMP)
		if to := in.To; to != nil {
			if to.CIDR != "" {
				rule.To.CIDR, _ = p.cidr(at.Child("to", "cidr"), to.CIDR)
			}
			rule.To.Ports = p.portRanges(at.Child("to", "ports"), to.Ports)
			if len(to.Ports) > 0 && rule.Protocol == wireguard.ProtocolICMP {
				p.errs = append(p.errs, field.Forbidden(at.Child("to", "ports"), "ICMP has no ports: leave ports out, or use protocol TCP or UDP"))
			}
		}
		out = append(out, rule)
	}
	return out
}

func (p *parser) portRanges(path *field.Path, ports []string) []wireguard.PortRange {
	var out []wireguard.PortRange
	for i, s := range ports {
		r, err := wireguard.ParsePortRange(s)
		if err != nil {
			p.refuse(path.Index(i), s, err.Error())
			continue
		}
		if slices.Contains(out, r) {
			p.errs = append(p.errs, field.Duplicate(path.Index(i), s))
		}
		out = append(out, r)
	}
	return out
}
