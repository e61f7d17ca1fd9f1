package offline

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"github.com/crossplane/function-sdk-go/response"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// function is one that does what a test says.
type function struct {
	fnv1.UnimplementedFunctionRunnerServiceServer

	run func(req *fnv1.RunFunctionRequest) *fnv1.RunFunctionResponse
}

func fake(run func(req *fnv1.RunFunctionRequest) *fnv1.RunFunctionResponse) function {
	return function{run: run}
}

func (f function) RunFunction(_ context.Context, req *fnv1.RunFunctionRequest) (*fnv1.RunFunctionResponse, error) {
	return f.run(req), nil
}

func object(kind, namespace, name string, labels map[string]string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": kind}}
	o.SetName(name)
	if namespace != "" {
		o.SetNamespace(namespace)
	}
	if labels != nil {
		o.SetLabels(labels)
	}
	return o
}

func byName(kind, namespace, name string) *fnv1.ResourceSelector {
	s := &fnv1.ResourceSelector{ApiVersion: "v1", Kind: kind, Match: &fnv1.ResourceSelector_MatchName{MatchName: name}}
	if namespace != "" {
		s.Namespace = &namespace
	}
	return s
}

func byLabels(kind string, labels map[string]string) *fnv1.ResourceSelector {
	return &fnv1.ResourceSelector{ApiVersion: "v1", Kind: kind, Match: &fnv1.ResourceSelector_MatchLabels{MatchLabels: &fnv1.MatchLabels{Labels: labels}}}
}

func TestRunAnswers(t *testing.T) {
	in := Request{
		Composite: object("WireguardGateway", "vpn", "home", nil),
		Required: []*unstructured.Unstructured{
			object("Secret", "vpn", "a", nil),
			object("Secret", "apps", "a", nil),
			object("Node", "", "n1", map[string]string{"os": "linux"}),
			object("Node", "", "n2", map[string]string{"os": "linux", "zone": "a"}),
			object("Node", "", "n3", nil),
		},
	}
	asked := &fnv1.Requirements{Resources: map[string]*fnv1.ResourceSelector{
		"own":      byName("Secret", "vpn", "a"),
		"missing":  byName("Secret", "vpn", "b"),
		"kind":     byName("ConfigMap", "vpn", "a"),
		"anywhere": byName("Secret", "", "a"),
		"nodes":    byLabels("Node", map[string]string{"os": "linux"}),
		"none":     byLabels("Node", map[string]string{"os": "plan9"}),
		"empty":    byLabels("Node", nil),
	}}
	want := map[string]string{"own": "vpn/a", "missing": "", "kind": "", "anywhere": "vpn/a apps/a", "nodes": "/n1 /n2", "none": "", "empty": ""}
	runs := 0
	_, err := Run(t.Context(), fake(func(req *fnv1.RunFunctionRequest) *fnv1.RunFunctionResponse {
		runs++
		rsp := response.To(req, response.DefaultTTL)
		rsp.Requirements = asked
		if runs == 1 {
			if len(req.GetRequiredResources()) > 0 {
				t.Error("want nothing answered before it is asked")
			}
			return rsp
		}
		got := map[string]string{}
		for name, rs := range req.GetRequiredResources() {
			var ids []string
			for _, r := range rs.GetItems() {
				o := unstructured.Unstructured{Object: r.GetResource().AsMap()}
				ids = append(ids, o.GetNamespace()+"/"+o.GetName())
			}
			got[name] = strings.Join(ids, " ")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("-want, +got:\n%s", diff)
		}
		return rsp
	}), in)
	if err != nil || runs != 2 {
		t.Errorf("want two runs, got %d, error %v", runs, err)
	}
}

// TestRunEnds: a Fatal ends the loop, and so does asking for ever.
func TestRunEnds(t *testing.T) {
	in := Request{Composite: object("WireguardGateway", "vpn", "home", nil)}
	runs := 0
	rsp, err := Run(t.Context(), fake(func(req *fnv1.RunFunctionRequest) *fnv1.RunFunctionResponse {
		runs++
		rsp := response.To(req, response.DefaultTTL)
		rsp.Requirements = &fnv1.Requirements{Resources: map[string]*fnv1.ResourceSelector{"a": byName("Secret", "vpn", "a")}}
		response.Fatal(rsp, fmt.Errorf("no"))
		return rsp
	}), in)
	if err != nil || runs != 1 || len(rsp.GetResults()) != 1 {
		t.Errorf("want one run and its Fatal, got %d runs, %v, error %v", runs, rsp.GetResults(), err)
	}

	_, err = Run(t.Context(), fake(func(req *fnv1.RunFunctionRequest) *fnv1.RunFunctionResponse {
		runs++
		rsp := response.To(req, response.DefaultTTL)
		rsp.Requirements = &fnv1.Requirements{Resources: map[string]*fnv1.ResourceSelector{"a": byName("Secret", "vpn", fmt.Sprint(runs))}}
		return rsp
	}), in)
	if err == nil || !strings.Contains(err.Error(), "did not settle") {
		t.Errorf("want an error of requirements that do not settle, got %v", err)
	}
}

func TestComposed(t *testing.T) {
	s, err := structpb.NewStruct(map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "a", "namespace": "claim"}})
	if err != nil {
		t.Fatal(err)
	}
	rsp := &fnv1.RunFunctionResponse{Desired: &fnv1.State{Resources: map[string]*fnv1.Resource{"b": {Resource: s}, "a": {Resource: s}}}}
	for namespace, want := range map[string]string{"vpn": "vpn", "": "claim"} {
		var got []string
		for _, o := range Composed(object("WireguardGateway", namespace, "home", nil), rsp) {
			got = append(got, o.GetNamespace()+"/"+o.GetAnnotations()[AnnotationKey])
		}
		if diff := cmp.Diff([]string{want + "/a", want + "/b"}, got); diff != "" {
			t.Errorf("-want, +got:\n%s", diff)
		}
	}
}

func TestReadObjects(t *testing.T) {
	cases := map[string]struct {
		reason, text string
		want         []string // names
		fails        bool
	}{
		"One":      {"A file may hold one object.", "kind: A\nmetadata: {name: a}\n", []string{"a"}, false},
		"Many":     {"And many.", "---\nkind: A\nmetadata: {name: a}\n---\nkind: A\nmetadata: {name: b}\n", []string{"a", "b"}, false},
		"List":     {"The items of a List stand alone.", "kind: List\napiVersion: v1\nitems:\n- {kind: A, metadata: {name: a}}\n- {kind: A, metadata: {name: b}}\n", []string{"a", "b"}, false},
		"Comments": {"A document of comments is none.", "# nothing\n---\nkind: A\nmetadata: {name: a}\n---\n# nothing\n", []string{"a"}, false},
		"Empty":    {"Nothing is nothing.", "", nil, false},
		"Broken":   {"Half a document is an error.", "kind: [\n", nil, true},
		"Scalar":   {"A word is no object.", "hello\n", nil, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "objects.yaml")
			if err := os.WriteFile(file, []byte(tc.text), 0o600); err != nil {
				t.Fatal(err)
			}
			objects, err := ReadObjects(file)
			if (err != nil) != tc.fails {
				t.Fatalf("%s\nwant an error: %t, got %v", tc.reason, tc.fails, err)
			}
			var got []string
			for _, o := range objects {
				got = append(got, o.GetName())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
