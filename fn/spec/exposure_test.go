package spec

import (
	"strings"
	"testing"
)

func TestEndpointHost(t *testing.T) {
	for in, want := range map[string]string{
		"vpn.example.com":  "vpn.example.com",
		"VPN.example.com":  "VPN.example.com",
		"vpn.example.com.": "vpn.example.com.",
		"home_lab.lan":     "home_lab.lan",
		"203.0.113.9":      "203.0.113.9",
		"2001:DB8::1":      "2001:db8::1",
		"[2001:db8::1]":    "2001:db8::1",
	} {
		if got := accepted(t, `{endpoint: {host: "`+in+`"}}`).Endpoint.Host; got != want {
			t.Errorf("%s: want %s, got %s", in, want, got)
		}
	}
	for name, in := range map[string]string{
		"Scheme":       "https://vpn.example.com",
		"Port":         "vpn.example.com:51820",
		"PortAndIPv6":  "[2001:db8::1]:51820",
		"Path":         "vpn.example.com/a",
		"Space":        "vpn example.com",
		"LineBreak":    "vpn.example.com\nPostUp = reboot",
		"Tab":          "vpn.example.com\t",
		"NUL":          `vpn.example.com\0`,
		"BrokenIPv4":   "203.0.113.256",
		"ShortIPv4":    "203.0.113",
		"NameBrackets": "[vpn.example.com]",
		"IPv4Brackets": "[203.0.113.9]",
		"OpenBracket":  "[2001:db8::1",
		"CloseBracket": "2001:db8::1]",
		"Zone":         "fe80::1%eth0",
		"Mapped":       "::ffff:203.0.113.9",
		"EmptyLabel":   "vpn..example.com",
		"Wildcard":     "*.example.com",
		"NotASCII":     "vpn.exämple.com",
		"TooLong":      strings.Repeat("a.", 127) + "com",
	} {
		t.Run(name, func(t *testing.T) {
			quoted := strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(in)
			_, errs := parse(t, `{endpoint: {host: "`+quoted+`"}}`)
			checkErrors(t, "It is no host.", []string{`spec.endpoint.host: Invalid value: "`}, errs)
			_, errs = parse(t, `{peers: [{name: a, advertisedEndpoint: {host: "`+quoted+`"}}]}`)
			checkErrors(t, "It is no host for a peer either.", []string{`spec.peers[0].advertisedEndpoint.host: Invalid value: "`}, errs)
		})
	}
}

func TestPortsRefused(t *testing.T) {
	testRefusals(t, map[string]refusal{
		"Listen":         {"A port has 16 bits.", `{listenPort: 65536}`, []string{`spec.listenPort: Invalid value: 65536: is out of range: use 1 to 65535`}},
		"ListenNegative": {"A port has no sign.", `{listenPort: -1}`, []string{`spec.listenPort: Invalid value: -1`}},
		"ListenAgent":    {"The agent's is taken.", `{listenPort: 9586}`, []string{`spec.listenPort: Invalid value: 9586: is the port of the agent's health and metrics`}},
		"Endpoint":       {"A port has 16 bits.", `{endpoint: {port: 65536}}`, []string{`spec.endpoint.port: Invalid value: 65536`}},
		"Advertised":     {"A port has 16 bits.", `{peers: [{name: a, advertisedEndpoint: {host: b.c, port: 65536}}]}`, []string{`spec.peers[0].advertisedEndpoint.port: Invalid value: 65536`}},
		"Node":           {"A port has 16 bits.", `{service: {nodePort: -5}}`, []string{`spec.service.nodePort: Invalid value: -5`}},
		"HealthCheck":    {"A port has 16 bits.", `{service: {healthCheckPort: 99999}}`, []string{`spec.service.healthCheckPort: Invalid value: 99999`}},
	})
}

