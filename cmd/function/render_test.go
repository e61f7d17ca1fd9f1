package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/offline"
)

// asCommand makes the test binary the command itself.
const asCommand = "FUNCTION_AS_COMMAND"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// command runs the command, and returns what it printed and its exit code.
func command(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	o, e := &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = o, e
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return o.String(), e.String(), cmd.ProcessState.ExitCode()
}

// rendered runs the command, which must succeed, and returns the objects that
// it prints.
func rendered(t *testing.T, args ...string) (string, []*unstructured.Unstructured) {
	t.Helper()
	stdout, stderr, code := command(t, append([]string{"render"}, args...)...)
	if code != 0 || stderr != "" {
		t.Fatalf("render %v: exit code %d: %s", args, code, stderr)
	}
	file := write(t, "out.yaml", stdout)
	objects, err := offline.ReadObjects(file)
	if err != nil {
		t.Fatalf("what is printed is no YAML: %v\n%s", err, stdout)
	}
	return stdout, objects
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const minimal = "../../example/minimal/xr.yaml"

func TestRender(t *testing.T) {
	stdout, objects := rendered(t, minimal)
	var got []string
	for _, o := range objects {
		got = append(got, o.GetKind()+" "+o.GetNamespace()+"/"+o.GetName()+" "+o.GetAnnotations()[offline.AnnotationKey])
	}
	want := []string{
		"WireguardGateway vpn/home ",
		"Secret vpn/home-wireguard.config config",
		"Deployment vpn/home-wireguard deployment",
		"Secret vpn/home-wireguard.peer.laptop peer-laptop",
		"Secret vpn/home-wireguard.peer.phone peer-phone",
		"Role vpn/home-wireguard role",
		"RoleBinding vpn/home-wireguard role-binding",
		"Secret vpn/home-wireguard.seed seed",
		"Service vpn/home-wireguard service",
		"ServiceAccount vpn/home-wireguard service-account",
		"ConfigMap vpn/home-wireguard.status status",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	for _, line := range []string{"# direct.conf:", "#   [Interface]", "#   PrivateKey = ", "#   Endpoint = vpn.example.com:51820"} {
		if !strings.Contains(stdout, line) {
			t.Errorf("nobody reads base64: want %q in the clear, got none", line)
		}
	}
	conditions, _, err := unstructured.NestedSlice(objects[0].Object, "status", "conditions")
	if err != nil || len(conditions) != 7 {
		t.Errorf("want all conditions in the status, got %v", conditions)
	}
}

// TestRenderAgain: what was rendered is there the next time, and renders the
// same objects.
func TestRenderAgain(t *testing.T) {
	for _, example := range examples(t) {
		t.Run(filepath.Base(filepath.Dir(example)), func(t *testing.T) {
			var required []string
			if f := filepath.Join(filepath.Dir(example), "required.yaml"); exists(f) {
				required = []string{"--required", f}
			}
			_, first := rendered(t, append([]string{example}, required...)...)
			stdout, _ := rendered(t, append([]string{example}, required...)...)
			// The composite resource is the first document, and not composed.
			_, composed, _ := strings.Cut(strings.TrimPrefix(stdout, "---\n"), "---\n")
			observed := write(t, "observed.yaml", composed)
			_, second := rendered(t, append([]string{example, "--observed", observed}, required...)...)
			_, third := rendered(t, append([]string{example, "--observed", observed}, required...)...)
			if diff := cmp.Diff(second, third); diff != "" {
				t.Errorf("a seed that is observed renders the same each time: -second, +third:\n%s", diff)
			}
			before, err := offline.ReadObjects(observed)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, second[1:]); diff != "" {
				t.Errorf("-observed, +rendered:\n%s", diff)
			}
			if len(first) != len(second) {
				t.Errorf("want %d objects again, got %d", len(first), len(second))
			}
		})
	}
}

// examples are those of gateways: a peer on its own finds no gateway.
func examples(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../example/*/xr.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("want examples, got none, error %v", err)
	}
	return slices.DeleteFunc(files, func(f string) bool {
		o, err := offline.ReadObject(f)
		return err != nil || o.GetKind() != "WireguardGateway"
	})
}

func exists(file string) bool {
	_, err := os.Stat(file)
	return err == nil
}

func TestRenderRequired(t *testing.T) {
	xr := write(t, "xr.yaml", `
apiVersion: wireguardgateway.io/v1alpha1
kind: WireguardGateway
metadata: {name: home, namespace: vpn}
spec:
  endpoint: {host: vpn.example.com}
  peers: [{name: laptop, privateKeySecretRef: {name: keys}}]
`)
	stdout, objects := rendered(t, xr)
	if !strings.Contains(stdout, "reason: SecretMissing") {
		t.Errorf("want the peer rejected, got\n%s", stdout)
	}
	// A List, as kubectl prints it.
	required := write(t, "required.yaml", `
apiVersion: v1
kind: List
items:
  - apiVersion: v1
    kind: Secret
    metadata: {name: keys, namespace: vpn}
    data: {privateKey: ZHdkdENuTVlwWDA4RnNGeVViSm1SZDlNTDRmcndKa3FzWGY3cFIyNUxDbz0=}
`)
	stdout, with := rendered(t, xr, "--required", required)
	if len(with) != len(objects)+1 || !strings.Contains(stdout, "publicKey: hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=") {
		t.Errorf("want the peer served with its own key, got\n%s", stdout)
	}
}

func TestRenderComposition(t *testing.T) {
	composition := write(t, "composition.yaml", `
apiVersion: apiextensions.crossplane.io/v1
kind: Composition
metadata: {name: gateway}
spec:
  pipeline:
    - step: gateway
      functionRef: {name: function-wireguard-gateway}
      input:
        apiVersion: wireguard.fn.crossplane.io/v1beta1
        kind: Input
        spec: {clusterDomain: k8s.example.com}
`)
	stdout, _ := rendered(t, minimal, "--composition", composition)
	if !strings.Contains(stdout, "internal: home-wireguard.vpn.svc.k8s.example.com:51820") {
		t.Errorf("want the input's domain, got\n%s", stdout)
	}
}

func TestRenderFails(t *testing.T) {
	const head = "apiVersion: wireguardgateway.io/v1alpha1\nkind: WireguardGateway\nmetadata: {name: home, namespace: vpn}\n"
	cases := map[string]struct {
		reason string
		args   []string
		says   string // on stderr
		prints string // on stdout
	}{
		"Fatal":      {"Crossplane would apply nothing.", []string{write(t, "xr.yaml", head+"spec: {peerCIDR: 10.8.0.1/24}")}, "write 10.8.0.0/24", "severity: SEVERITY_FATAL"},
		"Misspelt":   {"The API server would drop it.", []string{write(t, "xr.yaml", head+"spec: {peerCDIR: 10.8.0.0/24}")}, "peerCDIR", ""},
		"NoFile":     {"There is no such file.", []string{"nowhere.yaml"}, "nowhere.yaml", ""},
		"NoYAML":     {"It is no YAML.", []string{write(t, "xr.yaml", "a: [")}, "xr.yaml", ""},
		"TwoObjects": {"Which of them?", []string{write(t, "xr.yaml", head+"---\n"+head)}, "2 objects", ""},
		"NoObject":   {"There is nothing in it.", []string{write(t, "xr.yaml", "# nothing\n")}, "0 objects", ""},
		"NoKey":      {"Whose is it?", []string{minimal, "--observed", write(t, "observed.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n")}, "crossplane.io/composition-resource-name", ""},
		"NoPipeline": {"It is no Composition.", []string{minimal, "--composition", write(t, "c.yaml", "kind: Composition\nspec: {}\n")}, "no pipeline", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			stdout, stderr, code := command(t, append([]string{"render"}, tc.args...)...)
			if code == 0 {
				t.Errorf("%s\nwant another exit code than 0", tc.reason)
			}
			if !strings.Contains(stderr, tc.says) || !strings.Contains(stdout, tc.prints) {
				t.Errorf("%s\nwant %q on stderr and %q on stdout, got\n%s\n%s", tc.reason, tc.says, tc.prints, stderr, stdout)
			}
		})
	}
}
