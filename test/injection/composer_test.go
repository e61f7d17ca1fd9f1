package injection

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/crossplane/function-sdk-go/logging"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/wireguardgateway/function-wireguard-gateway/fn"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/offline"
)

// composer does what Crossplane does with the function, in this process: it
// runs it for every composite resource and applies what it returns to the real
// API server, as Crossplane does, with owners. That Crossplane itself does so is
// for the tests of the control plane; without it, this world starts in seconds,
// and nothing but what is tested here can be late.
type composer struct {
	client     client.Client
	function   fnv1.FunctionRunnerServiceServer
	input      *unstructured.Unstructured
	composites []*unstructured.Unstructured
	// others are objects that the function asks for, and does not compose.
	others []*unstructured.Unstructured
	// composed are references to objects, by their composite resource.
	composed map[types.UID][]*unstructured.Unstructured
}

func newComposer(c client.Client, input string) (*composer, error) {
	in, err := object(input)
	return &composer{client: c, function: fn.New(logging.NewNopLogger()), input: in, composed: map[types.UID][]*unstructured.Unstructured{}}, err
}

func object(text string) (*unstructured.Unstructured, error) {
	o := &unstructured.Unstructured{}
	err := yaml.Unmarshal([]byte(text), &o.Object)
	return o, err
}

// set creates or changes composite resources, and settles.
func (c *composer) set(ctx context.Context, texts ...string) error {
	for _, text := range texts {
		o, err := object(text)
		if err != nil {
			return err
		}
		same := func(e *unstructured.Unstructured) bool {
			return e.GetKind() == o.GetKind() && e.GetNamespace() == o.GetNamespace() && e.GetName() == o.GetName()
		}
		if i := slices.IndexFunc(c.composites, same); i >= 0 {
			c.composites[i].Object["spec"] = o.Object["spec"]
			continue
		}
		o.SetUID(types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", len(c.composites)+1)))
		c.composites = append(c.composites, o)
	}
	return c.settle(ctx)
}

// settle reconciles until nothing changes.
func (c *composer) settle(ctx context.Context) error {
	for range 10 {
		changed := false
		for _, xr := range c.composites {
			did, err := c.reconcile(ctx, xr)
			if err != nil {
				return fmt.Errorf("%s %s: %w", xr.GetKind(), xr.GetName(), err)
			}
			changed = changed || did
		}
		if !changed {
			return nil
		}
	}
	return fmt.Errorf("the composite resources do not settle")
}

// reconcile runs the function once, and tells whether anything has changed.
func (c *composer) reconcile(ctx context.Context, xr *unstructured.Unstructured) (bool, error) {
	required, err := c.world(ctx)
	if err != nil {
		return false, err
	}
	var observed []*unstructured.Unstructured
	for _, o := range required {
		if metav1.IsControlledBy(o, xr) {
			observed = append(observed, o)
		}
	}
	rsp, err := offline.Run(ctx, c.function, offline.Request{Composite: xr, Observed: observed, Required: required, Input: c.input})
	if err != nil {
		return false, err
	}
	for _, r := range rsp.GetResults() {
		if r.GetSeverity() == fnv1.Severity_SEVERITY_FATAL {
			return false, fmt.Errorf("%s", r.GetMessage())
		}
	}
	status := rsp.GetDesired().GetComposite().GetResource().AsMap()["status"]
	changed := !cmp.Equal(xr.Object["status"], status)
	xr.Object["status"] = status
	xr.Object["conditions"] = conditions(rsp)
	desired := offline.Composed(xr, rsp)
	for _, o := range desired {
		owner := metav1.NewControllerRef(xr, xr.GroupVersionKind())
		o.SetOwnerReferences([]metav1.OwnerReference{*owner})
		before := find(observed, o)
		if err := c.client.Patch(ctx, o, client.Apply, client.FieldOwner("crossplane"), client.ForceOwnership); err != nil { //nolint:staticcheck // Takes any object.
			return false, err
		}
		changed = changed || before == nil || before.GetResourceVersion() != o.GetResourceVersion()
	}
	for _, o := range observed {
		if find(desired, o) == nil {
			if err := c.client.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
				return false, err
			}
			changed = true
		}
	}
	c.composed[xr.GetUID()] = desired
	return changed, nil
}

// conditions are what the function says of a composite resource.
func conditions(rsp *fnv1.RunFunctionResponse) map[string]any {
	out := map[string]any{}
	for _, c := range rsp.GetConditions() {
		status := strings.TrimPrefix(c.GetStatus().String(), "STATUS_CONDITION_")
		out[c.GetType()] = fmt.Sprintf("%s %s %s", status, c.GetReason(), c.GetMessage())
	}
	return out
}

func find(in []*unstructured.Unstructured, o *unstructured.Unstructured) *unstructured.Unstructured {
	i := slices.IndexFunc(in, func(e *unstructured.Unstructured) bool {
		return e.GroupVersionKind() == o.GroupVersionKind() && e.GetNamespace() == o.GetNamespace() && e.GetName() == o.GetName()
	})
	if i < 0 {
		return nil
	}
	return in[i]
}

// world returns all that the function could ask for: the composite resources,
// what they have composed, and others.
func (c *composer) world(ctx context.Context) ([]*unstructured.Unstructured, error) {
	out := slices.Concat(c.composites, c.others)
	for _, xr := range c.composites {
		for _, composed := range c.composed[xr.GetUID()] {
			o := &unstructured.Unstructured{}
			o.SetGroupVersionKind(composed.GroupVersionKind())
			err := c.client.Get(ctx, client.ObjectKeyFromObject(composed), o)
			if apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return nil, err
			}
			out = append(out, o)
		}
	}
	return out, nil
}

// condition returns what a composite resource says.
func (c *composer) condition(kind, name, condition string) string {
	for _, xr := range c.composites {
		if xr.GetKind() == kind && xr.GetName() == name {
			s, _, _ := unstructured.NestedString(xr.Object, "conditions", condition)
			return s
		}
	}
	return ""
}

// ensure creates an object unless it is there.
func ensure(ctx context.Context, c client.Client, objects ...client.Object) error {
	for _, o := range objects {
		if err := c.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	return nil
}

// namespaced creates a namespace, and what controllers put into it.
func (w *world) namespaced(ctx context.Context, names ...string) error {
	for _, name := range names {
		if err := ensure(ctx, w.Client,
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}},
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "default"}},
		); err != nil {
			return err
		}
	}
	return nil
}

// secret returns a value of a Secret.
func (w *world) secret(ctx context.Context, namespace, name, key string) (string, error) {
	s := &corev1.Secret{}
	err := w.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, s)
	return string(s.Data[key]), err
}
