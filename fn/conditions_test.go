package fn

import (
	"strings"
	"testing"
)

// TestEndpointReady tells users who can connect, and by what.
func TestEndpointReady(t *testing.T) {
	for name, tc := range map[string]struct{ spec, want, message string }{
		"Inside": {"service: {type: ClusterIP}", "TRUE InternalOnly", "from within the cluster only"},
		"Tunnel": {"service: {type: ClusterIP}\ntunnel: {}\ngateway: {hostname: vpn.example.com, parentRefs: [{name: public}]}", "TRUE InternalOnly", "by tunnel.conf only"},
		"Host":   {"endpoint: {host: vpn.example.com}", "TRUE Available", ""},
	} {
		t.Run(name, func(t *testing.T) {
			status, reason, message := conditionOf(newWorld(t, tc.spec).reconcile(t), conditionEndpointReady)
			if is := strings.TrimPrefix(status.String(), "STATUS_CONDITION_") + " " + reason; is != tc.want || !strings.Contains(message, tc.message) {
				t.Errorf("want %s with %q, got %s: %s", tc.want, tc.message, is, message)
			}
		})
	}
}
