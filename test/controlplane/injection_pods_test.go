package controlplane

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
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
