package agent

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMissingFiles(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"openvpn-user": "u", "openvpn-password": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cases := map[string]struct {
		reason string
		dir    string
		needed []string
		want   []string
	}{
		"None":    {"nothing is needed", dir, nil, nil},
		"There":   {"what is there is not missing", dir, []string{"openvpn-user"}, nil},
		"Empty":   {"gluetun cannot use an empty one", dir, []string{"openvpn-user", "openvpn-password"}, []string{"openvpn-password"}},
		"Missing": {"nor one that is not there", dir, []string{"wireguard-private-key", "openvpn-user"}, []string{"wireguard-private-key"}},
		"NoDir":   {"without Secret all of them are missing", filepath.Join(dir, "none"), []string{"openvpn-user"}, []string{"openvpn-user"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, missingFiles(tc.dir, tc.needed)); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}