func TestServiceRefused(t *testing.T) {
	testRefusals(t, map[string]refusal{
		"Type":          {"ExternalName leads nowhere.", `{service: {type: ExternalName}}`, []string{`spec.service.type: Unsupported value: "ExternalName"`}},
		"Annotation":    {"The API server would refuse it.", `{service: {annotations: {"a b": c}}}`, []string{`spec.service.annotations: Invalid value: "a b"`}},
		"Label":         {"The API server would refuse it.", `{service: {labels: {a: "b c"}}}`, []string{`spec.service.labels[a]: Invalid value: "b c"`}},
		"LabelKey":      {"The API server would refuse it.", `{service: {labels: {"/": b}}}`, []string{`spec.service.labels: Invalid value: "/"`}},
		"IP":            {"It is an address.", `{service: {loadBalancerIP: lb.example.com}}`, []string{`spec.service.loadBalancerIP: Invalid value: "lb.example.com"`}},
		"SourceRange":   {"It is a network.", `{service: {loadBalancerSourceRanges: [192.0.2.1]}}`, []string{`spec.service.loadBalancerSourceRanges[0]: Invalid value: "192.0.2.1"`}},
		"TrafficPolicy": {"There are two.", `{service: {externalTrafficPolicy: local}}`, []string{`spec.service.externalTrafficPolicy: Unsupported value: "local"`}},
		"FamilyPolicy":  {"There are three.", `{service: {ipFamilyPolicy: Both}}`, []string{`spec.service.ipFamilyPolicy: Unsupported value: "Both"`}},
		"Family":        {"There are two.", `{service: {ipFamilies: [IPv5]}}`, []string{`spec.service.ipFamilies[0]: Unsupported value: "IPv5"`}},
		"FamilyTwice":   {"One of them is enough.", `{service: {ipFamilies: [IPv6, IPv6]}}`, []string{`spec.service.ipFamilies[1]: Duplicate value: "IPv6"`}},
	})
}

// TestSourceRanges holds that what load balancers and the schema take is taken
// here too, and becomes what Kubernetes takes: it refuses host bits.
func TestSourceRanges(t *testing.T) {
	const annotation = "service.beta.kubernetes.io/load-balancer-source-ranges"
	g := accepted(t, `{service: {loadBalancerSourceRanges: [192.0.2.1/24, "2001:DB8:0::1/32", 198.51.100.7/32, 192.0.2.0/24]}}`)
	if got := strings.Join(g.Service.LoadBalancerSourceRanges, " "); got != "192.0.2.0/24 2001:db8::/32 198.51.100.7/32" {
		t.Errorf("want networks, each once, got %s", got)
	}
	// Kubernetes reads the annotation where there is no field.
	for name, tc := range map[string]struct{ annotation, field, want string }{
		"HostBits": {"192.0.2.1/24, 198.51.100.0/24", "", "192.0.2.0/24,198.51.100.0/24"},
		"Empty":    {"", "", ""},
		"Field":    {"anything", "192.0.2.0/24", "anything"},
	} {
		g := accepted(t, `{service: {annotations: {`+annotation+`: "`+tc.annotation+`"}, loadBalancerSourceRanges: [`+tc.field+`]}}`)
		if got := g.Service.Annotations[annotation]; got != tc.want {
			t.Errorf("%s: want %s, got %s", name, tc.want, got)
		}
	}
	testRefusals(t, map[string]refusal{
		"Mapped":     {"Kubernetes refuses IPv4 in IPv6 form.", `{service: {loadBalancerSourceRanges: ["::ffff:192.0.2.0/120"]}}`, []string{`spec.service.loadBalancerSourceRanges[0]: Invalid value: "::ffff:192.0.2.0/120": is an IPv4 network in IPv6 form: write it as IPv4`}},
		"Padded":     {"Some read it as octal.", `{service: {loadBalancerSourceRanges: [192.0.02.0/24]}}`, []string{`spec.service.loadBalancerSourceRanges[0]: Invalid value: "192.0.02.0/24": is no network`}},
		"Annotation": {"Kubernetes reads it, too.", `{service: {annotations: {` + annotation + `: "192.0.2.0/24,office"}}}`, []string{`spec.service.annotations[` + annotation + `]: Invalid value: "office": is no network`}},
	})
}

func TestEnumsRefused(t *testing.T) {
	testRefusals(t, map[string]refusal{
		"IPForwarding":   {"These are the ways.", `{ipForwarding: Always}`, []string{`spec.ipForwarding: Unsupported value: "Always"`}},
		"Implementation": {"These are the implementations.", `{implementation: Boringtun}`, []string{`spec.implementation: Unsupported value: "Boringtun"`}},
	})
}
