package render_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"
)

// TestHeals: an object that somebody deleted or changed is desired as it was,
// so that Crossplane puts it back.
func TestHeals(t *testing.T) {
	for name, before := range steadyCases(t) {
		t.Run(name, func(t *testing.T) {
			req := reconciled(t, before)
			for _, key := range keysOf(req.GetObserved().GetResources()) {
				// What the seed was nobody else knows, and the node port was given.
				kind := req.GetObserved().GetResources()[key].GetResource().GetFields()["kind"].GetStringValue()
				if key == "seed" || (key == "service" && (name == "node-port" || name == "node-port-pending" || name == "load-balancer-ip" || name == "load-balancer-hostname")) {
					continue
				}
				gone := proto.CloneOf(req)
				delete(gone.GetObserved().GetResources(), key)
				same(t, key+" is gone", before, again(t, gone))

				changed := proto.CloneOf(req)
				fields := changed.GetObserved().GetResources()[key].GetResource().GetFields()
				delete(at(fields, "metadata"), "labels")
				if kind == "Deployment" {
					spec := at(fields, "spec")
					spec["replicas"] = structpb.NewNumberValue(0)
					at(spec, "template", "spec")["hostNetwork"] = structpb.NewBoolValue(true)
					double(at(spec, "template", "spec")["containers"])
				}
				if kind == "Role" {
					delete(fields, "rules")
				}
				same(t, key+" was changed", before, again(t, changed))
			}
		})
	}
}

// same compares objects, whatever their readiness.
func same(t *testing.T, what string, before, after outcome) {
	t.Helper()
	if after.fatal() {
		t.Errorf("%s: %v", what, after.rsp.GetResults())
		return
	}
	for _, key := range keysOf(before.rsp.GetDesired().GetResources()) {
		if diff := cmp.Diff(before.rsp.GetDesired().GetResources()[key].GetResource(), after.rsp.GetDesired().GetResources()[key].GetResource(), protocmp.Transform()); diff != "" {
			t.Errorf("%s: %s changes: -before, +after:\n%s", what, key, diff)
		}
	}
}
