package controlplane

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestInjectionOfOthers: other injectors come before and after, and what they do
// with the sidecar decides whether the pod is taken.
func TestInjectionOfOthers(t *testing.T) {
	c := shared(t)
	installInjection(t, c)
	ns := newPodNamespace(t, c, nil)
	parameters(t, c, ns, "media", nil)
	// Policies run in any order. Where the outcome depends on it, a pod is stored
	// with the sidecar first, or refused.
	const first = `[JSONPatch{op: "add", path: "/spec/initContainers/0", value: Object.spec.initContainers{name: "%s", image: "x"}}]`
	cases := map[string]struct {
		reason, name, expression, reinvocation string
		says                                   string
		either                                 bool
		inits                                  []string
		change                                 func(*corev1.Container)
	}{
		"Before": {
			reason: "another injector ran before", name: "a-other", reinvocation: "Never",
			expression: `has(object.spec.initContainers) ? ` + fmt.Sprintf(first, "other") + ` : [JSONPatch{op: "add", path: "/spec/initContainers", value: [Object.spec.initContainers{name: "other", image: "x"}]}]`,
			inits:      []string{"wireguard", "other", "mine"},
		},
		"After": {
			reason: "another injector put its container first, afterwards: ours is asked once more", name: "z-other", reinvocation: "Never",
			expression: fmt.Sprintf(first, "other"), inits: []string{"wireguard", "other", "mine"},
		},
		"Insists": {
			reason: "another injector insists on coming first, whenever it is asked", name: "z-other", reinvocation: "IfNeeded",
			expression: fmt.Sprintf(first, "other-") + `.map(p, JSONPatch{op: p.op, path: p.path, value: Object.spec.initContainers{name: "other-" + string(object.spec.initContainers.size()), image: "x"}})`,
			says:       "comes before the sidecar wireguard", either: true,
		},
		"Rewrites": {
			reason: "another injector pulls all images from a mirror, and limits all memory", name: "z-other", reinvocation: "IfNeeded",
			expression: `[JSONPatch{op: "replace", path: "/spec/initContainers/0/image", value: "mirror.example.com/agent"}, JSONPatch{op: "add", path: "/spec/initContainers/0/resources/limits", value: {"memory": "1Gi"}}]`,
			inits:      []string{"wireguard", "mine"},
			change: func(c *corev1.Container) {
				c.Image = "mirror.example.com/agent"
				c.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("1Gi")}
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			policy := fmt.Sprintf(`apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[2]s}}
  failurePolicy: Fail
  reinvocationPolicy: %[3]s
  mutations:
    - patchType: JSONPatch
      jsonPatch:
        expression: >-
          %[4]s
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s}
`, tc.name, ns, tc.reinvocation, tc.expression)
			if err := c.ApplyYAML(t.Context(), policy); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				ctx := context.WithoutCancel(t.Context())
				for _, kind := range []string{"MutatingAdmissionPolicyBinding", "MutatingAdmissionPolicy"} {
					o := &unstructured.Unstructured{}
					o.SetAPIVersion("admissionregistration.k8s.io/v1")
					o.SetKind(kind)
					o.SetName(tc.name)
					if err := c.Client.Delete(ctx, o); err != nil {
						t.Error(err)
					}
				}
				c.Eventually(t, "the other injector to go", func() error {
					p := podOf(t, ns, `{metadata: {generateName: pod-}, spec: {initContainers: [{name: mine, image: x}, {name: wireguard, image: x}], `+app+`}}`)
					if err := c.Client.Create(ctx, p, client.DryRunAll); err != nil {
						return err
					}
					if len(p.Spec.InitContainers) != 2 || p.Spec.InitContainers[0].Name != "mine" || p.Spec.InitContainers[0].Image != "x" {
						return fmt.Errorf("it still works")
					}
					return nil
				})
			})
			var stored *corev1.Pod
			var last error
			c.Eventually(t, "the other injector to work", func() error {
				stored = podOf(t, ns, `{`+labelled+`spec: {initContainers: [{name: mine, image: x}], `+app+`}}`)
				last = c.Client.Create(t.Context(), stored)
				switch {
				case tc.either && last == nil:
					if len(stored.Spec.InitContainers) < 3 {
						return fmt.Errorf("the other injector does not work yet")
					}
					if stored.Spec.InitContainers[0].Name != "wireguard" {
						t.Errorf("%s: a pod is stored without the sidecar first", tc.reason)
					}
					return nil
				case tc.says != "" && last == nil:
					return fmt.Errorf("want it refused with %q, got %d init containers", tc.says, len(stored.Spec.InitContainers))
				case tc.says != "" && !strings.Contains(last.Error(), tc.says):
					return fmt.Errorf("want it refused with %q, got %w", tc.says, last)
				case tc.says != "":
					return nil
				case last != nil:
					return last
				}
				var names []string
				for i := range stored.Spec.InitContainers {
					names = append(names, stored.Spec.InitContainers[i].Name)
				}
				if !slices.Equal(names, tc.inits) {
					return fmt.Errorf("%s: want %v, got %v", tc.reason, tc.inits, names)
				}
				if diff := cmp.Diff(wantSidecar("media", tc.change), withoutToken(stored.Spec.InitContainers[0]), cmpopts.EquateEmpty()); diff != "" {
					return fmt.Errorf("%s: the sidecar: -want, +got:\n%s", tc.reason, diff)
				}
				return nil
			})
			if last != nil {
				t.Logf("%s: %v", tc.reason, last)
			}
		})
	}
}

