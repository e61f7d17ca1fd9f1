package controlplane

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/test/controlplane/harness"
)

// TestFields changes every field of the schemas, one at a time, on gateways and
// peers that are ready. Each changes an object, a configuration or the status, in
// the API server.
func TestFields(t *testing.T) {
	t.Parallel()
	c := shared(t)
	for _, tc := range []struct {
		kind    string
		changes map[string]change
		base    string
		create  func(t *testing.T, c *harness.Cluster, spec string) subject
	}{
		{v1alpha1.GatewayKind, changes, baseRich, newFieldGateway},
		{v1alpha1.PeerKind, peerChanges, baseClient, newFieldPeer},
	} {
		all := fieldsOf(t, c, tc.kind)
		for _, path := range slices.Sorted(maps.Keys(tc.changes)) {
			if !slices.Contains(all, path) {
				t.Errorf("%s: %s is no field", tc.kind, path)
			}
		}
		byBase := map[string][]string{}
		for _, path := range all {
			switch change, ok := tc.changes[path]; {
			case !ok:
				t.Errorf("%s: nobody says what %s changes", tc.kind, path)
			case change.without != "":
				t.Logf("%s: %s is not tried: %s", tc.kind, path, change.without)
			default:
				base := cmp.Or(change.base, tc.base)
				byBase[base] = append(byBase[base], path)
			}
		}
		for _, base := range slices.Sorted(maps.Keys(byBase)) {
			for paths := range slices.Chunk(byBase[base], fieldsOfOne) {
				t.Run(tc.kind+" from "+paths[0], func(t *testing.T) {
					t.Parallel()
					changeFields(t, tc.create(t, c, base), paths, tc.changes)
				})
			}
		}
	}
}

// fieldsOfOne is how many fields are changed of one composite resource, one after
// the other.
const fieldsOfOne = 20

// fieldsOf returns all fields of a kind, as the API server has them.
func fieldsOf(t *testing.T, c *harness.Cluster, kind string) []string {
	t.Helper()
	crd, err := c.Get(t.Context(), "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", strings.ToLower(kind)+"s."+v1alpha1.GroupVersion.Group)
	if err != nil {
		t.Fatal(err)
	}
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	schema, _, _ := unstructured.NestedMap(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "spec")
	all := leaves("", schema)
	slices.Sort(all)
	return all
}

// changeFields changes fields of one composite resource, one after the other.
func changeFields(t *testing.T, s subject, paths []string, changes map[string]change) {
	t.Helper()
	s.settle()
	effect, slowest, undone := s.effect(), time.Duration(0), true
	// What cannot be undone comes last.
	slices.SortStableFunc(paths, func(a, b string) int { return cmp.Compare(changes[a].stays, changes[b].stays) })
	for _, path := range paths {
		tc := changes[path]
		before, from := effect, merged(t, s.base, tc.before)
		if tc.before != "" || !undone {
			s.applyMap(from)
			s.settle()
			before = s.effect()
		}
		value := tc.value
		switch value {
		case sharing:
			value = s.apps
		case reserving:
			value = s.status().Peers[0].Addresses[0]
		}
		var v any
		if err := yaml.Unmarshal([]byte(value), &v); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := s.tryApplyMap(set(runtime.DeepCopyJSON(from), steps(path), v).(map[string]any)); err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if err := s.within("an effect", func() error {
			if s.effect() == before {
				return errors.New("nothing changed")
			}
			return nil
		}); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		slowest = max(slowest, time.Since(start))
		if undone = tc.stays == ""; !undone {
			continue
		}
		s.applyMap(merged(t, s.base, ""))
		if err := s.within("the change to be undone", func() error {
			if now := s.effect(); now != effect {
				return errors.New(firstDifference(effect, now))
			}
			return nil
		}); err != nil {
			t.Errorf("%s: %v", path, err)
			effect = s.effect()
		}
	}
	t.Logf("%d fields tried, each has an effect, the slowest after %v", len(paths), slowest.Round(time.Millisecond))
}

// TestFieldsAtCreation has the fields that the API server fixes when an object is
// created.
func TestFieldsAtCreation(t *testing.T) {
	t.Parallel()
	c := shared(t)
	g := newGateway(t, c, `
endpoint: {host: vpn.example.com}
service: {loadBalancerClass: example.com/class, ipFamilyPolicy: SingleStack, ipFamilies: [IPv6]}
`)
	g.waitReady()
	service := g.composed()["service"]
	if class, _, _ := unstructured.NestedString(service.Object, "spec", "loadBalancerClass"); class != "example.com/class" {
		t.Errorf("the class is %q", class)
	}
	if families, _, _ := unstructured.NestedStringSlice(service.Object, "spec", "ipFamilies"); !slices.Equal(families, []string{"IPv6"}) {
		t.Errorf("the families are %v", families)
	}
}
