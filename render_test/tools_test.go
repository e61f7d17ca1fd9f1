package render_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// tool skips where a program of Debian's wireguard-tools is not installed. CI
// installs them.
func tool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed: install wireguard-tools", name)
	}
	return path
}

// rendered are all configurations of all cases, by case, peer and data key.
func rendered(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, c := range cases(t) {
		for key, r := range c.run(t).rsp.GetDesired().GetResources() {
			for name, b := range secretData(r.GetResource()) {
				if filepath.Ext(name) == ".conf" {
					out[strings.Join([]string{c.name, key, name}, "/")] = string(b)
				}
			}
		}
	}
	if len(out) < 50 {
		t.Fatalf("want many configurations, got %d", len(out))
	}
	return out
}

// withKey puts a private key into a configuration whose device keeps its own.
func withKey(conf string) string {
	if strings.Contains(conf, "PrivateKey = ") {
		return conf
	}
	return strings.Replace(conf, "[Interface]\n", "[Interface]\nPrivateKey = dwdtCnMYpX08FsFyUbJmRd9ML4frwJkqsXf7pR25LCo=\n", 1)
}

// TestPublicKeys: wg(8) computes the same public keys as we do.
func TestPublicKeys(t *testing.T) {
	wg := tool(t, "wg")
	pubkey := func(private string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), wg, "pubkey")
		cmd.Stdin = strings.NewReader(private)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("wg pubkey: %v: %s", err, out)
		}
		return strings.TrimSpace(string(out))
	}
	compared := 0
	for _, c := range cases(t) {
		rsp := c.run(t).rsp
		if rsp.GetDesired().GetResources()["deployment"] == nil {
			continue // No gateway.
		}
		if got, want := pubkey(gatewayConfig(t, rsp).PrivateKey.String()), statusOf(rsp)["publicKey"].GetStringValue(); got != want {
			t.Errorf("%s: wg says %s, status %s", c.name, got, want)
		}
		for _, v := range statusOf(rsp)["peers"].GetListValue().GetValues() {
			if v.GetStructValue().GetFields()["state"].GetStringValue() == "Rejected" {
				continue
			}
			conf := secretData(rsp.GetDesired().GetResources()["peer-"+nameOf(v)].GetResource())["internal.conf"]
			_, rest, ok := strings.Cut(string(conf), "PrivateKey = ")
			if !ok {
				continue
			}
			private, _, _ := strings.Cut(rest, "\n")
			compared++
			if got, want := pubkey(private), v.GetStructValue().GetFields()["publicKey"].GetStringValue(); got != want {
				t.Errorf("%s, %s: wg says %s, status %s", c.name, nameOf(v), got, want)
			}
		}
	}
	if compared < 20 {
		t.Errorf("want many keys compared, got %d", compared)
	}
}

// TestStrip: wg-quick(8) reads every configuration, and takes out of it what is
// its own.
func TestStrip(t *testing.T) {
	quick := tool(t, "wg-quick")
	for name, conf := range rendered(t) {
		stripped := strip(t, quick, conf)
		for _, line := range []string{"Address", "DNS", "MTU", "PreUp", "PostDown"} {
			if strings.Contains(stripped, line) {
				t.Errorf("%s: %s is left over:\n%s", name, line, stripped)
			}
		}
		for _, line := range []string{"PublicKey = ", "AllowedIPs = ", "Endpoint = "} {
			if !strings.Contains(stripped, line) {
				t.Errorf("%s: %s is lost:\n%s", name, line, stripped)
			}
		}
	}
}

func strip(t *testing.T, quick, conf string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "wg0.conf")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}
	out := &bytes.Buffer{}
	cmd := exec.CommandContext(t.Context(), quick, "strip", file)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		t.Fatalf("wg-quick strip: %v: %s\n%s", err, out, conf)
	}
	return out.String()
}

// numeric replaces host names, which nobody resolves in a network of its own.
func numeric(conf string) string {
	var out []string
	for line := range strings.Lines(conf) {
		if host, ok := strings.CutPrefix(line, "Endpoint = "); ok && !strings.HasPrefix(host, "[") {
			line = fmt.Sprintf("Endpoint = 192.0.2.1%s", host[strings.LastIndexByte(host, ':'):])
		}
		out = append(out, line)
	}
	return strings.Join(out, "")
}
