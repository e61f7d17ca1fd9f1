// Package object turns typed Kubernetes objects into what a function returns:
// only fields that we have an opinion on. Crossplane applies them server-side,
// so a field that is there is a field that we own and defend.
package object

import (
	"github.com/crossplane/function-sdk-go/errors"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Encode returns the object without status, nulls and the empty structs that
// the Go types cannot leave out. A meaningful empty object, such as emptyDir or
// a selector that selects all, stays.
//
// The SDK's composed.From is not used for this: it drops the meaningful ones,
// and keeps zeros that nobody asked for.
func Encode(o runtime.Object, gvk schema.GroupVersionKind) (*structpb.Struct, error) {
	m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return nil, errors.Wrapf(err, "cannot convert %s", gvk.Kind)
	}
	m["apiVersion"], m["kind"] = gvk.GroupVersion().String(), gvk.Kind
	delete(m, "status")
	clean(m)
	s, err := structpb.NewStruct(m)
	return s, errors.Wrapf(err, "cannot encode %s", gvk.Kind)
}

// unopinionated are fields whose Go types are structs without omitempty, or
// with one that does nothing: empty, they say nothing.
var unopinionated = map[string]bool{
	"resources":         true, // of a container
	"strategy":          true, // of a Deployment
	"creationTimestamp": true,
}

func clean(v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, f := range v {
			if f == nil {
				delete(v, k)
				continue
			}
			if m, ok := f.(map[string]any); ok && len(m) == 0 && unopinionated[k] {
				delete(v, k)
				continue
			}
			clean(f)
		}
	case []any:
		for _, f := range v {
			clean(f)
		}
	}
}

// Decode reads an object that was observed. It accepts unknown fields: a newer
// API server may have more than we know.
func Decode(s *structpb.Struct, into any) error {
	return errors.Wrap(runtime.DefaultUnstructuredConverter.FromUnstructured(s.AsMap(), into), "cannot decode object")
}
