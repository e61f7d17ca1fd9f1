package spec

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestConsentAllows(t *testing.T) {
	cases := map[string]struct {
		reason    string
		spec      string
		namespace string
		labels    map[string]string
		want      bool
	}{
		"AbsentSame":        {"nobody else may attach where the owner said nothing", `{}`, "vpn", nil, true},
		"AbsentOther":       {"nobody else may attach where the owner said nothing", `{}`, "apps", nil, false},
		"DefaultFrom":       {"limits alone let nobody in", `{allowedPeerNamespaces: {limits: {routes: [10.0.0.0/8]}}}`, "apps", nil, false},
		"All":               {"all are all", `{allowedPeerNamespaces: {from: All}}`, "apps", nil, true},
		"Named":             {"a namespace that is named may attach", `{allowedPeerNamespaces: {from: Names, names: [web, apps]}}`, "apps", nil, true},
		"NotNamed":          {"others may not", `{allowedPeerNamespaces: {from: Names, names: [web, apps]}}`, "app", nil, false},
		"OwnNotNamed":       {"the gateway's own is no exception, as with listeners of the Gateway API", `{allowedPeerNamespaces: {from: Names, names: [apps]}}`, "vpn", nil, false},
		"Selected":          {"every label must be there", `{allowedPeerNamespaces: {from: Selector, selector: {matchLabels: {team: a, stage: prod}}}}`, "apps", map[string]string{"team": "a", "stage": "prod", "x": "y"}, true},
		"HalfSelected":      {"one label of two is not enough", `{allowedPeerNamespaces: {from: Selector, selector: {matchLabels: {team: a, stage: prod}}}}`, "apps", map[string]string{"team": "a"}, false},
		"EmptyIsNotMissing": {"a label without a value must be there too", `{allowedPeerNamespaces: {from: Selector, selector: {matchLabels: {vpn: ""}}}}`, "apps", nil, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := accepted(t, tc.spec).Consent.Allows(tc.namespace, tc.labels); got != tc.want {
				t.Errorf("%s: Allows(%q, %v): want %t, got %t", tc.reason, tc.namespace, tc.labels, tc.want, got)
			}
		})
	}
	if (Consent{}).Allows("apps", nil) {
		t.Error("consent that was not read allows a namespace")
	}
}

func TestConsentRefused(t *testing.T) {
	cases := map[string]struct {
		reason string
		spec   string
		field  string
		says   string
	}{
		"UnknownFrom":      {"it could be meant as any of them", `{from: Everybody}`, "from", "Everybody"},
		"NoNames":          {"from: Names without names allows nobody, which nobody writes", `{from: Names}`, "names", "list the namespaces"},
		"NamesUnused":      {"names look as if they did something", `{from: All, names: [apps]}`, "names", "from: Names only"},
		"NoSelector":       {"a selector without labels matches nothing", `{from: Selector}`, "selector.matchLabels", "at least one label"},
		"EmptySelector":    {"a selector without labels matches nothing", `{from: Selector, selector: {matchLabels: {}}}`, "selector.matchLabels", "at least one label"},
		"SelectorUnused":   {"a selector looks as if it did something", `{selector: {matchLabels: {a: b}}}`, "selector", "from: Selector only"},
		"NoNamespace":      {"no namespace has such a name", `{from: Names, names: [Apps]}`, "names[0]", `"Apps"`},
		"NoLabel":          {"no namespace has such a label", `{from: Selector, selector: {matchLabels: {"a b": c}}}`, "selector.matchLabels", `"a b"`},
		"LimitedRouteHost": {"host bits are a mistake", `{limits: {routes: [10.0.0.1/8]}}`, "limits.routes[0]", "10.0.0.0/8"},
		"LimitedAction":    {"an action that nobody knows would be taken for none", `{limits: {access: [{action: Drop}]}}`, "limits.access[0].action", "Drop"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, errs := parse(t, "{allowedPeerNamespaces: "+tc.spec+"}")
			for _, e := range errs {
				if strings.HasPrefix(e, "spec.allowedPeerNamespaces."+tc.field+":") && strings.Contains(e, tc.says) {
					return
				}
			}
			t.Errorf("%s: want an error at %s with %q, got %q", tc.reason, tc.field, tc.says, errs)
		})
	}
}

func TestLimitsWithin(t *testing.T) {
	g := accepted(t, `{allowedPeerNamespaces: {from: All, limits: {routes: [172.16.0.0/12, "fd50::/16"], access: [{action: Accept, to: {cidr: 10.43.0.0/16}}]}}}`)
	for s, want := range map[string]bool{
		"172.16.0.0/12": true, "172.20.0.0/16": true, "172.16.0.0/11": false, "192.168.0.0/24": false,
		"fd50:1::/32": true, "fd51::/16": false, "0.0.0.0/0": false,
	} {
		if got := g.Consent.Limits.Within(netip.MustParsePrefix(s)); got != want {
			t.Errorf("Within(%s): want %t, got %t", s, want, got)
		}
	}
	if diff := cmp.Diff(1, len(g.Consent.Limits.Access)); diff != "" {
		t.Errorf("access of the limits: -want, +got:\n%s", diff)
	}
	if (Limits{}).Within(netip.MustParsePrefix("192.168.0.0/24")) {
		t.Error("without limits, a WireguardPeer may announce nothing")
	}
}
