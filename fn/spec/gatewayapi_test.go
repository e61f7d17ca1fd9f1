package spec

import (
	"fmt"
	"testing"
)

// refuseKey checks that a key of labels or annotations is refused at its place.
func refuseKey(t *testing.T, spec, path, key, message string) {
	t.Helper()
	_, errs := parse(t, fmt.Sprintf(spec, key))
	checkErrors(t, "The gateway depends on it.", []string{fmt.Sprintf("%s[%s]: Forbidden: %s", path, key, message)}, errs)
}

func TestTunnel(t *testing.T) {
	const gateway = `gateway: {hostname: ws.example.com, parentRefs: [{name: public}]}`
	for _, prefix := range []string{"", "a", "ws-9f", "A.b_c~d", "..."} {
		g := accepted(t, fmt.Sprintf(`{tunnel: {pathPrefix: "%s"}, %s}`, prefix, gateway))
		if g.Tunnel.PathPrefix != prefix {
			t.Errorf("want the prefix %q, got %q", prefix, g.Tunnel.PathPrefix)
		}
	}
	for name, prefix := range map[string]string{
		"Slash":     "a/b",
		"Leading":   "/a",
		"Trailing":  "a/",
		"Dot":       ".",
		"Up":        "..",
		"Space":     "a b",
		"Quote":     "a'b",
		"Comment":   "a#b",
		"Substitut": "a$(reboot)",
		"LineBreak": `a\nPostUp = reboot`,
		"Interface": "a%i",
		"Query":     "a?b",
		"NotASCII":  "ä",
		"TooLong":   "0123456789012345678901234567890123456789012345678901234567890123",
	} {
		t.Run(name, func(t *testing.T) {
			_, errs := parse(t, fmt.Sprintf(`{tunnel: {pathPrefix: "%s"}, %s}`, prefix, gateway))
			checkErrors(t, "It stands in a route, an argument and a shell command.", []string{`spec.tunnel.pathPrefix: Invalid value: `}, errs)
		})
	}
	testRefusals(t, map[string]refusal{
		"NoParent":   {"Somebody has to terminate TLS.", `{tunnel: {}, gateway: {hostname: a.b}}`, []string{`spec.gateway.parentRefs: Required value: the tunnel needs a Gateway`}},
		"NoHostname": {"Clients have to find it.", `{tunnel: {}, gateway: {parentRefs: [{name: a}]}}`, []string{`spec.gateway.hostname: Required value: the tunnel needs the name`}},
		"Type":       {"There is one.", `{tunnel: {type: udp2raw}, ` + gateway + `}`, []string{`spec.tunnel.type: Unsupported value: "udp2raw"`}},
		"ListenPort": {"wstunnel has it.", `{listenPort: 8080, tunnel: {}, ` + gateway + `}`, []string{`spec.listenPort: Invalid value: 8080: is the port of the tunnel`}},
		"Resources":  {"The API server would drop the field.", `{tunnel: {resources: {limit: {}}}, ` + gateway + `}`, []string{`spec.tunnel.resources: Invalid value: unknown field "limit"`}},
	})
}

