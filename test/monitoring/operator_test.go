package monitoring

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/crossplane/function-sdk-go/logging"
	// Its definitions are files of this module.
	_ "github.com/prometheus-operator/prometheus-operator/pkg/versionutil"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/wireguardgateway/function-wireguard-gateway/fn"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/offline"
	"github.com/wireguardgateway/function-wireguard-gateway/test/crd"
)

func operatorDefinition(t *testing.T, plural string) *crd.Definition {
	t.Helper()
	return crd.Read(t, filepath.Join(crd.Folder(t, "github.com/prometheus-operator/prometheus-operator"),
		"example", "prometheus-operator-crd", "monitoring.coreos.com_"+plural+".yaml"), "v1")
}

// podMonitors are what is rendered for several settings.
func podMonitors(t *testing.T) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	for name, settings := range map[string]string{
		"Defaults": `{enabled: true}`,
		"Labels":   `{enabled: true, labels: {release: prometheus}}`,
		"Interval": `{enabled: true, interval: 1h2m3s4ms}`,
		"Short":    `{enabled: true, interval: 500ms}`,
	} {
		xr := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(`{apiVersion: wireguardgateway.io/v1alpha1, kind: WireguardGateway, metadata: {name: home, namespace: vpn}, spec: {monitoring: {podMonitor: `+settings+`}}}`), &xr.Object); err != nil {
			t.Fatal(err)
		}
		rsp, err := offline.Run(context.Background(), fn.New(logging.NewNopLogger()), offline.Request{Composite: xr})
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range offline.Composed(xr, rsp) {
			if o.GetKind() == "PodMonitor" {
				out[name] = o.Object
			}
		}
		if out[name] == nil {
			t.Fatalf("%s: want a PodMonitor, got none", name)
		}
	}
	return out
}

// TestPodMonitor holds that the operator takes what is rendered, as it is.
func TestPodMonitor(t *testing.T) {
	d := operatorDefinition(t, "podmonitors")
	for name, o := range podMonitors(t) {
		for _, why := range d.Refuse(t, o) {
			t.Errorf("%s: %s", name, why)
		}
	}
}

// TestRuleFile holds that the operator takes the alerts, as they are.
func TestRuleFile(t *testing.T) {
	b, err := os.ReadFile(cluster + "prometheusrule.yaml")
	if err != nil {
		t.Fatal(err)
	}
	o := map[string]any{}
	if err := yaml.Unmarshal(b, &o); err != nil {
		t.Fatal(err)
	}
	// Whoever applies it chooses a namespace.
	o["metadata"].(map[string]any)["namespace"] = "monitoring"
	for _, why := range operatorDefinition(t, "prometheusrules").Refuse(t, o) {
		t.Error(why)
	}
}

// TestOperatorRefuses holds that the checks above can fail.
func TestOperatorRefuses(t *testing.T) {
	d := operatorDefinition(t, "podmonitors")
	for name, tc := range map[string]struct {
		says   string
		breaks func(endpoint map[string]any)
	}{
		"Interval": {"interval", func(e map[string]any) { e["interval"] = "30s1m" }},
		"Unknown":  {"unknown field spec.podMetricsEndpoints[0].intervall", func(e map[string]any) { e["intervall"] = "30s" }},
		"Action":   {"changed by defaults", func(e map[string]any) { delete(e["relabelings"].([]any)[0].(map[string]any), "action") }},
	} {
		t.Run(name, func(t *testing.T) {
			o := podMonitors(t)["Defaults"]
			tc.breaks(o["spec"].(map[string]any)["podMetricsEndpoints"].([]any)[0].(map[string]any))
			bad := d.Refuse(t, o)
			if !slices.ContainsFunc(bad, func(s string) bool { return strings.Contains(s, tc.says) }) {
				t.Errorf("want it refused for %q, got %q", tc.says, bad)
			}
		})
	}
}
