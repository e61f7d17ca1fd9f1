package sidecar

import (
	"os"
	"path/filepath"
	"testing"
)

func TestSoftLimit(t *testing.T) {
	cases := map[string]struct {
		reason  string
		content string // of the file, none if empty
		want    int64
	}{
		"NoFile":    {"without cgroups there is no limit", "", 128 << 20},
		"Unlimited": {"nor with one that has none", "max\n", 128 << 20},
		"Old":       {"cgroups v1 say so by a great number", "9223372036854771712\n", 128 << 20},
		"Small":     {"some is left for the rest", "67108864\n", 48 << 20},
		"Large":     {"who gives more wants more", "1073741824\n", 768 << 20},
		"Tiny":      {"but it has to be able to work", "16777216\n", 40 << 20},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "memory.max")
			if tc.content != "" {
				if err := os.WriteFile(path, []byte(tc.content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := softLimit([]string{path + ".none", path}); got != tc.want {
				t.Errorf("%s: want %d, got %d", tc.reason, tc.want, got)
			}
		})
	}
}
