package fn

import (
	"encoding/json"
	"strings"

	"github.com/crossplane/function-sdk-go/errors"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"github.com/crossplane/function-sdk-go/request"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
	"github.com/wireguardgateway/function-wireguard-gateway/input/v1beta1"
)

// composite is the composite resource that is observed.
type composite struct {
	apiVersion string
	kind       string
	// namespace and name are the gateway's, as its user knows it: the claim's
	// where there is one.
	namespace     string
	name          string
	clusterScoped bool

	spec   v1alpha1.WireguardGatewaySpec
	status v1alpha1.WireguardGatewayStatus
}

// reference is a claim's, in the spec of the claim flavour's composite resource.
type reference struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

func decodeComposite(req *fnv1.RunFunctionRequest) (*composite, error) {
	b, err := json.Marshal(req.GetObserved().GetComposite().GetResource().AsMap())
	if err != nil {
		return nil, errors.Wrap(err, "cannot encode composite resource")
	}
	raw := struct {
		APIVersion string    `json:"apiVersion"`
		Kind       string    `json:"kind"`
		Metadata   reference `json:"metadata"`
		Spec       struct {
			v1alpha1.WireguardGatewaySpec `json:",inline"`

			ClaimRef *reference `json:"claimRef"`
		} `json:"spec"`
		Status v1alpha1.WireguardGatewayStatus `json:"status"`
	}{}
	if err := json.Unmarshal(b, &raw); err != nil {
		return nil, specInvalid(describeDecodeError(err))
	}

	xr := &composite{
		apiVersion: raw.APIVersion,
		kind:       raw.Kind,
		namespace:  raw.Metadata.Namespace,
		name:       raw.Metadata.Name,
		spec:       raw.Spec.WireguardGatewaySpec,
		status:     raw.Status,
	}
	switch {
	case raw.APIVersion != v1alpha1.GroupVersion.String():
		return nil, specInvalid("this function composes " + v1alpha1.GroupVersion.String() + ", not " + raw.APIVersion + ": check the Composition's compositeTypeRef")
	case raw.Kind == v1alpha1.GatewayKind && xr.namespace != "":
	case raw.Kind == v1alpha1.CompositeGatewayKind && raw.Spec.ClaimRef != nil:
		xr.clusterScoped = xr.namespace == ""
		xr.namespace, xr.name = raw.Spec.ClaimRef.Namespace, raw.Spec.ClaimRef.Name
	case raw.Kind == v1alpha1.CompositeGatewayKind:
		return nil, specInvalid("a " + v1alpha1.CompositeGatewayKind + " has no namespace to compose in: create a claim, of kind " + v1alpha1.GatewayKind)
	case raw.Kind == v1alpha1.GatewayKind:
		return nil, specInvalid("metadata.namespace: Required value: a " + v1alpha1.GatewayKind + " lives in a namespace")
	default:
		return nil, specInvalid("this function composes " + v1alpha1.GatewayKind + ", not " + raw.Kind + ": check the Composition's compositeTypeRef")
	}
	return xr, nil
}

// describeDecodeError names the field and what stands in it, not the Go types.
func describeDecodeError(err error) string {
	typeErr := &json.UnmarshalTypeError{}
	if errors.As(err, &typeErr) {
		// The path has the name of the Go type that is inlined, which nobody wrote.
		return strings.Replace(typeErr.Field, "spec.WireguardGatewaySpec.", "spec.", 1) + ": Invalid value: cannot be a JSON " + typeErr.Value
	}
	return "cannot read the composite resource: " + err.Error()
}

// parse reads what the user and the platform wrote.
func parse(req *fnv1.RunFunctionRequest, xr *composite) (*spec.Gateway, error) {
	in := &v1beta1.Input{}
	if req.GetInput() != nil {
		if err := request.GetInput(req, in); err != nil {
			return nil, specInvalid("cannot read the function's input: " + err.Error())
		}
	}
	platform, errs := spec.ParsePlatform(in.Spec)
	if len(errs) > 0 {
		return nil, specErrors(errs)
	}
	g, errs := spec.Parse(xr.name, xr.namespace, &xr.spec, &xr.status, platform)
	if len(errs) > 0 {
		return nil, specErrors(errs)
	}
	g.ClusterScoped = xr.clusterScoped
	return g, nil
}

func specErrors(errs field.ErrorList) error {
	return specInvalid(errs.ToAggregate().Error())
}

func specInvalid(message string) error {
	return &plan.ConditionError{Condition: conditionSpecValid, Reason: "Invalid", Message: message}
}
