package render_test

import (
	"slices"
	"strings"
	"testing"
)

// mobileKeys are those that the apps for iOS and Android import, by section.
// They refuse a file that has any other.
var mobileKeys = map[string][]string{
	"[Interface]": {"Address", "DNS", "ListenPort", "MTU", "PrivateKey"},
	"[Peer]":      {"AllowedIPs", "Endpoint", "PersistentKeepalive", "PresharedKey", "PublicKey"},
}

// refusedByApps tells what the apps would not import of a configuration.
func refusedByApps(conf string) (bad []string) {
	section := ""
	for l := range strings.Lines(conf) {
		l = strings.TrimSuffix(l, "\n")
		if l == "" {
			continue
		}
		if strings.HasPrefix(l, "[") {
			if section = l; mobileKeys[section] == nil {
				bad = append(bad, "unknown section "+section)
			}
			continue
		}
		key, value, ok := strings.Cut(l, " = ")
		if !ok || value == "" || !slices.Contains(mobileKeys[section], key) {
			bad = append(bad, section+" "+l)
		}
	}
	return bad
}

// TestMobileApps holds that what is offered to phones is what their apps know.
// The configuration for the tunnel is for wg-quick only, which the test uses to
// see that it can fail.
func TestMobileApps(t *testing.T) {
	seen := map[string]int{}
	for _, c := range cases(t) {
		t.Run(c.name, func(t *testing.T) {
			for key, r := range c.run(t).rsp.GetDesired().GetResources() {
				for name, b := range secretData(r.GetResource()) {
					if !strings.HasSuffix(name, ".conf") {
						continue
					}
					seen[name]++
					bad := refusedByApps(string(b))
					if name == "tunnel.conf" {
						for _, hook := range []string{"[Interface] PreUp", "[Interface] PostDown", "[Interface] FwMark"} {
							if !slices.ContainsFunc(bad, func(s string) bool { return strings.HasPrefix(s, hook) }) {
								t.Errorf("%s of %s: want the apps to refuse %s, got %q", name, key, hook, bad)
							}
						}
						continue
					}
					for _, l := range bad {
						t.Errorf("%s of %s: the apps refuse %q", name, key, l)
					}
				}
			}
		})
	}
	for _, name := range []string{"direct.conf", "internal.conf", "tunnel.conf"} {
		if seen[name] == 0 {
			t.Errorf("want a %s among all cases, got none", name)
		}
	}
}
