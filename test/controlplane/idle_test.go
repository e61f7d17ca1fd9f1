package controlplane

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/crossplane/function-sdk-go/logging"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/structpb"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wireguardgateway/function-wireguard-gateway/fn"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/test/controlplane/harness"
)

// waitQuiet waits until Crossplane has nothing to do.
func waitQuiet(t *testing.T, c *harness.Cluster) harness.Metrics {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	m, err := c.WaitQuiet(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// idle are figures of a time in which nobody asked for a change.
type idle struct {
	reconciles int
	objects    int
	applies    int // of composed objects
	xrWrites   int // requests that left the composite resource as it was
	events     int
}

func (i idle) String() string {
	return fmt.Sprintf("%d reconciles of %d objects: %d applies and no change; %d requests on the composite resource that changed nothing; %d requests on events",
		i.reconciles, i.objects, i.applies, i.xrWrites, i.events)
}

// checkIdle forces reconciles, and returns an error where one of them changed
// anything, or asked the API server for more than one apply per object.
func (g *gateway) checkIdle(reconciles int) (idle, error) {
	g.t.Helper()
	g.waitQuiet()
	objects := g.composed()
	mark := g.mark()
	version := ""
	for range reconciles {
		g.poke()
		version = g.get().GetResourceVersion()
		ctx, cancel := context.WithTimeout(g.t.Context(), 10*time.Second)
		err := g.c.WaitQuietIn(ctx, g.namespace)
		cancel()
		if err != nil {
			return idle{}, fmt.Errorf("Crossplane does not come to rest: %w", err)
		}
	}
	var errs []error
	if now := g.get().GetResourceVersion(); now != version {
		errs = append(errs, fmt.Errorf("the composite resource changed after the last reconcile"))
	}
	now := g.composed()
	for key, o := range objects {
		if diff := cmp.Diff(identity(o), identity(now[key])); diff != "" {
			errs = append(errs, fmt.Errorf("%s changed:\n%s", key, diff))
		}
	}
	writes, err := g.c.Writes(mark)
	if err != nil {
		return idle{}, err
	}
	refs, _, err := g.reconciles(mark)
	if err != nil {
		return idle{}, err
	}
	figures := idle{reconciles: refs, objects: len(objects)}
	counts := map[string]int{}
	for _, w := range writes {
		switch {
		case w.Namespace != g.namespace:
		case w.Resource == "events":
			figures.events++
		case w.Resource == "wireguardgateways":
			figures.xrWrites++
		case w.Verb == "patch" && w.Subresource == "":
			figures.applies++
			counts[w.Object()]++
		default:
			errs = append(errs, fmt.Errorf("a write that is no apply: %s %s", w.Verb, w.Object()))
		}
	}
	for object, n := range counts {
		if n > figures.reconciles {
			errs = append(errs, fmt.Errorf("%d applies of %s in %d reconciles", n, object, figures.reconciles))
		}
	}
	return figures, errors.Join(errs...)
}

// identity is what an object that nobody changes keeps.
func identity(o *unstructured.Unstructured) map[string]any {
	if o == nil {
		return nil
	}
	return map[string]any{
		"uid": o.GetUID(), "resourceVersion": o.GetResourceVersion(), "generation": o.GetGeneration(), "managedFields": o.GetManagedFields(),
	}
}

func TestIdle(t *testing.T) {
	c := shared(t)
	for _, name := range []string{"minimal", "full", "udproute", "gluetun"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, c, example(t, c, name))
			g.waitReady()
			figures, err := g.checkIdle(5)
			if err != nil {
				t.Error(err)
			}
			t.Log(figures)
		})
	}
}

// wasteful is a function that composes one field of the Deployment anew for a
// reason that is none.
type wasteful struct {
	fnv1.UnimplementedFunctionRunnerServiceServer

	function *fn.Function
	value    func(*fnv1.RunFunctionRequest) string
}

func (w *wasteful) RunFunction(ctx context.Context, req *fnv1.RunFunctionRequest) (*fnv1.RunFunctionResponse, error) {
	rsp, err := w.function.RunFunction(ctx, req)
	d := rsp.GetDesired().GetResources()[names.KeyDeployment].GetResource()
	if err != nil || d == nil {
		return rsp, err
	}
	metadata := d.GetFields()["metadata"].GetStructValue()
	metadata.Fields["annotations"] = structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
		"example.com/wasted": structpb.NewStringValue(w.value(req)),
	}})
	return rsp, nil
}

// TestIdleSeesWaste proves that the check above fails where it should.
func TestIdleSeesWaste(t *testing.T) {
	c := shared(t)
	calls := atomic.Int64{}
	for name, tc := range map[string]struct {
		value func(*fnv1.RunFunctionRequest) string
		want  string
	}{
		"a field that flips at every call": {
			value: func(*fnv1.RunFunctionRequest) string { return strconv.FormatInt(calls.Add(1)%2, 10) },
			want:  "does not come to rest",
		},
		"a field that changes with each forced reconcile": {
			value: func(req *fnv1.RunFunctionRequest) string {
				m := req.GetObserved().GetComposite().GetResource().GetFields()["metadata"].GetStructValue()
				return m.GetFields()["annotations"].GetStructValue().GetFields()["example.com/poke"].GetStringValue()
			},
			want: names.KeyDeployment + " changed",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGateway(t, c, example(t, c, "minimal"))
			g.waitReady()
			g.waitQuiet()
			c.ReplaceFunction(t, &wasteful{function: fn.New(logging.NewNopLogger()), value: tc.value})
			_, err := g.checkIdle(2)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("want an error with %q, got %v", tc.want, err)
			}
			t.Log(err)
		})
	}
}
