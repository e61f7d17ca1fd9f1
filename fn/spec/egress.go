package spec

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
)

// egress refuses rules that the API server would refuse in a NetworkPolicy: there
// would be no policy, and nothing outside of the pods to hold back their traffic.
// Cilium's kind accepts some of these rules, and then allows more than they say.
func (p *parser) egress(path *field.Path, rules []v1alpha1.Object) []networkingv1.NetworkPolicyEgressRule {
	var out []networkingv1.NetworkPolicyEgressRule
	for i, o := range rules {
		at, errs := path.Index(i), len(p.errs)
		r := networkingv1.NetworkPolicyEgressRule{}
		p.strict(at, o.Raw, &r)
		if len(p.errs) > errs {
			continue
		}
		for j := range r.To {
			p.egressTo(at.Child("to").Index(j), &r.To[j])
		}
		for j := range r.Ports {
			p.egressPort(at.Child("ports").Index(j), &r.Ports[j])
		}
		out = append(out, r)
	}
	return out
}

func (p *parser) egressTo(path *field.Path, to *networkingv1.NetworkPolicyPeer) {
	selects := to.PodSelector != nil || to.NamespaceSelector != nil
	switch {
	case to.IPBlock != nil && selects:
		p.errs = append(p.errs, field.Forbidden(path, "ipBlock cannot go together with podSelector or namespaceSelector: write an item each"))
	case to.IPBlock == nil && !selects:
		p.errs = append(p.errs, field.Required(path, "name an ipBlock, a podSelector or a namespaceSelector, or leave to out for everywhere"))
	}
	p.selector(path.Child("podSelector"), to.PodSelector)
	p.selector(path.Child("namespaceSelector"), to.NamespaceSelector)
	if to.IPBlock == nil {
		return
	}
	at := path.Child("ipBlock")
	block, ok := p.cidr(at.Child("cidr"), to.IPBlock.CIDR)
	for i, s := range to.IPBlock.Except {
		e, read := p.cidr(at.Child("except").Index(i), s)
		if ok && read && (e.Bits() <= block.Bits() || !block.Contains(e.Addr())) {
			p.refuse(at.Child("except").Index(i), s, fmt.Sprintf("is no part of cidr: name a smaller network within %s", block))
		}
	}
}

// selector refuses a label selector that the API server would refuse.
func (p *parser) selector(path *field.Path, s *metav1.LabelSelector) {
	p.errs = append(p.errs, metav1validation.ValidateLabelSelector(s, metav1validation.LabelSelectorValidationOptions{}, path)...)
}

func (p *parser) egressPort(path *field.Path, port *networkingv1.NetworkPolicyPort) {
	if port.Protocol != nil {
		p.oneOf(path.Child("protocol"), string(*port.Protocol), string(corev1.ProtocolTCP), string(corev1.ProtocolUDP), string(corev1.ProtocolSCTP))
	}
	numbered := port.Port != nil && port.Port.Type == intstr.Int
	switch {
	case numbered:
		p.between(path.Child("port"), port.Port.IntValue(), 1, 65535)
	case port.Port != nil && len(validation.IsValidPortName(port.Port.StrVal)) > 0:
		p.refuse(path.Child("port"), port.Port.StrVal, "is no name of a port: use at most 15 lower case letters, digits and dashes; write a number without quotes")
	}
	if port.EndPort == nil {
		return
	}
	at, end := path.Child("endPort"), int(*port.EndPort)
	switch {
	case !numbered:
		p.refuse(at, end, "needs port as a number, from which the range begins: give that, or leave endPort out")
	case end < port.Port.IntValue():
		p.refuse(at, end, fmt.Sprintf("is below port: write port %d and endPort %d", end, port.Port.IntValue()))
	default:
		p.between(at, end, 1, 65535)
	}
}
