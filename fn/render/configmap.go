package render

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
)

// statusConfigMap is where the agent reports. It is composed without data,
// which is the agent's.
func statusConfigMap(g *plan.Gateway) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: meta(g, names.Status(g.Name))}
}
