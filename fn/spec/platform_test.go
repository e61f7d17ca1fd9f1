package spec

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wireguardgateway/function-wireguard-gateway/input/v1beta1"
)

func TestPlatform(t *testing.T) {
	prefixes := func(ss ...string) []netip.Prefix {
		out := make([]netip.Prefix, 0, len(ss))
		for _, s := range ss {
			out = append(out, netip.MustParsePrefix(s))
		}
		return out
	}
	cases := map[string]struct {
		reason string
		input  string
		want   Platform
	}{
		"Empty": {
			"A platform may name nothing.", `{}`,
			Platform{
				Images:        v1beta1.Images{Agent: DefaultAgentImage, Gluetun: DefaultGluetunImage, Wstunnel: DefaultWstunnelImage},
				PullPolicy:    "IfNotPresent",
				ClusterDomain: "cluster.local",
				TTL:           time.Minute,
			},
		},
		"Full": {
			"What is named is used.", `{images: {agent: a, gluetun: b, wstunnel: c}, imagePullPolicy: Always, clusterDomain: k8s.lan,
podCIDRs: [10.42.0.0/16], serviceCIDRs: ["fd43::/112"], nodeCIDRs: [192.0.2.0/24], clusterDNS: 10.43.0.10, cilium: true, ttl: 30s}`,
			Platform{
				Images:        v1beta1.Images{Agent: "a", Gluetun: "b", Wstunnel: "c"},
				PullPolicy:    "Always",
				ClusterDomain: "k8s.lan",
				PodCIDRs:      prefixes("10.42.0.0/16"),
				ServiceCIDRs:  prefixes("fd43::/112"),
				NodeCIDRs:     prefixes("192.0.2.0/24"),
				ClusterDNS:    netip.MustParseAddr("10.43.0.10"),
				Cilium:        true,
				TTL:           30 * time.Second,
			},
		},
		"Twice": {
			"A network that is written in two ways is one.", `{podCIDRs: ["fd42::/56", 10.42.0.0/16, "fd42:0::/56"], serviceCIDRs: [10.43.0.0/16, 10.43.0.0/16]}`,
			Platform{
				Images:        v1beta1.Images{Agent: DefaultAgentImage, Gluetun: DefaultGluetunImage, Wstunnel: DefaultWstunnelImage},
				PullPolicy:    "IfNotPresent",
				ClusterDomain: "cluster.local",
				PodCIDRs:      prefixes("fd42::/56", "10.42.0.0/16"),
				ServiceCIDRs:  prefixes("10.43.0.0/16"),
				TTL:           time.Minute,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, errs := ParsePlatform(*fromYAML[v1beta1.InputSpec](t, tc.input))
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			if diff := cmp.Diff(tc.want, got, netTypes); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// Where pods, Services and nodes have one network, it is one of the cluster's.
func TestClusterCIDRs(t *testing.T) {
	p, errs := ParsePlatform(*fromYAML[v1beta1.InputSpec](t, `{podCIDRs: [10.0.0.0/8], serviceCIDRs: [10.0.0.0/8, 10.43.0.0/16], nodeCIDRs: [192.0.2.0/24, 10.0.0.0/8]}`))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	want := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("10.43.0.0/16"), netip.MustParsePrefix("192.0.2.0/24")}
	if diff := cmp.Diff(want, p.ClusterCIDRs(), netTypes); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

func TestPlatformRefused(t *testing.T) {
	cases := map[string]struct {
		reason string
		input  string
		want   []string
	}{
		"CIDR":       {"The message names the input's field.", `{podCIDRs: [10.42.0.1/16]}`, []string{`input.spec.podCIDRs[0]: Invalid value: "10.42.0.1/16": has host bits set`}},
		"PullPolicy": {"There are three.", `{imagePullPolicy: Sometimes}`, []string{`input.spec.imagePullPolicy: Unsupported value: "Sometimes"`}},
		"Domain":     {"It is part of endpoints.", `{clusterDomain: "a\nb"}`, []string{`input.spec.clusterDomain: Invalid value: "a\nb"`}},
		"DNS":        {"It is an address.", `{clusterDNS: kube-dns}`, []string{`input.spec.clusterDNS: Invalid value: "kube-dns"`}},
		"TTL":        {"Zero would mean never.", `{ttl: 0s}`, []string{`input.spec.ttl: Invalid value: "0s": is not positive`}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, errs := ParsePlatform(*fromYAML[v1beta1.InputSpec](t, tc.input))
			var messages []string
			for _, e := range errs {
				messages = append(messages, e.Error())
			}
			checkErrors(t, tc.reason, tc.want, messages)
		})
	}
}
