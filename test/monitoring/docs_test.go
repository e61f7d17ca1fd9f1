package monitoring

import (
	"os"
	"strings"
	"testing"
)

// TestDocumented holds that the documentation has every metric of the agent, with
// its labels.
func TestDocumented(t *testing.T) {
	b, err := os.ReadFile("../../docs/operation.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, labels := range agentMetrics(t) {
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			continue // Prometheus' own.
		}
		name, _ = strings.CutSuffix(name, "_bucket")
		for _, part := range []string{"_count", "_sum"} {
			name, _ = strings.CutSuffix(name, part)
		}
		row := ""
		for line := range strings.Lines(string(b)) {
			if strings.HasPrefix(line, "|") && strings.Contains(line, "`"+name+"`") {
				row = line
			}
		}
		for _, label := range labels {
			if label == "le" || strings.Contains(row, "| the same |") {
				continue // As any histogram has, or as the row above has.
			}
			if !strings.Contains(row, "`"+label+"`") {
				t.Errorf("the row of %s lacks the label %s: %q", name, label, row)
			}
		}
		if row == "" {
			t.Errorf("docs/operation.md lacks %s", name)
		}
	}
}
