package controlplane

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/test/controlplane/harness"
)

// injection are the objects of package/cluster/injection.yaml.
func injection(t *testing.T, c *harness.Cluster) []*unstructured.Unstructured {
	t.Helper()
	objects, err := harness.ReadObjects(filepath.Join(c.Root, "package", "cluster", "injection.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return objects
}

// installInjection applies the policies, and waits until the API server goes by
// them. They stay, as they do in a cluster: see checkReinstalled.
func installInjection(t *testing.T, c *harness.Cluster) {
	t.Helper()
	for _, o := range injection(t, c) {
		if err := c.Apply(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	ns := newPodNamespace(t, c, nil)
	parameters(t, c, ns, "probe", nil)
	c.Eventually(t, "the policies to work", func() error {
		p := podOf(t, ns, `{metadata: {generateName: probe-, labels: {wireguardgateway.io/peer: probe}}, spec: {containers: [{name: app, image: app}]}}`)
		if err := c.Client.Create(t.Context(), p, client.DryRunAll); err != nil {
			return err
		}
		unknown := podOf(t, ns, `{metadata: {generateName: probe-, labels: {wireguardgateway.io/peer: nobody}}, spec: {containers: [{name: app, image: app}]}}`)
		if err := c.Client.Create(t.Context(), unknown, client.DryRunAll); err == nil || len(p.Spec.InitContainers) != 1 {
			return fmt.Errorf("a pod has %d init containers, and one without parameters is taken: %t", len(p.Spec.InitContainers), err == nil)
		}
		// The policy on parameters is the last one.
		if err := tenant(t, c, ns).Create(t.Context(), parametersOf(ns, "tenant", nil), client.DryRunAll); err == nil || !strings.Contains(err.Error(), "may update wireguardpeers") {
			return fmt.Errorf("parameters of a tenant: %w", err)
		}
		return nil
	})
}

// newPodNamespace makes a namespace in which pods can be created. In a cluster
// with all controllers, it would get the account by itself.
func newPodNamespace(t *testing.T, c *harness.Cluster, labels map[string]string) string {
	t.Helper()
	ns := newNamespace(t, c, "pods-")
	if err := c.Client.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "default"}}); err != nil {
		t.Fatal(err)
	}
	if len(labels) > 0 {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: labels}}
		b, err := yaml.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
		if err != nil {
			t.Fatal(err)
		}
		if b, err = yaml.YAMLToJSON(b); err == nil {
			err = c.MergePatch(t.Context(), n, string(b))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return ns
}

// parametersOf is what a WireguardPeer composes for admission.
func parametersOf(ns, peer string, data map[string]string) *corev1.ConfigMap {
	m := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: peer + "-wireguard.injection", Labels: map[string]string{
			"wireguardgateway.io/injection": "true", "wireguardgateway.io/peer": peer,
		}},
		Data: map[string]string{
			"image": "example.com/agent:" + peer, "pullPolicy": "IfNotPresent", "secretName": peer + "-wireguard.enrolment", "tun": "true",
			"requests": "cpu=10m\nmemory=32Mi\n",
		},
	}
	for k, v := range data {
		m.Data[k] = v
		if v == "-" {
			delete(m.Data, k)
		}
	}
	return m
}

func parameters(t *testing.T, c *harness.Cluster, ns, peer string, data map[string]string) {
	t.Helper()
	if err := c.Client.Create(t.Context(), parametersOf(ns, peer, data)); err != nil {
		t.Fatal(err)
	}
}

// tenant may do in a namespace what its ordinary users may: write pods and
// ConfigMaps, and no WireguardPeers.
func tenant(t *testing.T, c *harness.Cluster, ns string) client.Client {
	t.Helper()
	for _, o := range []client.Object{
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "tenant"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods", "configmaps"}, Verbs: []string{"*"}}}},
		&rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "tenant"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "tenant"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "tenant"}},
		},
	} {
		if err := c.Client.Create(t.Context(), o); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	config := rest.CopyConfig(c.Config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "tenant"}
	out, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// podOf reads a pod.
func podOf(t *testing.T, ns, text string) *corev1.Pod {
	t.Helper()
	p := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	p.Namespace = ns
	return p
}

// wantSidecar is the sidecar as the API server stores it, with all defaults.
func wantSidecar(peer string, change func(*corev1.Container)) corev1.Container {
	field := func(name, path string) corev1.EnvVar {
		return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: path}}}
	}
	probe := func(period, failures int32, command ...string) *corev1.Probe {
		return &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: command}},
			PeriodSeconds: period, FailureThreshold: failures, SuccessThreshold: 1, TimeoutSeconds: 1,
		}
	}
	c := corev1.Container{
		Name: "wireguard", Image: "example.com/agent:" + peer, ImagePullPolicy: corev1.PullIfNotPresent,
		RestartPolicy: ptr.To(corev1.ContainerRestartPolicyAlways),
		Args:          []string{"client", "--enrolment", "/etc/wireguard/enrolment.json"},
		Env:           []corev1.EnvVar{field("POD_UID", "metadata.uid"), field("POD_IPS", "status.podIPs"), field("NODE_NAME", "spec.nodeName")},
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi"),
		}},
		StartupProbe:   probe(1, 120, "/agent", "probe", "--startup"),
		ReadinessProbe: probe(10, 3, "/agent", "probe"),
		SecurityContext: &corev1.SecurityContext{
			RunAsUser: ptr.To[int64](0), RunAsGroup: ptr.To[int64](0), RunAsNonRoot: new(false), Privileged: new(false),
			AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
			Capabilities:   &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"NET_ADMIN"}},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: "wireguard-enrolment", MountPath: "/etc/wireguard", ReadOnly: true},
			{Name: "wireguard-run", MountPath: "/var/run/wireguard"},
			{Name: "wireguard-tun", MountPath: "/dev/net/tun"},
		},
		TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: corev1.TerminationMessageReadFile,
	}
	if change != nil {
		change(&c)
	}
	return c
}

