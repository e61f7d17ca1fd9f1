package controlplane

import (
	"encoding/json"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"sigs.k8s.io/yaml"
)

// leaves returns the paths of all fields of a schema that have no fields of
// their own.
func leaves(path string, schema map[string]any) []string {
	if items, ok := schema["items"].(map[string]any); ok {
		return leaves(path+"[]", items)
	}
	if values, ok := schema["additionalProperties"].(map[string]any); ok {
		return leaves(path+"{}", values)
	}
	properties, _ := schema["properties"].(map[string]any)
	if len(properties) == 0 || schema["x-kubernetes-preserve-unknown-fields"] == true {
		return []string{strings.TrimPrefix(path, ".")}
	}
	var out []string
	for name, p := range properties {
		if path == "" && name == "crossplane" {
			continue // Crossplane's own.
		}
		out = append(out, leaves(path+"."+name, p.(map[string]any))...)
	}
	return out
}

// set sets a field in a spec. Lists and maps on the way get one item where they
// have none.
func set(at any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	switch step := path[0]; step {
	case "[]":
		list, _ := at.([]any)
		if len(list) == 0 {
			list = []any{nil}
		}
		list[0] = set(list[0], path[1:], value)
		return list
	default:
		m, _ := at.(map[string]any)
		if m == nil {
			m = map[string]any{}
		}
		if step == "{}" {
			step = "team"
		}
		m[step] = set(m[step], path[1:], value)
		return m
	}
}

func steps(path string) []string {
	return strings.FieldsFunc(strings.NewReplacer("[]", ".[]", "{}", ".{}").Replace(path), func(r rune) bool { return r == '.' })
}

// merged returns a spec with a merge patch applied.
func merged(t *testing.T, spec, patch string) map[string]any {
	t.Helper()
	b, err := yaml.YAMLToJSON([]byte(spec))
	if err != nil {
		t.Fatal(err)
	}
	if patch != "" {
		p, err := yaml.YAMLToJSON([]byte(patch))
		if err != nil {
			t.Fatal(err)
		}
		if b, err = jsonpatch.MergePatch(b, p); err != nil {
			t.Fatal(err)
		}
	}
	m := map[string]any{}
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	return m
}
