package render_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFrozenNames: keys and names are a contract with running clusters. A key
// or name that changes deletes an object and creates another: the seed and with
// it every key, the load balancer and with it every client's endpoint. A line
// of this table may be added, and none may change.
func TestFrozenNames(t *testing.T) {
	want := []string{
		"config: v1 Secret home-wireguard.config [config.json]",
		"deployment: apps/v1 Deployment home-wireguard",
		"http-route: gateway.networking.k8s.io/v1 HTTPRoute home-wireguard",
		"network-policy: networking.k8s.io/v1 NetworkPolicy home-wireguard",
		"peer-laptop: v1 Secret home-wireguard.peer.laptop [direct.conf direct.png direct.txt internal.conf tunnel.conf]",
		"pod-disruption-budget: policy/v1 PodDisruptionBudget home-wireguard",
		"pod-monitor: monitoring.coreos.com/v1 PodMonitor home-wireguard",
		"role: rbac.authorization.k8s.io/v1 Role home-wireguard",
		"role-binding: rbac.authorization.k8s.io/v1 RoleBinding home-wireguard",
		"seed: v1 Secret home-wireguard.seed [seed]",
		"service: v1 Service home-wireguard",
		"service-account: v1 ServiceAccount home-wireguard",
		"status: v1 ConfigMap home-wireguard.status",
		"tunnel-service: v1 Service home-wireguard-tunnel",
		"udp-route: gateway.networking.k8s.io/v1 UDPRoute home-wireguard",
	}
	c := caseNamed(t, "gateway-api")
	c.in.Composite.Object["spec"].(map[string]any)["peers"] = []any{map[string]any{"name": "laptop", "qrCode": true}}
	o := c.run(t)
	var got []string
	for _, key := range keysOf(o.rsp.GetDesired().GetResources()) {
		s := o.rsp.GetDesired().GetResources()[key].GetResource()
		f := s.GetFields()
		line := key + ": " + f["apiVersion"].GetStringValue() + " " + f["kind"].GetStringValue() + " " + metadata(s)["name"].GetStringValue()
		if data := keysOf(secretData(s)); len(data) > 0 {
			line += " [" + strings.Join(data, " ") + "]"
		}
		got = append(got, line)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}

	d := deployment(t, o.rsp)
	wantLabels := map[string]string{"app.kubernetes.io/name": "wireguard-gateway", "app.kubernetes.io/instance": "home"}
	if diff := cmp.Diff(wantLabels, d.Spec.Selector.MatchLabels); diff != "" {
		t.Errorf("the selector of a Deployment can never change: -want, +got:\n%s", diff)
	}
	var containers []string
	for _, c := range d.Spec.Template.Spec.Containers {
		containers = append(containers, c.Name)
	}
	if !slices.Equal(containers, []string{"agent", "wstunnel"}) {
		t.Errorf("want the containers agent and wstunnel, got %v", containers)
	}
}
