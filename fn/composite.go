package fn

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/crossplane/function-sdk-go/errors"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"github.com/crossplane/function-sdk-go/request"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
	"github.com/wireguardgateway/function-wireguard-gateway/input/v1beta1"
)

// identity is what composite resources of all kinds have in common.
type identity struct {
	apiVersion string
	kind       string
	// namespace and name are those that the user knows: the claim's where there
	// is one.
	namespace     string
	name          string
	uid           string
	clusterScoped bool
	size          int // of the object without its status, in bytes
}

// composite is a gateway that is observed.
type composite struct {
	identity

	spec   v1alpha1.WireguardGatewaySpec
	status v1alpha1.WireguardGatewayStatus
}

// compositePeer is a WireguardPeer that is observed.
type compositePeer struct {
	identity

	spec   v1alpha1.WireguardPeerSpec
	status v1alpha1.WireguardPeerStatus
}

// reference is a namespace with a name. A composite resource has its own in its
// metadata, and in the claim flavour its claim's in its spec.
type reference struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// flavours are the kinds that one of our composite resources has: with claims,
// the composite resource has another kind than what users create.
type flavours struct {
	user      string // what users create
	composite string // what Crossplane makes of a claim
}

var (
	gatewayKinds = flavours{user: v1alpha1.GatewayKind, composite: v1alpha1.CompositeGatewayKind}
	peerKinds    = flavours{user: v1alpha1.PeerKind, composite: v1alpha1.CompositePeerKind}
)

// isPeer tells whether a WireguardPeer is to be composed. What is no gateway
// either is taken for one, and refused when it is decoded.
func isPeer(req *fnv1.RunFunctionRequest) bool {
	kind := req.GetObserved().GetComposite().GetResource().GetFields()["kind"].GetStringValue()
	return kind == peerKinds.user || kind == peerKinds.composite
}

func decodeComposite(req *fnv1.RunFunctionRequest) (*composite, error) {
	xr := &composite{}
	var err error
	xr.identity, err = decodeObject(req, gatewayKinds, &xr.spec, &xr.status)
	return xr, err
}

func decodePeer(req *fnv1.RunFunctionRequest) (*compositePeer, error) {
	xr := &compositePeer{}
	var err error
	xr.identity, err = decodeObject(req, peerKinds, &xr.spec, &xr.status)
	return xr, err
}

// decodeObject reads spec and status of the composite resource, and tells by which
// namespace and name its user knows it. These are its own where it has a namespace.
// The claim that its spec names counts only where it has none: in a namespace, users
// write the spec.
func decodeObject(req *fnv1.RunFunctionRequest, kinds flavours, spec, status any) (identity, error) {
	xr := req.GetObserved().GetComposite().GetResource()
	fields := xr.AsMap()
	raw := struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Metadata   struct {
			reference `json:",inline"`

			UID string `json:"uid"`
		} `json:"metadata"`
		Spec struct {
			ClaimRef *reference `json:"claimRef"`
		} `json:"spec"`
	}{}
	// convert decodes one JSON form into another, and tells its size in bytes.
	convert := func(from, into any) (size int, err error) {
		b, err := json.Marshal(from)
		if err != nil {
			return 0, errors.Wrap(err, "cannot encode composite resource")
		}
		if err := json.Unmarshal(b, into); err != nil {
			return 0, specInvalid(describeDecodeError(xr, err))
		}
		return len(b), nil
	}
	size, err := convert(fields, &raw)
	if err != nil {
		return identity{}, err
	}
	// Under their keys, so that an error names the whole path of a field.
	if _, err := convert(map[string]any{"spec": fields["spec"]}, &struct {
		Spec any `json:"spec"`
	}{spec}); err != nil {
		return identity{}, err
	}
	statusSize, err := convert(map[string]any{"status": fields["status"]}, &struct {
		Status any `json:"status"`
	}{status})
	if err != nil {
		return identity{}, err
	}

	id := identity{
		apiVersion: raw.APIVersion,
		kind:       raw.Kind,
		namespace:  raw.Metadata.Namespace,
		name:       raw.Metadata.Name,
		uid:        raw.Metadata.UID,
		size:       size - statusSize,
	}
	switch claim := raw.Spec.ClaimRef; {
	case raw.APIVersion != v1alpha1.GroupVersion.String():
		return identity{}, specInvalid("this function composes " + v1alpha1.GroupVersion.String() + ", not " + raw.APIVersion + ": check the Composition's compositeTypeRef")
	case (raw.Kind == kinds.user || raw.Kind == kinds.composite) && id.namespace != "":
	case raw.Kind == kinds.composite && claim != nil:
		id.clusterScoped = true
		id.namespace, id.name = claim.Namespace, claim.Name
	case raw.Kind == kinds.composite:
		return identity{}, specInvalid("a " + kinds.composite + " has no namespace to compose in: create a claim, of kind " + kinds.user)
	case raw.Kind == kinds.user:
		return identity{}, specInvalid("metadata.namespace: Required value: a " + kinds.user + " lives in a namespace")
	default:
		return identity{}, specInvalid("this function composes " + gatewayKinds.user + " and " + peerKinds.user + ", not " + raw.Kind + ": check the Composition's compositeTypeRef")
	}
	return id, nil
}

