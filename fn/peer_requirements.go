package fn

import (
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
)

// Names of what the function requires to know for a WireguardPeer, beside
// Secrets.
const (
	requireGatewayPrefix = "gateway."
	requireSeedPrefix    = "seed."
	requireNamespace     = "namespace"

	requireMutatingPolicy    = "mutating-policy"
	requireMutatingBinding   = "mutating-binding"
	requireValidatingPolicy  = "validating-policy"
	requireValidatingBinding = "validating-binding"
)

// questions are requirements that are asked one after the other. Crossplane
// answers those of one response before it runs the function again, and may have
// answered before it is asked, since it remembers what was asked last time. So
// a requirement is named for the object that it asks for: the answer to another
// one, or that there is none, would pass for its own.
type questions struct {
	req *fnv1.RunFunctionRequest
	rsp *fnv1.RunFunctionResponse
}

func newQuestions(req *fnv1.RunFunctionRequest, rsp *fnv1.RunFunctionResponse) *questions {
	rsp.Requirements = &fnv1.Requirements{Resources: map[string]*fnv1.ResourceSelector{}}
	return &questions{req: req, rsp: rsp}
}

// one asks for one object by its name. It is nil where there is none.
func (q *questions) one(key string, s *fnv1.ResourceSelector) (o *structpb.Struct, answered bool) {
	q.rsp.GetRequirements().Resources[key] = s
	answer, answered := q.req.GetRequiredResources()[key]
	for _, item := range answer.GetItems() {
		return item.GetResource(), answered
	}
	return nil, answered
}

// gateway asks for the peer's gateway: in the claim flavour for its claim, which
// has the same kind.
func (q *questions) gateway(p *spec.WireguardPeer) (g *gatewayObject, answered bool, err error) {
	o, answered := q.one(requireGatewayPrefix+p.GatewayNamespace+"."+p.GatewayName, &fnv1.ResourceSelector{
		ApiVersion: v1alpha1.GroupVersion.String(),
		Kind:       v1alpha1.GatewayKind,
		Namespace:  &p.GatewayNamespace,
		Match:      &fnv1.ResourceSelector_MatchName{MatchName: p.GatewayName},
	})
	// One that is being deleted may have lost its seed before it goes.
	if o == nil || isDeleted(o) {
		return nil, answered, nil
	}
	g, err = decodeGateway(o.AsMap())
	if err != nil {
		return nil, answered, gatewayInvalid(p)
	}
	return g, answered, nil
}

// labels asks for the labels of the peer's own namespace, where the gateway's
// consent depends on them.
func (q *questions) labels(p *spec.WireguardPeer, c spec.Consent) (labels map[string]string, answered bool) {
	if c.ByLabels() == nil {
		return nil, true
	}
	return q.namespace(p)
}

// namespace asks for the labels of the peer's own namespace.
func (q *questions) namespace(p *spec.WireguardPeer) (labels map[string]string, answered bool) {
	o, answered := q.one(requireNamespace, &fnv1.ResourceSelector{
		ApiVersion: "v1",
		Kind:       "Namespace",
		Match:      &fnv1.ResourceSelector_MatchName{MatchName: p.Namespace},
	})
	labels = map[string]string{}
	for k, v := range o.GetFields()["metadata"].GetStructValue().GetFields()["labels"].GetStructValue().GetFields() {
		labels[k] = v.GetStringValue()
	}
	return labels, answered
}

// secret asks for the data of a Secret. It is nil where there is none.
func (q *questions) secret(key, namespace, name string) (data map[string][]byte, answered bool) {
	o, answered := q.one(key, secretSelector(namespace, name))
	if o == nil {
		return nil, answered
	}
	return secretData(o), answered
}