func TestGatewayAPIRefused(t *testing.T) {
	const other = `parentRefs: [{name: a}]`
	testRefusals(t, map[string]refusal{
		"HostnameUpper":    {"The Gateway API wants lower case.", `{gateway: {hostname: VPN.example.com}}`, []string{`spec.gateway.hostname: Invalid value: "VPN.example.com"`}},
		"HostnameWildcard": {"Clients connect to one name.", `{gateway: {hostname: "*.example.com"}}`, []string{`spec.gateway.hostname: Invalid value`}},
		"HostnameAddress":  {"The Gateway API wants a name.", `{gateway: {hostname: 192.0.2.1}}`, []string{`spec.gateway.hostname: Invalid value: "192.0.2.1"`}},
		"HostnamePort":     {"The listener has the port.", `{gateway: {hostname: "a.b:443"}}`, []string{`spec.gateway.hostname: Invalid value: "a.b:443"`}},
		"ParentGroup":      {"It is a group.", `{gateway: {parentRefs: [{name: a, group: "/"}]}}`, []string{`spec.gateway.parentRefs[0].group: Invalid value: "/"`}},
		"ParentKind":       {"It is a kind.", `{gateway: {parentRefs: [{name: a, kind: a/b}]}}`, []string{`spec.gateway.parentRefs[0].kind: Invalid value: "a/b"`}},
		"ParentName":       {"It is the name of an object.", `{gateway: {parentRefs: [{name: "a b"}]}}`, []string{`spec.gateway.parentRefs[0].name: Invalid value: "a b"`}},
		"ParentNamespace":  {"It is the name of a namespace.", `{gateway: {parentRefs: [{name: a, namespace: b.c}]}}`, []string{`spec.gateway.parentRefs[0].namespace: Invalid value: "b.c"`}},
		"ParentSection":    {"It is the name of a listener.", `{gateway: {parentRefs: [{name: a, sectionName: "b c"}]}}`, []string{`spec.gateway.parentRefs[0].sectionName: Invalid value: "b c"`}},
		"ParentPort":       {"A port has 16 bits.", `{gateway: {parentRefs: [{name: a, port: 70000}]}}`, []string{`spec.gateway.parentRefs[0].port: Invalid value: 70000`}},
		"ParentTwice":      {"The Gateway API refuses it.", `{gateway: {parentRefs: [{name: a}, {name: a}]}}`, []string{`spec.gateway.parentRefs[1]: Duplicate value: "a"`}},
		"ParentAndSection": {"The one without listener means all of them.", `{gateway: {parentRefs: [{name: a}, {name: a, sectionName: b}]}}`, []string{`spec.gateway.parentRefs[1]: Duplicate value: "a"`}},
		"ParentDefaults":   {"Defaults mean the same, written or not.", `{gateway: {parentRefs: [{name: a, kind: Gateway, group: gateway.networking.k8s.io}, {name: a}]}}`, []string{`spec.gateway.parentRefs[1]: Duplicate value: "a"`}},
		"UDPNoParent":      {"A route attaches to something.", `{gateway: {hostname: a.b, udpRoute: {enabled: true}}}`, []string{`spec.gateway.udpRoute.parentRefs: Required value`}},
		"UDPNoHostname":    {"Clients have to find it.", `{gateway: {udpRoute: {enabled: true, ` + other + `}}}`, []string{`spec.gateway.hostname: Required value: gateway.udpRoute needs`}},
		"UDPPort":          {"A port has 16 bits.", `{gateway: {hostname: a.b, udpRoute: {enabled: true, port: 70000, ` + other + `}}}`, []string{`spec.gateway.udpRoute.port: Invalid value: 70000`}},
		"UDPOff":           {"What is off may still be wrong.", `{gateway: {udpRoute: {parentRefs: [{name: "a b"}]}}}`, []string{`spec.gateway.udpRoute.parentRefs[0].name: Invalid value: "a b"`}},
	})
	accepted(t, `{gateway: {parentRefs: [{name: a, sectionName: b}, {name: a, sectionName: c}, {name: a, namespace: d}, {name: a, kind: Service, group: ""}]}}`)
	if g := accepted(t, `{gateway: {hostname: a.b, udpRoute: {`+other+`}}}`); g.GatewayAPI.UDPRoute != nil {
		t.Error("want no UDPRoute where it is not enabled")
	}
	if g := accepted(t, `{gateway: {hostname: a.b, udpRoute: {enabled: true, `+other+`}}}`); g.GatewayAPI.UDPRoute.Port != 51820 {
		t.Errorf("want WireGuard's port as the listener's default, got %d", g.GatewayAPI.UDPRoute.Port)
	}
}

func TestPodMonitor(t *testing.T) {
	if g := accepted(t, `{monitoring: {podMonitor: {labels: {a: b}}}}`); g.PodMonitor != nil {
		t.Error("want no PodMonitor where it is not enabled")
	}
	for _, interval := range []string{"30s", "1m", "1m30s", "2h", "500ms", "1h0m1s"} {
		g := accepted(t, `{monitoring: {podMonitor: {enabled: true, interval: `+interval+`}}}`)
		if g.PodMonitor.Interval != interval {
			t.Errorf("want the interval %s, got %s", interval, g.PodMonitor.Interval)
		}
	}
	for _, interval := range []string{"30", "0s", "30s1m", "1m1m", "half", "-1s", "1.5s", "30 s"} {
		_, errs := parse(t, `{monitoring: {podMonitor: {enabled: true, interval: "`+interval+`"}}}`)
		checkErrors(t, "The Prometheus operator refuses it.", []string{`spec.monitoring.podMonitor.interval: Invalid value: "` + interval + `": is no duration`}, errs)
	}
}