// describeDecodeError says which field cannot be read and what stands in it,
// without the Go types of the decoder's own message.
func describeDecodeError(xr *structpb.Struct, err error) string {
	typeErr, timeErr := &json.UnmarshalTypeError{}, &time.ParseError{}
	switch {
	case errors.As(err, &typeErr):
		return typeErr.Field + ": Invalid value: cannot be a JSON " + typeErr.Value
	case errors.As(err, &timeErr):
		return field.Invalid(expiryOf(xr, timeErr.Value), timeErr.Value, "is no time: write one such as 2027-01-01T00:00:00Z").Error()
	default:
		return "cannot read the composite resource: " + err.Error()
	}
}

// expiryOf returns the path of the expiresAt that has a value. The decoder's error
// does not tell it.
func expiryOf(xr *structpb.Struct, value string) *field.Path {
	path, spec := field.NewPath("spec"), xr.GetFields()["spec"].GetStructValue().GetFields()
	if spec["client"].GetStructValue().GetFields()["expiresAt"].GetStringValue() == value {
		return path.Child("client", "expiresAt")
	}
	path = path.Child("peers")
	for i, p := range spec["peers"].GetListValue().GetValues() {
		if p.GetStructValue().GetFields()["expiresAt"].GetStringValue() == value {
			return path.Index(i).Child("expiresAt")
		}
	}
	return path
}

// parsePlatform reads what the platform wrote.
func parsePlatform(req *fnv1.RunFunctionRequest) (spec.Platform, error) {
	in := &v1beta1.Input{}
	if req.GetInput() != nil {
		if err := request.GetInput(req, in); err != nil {
			return spec.Platform{}, specInvalid("cannot read the function's input: " + err.Error())
		}
	}
	platform, errs := spec.ParsePlatform(in.Spec)
	if len(errs) > 0 {
		return spec.Platform{}, specErrors(errs)
	}
	return platform, nil
}

// parse reads what the user and the platform wrote.
func parse(req *fnv1.RunFunctionRequest, xr *composite) (*spec.Gateway, error) {
	platform, err := parsePlatform(req)
	if err != nil {
		return nil, err
	}
	g, errs := spec.Parse(xr.name, xr.namespace, &xr.spec, &xr.status, platform)
	if len(errs) > 0 {
		return nil, specErrors(errs)
	}
	g.ClusterScoped = xr.clusterScoped
	return g, nil
}

// maxErrors is how many errors of a spec a message lists. With all of them it could
// be larger than Crossplane accepts.
const maxErrors = 10

func specErrors(errs field.ErrorList) error {
	message := errs[:min(len(errs), maxErrors)].ToAggregate().Error()
	if more := len(errs) - maxErrors; more > 0 {
		message += fmt.Sprintf("; %d more", more)
	}
	return specInvalid(message)
}

func specInvalid(message string) error {
	return &plan.ConditionError{Condition: conditionSpecValid, Reason: v1alpha1.ReasonInvalid, Message: message}
}
