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
	got := frozen(o)
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

// TestFrozenPeerNames: so are those of WireguardPeers, on which pods depend, too.
func TestFrozenPeerNames(t *testing.T) {
	for name, want := range map[string][]string{
		"peer-own-key": {
			"attachment: v1 ConfigMap media-wireguard.attachment",
			"config: v1 Secret media-wireguard.peer [direct.conf direct.png direct.txt internal.conf]",
		},
		"peer-pods": {
			"attachment: v1 ConfigMap media-wireguard.attachment",
			"enrolment: v1 Secret media-wireguard.enrolment [enrolment.json]",
			"injection: v1 ConfigMap media-wireguard.injection",
			"network-policy: networking.k8s.io/v1 NetworkPolicy media-wireguard.pods",
			"role: rbac.authorization.k8s.io/v1 Role media-wireguard.pods",
			"role-binding: rbac.authorization.k8s.io/v1 RoleBinding media-wireguard.pods",
		},
		"peer-pods-cilium": {
			"attachment: v1 ConfigMap media-wireguard.attachment",
			"cilium-network-policy: cilium.io/v2 CiliumNetworkPolicy media-wireguard.pods",
			"enrolment: v1 Secret media-wireguard.enrolment [enrolment.json]",
			"injection: v1 ConfigMap media-wireguard.injection",
			"role: rbac.authorization.k8s.io/v1 Role media-wireguard.pods",
			"role-binding: rbac.authorization.k8s.io/v1 RoleBinding media-wireguard.pods",
		},
	} {
		if diff := cmp.Diff(want, frozen(caseNamed(t, name).run(t))); diff != "" {
			t.Errorf("%s: -want, +got:\n%s", name, diff)
		}
	}
}

// frozen are the keys, kinds and names of what is rendered, and the data keys of
// Secrets.
func frozen(o outcome) []string {
	var out []string
	for _, key := range keysOf(o.rsp.GetDesired().GetResources()) {
		s := o.rsp.GetDesired().GetResources()[key].GetResource()
		f := s.GetFields()
		line := key + ": " + f["apiVersion"].GetStringValue() + " " + f["kind"].GetStringValue() + " " + metadata(s)["name"].GetStringValue()
		if data := keysOf(secretData(s)); len(data) > 0 {
			line += " [" + strings.Join(data, " ") + "]"
		}
		out = append(out, line)
	}
	return out
}