// TestInjectionOfWebhooks: so it is with injectors that are webhooks, which the
// API server asks after all policies.
func TestInjectionOfWebhooks(t *testing.T) {
	c := shared(t)
	installInjection(t, c)
	for name, tc := range map[string]struct {
		reason       string
		reinvocation admissionregistrationv1.ReinvocationPolicyType
		patch        func(*corev1.Pod) string
		says         string
		want         []string
	}{
		"Once": {
			reason:       "it puts its container first: ours is asked once more",
			reinvocation: admissionregistrationv1.NeverReinvocationPolicy, want: []string{"wireguard", "other", "mine"},
			patch: func(*corev1.Pod) string {
				return `[{"op":"add","path":"/spec/initContainers/0","value":{"name":"other","image":"x"}}]`
			},
		},
		"IfNeeded": {
			reason:       "it is asked once more too, and has done what it wants",
			reinvocation: admissionregistrationv1.IfNeededReinvocationPolicy, want: []string{"wireguard", "other", "mine"},
			patch: func(p *corev1.Pod) string {
				if slices.ContainsFunc(p.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == "other" }) {
					return ""
				}
				return `[{"op":"add","path":"/spec/initContainers/0","value":{"name":"other","image":"x"}}]`
			},
		},
		"Insists": {
			reason:       "it is asked once more, and moves its container first",
			reinvocation: admissionregistrationv1.IfNeededReinvocationPolicy, says: `the init container "other" comes before the sidecar wireguard`,
			patch: func(p *corev1.Pod) string {
				at := slices.IndexFunc(p.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == "other" })
				if at >= 0 {
					return fmt.Sprintf(`[{"op":"move","from":"/spec/initContainers/%d","path":"/spec/initContainers/0"}]`, at)
				}
				return `[{"op":"add","path":"/spec/initContainers/0","value":{"name":"other","image":"x"}}]`
			},
		},
		"TakesAway": {
			reason:       "it takes the sidecar out, whenever it is asked",
			reinvocation: admissionregistrationv1.IfNeededReinvocationPolicy, says: "gives pods no sidecar",
			patch: func(p *corev1.Pod) string {
				if p.Spec.InitContainers[0].Name != "wireguard" {
					return ""
				}
				return `[{"op":"remove","path":"/spec/initContainers/0"}]`
			},
		},
		"Replaces": {
			reason:       "it replaces all init containers by its own: the sidecar comes back",
			reinvocation: admissionregistrationv1.NeverReinvocationPolicy, want: []string{"wireguard", "other"},
			patch: func(*corev1.Pod) string {
				return `[{"op":"replace","path":"/spec/initContainers","value":[{"name":"other","image":"x"}]}]`
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ns := newPodNamespace(t, c, nil)
			parameters(t, c, ns, "media", nil)
			c.Inject(t, "other-"+ns, ns, tc.reinvocation, tc.patch)
			c.Eventually(t, "the webhook to be asked", func() error {
				p := podOf(t, ns, `{`+labelled+`spec: {initContainers: [{name: mine, image: x}], `+app+`}}`)
				err := c.Client.Create(t.Context(), p)
				switch {
				case tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)):
					return fmt.Errorf("%s: want it refused with %q, got %w", tc.reason, tc.says, err)
				case tc.says != "":
					return nil
				case err != nil:
					return err
				}
				var names []string
				for i := range p.Spec.InitContainers {
					names = append(names, p.Spec.InitContainers[i].Name)
				}
				if !slices.Equal(names, tc.want) {
					return fmt.Errorf("%s: want %v, got %v", tc.reason, tc.want, names)
				}
				if diff := cmp.Diff(wantSidecar("media", nil), withoutToken(p.Spec.InitContainers[0]), cmpopts.EquateEmpty()); diff != "" {
					return fmt.Errorf("%s: the sidecar: -want, +got:\n%s", tc.reason, diff)
				}
				return nil
			})
		})
	}
}

