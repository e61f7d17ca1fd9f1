package harness

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// LoadBalancerAddress is what every load balancer is given.
const LoadBalancerAddress = "203.0.113.10"

// roles are played for every object of a kind, whenever it changes.
var roles = map[schema.GroupVersionKind]func(*unstructured.Unstructured) map[string]any{
	{Group: "apps", Version: "v1", Kind: "Deployment"}:                     availableDeployment,
	{Version: "v1", Kind: "Service"}:                                       balancedService,
	{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "HTTPRoute"}: acceptedRoute,
	{Group: "gateway.networking.k8s.io", Version: "v1", Kind: "UDPRoute"}:  acceptedRoute,
}

// Unplayed begins the names of namespaces in which nothing is played.
const Unplayed = "unplayed-"

// Play plays, until the context ends, the controllers that a cluster has and
// this one lacks: pods of Deployments become available, load balancers get an
// address, and Gateways accept routes.
func (c *Cluster) Play(ctx context.Context) error {
	w, err := client.NewWithWatch(c.Config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return err
	}
	for gvk, role := range roles {
		go c.playKind(ctx, w, gvk, role)
	}
	return nil
}

func (c *Cluster) playKind(ctx context.Context, w client.WithWatch, gvk schema.GroupVersionKind, role func(*unstructured.Unstructured) map[string]any) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk)
	for ctx.Err() == nil {
		// A watch from nowhere begins with what is there.
		events, err := w.Watch(ctx, list)
		if err != nil {
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
			continue
		}
		for e := range events.ResultChan() {
			o, ok := e.Object.(*unstructured.Unstructured)
			if !ok || o.GetKind() != gvk.Kind || o.GetDeletionTimestamp() != nil || strings.HasPrefix(o.GetNamespace(), Unplayed) {
				continue
			}
			if status := role(o); status != nil {
				o.Object["status"] = status
				// On a conflict there is a further event.
				_ = c.Client.Status().Update(ctx, o)
			}
		}
	}
}

// availableDeployment is the status of a Deployment whose pods run, nil where it
// is that already.
func availableDeployment(o *unstructured.Unstructured) map[string]any {
	seen, _, _ := unstructured.NestedInt64(o.Object, "status", "observedGeneration")
	available, _, _ := unstructured.NestedInt64(o.Object, "status", "availableReplicas")
	replicas, _, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
	if seen == o.GetGeneration() && available == replicas {
		return nil
	}
	return map[string]any{
		"observedGeneration": o.GetGeneration(),
		"replicas":           replicas, "updatedReplicas": replicas, "readyReplicas": replicas, "availableReplicas": replicas,
		"conditions": []any{map[string]any{
			"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable", "message": "played",
			"lastTransitionTime": "2026-01-01T00:00:00Z", "lastUpdateTime": "2026-01-01T00:00:00Z",
		}},
	}
}

// balancedService is the status of a Service whose load balancer has an address,
// or of one that has none any more.
func balancedService(o *unstructured.Unstructured) map[string]any {
	kind, _, _ := unstructured.NestedString(o.Object, "spec", "type")
	ingress, _, _ := unstructured.NestedSlice(o.Object, "status", "loadBalancer", "ingress")
	switch wanted := kind == "LoadBalancer"; {
	case wanted && len(ingress) == 0:
		return map[string]any{"loadBalancer": map[string]any{"ingress": []any{map[string]any{"ip": LoadBalancerAddress}}}}
	case !wanted && len(ingress) > 0:
		return map[string]any{"loadBalancer": map[string]any{}}
	default:
		return nil
	}
}

// acceptedRoute is the status of a route that all its parents serve.
func acceptedRoute(o *unstructured.Unstructured) map[string]any {
	refs, _, _ := unstructured.NestedSlice(o.Object, "spec", "parentRefs")
	parents, _, _ := unstructured.NestedSlice(o.Object, "status", "parents")
	if len(parents) == len(refs) && fmt.Sprint(observedGenerations(parents)) == fmt.Sprint([]int64{o.GetGeneration()}) {
		return nil
	}
	parents = nil
	for _, ref := range refs {
		var conditions []any
		for _, kind := range []string{"Accepted", "ResolvedRefs"} {
			conditions = append(conditions, map[string]any{
				"type": kind, "status": "True", "reason": kind, "message": "played",
				"observedGeneration": o.GetGeneration(), "lastTransitionTime": "2026-01-01T00:00:00Z",
			})
		}
		parents = append(parents, map[string]any{
			"parentRef": ref, "controllerName": "example.com/gateway", "conditions": conditions,
		})
	}
	return map[string]any{"parents": parents}
}

// observedGenerations returns the distinct generations of all conditions.
func observedGenerations(parents []any) []int64 {
	var out []int64
	for _, p := range parents {
		conditions, _, _ := unstructured.NestedSlice(p.(map[string]any), "conditions")
		for _, c := range conditions {
			g, _, _ := unstructured.NestedInt64(c.(map[string]any), "observedGeneration")
			if len(out) == 0 || out[len(out)-1] != g {
				out = append(out, g)
			}
		}
	}
	return out
}

// Report plays a gateway's agent: it applies a report to the status ConfigMap as
// the agent does.
func (c *Cluster) Report(ctx context.Context, namespace, gateway string, r wireguard.Report) error {
	b, err := r.Encode()
	if err != nil {
		return err
	}
	m := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap",
		"metadata": map[string]any{"namespace": namespace, "name": gateway + "-wireguard.status"},
		"data":     map[string]any{wireguard.ReportKey: string(b)},
	}}
	return c.Client.Patch(ctx, m, client.Apply, client.FieldOwner(wireguard.ReportFieldManager), client.ForceOwnership) //nolint:staticcheck // Takes any object.
}
