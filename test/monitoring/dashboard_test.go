package monitoring

import (
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

type dashboard struct {
	UID        string `json:"uid"`
	Title      string `json:"title"`
	Templating struct {
		List []struct {
			Name       string `json:"name"`
			Type       string `json:"type"`
			Definition string `json:"definition"`
		} `json:"list"`
	} `json:"templating"`
	Panels []struct {
		ID      int    `json:"id"`
		Title   string `json:"title"`
		GridPos struct {
			X int `json:"x"`
			Y int `json:"y"`
			W int `json:"w"`
			H int `json:"h"`
		} `json:"gridPos"`
		Targets []struct {
			Expr         string `json:"expr"`
			LegendFormat string `json:"legendFormat"`
		} `json:"targets"`
	} `json:"panels"`
}

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	b, err := os.ReadFile(cluster + "grafana-dashboard.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c := struct {
		Metadata struct {
			Labels map[string]string `json:"labels"`
		} `json:"metadata"`
		Data map[string]string `json:"data"`
	}{}
	if err := yaml.Unmarshal(b, &c); err != nil {
		t.Fatal(err)
	}
	if c.Metadata.Labels["grafana_dashboard"] == "" {
		t.Error("want the label by which Grafana finds it, got none")
	}
	if len(c.Data) != 1 {
		t.Fatalf("want one dashboard, got %d", len(c.Data))
	}
	d := dashboard{}
	for _, text := range c.Data {
		if err := json.Unmarshal([]byte(text), &d); err != nil {
			t.Fatal(err)
		}
	}
	return d
}

// TestDashboard holds that every panel uses what the agent has, and that none
// covers another.
func TestDashboard(t *testing.T) {
	known := agentMetrics(t)
	d := readDashboard(t)
	variables := strings.NewReplacer("$__rate_interval", "5m", "$namespace", ".*", "$gateway", ".*")
	shown := map[string]bool{}
	taken := map[[2]int]string{}
	ids := map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("%s: want an id of its own, got %d", p.Title, p.ID)
		}
		ids[p.ID] = true
		if len(p.Targets) == 0 {
			t.Errorf("%s: want a query, got none", p.Title)
		}
		for _, q := range p.Targets {
			expr := variables.Replace(q.Expr)
			if strings.Contains(expr, "$") {
				t.Errorf("%s: want known variables only, got %s", p.Title, expr)
			}
			for _, bad := range unknown(t, known, expr) {
				t.Errorf("%s: %s", p.Title, bad)
			}
			for name := range known {
				if strings.Contains(q.Expr, name) {
					shown[name] = true
				}
			}
		}
		if g := p.GridPos; g.X+g.W > 24 {
			t.Errorf("%s: want 24 columns at most, got %d", p.Title, g.X+g.W)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other, ok := taken[at]; ok {
					t.Fatalf("%s covers %s", p.Title, other)
				}
				taken[at] = p.Title
			}
		}
	}
	for name := range known {
		own := strings.HasPrefix(name, "wireguard_") && !strings.HasSuffix(name, "_sum") && !strings.HasSuffix(name, "_count")
		if own && !shown[name] {
			t.Errorf("want %s on the dashboard, got no panel", name)
		}
	}
	for _, v := range d.Templating.List {
		if v.Type != "query" {
			continue
		}
		selector, _, _ := strings.Cut(strings.TrimPrefix(v.Definition, "label_values("), ", ")
		if bad := unknown(t, known, variables.Replace(strings.TrimSuffix(selector, ")"))); len(bad) > 0 {
			t.Errorf("variable %s: %q", v.Name, bad)
		}
	}
}
