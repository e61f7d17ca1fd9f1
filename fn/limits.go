package fn

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/render"
)

// checkConfigSize refuses a gateway whose configuration no Secret can hold: the
// API server would refuse it, and every peer would wait for it in vain.
func checkConfigSize(objects []render.Composed, peers int) error {
	for _, o := range objects {
		s, ok := o.Object.(*corev1.Secret)
		if !ok || o.Key != names.KeyConfig {
			continue
		}
		size := 0
		for _, v := range s.Data {
			size += len(v)
		}
		if size > corev1.MaxSecretSize {
			return &plan.ConditionError{Condition: conditionSpecValid, Reason: reasonTooLarge, Message: fmt.Sprintf(
				"spec.peers: Too many: the configuration of %d peers is %d bytes, and a Secret holds %d: move some peers to another gateway, or shorten their access rules and routes",
				peers, size, corev1.MaxSecretSize)}
		}
	}
	return nil
}
