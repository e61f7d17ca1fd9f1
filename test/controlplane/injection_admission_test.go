package controlplane

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
)

// TestInjectionAdmits: pods that get the sidecar.
func TestInjectionAdmits(t *testing.T) {
	c := shared(t)
	installInjection(t, c)
	ns := newPodNamespace(t, c, nil)
	parameters(t, c, ns, "media", nil)
	// Others of the namespace, one of them broken, take part in nothing.
	parameters(t, c, ns, "work", map[string]string{"tun": "false", "pullPolicy": "Always", "requests": "-", "limits": "memory=64Mi\nexample.com/tun=1\n"})
	parameters(t, c, ns, "broken", map[string]string{"image": "-"})
	kernel := func(c *corev1.Container) {
		c.ImagePullPolicy, c.VolumeMounts = corev1.PullAlways, c.VolumeMounts[:2]
		both := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi"), "example.com/tun": resource.MustParse("1")}
		c.Resources = corev1.ResourceRequirements{Requests: both, Limits: both}
	}
	large := `{name: app, image: example.com/app}`
	for i := range 60 {
		large += fmt.Sprintf(`, {name: app%d, image: example.com/app, env: [`, i)
		for j := range 100 {
			large += fmt.Sprintf(`{name: V%d, valueFrom: {secretKeyRef: {name: s%d, key: k}}}, `, j, j)
		}
		large += `], volumeMounts: [{name: a, mountPath: /a}, {name: b, mountPath: /b}]}`
	}
	cases := map[string]struct {
		reason string
		pod    string
		peer   string
		change func(*corev1.Container)
	}{
		"Plain":          {reason: "nothing of its own", pod: `{` + labelled + `spec: {` + app + `}}`},
		"Named":          {reason: "a name of its own, as a StatefulSet's", pod: `{metadata: {name: media-0, labels: {wireguardgateway.io/peer: media}}, spec: {` + app + `}}`},
		"InitContainers": {reason: "init containers come after the sidecar, in their order", pod: `{` + labelled + `spec: {` + app + `, initContainers: [{name: b, image: b}, {name: a, image: a, restartPolicy: Always}]}}`},
		"Empty":          {reason: "lists that are there and empty", pod: `{` + labelled + `spec: {` + app + `, initContainers: [], volumes: []}}`},
		"Volumes":        {reason: "volumes of its own, one of them a Secret", pod: `{` + labelled + `spec: {containers: [{name: app, image: example.com/app, volumeMounts: [{name: s, mountPath: /s}]}], volumes: [{name: s, secret: {secretName: own}}, {name: p, projected: {sources: [{secret: {name: own}}]}}]}}`},
		"NoToken":        {reason: "no token of the API server", pod: `{` + labelled + `spec: {` + app + `, automountServiceAccountToken: false}}`},
		"NonRoot":        {reason: "what the pod says of users is not the sidecar's", pod: `{` + labelled + `spec: {` + app + `, securityContext: {runAsNonRoot: true, runAsUser: 1000, fsGroup: 1000, seccompProfile: {type: Unconfined}}}}`},
		"HostPID":        {reason: "the node's processes are not its network", pod: `{` + labelled + `spec: {` + app + `, hostPID: true}}`},
		"NeverRestarts":  {reason: "a Job's pod ends, and the sidecar with it", pod: `{` + labelled + `spec: {` + app + `, restartPolicy: Never, activeDeadlineSeconds: 60}}`},
		"NodeName":       {reason: "a DaemonSet's pod knows its node", pod: `{` + labelled + `spec: {` + app + `, nodeName: node-1, tolerations: [{operator: Exists}]}}`},
		"HostUsersFalse": {reason: "users of its own", pod: `{` + labelled + `spec: {` + app + `, hostUsers: false}}`},
		"PodResources":   {reason: "requests of the pod as a whole", pod: `{` + labelled + `spec: {` + app + `, resources: {requests: {memory: 1Gi}, limits: {memory: 1Gi}}}}`},
		"Large":          {reason: "many containers with much in them are judged within the limits", pod: `{` + labelled + `spec: {containers: [` + large + `], volumes: [{name: a, emptyDir: {}}, {name: b, emptyDir: {}}]}}`},
		"Twice":          {reason: "it has the sidecar already, as a copy of a stored pod has", pod: `{` + labelled + `spec: {` + app + `, initContainers: [` + ownSidecar + `, {name: a, image: a}], volumes: [{name: wireguard-enrolment, secret: {secretName: media-wireguard.enrolment, defaultMode: 256}}, {name: wireguard-run, emptyDir: {}}, {name: wireguard-tun, hostPath: {path: /dev/net/tun, type: CharDevice}}]}}`},
		"TwiceLast":      {reason: "the sidecar is there, and not the first", pod: `{` + labelled + `spec: {` + app + `, initContainers: [{name: a, image: a}, {name: b, image: b}, ` + ownSidecar + `], volumes: [{name: wireguard-run, emptyDir: {}}]}}`},
		"OtherPeer":      {reason: "each label has its own parameters, in one namespace", peer: "work", change: kernel, pod: `{metadata: {generateName: pod-, labels: {wireguardgateway.io/peer: work}}, spec: {` + app + `}}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			asked := podOf(t, ns, tc.pod)
			stored := asked.DeepCopy()
			if err := c.Client.Create(t.Context(), stored); err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			peer := tc.peer
			if peer == "" {
				peer = "media"
			}
			for _, why := range checkInjected(peer, asked, stored, tc.change) {
				t.Errorf("%s: %s", tc.reason, why)
			}
		})
	}

	t.Run("DryRun", func(t *testing.T) {
		p := podOf(t, ns, `{metadata: {name: dry, labels: {wireguardgateway.io/peer: media}}, spec: {`+app+`}}`)
		asked := p.DeepCopy()
		if err := c.Client.Create(t.Context(), p, client.DryRunAll); err != nil {
			t.Fatal(err)
		}
		for _, why := range checkInjected("media", asked, p, nil) {
			t.Error(why)
		}
		if err := gone(c.Client.Get(t.Context(), client.ObjectKeyFromObject(p), p)); err != nil {
			t.Error(err)
		}
	})
	t.Run("Copy", func(t *testing.T) {
		first := podOf(t, ns, `{metadata: {name: original, labels: {wireguardgateway.io/peer: media}}, spec: {`+app+`, initContainers: [{name: a, image: a}]}}`)
		if err := c.Client.Create(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		second := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "copy", Labels: first.Labels}, Spec: *first.Spec.DeepCopy()}
		if err := c.Client.Create(t.Context(), second); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(first.Spec, second.Spec); diff != "" {
			t.Errorf("a copy of a stored pod changes: -first, +second:\n%s", diff)
		}
	})
	t.Run("Unlabelled", func(t *testing.T) {
		p := podOf(t, ns, `{metadata: {name: plain, labels: {app: plain}}, spec: {hostNetwork: true, containers: [{name: wireguard, image: x}], initContainers: [{name: init, image: x}]}}`)
		if err := c.Client.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if len(p.Spec.InitContainers) != 1 {
			t.Errorf("want a pod without the label as it was, got %d init containers", len(p.Spec.InitContainers))
		}
	})
	// The label stands on what a WireguardPeer composes, and wherever its users
	// put it.
	t.Run("OtherKinds", func(t *testing.T) {
		for _, text := range []string{
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: other, labels: {wireguardgateway.io/peer: nobody}}, data: {a: b}}`,
			`{apiVersion: v1, kind: Secret, metadata: {name: other, labels: {wireguardgateway.io/peer: nobody}}}`,
			`{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: other, labels: {wireguardgateway.io/peer: nobody}}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b, wireguardgateway.io/peer: nobody}}, spec: {containers: [{name: app, image: app}]}}}}`,
		} {
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
				t.Fatal(err)
			}
			o.SetNamespace(ns)
			if err := c.Client.Create(t.Context(), o); err != nil {
				t.Errorf("%s: %v", o.GetKind(), err)
			}
		}
	})
	// A namespace's limits are for the sidecar too.
	t.Run("LimitRange", func(t *testing.T) {
		limited := newPodNamespace(t, c, nil)
		parameters(t, c, limited, "media", nil)
		l := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Namespace: limited, Name: "limits"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
		}}}}
		if err := c.Client.Create(t.Context(), l); err != nil {
			t.Fatal(err)
		}
		var p *corev1.Pod
		c.Eventually(t, "the limits to be known", func() error {
			p = podOf(t, limited, `{`+labelled+`spec: {`+app+`}}`)
			if err := c.Client.Create(t.Context(), p); err != nil {
				return err
			}
			if p.Spec.Containers[0].Resources.Limits.Memory().IsZero() {
				return fmt.Errorf("not yet")
			}
			return nil
		})
		bad := checkInjected("media", podOf(t, limited, `{`+labelled+`spec: {`+app+`}}`), p, func(c *corev1.Container) {
			c.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")}
		})
		for _, why := range bad {
			t.Error(why)
		}
	})
}

