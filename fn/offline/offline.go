// Package offline runs the function the way Crossplane does, without a cluster:
// it answers the function's requirements from given objects, and asks again
// until nothing more is required.
package offline

import (
	"context"
	"maps"
	"slices"

	"github.com/crossplane/function-sdk-go/errors"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// AnnotationKey tells under which key of the desired set an object is composed.
const AnnotationKey = "crossplane.io/composition-resource-name"

// noUID is that of a composite resource which was given without one.
const noUID = "00000000-0000-0000-0000-000000000000"

// maxIterations is how often Crossplane answers requirements before it gives up.
const maxIterations = 5

// Request is what a function is run with.
type Request struct {
	Composite *unstructured.Unstructured
	// Observed are composed objects, each annotated with its key.
	Observed []*unstructured.Unstructured
	// Required are what requirements are answered from.
	Required []*unstructured.Unstructured
	// Input of the function, nil for none.
	Input *unstructured.Unstructured
	// Lacks are kinds that the cluster does not have. Where it is nil, Crossplane
	// cannot tell: before 2.2, it could not.
	Lacks map[string]bool
	// Known is what the function required the last time, which Crossplane from 2.4
	// on answers before it is asked. Nil for nothing.
	Known *fnv1.Requirements
}

// Run runs the function until its requirements are answered.
func Run(ctx context.Context, fn fnv1.FunctionRunnerServiceServer, in Request) (*fnv1.RunFunctionResponse, error) {
	req, err := in.proto()
	if err != nil {
		return nil, err
	}
	known, err := in.answer(in.Known)
	if err != nil {
		return nil, err
	}
	req.RequiredResources = known
	var asked *fnv1.Requirements
	for range maxIterations + 1 {
		rsp, err := fn.RunFunction(ctx, proto.CloneOf(req))
		if err != nil {
			return nil, errors.Wrap(err, "cannot run function")
		}
		if fatal(rsp) || proto.Equal(rsp.GetRequirements(), asked) {
			return rsp, nil
		}
		asked = rsp.GetRequirements()
		answers, err := in.answer(asked)
		if err != nil {
			return nil, err
		}
		req.RequiredResources = maps.Clone(known)
		maps.Copy(req.GetRequiredResources(), answers)
		if req.RequiredSchemas, err = in.answerSchemas(asked); err != nil {
			return nil, err
		}
	}
	return nil, errors.Errorf("the function's requirements did not settle within %d runs", maxIterations)
}

func fatal(rsp *fnv1.RunFunctionResponse) bool {
	return slices.ContainsFunc(rsp.GetResults(), func(r *fnv1.Result) bool {
		return r.GetSeverity() == fnv1.Severity_SEVERITY_FATAL
	})
}

func (in Request) proto() (*fnv1.RunFunctionRequest, error) {
	composite := in.Composite
	if composite.GetUID() == "" {
		// What an API server holds has one.
		composite = composite.DeepCopy()
		composite.SetUID(noUID)
	}
	xr, err := toStruct(composite)
	if err != nil {
		return nil, err
	}
	req := &fnv1.RunFunctionRequest{
		Meta: &fnv1.RequestMeta{Tag: "offline", Capabilities: []fnv1.Capability{
			fnv1.Capability_CAPABILITY_CAPABILITIES,
			fnv1.Capability_CAPABILITY_REQUIRED_RESOURCES,
			fnv1.Capability_CAPABILITY_CONDITIONS,
		}},
		Observed: &fnv1.State{
			Composite: &fnv1.Resource{Resource: xr},
			Resources: map[string]*fnv1.Resource{},
		},
	}
	if in.Lacks != nil {
		req.Meta.Capabilities = append(req.Meta.Capabilities, fnv1.Capability_CAPABILITY_REQUIRED_SCHEMAS)
	}
	for _, o := range in.Observed {
		key := o.GetAnnotations()[AnnotationKey]
		if key == "" {
			return nil, errors.Errorf("observed %s %q has no annotation %s", o.GetKind(), o.GetName(), AnnotationKey)
		}
		s, err := toStruct(o)
		if err != nil {
			return nil, err
		}
		req.Observed.Resources[key] = &fnv1.Resource{Resource: s}
	}
	if in.Input != nil {
		if req.Input, err = toStruct(in.Input); err != nil {
			return nil, err
		}
	}
	return req, nil
}

// answer gives every requirement an answer. What does not exist is answered
// with nothing.
func (in Request) answer(asked *fnv1.Requirements) (map[string]*fnv1.Resources, error) {
	answers := map[string]*fnv1.Resources{}
	for name, selector := range asked.GetResources() {
		answers[name] = &fnv1.Resources{}
		for _, o := range in.Required {
			if !selects(selector, o) {
				continue
			}
			s, err := toStruct(o)
			if err != nil {
				return nil, err
			}
			answers[name].Items = append(answers[name].Items, &fnv1.Resource{Resource: s})
		}
	}
	return answers, nil
}

// answerSchemas tells which kinds there are. Of their schemas nobody wants to
// know anything.
func (in Request) answerSchemas(asked *fnv1.Requirements) (map[string]*fnv1.Schema, error) {
	answers := map[string]*fnv1.Schema{}
	for name, selector := range asked.GetSchemas() {
		answers[name] = &fnv1.Schema{}
		if in.Lacks[selector.GetKind()] {
			continue
		}
		var err error
		if answers[name].OpenapiV3, err = structpb.NewStruct(map[string]any{"type": "object"}); err != nil {
			return nil, errors.Wrap(err, "cannot encode a schema")
		}
	}
	return answers, nil
}

func selects(s *fnv1.ResourceSelector, o *unstructured.Unstructured) bool {
	if s.GetApiVersion() != o.GetAPIVersion() || s.GetKind() != o.GetKind() {
		return false
	}
	if s.Namespace != nil && s.GetNamespace() != o.GetNamespace() {
		return false
	}
	if m := s.GetMatchLabels(); m != nil {
		return len(m.GetLabels()) > 0 && containsAll(o.GetLabels(), m.GetLabels())
	}
	return s.GetMatchName() == o.GetName()
}

func containsAll(have, want map[string]string) bool {
	for k, v := range want {
		if have[k] != v {
			return false
		}
	}
	return true
}

func toStruct(o *unstructured.Unstructured) (*structpb.Struct, error) {
	s, err := structpb.NewStruct(o.Object)
	return s, errors.Wrapf(err, "cannot encode %s %q", o.GetKind(), o.GetName())
}

// Composed returns the objects that Crossplane would apply, sorted by key, as
// far as the response tells: with the annotation that Crossplane adds, and in
// the composite resource's namespace.
func Composed(composite *unstructured.Unstructured, rsp *fnv1.RunFunctionResponse) []*unstructured.Unstructured {
	resources := rsp.GetDesired().GetResources()
	out := make([]*unstructured.Unstructured, 0, len(resources))
	for _, key := range slices.Sorted(maps.Keys(resources)) {
		o := &unstructured.Unstructured{Object: resources[key].GetResource().AsMap()}
		if ns := composite.GetNamespace(); ns != "" {
			o.SetNamespace(ns)
		}
		annotations := o.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[AnnotationKey] = key
		o.SetAnnotations(annotations)
		out = append(out, o)
	}
	return out
}
