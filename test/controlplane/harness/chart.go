package harness

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// systemNamespace is where Crossplane is installed.
const systemNamespace = "crossplane-system"

// permissions are the templates of Crossplane's chart that say what it may do.
var permissions = []string{
	"clusterrole.yaml", "clusterrolebinding.yaml",
	"rbac-manager-clusterrole.yaml", "rbac-manager-clusterrolebinding.yaml",
	"rbac-manager-allowed-provider-permissions.yaml", "rbac-manager-managed-clusterroles.yaml",
}

// chartPermissions renders the permissions that Crossplane's own chart gives to
// it, with the few of Helm's functions that these templates call.
func chartPermissions(module string) ([]*unstructured.Unstructured, error) {
	dir := filepath.Join(module, "cluster", "charts", "crossplane")
	values := map[string]any{}
	if err := readYAML(filepath.Join(dir, "values.yaml"), &values); err != nil {
		return nil, err
	}
	in := map[string]any{
		"Values":  values,
		"Chart":   map[string]any{"Name": "crossplane", "Version": "0", "AppVersion": "0"},
		"Release": map[string]any{"Name": "crossplane", "Namespace": systemNamespace, "Service": "Helm"},
	}

	t := template.New("chart")
	t.Funcs(template.FuncMap{
		"include": func(name string, in any) (string, error) {
			b := &bytes.Buffer{}
			err := t.ExecuteTemplate(b, name, in)
			return b.String(), err
		},
		"indent": func(n int, s string) string {
			return strings.ReplaceAll(s, "\n", "\n"+strings.Repeat(" ", n))
		},
		"default": func(d, v any) any {
			if v == nil || v == "" {
				return d
			}
			return v
		},
		"quote":      func(v any) string { return strconv.Quote(fmt.Sprint(v)) },
		"replace":    func(from, to, s string) string { return strings.ReplaceAll(s, from, to) },
		"trunc":      func(n int, s string) string { return s[:min(n, len(s))] },
		"trimSuffix": func(suffix, s string) string { return strings.TrimSuffix(s, suffix) },
		"toYaml": func(v any) (string, error) {
			b, err := yaml.Marshal(v)
			return strings.TrimSpace(string(b)), err
		},
	})
	if _, err := t.ParseFiles(filepath.Join(dir, "templates", "_helpers.tpl")); err != nil {
		return nil, err
	}
	var out []*unstructured.Unstructured
	for _, name := range permissions {
		b, err := os.ReadFile(filepath.Join(dir, "templates", name))
		if err != nil {
			return nil, err
		}
		if _, err := t.New(name).Parse(string(b)); err != nil {
			return nil, err
		}
		rendered := &bytes.Buffer{}
		if err := t.ExecuteTemplate(rendered, name, in); err != nil {
			return nil, err
		}
		objects, err := decodeYAML(rendered.Bytes())
		if err != nil {
			return nil, fmt.Errorf("cannot read what %s renders: %w", name, err)
		}
		out = append(out, objects...)
	}
	return out, nil
}
