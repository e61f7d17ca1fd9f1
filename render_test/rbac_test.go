package render_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
)

// Verbs that Crossplane needs for what it composes, and for what it only looks
// at.
var (
	verbsCompose = []string{"create", "delete", "get", "list", "patch", "update", "watch"}
	verbsRequire = []string{"get", "list", "watch"}
)

// permissions are what may be done, or has to be, and why.
type permissions map[string]string

func (p permissions) add(group, resource, verb, why string) {
	key := fmt.Sprintf("%s %s.%s", verb, resource, group)
	if _, ok := p[key]; !ok {
		p[key] = why
	}
}

func resourceOf(apiVersion, kind string) schema.GroupResource {
	plural, _ := meta.UnsafeGuessKindToResource(schema.FromAPIVersionAndKind(apiVersion, kind))
	return plural.GroupResource()
}

// needed are the permissions that Crossplane has to have for all gateways
// there are here.
func needed(t *testing.T) permissions {
	t.Helper()
	p := permissions{}
	for _, c := range cases(t) {
		rsp := c.run(t).rsp
		for key, r := range rsp.GetDesired().GetResources() {
			o := r.GetResource().AsMap()
			res := resourceOf(o["apiVersion"].(string), o["kind"].(string))
			for _, v := range verbsCompose {
				p.add(res.Group, res.Resource, v, fmt.Sprintf("%s composes %s", c.name, key))
			}
			if o["kind"] == "RoleBinding" {
				p.add(res.Group, "roles", "bind", fmt.Sprintf("%s composes %s, maybe before its Role is seen", c.name, key))
			}
			if o["kind"] != "Role" {
				continue
			}
			role := &rbacv1.Role{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o, role); err != nil {
				t.Fatal(err)
			}
			granted(role.Rules, func(group, resource, verb string) {
				p.add(group, resource, verb, fmt.Sprintf("%s grants it in %s, and who grants must hold", c.name, key))
			})
		}
		for name, s := range rsp.GetRequirements().GetResources() {
			res := resourceOf(s.GetApiVersion(), s.GetKind())
			if res.Group == v1alpha1.Group {
				continue // Crossplane grants itself what it defines.
			}
			for _, v := range verbsRequire {
				p.add(res.Group, res.Resource, v, fmt.Sprintf("%s requires %s", c.name, name))
			}
		}
	}
	return p
}

func granted(rules []rbacv1.PolicyRule, each func(group, resource, verb string)) {
	for _, r := range rules {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					each(group, resource, verb)
				}
			}
		}
	}
}

func clusterRole(t *testing.T) *rbacv1.ClusterRole {
	t.Helper()
	b, err := os.ReadFile("../package/cluster/clusterrole.yaml")
	if err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{}
	if err := yaml.UnmarshalStrict(b, role); err != nil {
		t.Fatal(err)
	}
	return role
}

// compare tells what a role lacks, and what it has for nothing.
func compare(role *rbacv1.ClusterRole, need permissions) (bad []string) {
	have := permissions{}
	for _, r := range role.Rules {
		if len(r.ResourceNames) > 0 || len(r.NonResourceURLs) > 0 {
			bad = append(bad, "a rule is about single names, which are the user's to choose")
		}
		granted([]rbacv1.PolicyRule{r}, func(group, resource, verb string) {
			key := fmt.Sprintf("%s %s.%s", verb, resource, group)
			if _, ok := have[key]; ok {
				bad = append(bad, "granted twice: "+key)
			}
			have.add(group, resource, verb, "")
			if _, ok := need[key]; !ok {
				bad = append(bad, "granted for nothing: "+key)
			}
		})
	}
	for _, key := range keysOf(need) {
		if _, ok := have[key]; !ok {
			bad = append(bad, fmt.Sprintf("not granted: %s (%s)", key, need[key]))
		}
	}
	return bad
}

// TestClusterRole holds that Crossplane may do what gateways need, and nothing
// else.
func TestClusterRole(t *testing.T) {
	role, need := clusterRole(t), needed(t)
	if role.Labels["rbac.crossplane.io/aggregate-to-crossplane"] != "true" {
		t.Error("want a role that Crossplane aggregates to its own, got one without the label")
	}
	for _, b := range compare(role, need) {
		t.Error(b)
	}
	if len(need) < 8*len(verbsCompose) {
		t.Errorf("want to know what gateways need, got only %v", keysOf(need))
	}
}

// TestClusterRoleCanFail takes from the role and adds to it.
func TestClusterRoleCanFail(t *testing.T) {
	need := needed(t)
	for name, tc := range map[string]struct {
		says   string
		breaks func(r *rbacv1.ClusterRole)
	}{
		"NoUDPRoute": {"not granted: create udproutes.gateway.networking.k8s.io", func(r *rbacv1.ClusterRole) {
			for i := range r.Rules {
				r.Rules[i].Resources = slices.DeleteFunc(r.Rules[i].Resources, func(s string) bool { return s == "udproutes" })
			}
		}},
		"NoPatch": {"not granted: patch secrets.", func(r *rbacv1.ClusterRole) {
			for i := range r.Rules {
				r.Rules[i].Verbs = slices.DeleteFunc(r.Rules[i].Verbs, func(s string) bool { return s == "patch" })
			}
		}},
		"NodesWritten": {"granted for nothing: delete nodes.", func(r *rbacv1.ClusterRole) {
			for i := range r.Rules {
				if slices.Contains(r.Rules[i].Resources, "nodes") {
					r.Rules[i].Verbs = append(r.Rules[i].Verbs, "delete")
				}
			}
		}},
		"NoBind": {"not granted: bind roles.rbac.authorization.k8s.io", func(r *rbacv1.ClusterRole) {
			r.Rules = slices.DeleteFunc(r.Rules, func(p rbacv1.PolicyRule) bool { return slices.Contains(p.Verbs, "bind") })
		}},
		"ClusterRolesBound": {"granted for nothing: bind clusterroles.", func(r *rbacv1.ClusterRole) {
			for i := range r.Rules {
				if slices.Contains(r.Rules[i].Verbs, "bind") {
					r.Rules[i].Resources = append(r.Rules[i].Resources, "clusterroles")
				}
			}
		}},
		"Everything": {"granted for nothing: * *.*", func(r *rbacv1.ClusterRole) {
			r.Rules = append(r.Rules, rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}})
		}},
		"Pods": {"granted for nothing: get pods/exec.", func(r *rbacv1.ClusterRole) {
			r.Rules = append(r.Rules, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/exec"}, Verbs: []string{"get"}})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			role := clusterRole(t)
			tc.breaks(role)
			if bad := compare(role, need); !slices.ContainsFunc(bad, func(s string) bool { return strings.Contains(s, tc.says) }) {
				t.Errorf("want %q, got %q", tc.says, bad)
			}
		})
	}
}
