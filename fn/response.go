package fn

import (
	"maps"
	"time"

	"github.com/crossplane/function-sdk-go/errors"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"github.com/crossplane/function-sdk-go/response"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/object"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/render"
)

// encode adds the desired objects and status to those of the functions before
// us. Nothing is added where anything fails.
func encode(req *fnv1.RunFunctionRequest, rsp *fnv1.RunFunctionResponse, xr identity, objects []render.Composed, status any, ready func(string) bool) error {
	desired := &fnv1.State{Resources: make(map[string]*fnv1.Resource, len(objects)+len(req.GetDesired().GetResources()))}
	maps.Copy(desired.GetResources(), req.GetDesired().GetResources())
	for _, c := range objects {
		s, err := object.Encode(c.Object, c.GVK)
		if err != nil {
			return errors.Wrapf(err, "cannot encode desired resource %q", c.Key)
		}
		r := &fnv1.Resource{Resource: s, Ready: fnv1.Ready_READY_FALSE}
		if ready(c.Key) {
			r.Ready = fnv1.Ready_READY_TRUE
		}
		desired.Resources[c.Key] = r
	}

	var err error
	if desired.Composite, err = encodeStatus(req.GetDesired().GetComposite(), xr, status); err != nil {
		return err
	}
	before := rsp.GetDesired()
	rsp.Desired = desired
	if err := checkSize(rsp, xr.size, len(objects)); err != nil {
		rsp.Desired = before
		return err
	}
	return nil
}

// encodeStatus returns the composite resource with our status. A function may
// return nothing else of it. What functions before us said of it stays.
func encodeStatus(before *fnv1.Resource, xr identity, status any) (*fnv1.Resource, error) {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return nil, errors.Wrap(err, "cannot convert status")
	}
	ours, err := structpb.NewStruct(m)
	if err != nil {
		return nil, errors.Wrap(err, "cannot encode status")
	}

	out := &fnv1.Resource{}
	if before != nil {
		out = proto.CloneOf(before)
	}
	if out.GetResource().GetFields() == nil {
		out.Resource = &structpb.Struct{Fields: map[string]*structpb.Value{}}
	}
	fields := out.GetResource().GetFields()
	fields["apiVersion"] = structpb.NewStringValue(xr.apiVersion)
	fields["kind"] = structpb.NewStringValue(xr.kind)
	theirs := fields["status"].GetStructValue().GetFields()
	if theirs == nil { // An empty status has no map to write into.
		fields["status"] = structpb.NewStructValue(ours)
		return out, nil
	}
	maps.Copy(theirs, ours.GetFields())
	return out, nil
}

// setTTL makes Crossplane ask again when the next peer expires, if not sooner.
func setTTL(rsp *fnv1.RunFunctionResponse, ttl time.Duration, nextExpiry, now time.Time) {
	if !nextExpiry.IsZero() {
		// A TTL of zero would mean never.
		ttl = min(ttl, max(nextExpiry.Sub(now), time.Second))
	}
	rsp.Meta.Ttl = durationpb.New(ttl)
}

// fatal ends the pipeline: Crossplane changes nothing.
func fatal(rsp *fnv1.RunFunctionResponse, err error) {
	response.Fatal(rsp, err)
	rsp.Results[len(rsp.GetResults())-1].Target = fnv1.Target_TARGET_COMPOSITE_AND_CLAIM.Enum()
}
