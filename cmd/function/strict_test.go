package main

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

func TestCheckFields(t *testing.T) {
	cases := map[string]struct {
		reason string
		xr     string
		want   string // in the error; empty for none
	}{
		"Known":      {"what a gateway has is fine", "kind: WireguardGateway\nspec: {peers: [{name: a, mtu: 1280}]}", ""},
		"Crossplane": {"what Crossplane adds is fine", "kind: XWireguardGateway\nspec: {claimRef: {name: a}, compositionUpdatePolicy: Automatic, crossplane: {}}", ""},
		"Raw":        {"the function refuses these by path", "kind: WireguardGateway\nspec: {volumes: [{name: a, emptyDirr: {}}]}", ""},
		"Misspelt":   {"a typing error must not pass", "kind: WireguardGateway\nspec: {peerCIRD: 10.8.0.0/24}", `unknown field "spec.peerCIRD"`},
		"Nested":     {"nor one further down", "kind: WireguardGateway\nspec: {peers: [{name: a, adresses: []}]}", `unknown field "spec.peers[0].adresses"`},
		"Case":       {"nor one of case", "kind: WireguardGateway\nspec: {PeerCIDR: 10.8.0.0/24}", `unknown field "spec.PeerCIDR"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(tc.xr), &o.Object); err != nil {
				t.Fatal(err)
			}
			err := checkFields(o)
			if tc.want == "" && err != nil {
				t.Errorf("%s: got error %q, want none", tc.reason, err)
			}
			if tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s: got error %v, want %q", tc.reason, err, tc.want)
			}
		})
	}
}
