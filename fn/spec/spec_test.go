package spec

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"sigs.k8s.io/yaml"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/input/v1beta1"
)

// netTypes are compared as values: they keep their fields to themselves.
var netTypes = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})}

// testInput is the platform that the tests of gateways run on.
const testInput = `{podCIDRs: ["10.42.0.0/16"], serviceCIDRs: ["10.43.0.0/16", "fd43::/112"], nodeCIDRs: ["192.0.2.0/24"]}`

func fromYAML[T any](t *testing.T, s string) *T {
	t.Helper()
	out := new(T)
	if err := yaml.UnmarshalStrict([]byte(s), out); err != nil {
		t.Fatal(err)
	}
	return out
}

// parse reads a gateway called home in the namespace vpn, and returns what is
// wrong with it.
func parse(t *testing.T, s string) (*Gateway, []string) {
	t.Helper()
	return parseWith(t, "home", s, "{}")
}

func parseWith(t *testing.T, name, s, status string) (*Gateway, []string) {
	t.Helper()
	platform, errs := ParsePlatform(*fromYAML[v1beta1.InputSpec](t, testInput))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	g, errs := Parse(name, "vpn", fromYAML[v1alpha1.WireguardGatewaySpec](t, s), fromYAML[v1alpha1.WireguardGatewayStatus](t, status), platform)
	var messages []string
	for _, e := range errs {
		messages = append(messages, e.Error())
	}
	return g, messages
}

// accepted reads a gateway that must be valid.
func accepted(t *testing.T, s string) *Gateway {
	t.Helper()
	g, errs := parse(t, s)
	if len(errs) > 0 {
		t.Fatalf("want a valid spec, got %s", strings.Join(errs, "\n"))
	}
	return g
}

// refusal is a spec that is not valid, and what the errors must say: each
// string stands in exactly one error, and each error has its string.
type refusal struct {
	reason string
	spec   string
	want   []string
}

func testRefusals(t *testing.T, cases map[string]refusal) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, errs := parse(t, tc.spec)
			checkErrors(t, tc.reason, tc.want, errs)
		})
	}
}

func checkErrors(t *testing.T, reason string, want, errs []string) {
	t.Helper()
	if len(errs) != len(want) {
		t.Errorf("%s\nwant %d errors, got %d: %s", reason, len(want), len(errs), strings.Join(errs, "\n"))
	}
	for _, w := range want {
		found := 0
		for _, e := range errs {
			if strings.Contains(e, w) {
				found++
			}
		}
		if found != 1 {
			t.Errorf("%s\nwant one error with\n  %s\ngot %d of\n  %s", reason, w, found, strings.Join(errs, "\n  "))
		}
	}
}

func TestNames(t *testing.T) {
	forty := strings.Repeat("a", 40)
	cases := map[string]struct {
		reason string
		name   string
		want   []string
	}{
		"Label":       {"A DNS label is a name.", "home-2", nil},
		"Longest":     {"40 characters fit.", forty, nil},
		"TooLong":     {"The message says how long it may be.", forty + "a", []string{`metadata.name: Invalid value: "` + forty + `a": is too long: use at most 40 characters`}},
		"Dot":         {"Dots part the names of Secrets.", "home.lab", []string{`metadata.name: Invalid value: "home.lab": is no DNS label`}},
		"Upper":       {"Kubernetes has lower case only.", "Home", []string{`metadata.name: Invalid value: "Home": is no DNS label`}},
		"Empty":       {"An object without a name would be created for ever.", "", []string{`metadata.name: Invalid value: "": is no DNS label`}},
		"Dash":        {"A label does not end in a dash.", "home-", []string{`metadata.name: Invalid value: "home-": is no DNS label`}},
		"DigitFirst":  {"The name of a Service begins with a letter (RFC 1035).", "1home", []string{`metadata.name: Invalid value: "1home": must begin with a letter`}},
		"LineBreak":   {"Nothing that breaks a line gets through.", "home\n", []string{`metadata.name: Invalid value: "home\n": is no DNS label`}},
		"NotASCII":    {"Labels are ASCII.", "höme", []string{`metadata.name: Invalid value: "höme": is no DNS label`}},
		"OnlyNumbers": {"So is this no name of a Service.", "42", []string{`metadata.name: Invalid value: "42": must begin with a letter`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, errs := parseWith(t, tc.name, "{}", "{}")
			checkErrors(t, tc.reason, tc.want, errs)
		})
	}
}

func TestDefaults(t *testing.T) {
	g := accepted(t, "{}")
	type defaults struct {
		Pools                                           []Pool
		ListenPort, Keepalive, MTU, TunnelMTU           int
		IPForwarding, Implementation, Service, SeedName string
		Grace                                           int64
	}
	want := defaults{
		Pools:          []Pool{{Prefix: netip.MustParsePrefix("10.8.0.0/24")}},
		ListenPort:     51820,
		Keepalive:      25,
		MTU:            1420,
		TunnelMTU:      1360,
		IPForwarding:   "Auto",
		Implementation: "Auto",
		Service:        "LoadBalancer",
		Grace:          10,
	}
	got := defaults{g.Pools, g.ListenPort, g.Keepalive, g.MTU, g.TunnelMTU, g.IPForwarding, g.Implementation, g.Service.Type, g.Keys.SeedSecret.Name, g.Pod.TerminationGracePeriodSeconds}
	if diff := cmp.Diff(want, got, netTypes); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
	if g.DNS != nil || g.PeerToPeer || len(g.Peers) != 0 || g.HasIPv6() {
		t.Errorf("want no DNS, no peers and no IPv6, got %+v", g)
	}
}

func TestAllErrorsAtOnce(t *testing.T) {
	_, errs := parse(t, `{peerCIDR: x, listenPort: 70000, mtu: {direct: 100}, service: {type: Magic}}`)
	checkErrors(t, "Who fixes a spec wants to know all that is wrong with it.", []string{
		`spec.peerCIDR: Invalid value: "x"`,
		`spec.listenPort: Invalid value: 70000`,
		`spec.mtu.direct: Invalid value: 100`,
		`spec.mtu.tunnel: Invalid value: 100`,
		`spec.service.type: Unsupported value: "Magic"`,
	}, errs)
}
