package fn

import (
	"github.com/crossplane/function-sdk-go/errors"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/object"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// observed are the composed objects that exist. Only what decisions depend on is
// decoded: the Secrets of a thousand peers are not.
type observed struct {
	exists map[string]bool

	seed       map[string][]byte // nil where there is none
	config     []byte
	deployment *appsv1.Deployment
	service    *corev1.Service
	routes     map[string]*route // by key
	report     *wireguard.Report // nil where there is none, or none that is understood
}

// unavailable tells whether the Deployment says that no pod of it is available.
// What the agent reported last outlives its pod.
func (o *observed) unavailable() bool {
	return o.deployment != nil && o.deployment.Status.ObservedGeneration > 0 && o.deployment.Status.AvailableReplicas == 0
}

func decodeObserved(req *fnv1.RunFunctionRequest) (*observed, error) {
	resources := req.GetObserved().GetResources()
	o := &observed{exists: make(map[string]bool, len(resources)), routes: map[string]*route{}}
	for key := range resources {
		o.exists[key] = true
	}
	if o.exists[names.KeySeed] {
		o.seed = secretData(resources[names.KeySeed].GetResource())
	}
	if o.exists[names.KeyConfig] {
		o.config = secretData(resources[names.KeyConfig].GetResource())[wireguard.ConfigKey]
	}
	if o.exists[names.KeyDeployment] {
		o.deployment = &appsv1.Deployment{}
		if err := object.Decode(resources[names.KeyDeployment].GetResource(), o.deployment); err != nil {
			return nil, errors.Wrap(err, "cannot read the observed Deployment")
		}
	}
	if o.exists[names.KeyService] {
		o.service = &corev1.Service{}
		if err := object.Decode(resources[names.KeyService].GetResource(), o.service); err != nil {
			return nil, errors.Wrap(err, "cannot read the observed Service")
		}
	}
	if o.exists[names.KeyHTTPRoute] {
		r := &gatewayv1.HTTPRoute{}
		if err := object.Decode(resources[names.KeyHTTPRoute].GetResource(), r); err != nil {
			return nil, errors.Wrap(err, "cannot read the observed HTTPRoute")
		}
		o.routes[names.KeyHTTPRoute] = &route{kind: "HTTPRoute", namespace: r.Namespace, generation: r.Generation, parents: r.Status.Parents}
	}
	if o.exists[names.KeyUDPRoute] {
		r := &gatewayv1.UDPRoute{}
		if err := object.Decode(resources[names.KeyUDPRoute].GetResource(), r); err != nil {
			return nil, errors.Wrap(err, "cannot read the observed UDPRoute")
		}
		o.routes[names.KeyUDPRoute] = &route{kind: "UDPRoute", namespace: r.Namespace, generation: r.Generation, parents: r.Status.Parents}
	}
	data := resources[names.KeyStatus].GetResource().GetFields()["data"].GetStructValue().GetFields()
	if s := data[wireguard.ReportKey].GetStringValue(); s != "" {
		// The agent may be newer or older than the function: a report that cannot
		// be read counts as none.
		if r, err := wireguard.DecodeReport([]byte(s)); err == nil {
			o.report = &r
		}
	}
	return o, nil
}
