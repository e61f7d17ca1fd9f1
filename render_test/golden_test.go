package render_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write what is rendered to want.yaml")

func TestGolden(t *testing.T) {
	for _, c := range cases(t) {
		t.Run(c.name, func(t *testing.T) {
			got := readable(t, c.run(t).rsp)
			if *update {
				if err := os.MkdirAll(filepath.Dir(c.want), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(c.want, got, 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(c.want)
			if err != nil {
				t.Fatalf("%v: write it with go test ./render_test -update, and read what it says", err)
			}
			if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(string(got), "\n")); diff != "" {
				t.Errorf("if this is meant, run go test ./render_test -update: -want, +got:\n%s", diff)
			}
		})
	}
}

// TestNoStaleGoldens holds that every want.yaml has a case.
func TestNoStaleGoldens(t *testing.T) {
	have := map[string]bool{}
	for _, c := range cases(t) {
		have[c.want] = true
	}
	files, err := filepath.Glob("testdata/*/want.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !have[f] {
			t.Errorf("nothing renders %s any more: remove it", f)
		}
	}
}

// readable returns a response for people to review: what is in Secrets stands
// in the clear.
func readable(t *testing.T, rsp *fnv1.RunFunctionResponse) []byte {
	t.Helper()
	out := &bytes.Buffer{}
	section := func(title string, v any) {
		b, err := yaml.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(out, "---\n# %s\n%s", title, b)
	}

	var conditions, results []string
	for _, c := range rsp.GetConditions() {
		s := fmt.Sprintf("%s %s %s", c.GetType(), strings.TrimPrefix(c.GetStatus().String(), "STATUS_CONDITION_"), c.GetReason())
		if c.GetMessage() != "" {
			s += ": " + c.GetMessage()
		}
		conditions = append(conditions, s)
	}
	for _, r := range rsp.GetResults() {
		results = append(results, fmt.Sprintf("%s: %s", strings.TrimPrefix(r.GetSeverity().String(), "SEVERITY_"), r.GetMessage()))
	}
	requires := map[string]string{}
	for name, s := range rsp.GetRequirements().GetResources() {
		requires[name] = strings.Join(strings.Fields(strings.Replace(fmt.Sprintln(s.GetKind(), s.GetNamespace(), s.GetMatchName(), s.GetMatchLabels().GetLabels()), "map[]", "", 1)), " ")
	}
	response := map[string]any{
		"ttl":        rsp.GetMeta().GetTtl().AsDuration().String(),
		"results":    results,
		"conditions": conditions,
		"requires":   requires,
	}
	if schemas := rsp.GetRequirements().GetSchemas(); len(schemas) > 0 {
		kinds := map[string]string{}
		for name, s := range schemas {
			kinds[name] = s.GetApiVersion() + " " + s.GetKind()
		}
		response["asks for the kinds"] = kinds
	}
	section("response", response)
	if c := rsp.GetDesired().GetComposite(); c != nil {
		section("composite", c.GetResource().AsMap())
	}
	for _, key := range keysOf(rsp.GetDesired().GetResources()) {
		r := rsp.GetDesired().GetResources()[key]
		o := r.GetResource().AsMap()
		if o["kind"] == "Secret" {
			inTheClear(t, o)
		}
		section(key+", "+strings.ToLower(strings.TrimPrefix(r.GetReady().String(), "READY_")), o)
	}
	return out.Bytes()
}

// inTheClear decodes what a Secret holds.
func inTheClear(t *testing.T, secret map[string]any) {
	t.Helper()
	data, _ := secret["data"].(map[string]any)
	for key, v := range data {
		b, err := base64.StdEncoding.DecodeString(v.(string))
		if err != nil {
			t.Fatalf("data key %s is no base64: %v", key, err)
		}
		switch filepath.Ext(key) {
		case ".json":
			var document any
			if err := json.Unmarshal(b, &document); err != nil {
				t.Fatal(err)
			}
			data[key] = document
		case ".conf", ".txt":
			data[key] = string(b)
		case ".png":
			data[key] = fmt.Sprintf("an image, %t", bytes.HasPrefix(b, []byte("\x89PNG\r\n")))
		}
	}
}
