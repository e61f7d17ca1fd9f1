package monitoring

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/metrics"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// registry notes what is registered with it: the labels of each metric, by its
// name.
type registry map[string][]string

// description is how a metric's description prints itself.
var description = regexp.MustCompile(`fqName: "([^"]+)".*variableLabels: \{([^}]*)\}`)

func (r registry) Register(c prometheus.Collector) error {
	ch := make(chan *prometheus.Desc)
	go func() {
		c.Describe(ch)
		close(ch)
	}()
	_, histogram := c.(prometheus.Histogram)
	if _, ok := c.(*prometheus.HistogramVec); ok {
		histogram = true
	}
	for d := range ch {
		m := description.FindStringSubmatch(d.String())
		var names []string
		for l := range strings.SplitSeq(m[2], ",") {
			if l != "" {
				names = append(names, l)
			}
		}
		if !histogram {
			r[m[1]] = names
			continue
		}
		r[m[1]+"_count"], r[m[1]+"_sum"] = names, names
		r[m[1]+"_bucket"] = append(slices.Clone(names), "le")
	}
	return nil
}

func (r registry) MustRegister(cs ...prometheus.Collector) {
	for _, c := range cs {
		_ = r.Register(c)
	}
}

func (r registry) Unregister(prometheus.Collector) bool { return false }

// agentMetrics are all that the agent registers.
func agentMetrics(t *testing.T) registry {
	t.Helper()
	r := registry{}
	metrics.New(r)
	peers, err := metrics.NewPeers(wireguard.Device)
	if err != nil {
		t.Fatal(err)
	}
	r.MustRegister(peers)
	if len(r) < 10 || len(r["wireguard_latest_handshake_seconds"]) != 4 {
		t.Fatalf("want the agent's metrics, got %v", r)
	}
	return r
}

// target are the labels that Prometheus and the PodMonitor add.
var target = []string{"namespace", "pod", "container", "endpoint", "instance", "job", "gateway"}

// unknown tells what an expression uses that the agent does not have. Only
// Prometheus itself knows whether a target is up.
func unknown(t *testing.T, known registry, expr string) (bad []string) {
	t.Helper()
	e, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return []string{expr + ": " + err.Error()}
	}
	may := slices.Clone(target)
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		s, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		have, ok := known[s.Name]
		if !ok && s.Name != "up" {
			bad = append(bad, "no metric "+s.Name)
		}
		may = append(may, have...)
		for _, m := range s.LabelMatchers {
			if m.Name != model.MetricNameLabel && !slices.Contains(have, m.Name) && !slices.Contains(target, m.Name) {
				bad = append(bad, s.Name+" has no label "+m.Name)
			}
		}
		return nil
	})
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		var by []string
		switch n := n.(type) {
		case *parser.AggregateExpr:
			by = n.Grouping
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				by = n.VectorMatching.MatchingLabels
			}
		}
		for _, l := range by {
			if !slices.Contains(may, l) {
				bad = append(bad, "nothing has the label "+l)
			}
		}
		return nil
	})
	return bad
}

// TestUnknown holds that the check can fail.
func TestUnknown(t *testing.T) {
	known := agentMetrics(t)
	for expr, want := range map[string]string{
		`wireguard_gateway_redy == 0`:                             "no metric wireguard_gateway_redy",
		`rate(wireguard_gateway_sync_duration_seconds[5m])`:       "no metric wireguard_gateway_sync_duration_seconds",
		`wireguard_sent_bytes_total{peer="a"}`:                    "wireguard_sent_bytes_total has no label peer",
		`sum by (peer) (wireguard_sent_bytes_total)`:              "nothing has the label peer",
		`sum by (pool) (wireguard_gateway_ready)`:                 "nothing has the label pool",
		`max(wireguard_gateway_ready`:                             "unclosed left parenthesis",
		`wireguard_gateway_ready and on (peer_nme) (vector(1))`:   "nothing has the label peer_nme",
		`kube_deployment_status_replicas_available{namespace=""}`: "no metric kube_deployment_status_replicas_available",
	} {
		bad := unknown(t, known, expr)
		if !slices.ContainsFunc(bad, func(s string) bool { return strings.Contains(s, want) }) {
			t.Errorf("%s: want %q, got %q", expr, want, bad)
		}
	}
}
