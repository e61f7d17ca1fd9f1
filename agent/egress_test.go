package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/tunnel"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
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

// The states in which nothing passes. That of a tunnel that is up needs a
// tunnel, so the tests of the data plane have it.
func TestTunnelState(t *testing.T) {
	gone := tunnel.Seen{Device: 1 << 30, Up: true}
	missing := []string{"no-such-file"}
	cases := map[string]struct {
		reason  string
		gateway gateway
		needs   []string
		state   string
		says    string
	}{
		"Starting":    {"it was never up", gateway{}, nil, wireguard.EgressTunnelStarting, "is not up yet"},
		"Down":        {"it was up", gateway{tunnelUp: true}, nil, wireguard.EgressTunnelDown, "is down"},
		"Gone":        {"what was seen of a device says nothing without it", gateway{tunnelUp: true, seen: gone}, nil, wireguard.EgressTunnelDown, "is down"},
		"Credentials": {"without credentials it cannot come up", gateway{}, missing, wireguard.EgressCredentialsMissing, "credentials lack no-such-file"},
		"TakenAway":   {"nor can it come back", gateway{tunnelUp: true}, missing, wireguard.EgressCredentialsMissing, "credentials lack no-such-file"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			state, says := tc.gateway.tunnelState(tc.needs)
			if state != tc.state || !strings.Contains(says, tc.says) {
				t.Errorf("%s: want %s and %q, got %s and %q", tc.reason, tc.state, tc.says, state, says)
			}
		})
	}
}