// TestInjectionRefuses: pods that would run outside of the tunnel, or get at what
// is the sidecar's.
func TestInjectionRefuses(t *testing.T) {
	c := shared(t)
	installInjection(t, c)
	ns, empty := newPodNamespace(t, c, nil), newPodNamespace(t, c, nil)
	parameters(t, c, ns, "media", nil)
	broken := map[string]map[string]string{
		"no-image": {"image": "-"}, "empty-image": {"image": ""}, "no-secret": {"secretName": "-"}, "no-tun": {"tun": "-"}, "no-policy": {"pullPolicy": "-"},
		"no-lines": {"requests": "10m"}, "no-quantity": {"limits": "memory=much\n"}, "two-signs": {"limits": "a=b=1"}, "too-large": {"requests": strings.Repeat("cpu=1\n", 700)},
		"nothing": {"image": "-", "pullPolicy": "-", "secretName": "-", "tun": "-", "requests": "-"},
	}
	for peer, data := range broken {
		parameters(t, c, ns, peer, data)
	}
	unlabelled := parametersOf(ns, "unlabelled", nil)
	unlabelled.Labels = nil
	renamed := parametersOf(ns, "renamed", nil)
	renamed.Name = "another-wireguard.injection"
	leaving := parametersOf(ns, "leaving", nil)
	leaving.Finalizers = []string{"example.com/keeps"}
	for _, m := range []*corev1.ConfigMap{unlabelled, renamed, leaving} {
		if err := c.Client.Create(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.Client.Delete(t.Context(), leaving); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.MergePatch(context.WithoutCancel(t.Context()), leaving, `{"metadata":{"finalizers":null}}`)
	})

	const volumes = `[{name: wireguard-enrolment, secret: {secretName: media-wireguard.enrolment}}, {name: wireguard-run, emptyDir: {}}, {name: wireguard-tun, hostPath: {path: /dev/net/tun}}]`
	of := func(peer string) string {
		return `{metadata: {generateName: pod-, labels: {wireguardgateway.io/peer: "` + peer + `"}}, spec: {` + app + `}}`
	}
	spoilt := func(from, to string) string {
		return `{` + labelled + `spec: {` + app + `, initContainers: [` + strings.Replace(ownSidecar, from, to, 1) + `], volumes: ` + volumes + `}}`
	}
	const foreign = "is not the sidecar that the label wireguardgateway.io/peer brings"
	const noSidecar = "gives pods no sidecar"
	cases := map[string]struct{ reason, pod, namespace, says string }{
		"UnknownPeer":    {reason: "there is no such WireguardPeer", pod: of("nobody"), says: `WireguardPeer "nobody" of namespace`},
		"EmptyPeer":      {reason: "no peer has an empty name", pod: of(""), says: noSidecar},
		"OtherNamespace": {reason: "the peer is another namespace's", pod: of("media"), namespace: empty, says: "its condition PodsReady says why"},
		"Unlabelled":     {reason: "the parameters are not labelled as such", pod: of("unlabelled"), says: noSidecar},
		"Renamed":        {reason: "the parameters have another name", pod: of("renamed"), says: noSidecar},
		"Leaving":        {reason: "the parameters are on their way out, as consent is withdrawn", pod: of("leaving"), says: noSidecar},
		"HostNetwork":    {reason: "the node's network is not the pod's to change", pod: `{` + labelled + `spec: {hostNetwork: true, ` + app + `}}`, says: "a pod with hostNetwork cannot join WireguardPeer \"media\""},
		"Static":         {reason: "the kubelet started it already", pod: `{metadata: {generateName: pod-, labels: {wireguardgateway.io/peer: media}, annotations: {kubernetes.io/config.mirror: x}}, spec: {nodeName: node-1, ` + app + `}}`, says: "static pod"},
		"Container":      {reason: "a container has the sidecar's name", pod: `{` + labelled + `spec: {containers: [{name: wireguard, image: x}]}}`, says: "a container is named wireguard"},
		"InitContainer":  {reason: "an init container has the sidecar's name, and does something else", pod: `{` + labelled + `spec: {` + app + `, initContainers: [{name: wireguard, image: x}]}}`, says: foreign},
		"Command":        {reason: "the sidecar runs something else", pod: spoilt("restartPolicy:", "command: [sleep], restartPolicy:"), says: foreign},
		"Args":           {reason: "the sidecar reads something else", pod: spoilt("/etc/wireguard/enrolment.json]", "/tmp/enrolment.json]"), says: foreign},
		"NoProbe":        {reason: "others would start before the tunnel", pod: spoilt("startupProbe", "livenessProbe"), says: foreign},
		"NoCapability":   {reason: "it could not do anything", pod: spoilt("add: [NET_ADMIN]", "add: []"), says: foreign},
		"OtherUID":       {reason: "it would be another pod", pod: spoilt("{name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}", "{name: POD_UID, value: mine}"), says: foreign},
		"EndsAtOnce":     {reason: "it would not stay", pod: spoilt("restartPolicy: Always, ", ""), says: "restartPolicy=Always"},
		"VolumeEnrol":    {reason: "a volume has the name of the sidecar's", pod: `{` + labelled + `spec: {` + app + `, volumes: [{name: wireguard-enrolment, configMap: {name: x}}]}}`, says: "wireguard-enrolment, wireguard-run or wireguard-tun is not the one"},
		"VolumeSecret":   {reason: "it has another peer's Secret", pod: `{` + labelled + `spec: {` + app + `, volumes: [{name: wireguard-enrolment, secret: {secretName: work-wireguard.enrolment}}]}}`, says: "is not the one of that name"},
		"VolumeRun":      {reason: "the node would see what the sidecar keeps", pod: `{` + labelled + `spec: {` + app + `, volumes: [{name: wireguard-run, hostPath: {path: /tmp}}]}}`, says: "is not the one of that name"},
		"VolumeTun":      {reason: "it is another device", pod: `{` + labelled + `spec: {` + app + `, volumes: [{name: wireguard-tun, hostPath: {path: /dev/mem}}]}}`, says: "is not the one of that name"},
		"MountsEnrol":    {reason: "a container mounts the sidecar's volume", pod: `{` + labelled + `spec: {containers: [{name: app, image: x, volumeMounts: [{name: wireguard-enrolment, mountPath: /x}]}]}}`, says: "which are for the sidecar only"},
		"MountsRun":      {reason: "by the sidecar's socket its key is read", pod: `{` + labelled + `spec: {` + app + `, initContainers: [{name: a, image: x, volumeMounts: [{name: wireguard-run, mountPath: /x}]}]}}`, says: "which are for the sidecar only"},
		"OtherVolume":    {reason: "the Secret is mounted by another volume", pod: `{` + labelled + `spec: {` + app + `, volumes: [{name: x, secret: {secretName: media-wireguard.enrolment}}]}}`, says: `the Secret "media-wireguard.enrolment" is for the sidecar only`},
		"Projected":      {reason: "the Secret is among others", pod: `{` + labelled + `spec: {` + app + `, volumes: [{name: x, projected: {sources: [{configMap: {name: x}}, {secret: {name: media-wireguard.enrolment}}]}}]}}`, says: "is for the sidecar only"},
		"Variable":       {reason: "the Secret is a variable", pod: `{` + labelled + `spec: {containers: [{name: app, image: x, env: [{name: A, value: b}, {name: X, valueFrom: {secretKeyRef: {name: media-wireguard.enrolment, key: enrolment.json}}}]}]}}`, says: "is for the sidecar only"},
		"Variables":      {reason: "the Secret is all variables", pod: `{` + labelled + `spec: {` + app + `, initContainers: [{name: a, image: x, envFrom: [{configMapRef: {name: x}}, {secretRef: {name: media-wireguard.enrolment}}]}]}}`, says: "is for the sidecar only"},
	}
	for peer := range broken {
		cases["Broken-"+peer] = struct{ reason, pod, namespace, says string }{reason: "the parameters are broken", pod: of(peer), says: `WireguardPeer "` + peer + `" of namespace`}
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			at := ns
			if tc.namespace != "" {
				at = tc.namespace
			}
			p := podOf(t, at, tc.pod)
			err := c.Client.Create(t.Context(), p)
			if err == nil {
				t.Fatalf("%s: want it refused with %q, got it stored", tc.reason, tc.says)
			}
			if !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: want it refused with %q, got %v", tc.reason, tc.says, err)
			}
			t.Logf("%s: %v", tc.reason, err)
		})
	}
	// Nobody else is affected by what is broken there.
	for _, text := range []string{of("media"), `{metadata: {generateName: pod-}, spec: {` + app + `}}`} {
		if err := c.Client.Create(t.Context(), podOf(t, ns, text)); err != nil {
			t.Errorf("want it stored, got %v", err)
		}
	}
	// Where the namespace admits no pod with NET_ADMIN, that is said.
	t.Run("PodSecurity", func(t *testing.T) {
		for _, level := range []string{"baseline", "restricted"} {
			ns := newPodNamespace(t, c, map[string]string{"pod-security.kubernetes.io/enforce": level})
			parameters(t, c, ns, "media", nil)
			err := c.Client.Create(t.Context(), podOf(t, ns, of("media")))
			if err == nil || !strings.Contains(err.Error(), "violates PodSecurity \""+level) || !strings.Contains(err.Error(), "NET_ADMIN") {
				t.Errorf("%s: want it refused for NET_ADMIN, got %v", level, err)
			}
		}
	})
}