// withoutToken leaves out what Kubernetes mounts into every container.
func withoutToken(c corev1.Container) corev1.Container {
	c.VolumeMounts = slices.DeleteFunc(slices.Clone(c.VolumeMounts), func(m corev1.VolumeMount) bool { return strings.HasPrefix(m.Name, "kube-api-access-") })
	return c
}

// checkInjected returns what is wrong with a stored pod: the sidecar is the first
// init container and there once, its volumes are there once, and everything else
// is as it was.
func checkInjected(peer string, asked, stored *corev1.Pod, change func(*corev1.Container)) (bad []string) {
	if len(stored.Spec.InitContainers) == 0 {
		return []string{"there is no init container"}
	}
	want := wantSidecar(peer, change)
	if diff := cmp.Diff(want, withoutToken(stored.Spec.InitContainers[0]), cmpopts.EquateEmpty()); diff != "" {
		bad = append(bad, "the first init container: -want, +got:\n"+diff)
	}
	others := func(p *corev1.Pod) []string {
		var out []string
		for i := range p.Spec.InitContainers {
			if c := withoutToken(p.Spec.InitContainers[i]); c.Name != "wireguard" {
				out = append(out, fmt.Sprintf("init %s %s %v %d mounts", c.Name, c.Image, c.Command, len(c.VolumeMounts)))
			}
		}
		for i := range p.Spec.Containers {
			c := withoutToken(p.Spec.Containers[i])
			out = append(out, fmt.Sprintf("%s %s %v %d mounts", c.Name, c.Image, c.Command, len(c.VolumeMounts)))
		}
		return out
	}
	if diff := cmp.Diff(others(asked), others(stored)); diff != "" {
		bad = append(bad, "other containers: -asked for, +stored:\n"+diff)
	}
	count := map[string]int{}
	for i := range stored.Spec.InitContainers {
		count["container "+stored.Spec.InitContainers[i].Name]++
	}
	for i := range stored.Spec.Volumes {
		v := &stored.Spec.Volumes[i]
		count[v.Name]++
		switch v.Name {
		case "wireguard-enrolment":
			if v.Secret == nil || v.Secret.SecretName != peer+"-wireguard.enrolment" || ptr.Deref(v.Secret.DefaultMode, 0) != 0o400 {
				bad = append(bad, fmt.Sprintf("the enrolment is %v", v.VolumeSource))
			}
		case "wireguard-run":
			if v.EmptyDir == nil {
				bad = append(bad, fmt.Sprintf("the run directory is %v", v.VolumeSource))
			}
		case "wireguard-tun":
			if v.HostPath == nil || v.HostPath.Path != "/dev/net/tun" || ptr.Deref(v.HostPath.Type, "") != corev1.HostPathCharDev {
				bad = append(bad, fmt.Sprintf("the device is %v", v.VolumeSource))
			}
		}
	}
	if count["container wireguard"] != 1 {
		bad = append(bad, fmt.Sprintf("the sidecar is there %d times", count["container wireguard"]))
	}
	for _, m := range want.VolumeMounts {
		if count[m.Name] != 1 {
			bad = append(bad, fmt.Sprintf("the volume %s is there %d times", m.Name, count[m.Name]))
		}
	}
	return bad
}

const (
	labelled = `metadata: {generateName: pod-, labels: {wireguardgateway.io/peer: media}}, `
	app      = `containers: [{name: app, image: example.com/app}]`
)

// ownSidecar is the sidecar as somebody might write it out by himself.
const ownSidecar = `{name: wireguard, image: example.com/agent:media, imagePullPolicy: IfNotPresent, restartPolicy: Always, args: [client, --enrolment, /etc/wireguard/enrolment.json],
  env: [{name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}, {name: POD_IPS, valueFrom: {fieldRef: {fieldPath: status.podIPs}}}, {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}],
  resources: {requests: {cpu: 10m, memory: 32Mi}},
  startupProbe: {exec: {command: [/agent, probe, --startup]}, periodSeconds: 1, failureThreshold: 120}, readinessProbe: {exec: {command: [/agent, probe]}, periodSeconds: 10},
  securityContext: {runAsUser: 0, runAsGroup: 0, runAsNonRoot: false, privileged: false, allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL], add: [NET_ADMIN]}, seccompProfile: {type: RuntimeDefault}},
  volumeMounts: [{name: wireguard-enrolment, mountPath: /etc/wireguard, readOnly: true}, {name: wireguard-run, mountPath: /var/run/wireguard}, {name: wireguard-tun, mountPath: /dev/net/tun}]}`

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
