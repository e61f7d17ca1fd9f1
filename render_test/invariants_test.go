package render_test

import (
	"bytes"
	"maps"
	"strings"
	"testing"

	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protopath"
	"google.golang.org/protobuf/reflect/protorange"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/testing/protocmp"
	"google.golang.org/protobuf/types/known/structpb"
)

// report makes errors of violations.
func report(t *testing.T, name string, violations []string) {
	t.Helper()
	for _, v := range violations {
		t.Errorf("invariant %s: %s", name, v)
	}
}

// TestInvariants checks all that one response tells: on the first run, before
// the requirements are answered, and in the steady state.
func TestInvariants(t *testing.T) {
	for _, c := range cases(t) {
		t.Run(c.name, func(t *testing.T) {
			first := c.run(t)
			unanswered := proto.CloneOf(first.req)
			unanswered.RequiredResources = nil
			runs := map[string]outcome{"first": first, "unanswered": again(t, unanswered), "among others": again(t, withEarlier(t, first.req))}
			if !first.fatal() {
				runs["steady"] = again(t, reconciled(t, first))
			}
			for run, o := range runs {
				for _, name := range keysOf(checkers) {
					report(t, name+", "+run, checkers[name](t, o))
				}
			}
		})
	}
}

// withEarlier returns a request in a pipeline where other functions came first.
func withEarlier(tb testing.TB, req *fnv1.RunFunctionRequest) *fnv1.RunFunctionRequest {
	tb.Helper()
	req = proto.CloneOf(req)
	bucket, err := structpb.NewStruct(map[string]any{"apiVersion": "example.com/v1", "kind": "Bucket", "metadata": map[string]any{"name": "earlier"}, "spec": map[string]any{}})
	if err != nil {
		tb.Fatal(err)
	}
	status, err := structpb.NewStruct(map[string]any{"status": map[string]any{"bucket": "earlier"}})
	if err != nil {
		tb.Fatal(err)
	}
	req.Desired = &fnv1.State{
		Composite: &fnv1.Resource{Resource: status},
		Resources: map[string]*fnv1.Resource{"bucket": {Resource: bucket, Ready: fnv1.Ready_READY_TRUE}},
	}
	req.Context, err = structpb.NewStruct(map[string]any{"example.com/environment": map[string]any{"a": "b"}})
	if err != nil {
		tb.Fatal(err)
	}
	return req
}

// TestPipeline holds that what earlier functions said is passed on.
func TestPipeline(t *testing.T) {
	for _, name := range []string{"steady-state", "invalid"} {
		req := withEarlier(t, caseNamed(t, name).run(t).req)
		o := again(t, req)
		if diff := cmp.Diff(req.GetContext(), o.rsp.GetContext(), protocmp.Transform()); diff != "" {
			t.Errorf("%s: context: -want, +got:\n%s", name, diff)
		}
		if got := statusOf(o.rsp)["bucket"].GetStringValue(); got != "earlier" {
			t.Errorf("%s: the status of an earlier function is lost, got %q", name, got)
		}
	}
}