// TestInjectionAndChanges: a pod joins when it is created. What else changes of a
// pod is none of our business. TestPodsClaim has pods that were there before the
// policies.
func TestInjectionAndChanges(t *testing.T) {
	c := shared(t)
	ns := newPodNamespace(t, c, nil)
	installInjection(t, c)
	parameters(t, c, ns, "media", nil)
	parameters(t, c, ns, "work", nil)
	joined := podOf(t, ns, `{metadata: {name: joined, labels: {wireguardgateway.io/peer: media, other: a}}, spec: {`+app+`}}`)
	plain := podOf(t, ns, `{metadata: {name: plain}, spec: {`+app+`}}`)
	for _, p := range []*corev1.Pod{joined, plain} {
		if err := c.Client.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	label := func(value string) string { return `{"metadata":{"labels":{"wireguardgateway.io/peer":` + value + `}}}` }
	for _, step := range []struct {
		reason string
		pod    *corev1.Pod
		patch  string
		part   string // subresource
		says   string // empty: it is allowed
	}{
		{"a pod that runs cannot join", plain, label(`"media"`), "", "a pod joins WireguardPeer \"media\" when it is created, not later"},
		{"nor by its status", plain, label(`"media"`), "status", "a pod joins WireguardPeer \"media\" when it is created, not later"},
		{"nor another peer", joined, label(`"work"`), "", "is not the one of that name which the sidecar needs for WireguardPeer \"work\""},
		{"nor one that is not there", joined, label(`"nobody"`), "", "is not the one of that name which the sidecar needs"},
		{"other labels are free", joined, `{"metadata":{"labels":{"other":"b","more":"c"}}}`, "", ""},
		{"so are annotations", joined, `{"metadata":{"annotations":{"a":"b"}}}`, "", ""},
		{"so is the image of a container", joined, `{"spec":{"containers":[{"name":"app","image":"example.com/app:2"}]}}`, "", ""},
		{"the kubelet reports", joined, `{"status":{"phase":"Running","podIP":"10.42.0.7","podIPs":[{"ip":"10.42.0.7"}]}}`, "status", ""},
		{"it can be looked into", joined, `{"spec":{"ephemeralContainers":[{"name":"debug","image":"x","targetContainerName":"app"}]}}`, "ephemeralcontainers", ""},
		{"who leaves may", joined, label("null"), "", ""},
		{"and come back, since it has the sidecar", joined, label(`"media"`), "", ""},
	} {
		p := step.pod.DeepCopy()
		patch := client.RawPatch("application/strategic-merge-patch+json", []byte(step.patch))
		var err error
		if step.part == "" {
			err = c.Client.Patch(t.Context(), p, patch)
		} else {
			err = c.Client.SubResource(step.part).Patch(t.Context(), p, patch)
		}
		switch {
		case step.says == "" && err != nil:
			t.Errorf("%s: want it allowed, got %v", step.reason, err)
		case step.says != "" && (err == nil || !strings.Contains(err.Error(), step.says)):
			t.Errorf("%s: want it refused with %q, got %v", step.reason, step.says, err)
		}
	}
	if err := c.Client.Delete(t.Context(), joined, client.GracePeriodSeconds(0)); err != nil {
		t.Errorf("want it deleted, got %v", err)
	}
}

// TestInjectionParameters: who may write ConfigMaps does not choose what runs in
// the pods of others.
func TestInjectionParameters(t *testing.T) {
	c := shared(t)
	installInjection(t, c)
	ns := newPodNamespace(t, c, nil)
	parameters(t, c, ns, "media", nil)
	user := tenant(t, c, ns)
	const says = "only those may write it who may update wireguardpeers"
	refused := func(what string, err error) {
		t.Helper()
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: want it refused, got %v", what, err)
		}
	}
	refused("new", user.Create(t.Context(), parametersOf(ns, "work", nil)))
	mine := parametersOf(ns, "media", nil)
	refused("changed", user.Patch(t.Context(), mine, client.RawPatch("application/merge-patch+json", []byte(`{"data":{"image":"example.com/evil"}}`))))
	refused("label taken", user.Patch(t.Context(), mine, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"wireguardgateway.io/injection":null}}}`))))
	own := parametersOf(ns, "own", nil)
	own.Labels = nil
	if err := user.Create(t.Context(), own); err != nil {
		t.Errorf("a ConfigMap without the label: want it stored, got %v", err)
	}
	refused("label given", user.Patch(t.Context(), own, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"wireguardgateway.io/injection":"true"}}}`))))

	// Who may have pods join may write them.
	if err := c.Client.Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "owner"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"wireguardgateway.io"}, Resources: []string{"wireguardpeers"}, Verbs: []string{"update"}}},
	}); err != nil {
		t.Fatal(err)
	}
	if err := c.Client.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "owner"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "owner"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "tenant"}},
	}); err != nil {
		t.Fatal(err)
	}
	c.Eventually(t, "the role to be known", func() error {
		return user.Patch(t.Context(), mine, client.RawPatch("application/merge-patch+json", []byte(`{"data":{"image":"example.com/agent:2"}}`)))
	})
}

// TestInjectionIsFast measures what the policies cost.
func TestInjectionIsFast(t *testing.T) {
	const pods = 100
	c := shared(t)
	installInjection(t, c)
	ns := newPodNamespace(t, c, nil)
	parameters(t, c, ns, "media", nil)
	took := map[string][]time.Duration{}
	for range pods {
		for kind, text := range map[string]string{"labelled": `{` + labelled + `spec: {` + app + `}}`, "unlabelled": `{metadata: {generateName: pod-}, spec: {` + app + `}}`} {
			p, start := podOf(t, ns, text), time.Now()
			if err := c.Client.Create(t.Context(), p, client.DryRunAll); err != nil {
				t.Fatal(err)
			}
			took[kind] = append(took[kind], time.Since(start))
		}
	}
	for kind, ds := range took {
		slices.Sort(ds)
		t.Logf("%s: p50 %v, p99 %v of %d", kind, ds[pods/2].Round(10*time.Microsecond), ds[pods*99/100].Round(10*time.Microsecond), pods)
	}
	if with, without := took["labelled"][pods/2], took["unlabelled"][pods/2]; with-without > 50*time.Millisecond {
		t.Errorf("want pods admitted at once, got %v instead of %v", with, without)
	}
}
