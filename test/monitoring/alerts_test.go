package monitoring

import (
	"context"
	"log/slog"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/util/teststorage"
	"sigs.k8s.io/yaml"
)

const cluster = "../../package/cluster/"

// alert is a rule, as the Prometheus operator has it.
type alert struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	For         string            `json:"for"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func alerts(t *testing.T) map[string]alert {
	t.Helper()
	b, err := os.ReadFile(cluster + "prometheusrule.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := struct {
		Spec struct {
			Groups []struct {
				Rules []alert `json:"rules"`
			} `json:"groups"`
		} `json:"spec"`
	}{}
	if err := yaml.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	out := map[string]alert{}
	for _, g := range file.Spec.Groups {
		for _, r := range g.Rules {
			if _, ok := out[r.Alert]; ok {
				t.Errorf("want every alert once, got %s twice", r.Alert)
			}
			out[r.Alert] = r
		}
	}
	if len(out) == 0 {
		t.Fatal("want alerts, got none")
	}
	return out
}

// TestAlertsKnown holds that alerts use what the agent has, and tell who and
// what they are about.
func TestAlertsKnown(t *testing.T) {
	known := agentMetrics(t)
	for name, a := range alerts(t) {
		for _, bad := range unknown(t, known, a.Expr) {
			t.Errorf("%s: %s", name, bad)
		}
		if !slices.Contains([]string{"critical", "warning"}, a.Labels["severity"]) {
			t.Errorf("%s: want a severity, got %q", name, a.Labels["severity"])
		}
		for _, text := range []string{"summary", "description"} {
			if a.Annotations[text] == "" {
				t.Errorf("%s: want a %s, got none", name, text)
			}
		}
	}
}

// sample has one step each minute.
type sample struct {
	why    string
	series string
	at     time.Duration
	want   []string // what fires: its labels and summary
}

const home = `{namespace="vpn", gateway="home", pod="a"}`

// samples are cases of each alert in which it fires, and in which it does not.
var samples = map[string]map[string]sample{
	"WireguardGatewayDown": {
		"Serves":    {"All is well.", `wireguard_gateway_ready` + home + ` 1x60`, time.Hour, nil},
		"NotReady":  {"The agent says so.", `wireguard_gateway_ready` + home + ` 1x10 0x10`, 20 * time.Minute, []string{"Gateway vpn/home is down"}},
		"Moment":    {"A restart takes less.", `wireguard_gateway_ready` + home + ` 1x10 0x3 1x10`, 13 * time.Minute, nil},
		"Gone":      {"Nobody answers.", `wireguard_gateway_ready` + home + ` 1x10 stale _x30`, 30 * time.Minute, []string{"Gateway vpn/home is down"}},
		"LongGone":  {"It was deleted.", `wireguard_gateway_ready` + home + ` 1x10 stale _x90`, 90 * time.Minute, nil},
		"Recreated": {"Another pod took over.", "wireguard_gateway_ready{namespace=\"vpn\", gateway=\"home\", pod=\"a\"} 1x10 stale _x30\nwireguard_gateway_ready{namespace=\"vpn\", gateway=\"home\", pod=\"b\"} _x11 1x30", 40 * time.Minute, nil},
		"Silent":    {"Its pod is there and does not answer, for longer than an hour.", `up{job="vpn/home-wireguard", namespace="vpn", gateway="home"} 0x120`, 2 * time.Hour, []string{"Gateway vpn/home is down"}},
		"Others":    {"Other targets are none of ours.", `up{job="vpn/database", namespace="vpn"} 0x60`, time.Hour, nil},
		"OneOfTwo": {
			"Each is judged by itself.", "wireguard_gateway_ready{namespace=\"vpn\", gateway=\"home\"} 1x20\nwireguard_gateway_ready{namespace=\"lab\", gateway=\"home\"} 0x20", 20 * time.Minute,
			[]string{"Gateway lab/home is down"},
		},
	},
	"WireguardGatewayEgressDown": {
		"Up":     {"Traffic leaves.", `wireguard_gateway_egress_up{namespace="vpn", gateway="home", mode="Gluetun"} 1x20`, 20 * time.Minute, nil},
		"Down":   {"It does not.", `wireguard_gateway_egress_up{namespace="vpn", gateway="home", mode="Gluetun"} 1x5 0x20`, 20 * time.Minute, []string{"Peers of gateway vpn/home have no way out"}},
		"Start":  {"A tunnel takes a moment.", `wireguard_gateway_egress_up{namespace="vpn", gateway="home", mode="Gluetun"} 0x4 1x20`, 4 * time.Minute, nil},
		"Absent": {"Nothing is known yet.", `wireguard_gateway_ready` + home + ` 0x20`, 20 * time.Minute, nil},
	},
	"WireguardGatewayNoHandshake": {
		"Recent": {"Somebody is connected.", `wireguard_latest_handshake_seconds{namespace="vpn", gateway="home", peer_name="laptop"} 0+60x180`, 3 * time.Hour, nil},
		"Old":    {"The last one was long ago.", `wireguard_latest_handshake_seconds{namespace="vpn", gateway="home", peer_name="laptop"} 600x180`, 2 * time.Hour, []string{"No peer of gateway vpn/home has connected for an hour"}},
		"OneOf":  {"Phones sleep.", "wireguard_latest_handshake_seconds{namespace=\"vpn\", gateway=\"home\", peer_name=\"phone\"} 600x180\nwireguard_latest_handshake_seconds{namespace=\"vpn\", gateway=\"home\", peer_name=\"laptop\"} 0+60x180", 2 * time.Hour, nil},
		"Never":  {"Nobody has connected yet.", `wireguard_latest_handshake_seconds{namespace="vpn", gateway="home", peer_name="laptop"} 0x180`, 2 * time.Hour, nil},
		"Soon":   {"An hour has to pass.", `wireguard_latest_handshake_seconds{namespace="vpn", gateway="home", peer_name="laptop"} 600x180`, 70 * time.Minute, nil},
	},
	"WireguardGatewayPoolNearlyFull": {
		"Room":  {"There is room.", pool("10.8.0.0/24", 253, 200), 30 * time.Minute, nil},
		"Full":  {"There is hardly any.", pool("10.8.0.0/24", 253, 240), 30 * time.Minute, []string{"Pool 10.8.0.0/24 of gateway vpn/home is nearly full"}},
		"Small": {"A pool for one may be full.", pool("10.8.0.0/30", 1, 1), 30 * time.Minute, []string{"Pool 10.8.0.0/30 of gateway vpn/home is nearly full"}},
		"Both": {
			"Each pool is judged by itself.", pool("10.8.0.0/24", 253, 250) + "\n" + pool("fd00:8::/64", 1e19, 250), 30 * time.Minute,
			[]string{"Pool 10.8.0.0/24 of gateway vpn/home is nearly full"},
		},
	},
	"WireguardGatewayConfigRejected": {
		"Valid":    {"It is in force.", `wireguard_gateway_config_valid` + home + ` 1x30`, 30 * time.Minute, nil},
		"Rejected": {"It is not.", `wireguard_gateway_config_valid` + home + ` 1x5 0x30`, 30 * time.Minute, []string{"Gateway vpn/home does not take its configuration"}},
		"Moment":   {"The next one is.", `wireguard_gateway_config_valid` + home + ` 1x5 0x10 1x30`, 15 * time.Minute, nil},
	},
}

func pool(network string, size, used float64) string {
	l := `{namespace="vpn", gateway="home", pool="` + network + `"}`
	return "wireguard_gateway_pool_addresses" + l + " " + number(size) + "x60\nwireguard_gateway_pool_addresses_used" + l + " " + number(used) + "x60"
}

// TestAlertsFire holds when each alert fires, and when it does not.
func TestAlertsFire(t *testing.T) {
	all := alerts(t)
	for name := range all {
		if samples[name] == nil {
			t.Errorf("want %s tested, got no samples", name)
		}
	}
	for name, cases := range samples {
		fires, rests := false, false
		for what, s := range cases {
			t.Run(name+"/"+what, func(t *testing.T) {
				got := evaluate(t, all[name], s)
				if diff := cmp.Diff(s.want, got); diff != "" {
					t.Errorf("%s\n-want, +got:\n%s", s.why, diff)
				}
			})
			fires, rests = fires || len(s.want) > 0, rests || len(s.want) == 0
		}
		if !fires || !rests {
			t.Errorf("%s: want samples in which it fires and in which it does not", name)
		}
	}
}

// evaluate runs a rule once a minute, as Prometheus does, and returns what
// fires in the end.
func evaluate(t *testing.T, a alert, s sample) []string {
	t.Helper()
	load := &strings.Builder{}
	load.WriteString("load 1m\n")
	for l := range strings.Lines(s.series) {
		load.WriteString("  " + strings.TrimSpace(l) + "\n")
	}
	storage := promqltest.LoadedStorage(t, load.String())
	defer func(s *teststorage.TestStorage) { _ = s.Close() }(storage)
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)

	expr, err := parser.NewParser(parser.Options{}).ParseExpr(a.Expr)
	if err != nil {
		t.Fatal(err)
	}
	hold, err := time.ParseDuration(a.For)
	if err != nil {
		t.Fatal(err)
	}
	rule := rules.NewAlertingRule(a.Alert, expr, hold, 0, labels.FromMap(a.Labels), labels.FromMap(a.Annotations), labels.EmptyLabels(), "", true, slog.New(slog.DiscardHandler))
	query := rules.EngineQueryFunc(engine, storage)
	for at := time.Duration(0); at <= s.at; at += time.Minute {
		if _, err := rule.Eval(context.Background(), 0, time.Unix(0, 0).Add(at), query, &url.URL{}, 0); err != nil {
			t.Fatal(err)
		}
	}
	var out []string
	for _, active := range rule.ActiveAlerts() {
		if active.State != rules.StateFiring {
			continue
		}
		for _, text := range []string{"summary", "description"} {
			if v := active.Annotations.Get(text); strings.Contains(v, "<no value>") || strings.Contains(v, "error") {
				t.Errorf("want a %s that is filled in, got %q", text, v)
			}
		}
		out = append(out, active.Annotations.Get("summary"))
	}
	slices.Sort(out)
	return out
}
