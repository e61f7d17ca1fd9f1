package render

import (
	"maps"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
)

// podMonitor tells the Prometheus operator to collect the gateway's metrics. It
// has few fields and its Go types many dependencies, so it is written out.
func podMonitor(g *plan.Gateway) *unstructured.Unstructured {
	m := meta(g, names.Workload(g.Name))
	labels := maps.Clone(g.PodMonitor.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, m.Labels)
	m.Labels = labels

	o := &unstructured.Unstructured{Object: map[string]any{
		"spec": map[string]any{
			"selector": map[string]any{"matchLabels": anyMap(names.Selector(g.Name))},
			"podMetricsEndpoints": []any{map[string]any{
				"port":     spec.PortNameHTTP,
				"path":     "/metrics",
				"interval": g.PodMonitor.Interval,
				// Alerts and dashboard tell gateways apart by it.
				"relabelings": []any{map[string]any{
					"action":       "replace",
					"sourceLabels": []any{"__meta_kubernetes_pod_label_wireguardgateway_io_gateway"},
					"targetLabel":  "gateway",
				}},
			}},
		},
	}}
	setMeta(o, m)
	return o
}