// TestEmptyOfOthers: what others left empty comes over the wire as a map or a
// list that is nil. Wherever one stands, the function goes on.
func TestEmptyOfOthers(t *testing.T) {
	for _, name := range []string{"steady-state", "attached", "egress-up", "gateway-api", "peer-own-key", "peer-pods-cilium", "peer-rejected"} {
		t.Run(name, func(t *testing.T) {
			req := withEarlier(t, reconciled(t, caseNamed(t, name).run(t)))
			err := protorange.Range(req.ProtoReflect(), func(at protopath.Values) error {
				m, ok := at.Index(-1).Value.Interface().(protoreflect.Message)
				if !ok {
					return nil
				}
				switch v := m.Interface().(type) {
				case *structpb.Struct:
					kept := v.GetFields()
					v.Fields = nil
					survives(t, at.Path, req)
					v.Fields = kept
				case *structpb.ListValue:
					kept := v.GetValues()
					v.Values = nil
					survives(t, at.Path, req)
					v.Values = kept
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

func survives(t *testing.T, without protopath.Path, req *fnv1.RunFunctionRequest) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			t.Errorf("with nothing in %s: %v", without, p)
		}
	}()
	if _, err := newFunction(&bytes.Buffer{}).RunFunction(t.Context(), req); err != nil {
		t.Errorf("with nothing in %s: %v", without, err)
	}
}

// TestDeterministic: the same request at the same time gives the same bytes,
// and the request is left as it was.
func TestDeterministic(t *testing.T) {
	runs := map[string]int{"customised-pod": 200, "steady-state": 1000, "sites": 200}
	for _, c := range cases(t) {
		t.Run(c.name, func(t *testing.T) {
			first := c.run(t)
			want := canonical(t, first.rsp)
			n := runs[c.name]
			if n == 0 {
				n = 20
			}
			if testing.Short() {
				n = min(n, 20)
			}
			for i := range n {
				if got := again(t, first.req); !bytes.Equal(want, canonical(t, got.rsp)) {
					t.Fatalf("run %d differs: -want, +got:\n%s", i, cmp.Diff(first.rsp, got.rsp, protocmp.Transform()))
				}
			}
		})
	}
}

// TestRequestUntouched: what Crossplane sent is not ours to change.
func TestRequestUntouched(t *testing.T) {
	for _, c := range cases(t) {
		t.Run(c.name, func(t *testing.T) {
			req := withEarlier(t, c.run(t).req)
			before := proto.CloneOf(req)
			if _, err := newFunction(&bytes.Buffer{}).RunFunction(t.Context(), req); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, req, protocmp.Transform()); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
}

// TestFixpoint: what was desired, once it is observed, is desired again, and
// nobody hears of it. Twice, since the first pass may learn a node port.
func TestFixpoint(t *testing.T) {
	for _, c := range cases(t) {
		t.Run(c.name, func(t *testing.T) {
			first := c.run(t)
			if first.fatal() {
				return
			}
			// Pods join in the pass after that of their wall.
			if rs := first.rsp.GetDesired().GetResources(); rs["enrolment"] != nil && rs["injection"] == nil {
				first = again(t, reconciled(t, first))
			}
			second := again(t, reconciled(t, first))
			third := again(t, reconciled(t, second))
			fourth := again(t, reconciled(t, third))
			report(t, "2 fixpoint", notFixed(t, second, third))
			if diff := cmp.Diff(third.rsp, fourth.rsp, protocmp.Transform()); diff != "" {
				t.Errorf("it never settles: -want, +got:\n%s", diff)
			}
			// No second-pass change without cause: what was composed at first is
			// what stays, but for endpoints that only then were known.
			for key, r := range first.rsp.GetDesired().GetResources() {
				if kind := r.GetResource().GetFields()["kind"].GetStringValue(); kind == "Secret" && c.name == "node-port-pending" {
					continue
				}
				if diff := cmp.Diff(r.GetResource(), second.rsp.GetDesired().GetResources()[key].GetResource(), protocmp.Transform()); diff != "" && c.name != "node-port" {
					t.Errorf("%s changes in the second pass: -first, +second:\n%s", key, diff)
				}
			}
		})
	}
}

// notFixed tells what changes from one pass to the next.
func notFixed(_ testing.TB, before, after outcome) (bad []string) {
	if diff := cmp.Diff(before.rsp.GetDesired(), after.rsp.GetDesired(), protocmp.Transform()); diff != "" {
		bad = append(bad, "what is desired changes: -before, +after:\n"+diff)
	}
	if diff := cmp.Diff(before.rsp.GetConditions(), after.rsp.GetConditions(), protocmp.Transform()); diff != "" {
		bad = append(bad, "conditions change: -before, +after:\n"+diff)
	}
	for _, r := range after.rsp.GetResults() {
		bad = append(bad, "it says without need: "+r.GetMessage())
	}
	return bad
}

// TestRequirementsAreStable: what a gateway requires depends on the spec alone,
// so that Crossplane answers it in one round. A peer asks for more with each
// answer, and takes nothing back.
func TestRequirementsAreStable(t *testing.T) {
	for _, c := range cases(t) {
		t.Run(c.name, func(t *testing.T) {
			answered := c.run(t)
			unanswered := proto.CloneOf(answered.req)
			unanswered.RequiredResources, unanswered.RequiredSchemas = nil, nil
			o := again(t, unanswered)
			want := answered.rsp.GetRequirements()
			if isPeer(o) {
				want = proto.CloneOf(want)
				maps.DeleteFunc(want.GetResources(), func(key string, _ *fnv1.ResourceSelector) bool { return !strings.HasPrefix(key, "gateway.") })
			}
			if diff := cmp.Diff(want, o.rsp.GetRequirements(), protocmp.Transform()); diff != "" {
				t.Errorf("-answered, +unanswered:\n%s", diff)
			}
			if invalid := o.fatal(); !invalid && len(o.rsp.GetDesired().GetResources()) > 0 {
				t.Error("it composes before it knows what is there")
			}
		})
	}
}

// TestNoFatalBeforeAnswers: a Fatal would end the requirements loop, so none
// may depend on what is not answered yet.
func TestNoFatalBeforeAnswers(t *testing.T) {
	for _, name := range []string{"seed-missing", "seed-mismatch", "seed-malformed", "seed-hidden", "rejections", "seed-brought"} {
		req := proto.CloneOf(caseNamed(t, name).run(t).req)
		full := req.GetRequiredResources()
		for drop := range full {
			req.RequiredResources = map[string]*fnv1.Resources{}
			for k, v := range full {
				if k != drop {
					req.RequiredResources[k] = v
				}
			}
			if o := again(t, req); o.fatal() || len(o.rsp.GetDesired().GetResources()) > 0 {
				t.Errorf("%s: without an answer to %s it must wait, got %v", name, drop, o.rsp.GetResults())
			}
		}
	}
}
