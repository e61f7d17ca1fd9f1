package spec

import (
	"fmt"
	"testing"
)

func TestPod(t *testing.T) {
	g := accepted(t, `
pod:
  labels: {team: network}
  annotations: {example.com/Owner: network}
  nodeSelector: {kubernetes.io/os: linux}
  tolerations: [{key: dedicated, operator: Exists}]
  affinity: {nodeAffinity: {}}
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
  priorityClassName: high
  imagePullSecrets: [{name: registry}]
  terminationGracePeriodSeconds: 0
resources: {limits: {memory: 64Mi}}
`)
	if g.Pod.Affinity.NodeAffinity == nil {
		t.Error("want an affinity that is empty to stay, got none")
	}
	if g.Pod.TerminationGracePeriodSeconds != 0 {
		t.Errorf("want 0 to be a period, got %d", g.Pod.TerminationGracePeriodSeconds)
	}
	if got := g.Pod.Resources.Limits.Memory().String(); got != "64Mi" {
		t.Errorf("want the agent's resources, got %s", got)
	}
}

func TestPodRefused(t *testing.T) {
	testRefusals(t, map[string]refusal{
		"Toleration": {"The API server would drop the field.", `{pod: {tolerations: [{key: a, value: b, efect: NoSchedule}]}}`, []string{`spec.pod.tolerations[0]: Invalid value: unknown field "efect"`}},
		"Affinity":   {"The API server would drop the field.", `{pod: {affinity: {nodeAffinty: {}}}}`, []string{`spec.pod.affinity: Invalid value: unknown field "nodeAffinty"`}},
		"Spread":     {"The API server would drop the field.", `{pod: {topologySpreadConstraints: [{maxSkew: 1, topologykey: zone}]}}`, []string{`spec.pod.topologySpreadConstraints[0]: Invalid value: unknown field "topologykey"`}},
		"Resources":  {"The API server would drop the field.", `{resources: {limit: {cpu: 1}}}`, []string{`spec.resources: Invalid value: unknown field "limit"`}},
		"Priority":   {"It is the name of an object.", `{pod: {priorityClassName: "a b"}}`, []string{`spec.pod.priorityClassName: Invalid value: "a b"`}},
		"PullSecret": {"It is the name of an object.", `{pod: {imagePullSecrets: [{name: "a b"}]}}`, []string{`spec.pod.imagePullSecrets[0].name: Invalid value: "a b"`}},
		"Selector":   {"The API server would refuse it.", `{pod: {nodeSelector: {a: "b c"}}}`, []string{`spec.pod.nodeSelector[a]: Invalid value: "b c"`}},
		"Grace":      {"It is bounded.", `{pod: {terminationGracePeriodSeconds: -1}}`, []string{`spec.pod.terminationGracePeriodSeconds: Invalid value: -1`}},
	})
}

// TestClaimsRefused holds that no container asks for claims of the pod, which has
// none: the API server would refuse the whole Deployment.
func TestClaimsRefused(t *testing.T) {
	for path, spec := range map[string]string{
		"spec.resources":                    `{resources: %s}`,
		"spec.gluetun.resources":            `{gluetun: {provider: protonvpn, credentials: {secretRef: {name: proton}}, resources: %s}}`,
		"spec.tunnel.resources":             `{tunnel: {resources: %s}, gateway: {hostname: ws.example.com, parentRefs: [{name: public}]}}`,
		"spec.initContainers[0].resources":  `{initContainers: [{name: a, image: i, resources: %s}]}`,
		"spec.extraContainers[0].resources": `{extraContainers: [{name: a, image: i, resources: %s}]}`,
	} {
		_, errs := parse(t, fmt.Sprintf(spec, `{claims: [{name: gpu}]}`))
		checkErrors(t, "The pod has no claims.", []string{path + ".claims: Forbidden: "}, errs)
	}
}

// TestOwnMetadataRefused holds that nobody overrides what selectors, and
// Crossplane, go by.
func TestOwnMetadataRefused(t *testing.T) {
	for _, at := range []struct{ spec, path string }{
		{`{pod: {labels: {"%s": x}}}`, `spec.pod.labels`},
		{`{service: {labels: {"%s": x}}}`, `spec.service.labels`},
		{`{monitoring: {podMonitor: {enabled: true, labels: {"%s": x}}}}`, `spec.monitoring.podMonitor.labels`},
	} {
		for _, key := range []string{"app.kubernetes.io/name", "app.kubernetes.io/instance", "wireguardgateway.io/gateway", "wireguardgateway.io/peer", "wireguardgateway.io/injection"} {
			refuseKey(t, at.spec, at.path, key, "is set by the gateway itself")
		}
		refuseKey(t, at.spec, at.path, "crossplane.io/composite", "is for Crossplane to set")
	}
	for _, at := range []struct{ spec, path string }{
		{`{pod: {annotations: {"%s": x}}}`, `spec.pod.annotations`},
		{`{service: {annotations: {"%s": x}}}`, `spec.service.annotations`},
		{`{gateway: {annotations: {"%s": x}}}`, `spec.gateway.annotations`},
	} {
		refuseKey(t, at.spec, at.path, "crossplane.io/composition-resource-name", "is for Crossplane to set")
	}
}
