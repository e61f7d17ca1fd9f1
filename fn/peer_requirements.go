package fn

import (
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
)

// Names of what the function requires to know for a WireguardPeer, beside the
// Secret that its user refers to.
const (
	requireGatewayPrefix = "gateway."
	requireSeedPrefix    = "seed."
	requireNamespace     = "namespace"

	requireMutatingPolicy    = "mutating-policy"
	requireMutatingBinding   = "mutating-binding"
	requireValidatingPolicy  = "validating-policy"
	requireValidatingBinding = "validating-binding"
)

// gateway asks for the peer's gateway: in the claim flavour for its claim, which
// has the same kind. It is nil where there is none.
func (q *questions) gateway(p *spec.WireguardPeer) (*gatewayObject, error) {
	o := q.one(requireGatewayPrefix+p.GatewayNamespace+"."+p.GatewayName, &fnv1.ResourceSelector{
		ApiVersion: v1alpha1.GroupVersion.String(),
		Kind:       v1alpha1.GatewayKind,
		Namespace:  &p.GatewayNamespace,
		Match:      &fnv1.ResourceSelector_MatchName{MatchName: p.GatewayName},
	})
	// One that is being deleted may have lost its seed before it goes.
	if o == nil || isDeleted(o) {
		return nil, nil
	}
	g, err := decodeGateway(o.AsMap())
	if err != nil {
		return nil, gatewayInvalid(p)
	}
	return g, nil
}

// labels asks for the labels of the peer's own namespace, where the gateway's
// consent depends on them.
func (q *questions) labels(p *spec.WireguardPeer, c spec.Consent) map[string]string {
	if c.ByLabels() == nil {
		return nil
	}
	return q.namespace(p)
}

// namespace asks for the labels of the peer's own namespace.
func (q *questions) namespace(p *spec.WireguardPeer) map[string]string {
	o := q.one(requireNamespace, &fnv1.ResourceSelector{
		ApiVersion: "v1",
		Kind:       "Namespace",
		Match:      &fnv1.ResourceSelector_MatchName{MatchName: p.Namespace},
	})
	labels := map[string]string{}
	for k, v := range o.GetFields()["metadata"].GetStructValue().GetFields()["labels"].GetStructValue().GetFields() {
		labels[k] = v.GetStringValue()
	}
	return labels
}
