package render_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/offline"
)

func keysOf[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// reconciled returns the request that Crossplane would make after a run: what
// was desired is observed now, with all that API server and controllers add,
// and the composite resource has its status.
func reconciled(tb testing.TB, o outcome) *fnv1.RunFunctionRequest {
	tb.Helper()
	req := proto.CloneOf(o.req)
	if status := o.rsp.GetDesired().GetComposite().GetResource().GetFields()["status"]; status != nil {
		fields := req.GetObserved().GetComposite().GetResource().GetFields()
		fields["status"] = proto.CloneOf(status)
		st := fields["status"].GetStructValue().GetFields()
		if st == nil { // An empty status has no map to write into.
			st = map[string]*structpb.Value{}
			fields["status"].GetStructValue().Fields = st
		}
		st["conditions"] = toValue(tb, conditionsOf(o.rsp))
		// What Crossplane adds by itself.
		st["crossplane"] = toValue(tb, map[string]any{"lastHandledReconcileAt": "never"})
	}

	before := req.GetObserved().GetResources()
	req.Observed.Resources = map[string]*fnv1.Resource{}
	for key, r := range o.rsp.GetDesired().GetResources() {
		req.Observed.Resources[key] = &fnv1.Resource{Resource: applied(tb, o, key, r.GetResource(), before[key].GetResource())}
	}
	// Required objects are what is composed, where they have its name.
	for name, s := range o.rsp.GetRequirements().GetResources() {
		for _, r := range req.GetObserved().GetResources() {
			fields := r.GetResource().GetFields()
			if fields["kind"].GetStringValue() == s.GetKind() && metadata(r.GetResource())["name"].GetStringValue() == s.GetMatchName() && s.GetMatchName() != "" {
				req.RequiredResources[name] = &fnv1.Resources{Items: []*fnv1.Resource{proto.CloneOf(r)}}
			}
		}
	}
	return req
}

func metadata(s *structpb.Struct) map[string]*structpb.Value {
	return s.GetFields()["metadata"].GetStructValue().GetFields()
}

func conditionsOf(rsp *fnv1.RunFunctionResponse) []any {
	var out []any
	for _, c := range rsp.GetConditions() {
		out = append(out, map[string]any{"type": c.GetType(), "reason": c.GetReason(), "message": c.GetMessage(), "lastTransitionTime": "2026-06-01T12:00:00Z"})
	}
	return out
}

// applied returns an object as it stands in a cluster.
func applied(tb testing.TB, o outcome, key string, desired, before *structpb.Struct) *structpb.Struct {
	tb.Helper()
	obj := clone(tb, desired.AsMap())
	composite := o.req.GetObserved().GetComposite().GetResource()
	meta := obj["metadata"].(map[string]any)
	if ns := metadata(composite)["namespace"].GetStringValue(); ns != "" {
		meta["namespace"] = ns
	}
	annotations, _ := meta["annotations"].(map[string]any)
	if annotations == nil {
		annotations = map[string]any{}
		meta["annotations"] = annotations
	}
	annotations[offline.AnnotationKey] = key
	meta["uid"] = "7a1c9f5e-2b0d-4c6e-9a53-0d7d4a1f6b11"
	meta["resourceVersion"] = "4711"
	meta["generation"] = 3
	meta["creationTimestamp"] = "2026-05-01T00:00:00Z"
	meta["ownerReferences"] = []any{map[string]any{"apiVersion": composite.GetFields()["apiVersion"].GetStringValue(), "kind": composite.GetFields()["kind"].GetStringValue(), "name": metadata(composite)["name"].GetStringValue(), "uid": "1", "controller": true}}
	meta["managedFields"] = []any{map[string]any{"manager": "apiextensions.crossplane.io/composed", "operation": "Apply", "apiVersion": "v1", "time": "2026-05-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": map[string]any{"f:data": map[string]any{}}}}

	spec, _ := obj["spec"].(map[string]any)
	switch obj["kind"] {
	case "Deployment":
		spec["progressDeadlineSeconds"], spec["revisionHistoryLimit"] = 600, 10
		annotations["deployment.kubernetes.io/revision"] = "1"
		obj["status"] = map[string]any{"observedGeneration": 3, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1}
	case "Service":
		spec["clusterIP"], spec["sessionAffinity"], spec["internalTrafficPolicy"] = "10.43.7.7", "None", "Cluster"
		for i, p := range spec["ports"].([]any) {
			if p := p.(map[string]any); spec["type"] != "ClusterIP" && p["nodePort"] == nil {
				p["nodePort"] = 30123 + i
			}
		}
		obj["status"] = map[string]any{"loadBalancer": map[string]any{}}
	case "ConfigMap":
		// The agent's report, from its own field manager.
		obj["data"] = map[string]any{"report.json": `{"version":1,"configHash":"0123456789abcdef","ready":true}`}
	}
	// What controllers said before they say again.
	if s := before.GetFields()["status"]; s != nil {
		obj["status"] = clone(tb, s.AsInterface())
	}
	s, err := structpb.NewStruct(clone(tb, obj))
	if err != nil {
		tb.Fatal(fmt.Errorf("%s: %w", key, err))
	}
	return s
}

func toValue(tb testing.TB, v any) *structpb.Value {
	tb.Helper()
	out, err := structpb.NewValue(clone(tb, v))
	if err != nil {
		tb.Fatal(err)
	}
	return out
}