// TestInjectionGuards takes each validation out of the policy, and sees that the
// pod which it refuses is not refused by it any more.
func TestInjectionGuards(t *testing.T) {
	c := shared(t)
	installInjection(t, c)
	ns := newPodNamespace(t, c, nil)
	parameters(t, c, ns, "media", nil)
	pods := []string{
		`{` + labelled + `spec: {hostNetwork: true, ` + app + `}}`,
		`{metadata: {generateName: pod-, labels: {wireguardgateway.io/peer: media}, annotations: {kubernetes.io/config.mirror: x}}, spec: {nodeName: node-1, ` + app + `}}`,
		`{` + labelled + `spec: {containers: [{name: wireguard, image: x}]}}`,
		`{metadata: {generateName: pod-, labels: {wireguardgateway.io/peer: nobody}}, spec: {` + app + `}}`,
		`{` + labelled + `spec: {` + app + `, initContainers: [{name: wireguard, image: x}]}}`,
		``, // Only another injector brings a pod to this one: see TestInjectionOfWebhooks.
		`{` + labelled + `spec: {` + app + `, volumes: [{name: wireguard-run, hostPath: {path: /tmp}}]}}`,
		`{` + labelled + `spec: {` + app + `, initContainers: [{name: a, image: x, volumeMounts: [{name: wireguard-run, mountPath: /x}]}]}}`,
		`{` + labelled + `spec: {` + app + `, volumes: [{name: x, secret: {secretName: media-wireguard.enrolment}}]}}`,
	}
	var policy *unstructured.Unstructured
	for _, o := range injection(t, c) {
		if o.GetKind() == "ValidatingAdmissionPolicy" && o.GetName() == names.Admission {
			policy = o
		}
	}
	validations, _, _ := unstructured.NestedSlice(policy.Object, "spec", "validations")
	if len(validations) != len(pods) {
		t.Fatalf("want a pod for each of %d validations, got %d", len(validations), len(pods))
	}
	t.Cleanup(func() {
		if err := c.Apply(context.WithoutCancel(t.Context()), policy); err != nil {
			t.Error(err)
		}
		c.Eventually(t, "the whole policy to work again", func() error {
			for _, text := range pods {
				if text != "" && c.Client.Create(context.WithoutCancel(t.Context()), podOf(t, ns, text), client.DryRunAll) == nil {
					return fmt.Errorf("it takes %s", text)
				}
			}
			return nil
		})
	})
	for i, text := range pods {
		if text == "" {
			continue
		}
		refused := func() string {
			if err := c.Client.Create(t.Context(), podOf(t, ns, text), client.DryRunAll); err != nil {
				_, why, _ := strings.Cut(err.Error(), "is ")
				return why
			}
			return ""
		}
		if err := c.Apply(t.Context(), policy); err != nil {
			t.Fatal(err)
		}
		whole := ""
		c.Eventually(t, "the whole policy to work", func() error {
			if whole = refused(); whole == "" {
				return fmt.Errorf("it takes %s", text)
			}
			return nil
		})
		less := policy.DeepCopy()
		if err := unstructured.SetNestedSlice(less.Object, slices.Delete(slices.Clone(validations), i, i+1), "spec", "validations"); err != nil {
			t.Fatal(err)
		}
		if err := c.Apply(t.Context(), less); err != nil {
			t.Fatal(err)
		}
		c.Eventually(t, fmt.Sprintf("validation %d to be missed", i), func() error {
			if refused() == whole {
				return fmt.Errorf("it is still refused with %q", whole)
			}
			return nil
		})
	}
}
