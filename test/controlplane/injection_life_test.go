package controlplane

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/test/controlplane/harness"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// newPods applies the WireguardPeer media with pods. It is removed with the test.
func newPods(t *testing.T, of *gateway, namespace, pods string) *gateway {
	t.Helper()
	p := &gateway{t: t, c: of.c, kind: v1alpha1.PeerKind, namespace: namespace, name: "media"}
	t.Cleanup(p.remove)
	p.apply(fmt.Sprintf("{gatewayRef: {name: %s, namespace: %s}, pods: %s}", of.name, of.namespace, pods))
	return p
}

// has returns the objects of a WireguardPeer with pods that are there, by kind.
func (g *gateway) has() ([]string, error) {
	var out []string
	for _, o := range []struct{ apiVersion, kind, name string }{
		{"v1", "ConfigMap", "attachment"},
		{"v1", "ConfigMap", "injection"},
		{"v1", "Secret", "enrolment"},
		{"rbac.authorization.k8s.io/v1", "Role", "pods"},
		{"rbac.authorization.k8s.io/v1", "RoleBinding", "pods"},
		{"networking.k8s.io/v1", "NetworkPolicy", "pods"},
	} {
		u, err := g.c.Get(g.t.Context(), o.apiVersion, o.kind, g.namespace, g.name+"-wireguard."+o.name)
		switch {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, err
		case u.GetDeletionTimestamp() == nil:
			out = append(out, o.kind+" "+o.name)
		}
	}
	return out, nil
}

var (
	allOfPods  = []string{"ConfigMap attachment", "ConfigMap injection", "Secret enrolment", "Role pods", "RoleBinding pods", "NetworkPolicy pods"}
	wallOfPods = []string{"NetworkPolicy pods"}
)

func (g *gateway) waitHas(when string, want []string) {
	g.t.Helper()
	g.eventually(when, func() error {
		got, err := g.has()
		if err == nil && !slices.Equal(want, got) {
			err = fmt.Errorf("%s: want %v, got %v", when, want, got)
		}
		return err
	})
}

// classes returns the pods that the gateway's agent is told to serve.
func (g *gateway) classes() ([]wireguard.PodClass, error) {
	s := &corev1.Secret{}
	if err := g.c.Client.Get(g.t.Context(), client.ObjectKey{Namespace: g.namespace, Name: g.name + "-wireguard.config"}, s); err != nil {
		return nil, err
	}
	c, err := wireguard.DecodeGatewayConfig(s.Data[wireguard.ConfigKey])
	return c.PodClasses, err
}

func (g *gateway) waitClasses(want int) {
	g.t.Helper()
	g.eventually("the gateway's classes of pods", func() error {
		cs, err := g.classes()
		if err == nil && len(cs) != want {
			err = fmt.Errorf("want %d, got %d", want, len(cs))
		}
		return err
	})
}

// tryPod creates a pod of a class.
func tryPod(t *testing.T, c *harness.Cluster, ns, peer string) (*corev1.Pod, error) {
	t.Helper()
	p := podOf(t, ns, `{metadata: {generateName: pod-, labels: {wireguardgateway.io/peer: `+peer+`}}, spec: {`+app+`}}`)
	err := c.Client.Create(t.Context(), p)
	return p, err
}

// TestPodsLife: pods wait for their gateway, are let in, withdrawn and let in
// again. The wall around them is there all the time, and admission the same.
func TestPodsLife(t *testing.T) {
	c := shared(t)
	installInjection(t, c)
	vpn, apps := newNamespace(t, c, "vpn-"), newPodNamespace(t, c, nil)
	open := fmt.Sprintf(openGateway, apps)
	g := &gateway{t: t, c: c, kind: v1alpha1.GatewayKind, namespace: vpn, name: "home"}
	p := newPods(t, g, apps, "{}")
	p.waitCondition("PodsReady", "False", "WaitingForGateway")
	p.waitHas("before the gateway", wallOfPods)
	g = newGatewayIn(t, c, vpn, "home", closedGateway)
	p.waitCondition("Permitted", "False", "NamespaceNotAllowed")
	p.waitHas("not let in", wallOfPods)

	quiet := waitQuiet(t, c)
	// events tells what a step costs of the circuit breakers, once it is over.
	events := func(step string) {
		t.Helper()
		after := waitQuiet(t, c)
		t.Logf("%s: %d events of circuit breakers, %d reconciles", step, after.BreakerEvents-quiet.BreakerEvents, after.Reconciles-quiet.Reconciles)
		quiet = after
	}
	start := time.Now()
	g.apply(open)
	p.waitCondition("PodsReady", "True", "Available")
	t.Logf("let in: ready after %v", time.Since(start).Round(10*time.Millisecond))
	p.waitReady()
	events("let in")
	p.waitHas("let in", allOfPods)
	g.waitClasses(1)
	g.waitReady()

	pod, err := tryPod(t, c, apps, "media")
	if err != nil {
		t.Fatal(err)
	}
	if len(pod.Spec.InitContainers) != 1 || pod.Spec.InitContainers[0].Image != "ghcr.io/wireguardgateway/agent:v0.1.0" {
		t.Errorf("want the sidecar of the Composition's image, got %v", pod.Spec.InitContainers)
	}
	seed := g.secret("home-wireguard.seed")["seed"]
	enrolment, err := wireguard.DecodeEnrolment(p.secret("media-wireguard.enrolment")[wireguard.EnrolmentKey])
	if err != nil {
		t.Fatal(err)
	}
	if want := wireguard.Seed(seed).PodClassKey(apps, "media"); enrolment.ClassKey != want {
		t.Error("the enrolment has another class key than the gateway")
	}
	if cs, err := g.classes(); err != nil || cs[0].Key != enrolment.ClassKey || cs[0].Namespace != apps {
		t.Errorf("the gateway knows the class by another key (%v)", err)
	}
	if want := "home-wireguard." + vpn + ".svc.cluster.local:51820"; enrolment.Endpoint != want {
		t.Errorf("want the endpoint %s, got %s", want, enrolment.Endpoint)
	}
	entry := g.status().Peers
	if diff := cmp.Diff([]v1alpha1.PeerStatus{{Name: "media", Namespace: apps, Pods: true, State: "Active"}}, entry); diff != "" {
		t.Errorf("status.peers: -want, +got:\n%s", diff)
	}
	p.keepsSecrets(seed)
	for _, text := range []string{fmt.Sprint(p.get().Object), fmt.Sprint(g.get().Object)} {
		if strings.Contains(text, enrolment.ClassKey.String()) {
			t.Error("the class key stands in the open")
		}
	}

	// Withdrawn: no class, no enrolment, no new pods. The wall stays, and leads to
	// no gateway any more.
	start = time.Now()
	g.apply(closedGateway)
	g.waitClasses(0)
	t.Logf("withdrawn: off the gateway after %v", time.Since(start).Round(10*time.Millisecond))
	p.waitHas("withdrawn", wallOfPods)
	t.Logf("withdrawn: without enrolment after %v", time.Since(start).Round(10*time.Millisecond))
	p.waitCondition("PodsReady", "False", "WaitingForGateway")
	events("withdrawn")
	if err := harness.HasCondition(p.get(), "Ready", "False", ""); err != nil {
		t.Error(err)
	}
	if _, err := tryPod(t, c, apps, "media"); err == nil || !strings.Contains(err.Error(), "gives pods no sidecar") {
		t.Errorf("withdrawn: want new pods refused, got %v", err)
	}
	wall := &networkingv1.NetworkPolicy{}
	if err := c.Client.Get(t.Context(), client.ObjectKey{Namespace: apps, Name: "media-wireguard.pods"}, wall); err != nil {
		t.Fatal(err)
	}
	for _, r := range wall.Spec.Egress {
		for _, port := range r.Ports {
			if port.Port.IntValue() == 51820 {
				t.Error("withdrawn: the wall still leads to the gateway")
			}
		}
		if len(r.To) == 0 {
			t.Error("a rule leads everywhere")
		}
	}

	g.apply(open)
	p.waitCondition("PodsReady", "True", "Available")
	p.waitHas("let in again", allOfPods)
	again, err := wireguard.DecodeEnrolment(p.secret("media-wireguard.enrolment")[wireguard.EnrolmentKey])
	if err != nil || again.ClassKey != enrolment.ClassKey {
		t.Errorf("let in again: want the same class key (%v)", err)
	}

	// The agent counts the pods.
	if err := c.Report(t.Context(), vpn, "home", wireguard.Report{Ready: true, InjectedPods: 7}); err != nil {
		t.Fatal(err)
	}
	g.eventually("the pods to be counted", func() error {
		if s := g.status(); s.InjectedPods != 7 || s.ActivePeers != 0 {
			return fmt.Errorf("got %d pods and %d peers", s.InjectedPods, s.ActivePeers)
		}
		return nil
	})

	// The namespace's Pod Security level would refuse every one of them.
	label := func(level string) {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: apps}}
		if err := c.MergePatch(t.Context(), n, `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":`+level+`}}}`); err != nil {
			t.Fatal(err)
		}
	}
	label(`"baseline"`)
	p.waitCondition("PodsReady", "False", "PodSecurity")
	if _, err := tryPod(t, c, apps, "media"); err == nil || !strings.Contains(err.Error(), "PodSecurity") {
		t.Errorf("want pods refused by the Pod Security level, got %v", err)
	}
	label("null")
	p.waitCondition("PodsReady", "True", "Available")

	// Crossplane heals what somebody changes of the parameters.
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: apps, Name: "media-wireguard.injection"}}
	if err := c.MergePatch(t.Context(), m, `{"data":{"image":null}}`); err != nil {
		t.Fatal(err)
	}
	p.eventually("pods to be admitted again", func() error {
		_, err := tryPod(t, c, apps, "media")
		return err
	})

	// The gateway goes, and the wall stays.
	g.remove()
	p.waitCondition("GatewayFound", "False", "NotFound")
	p.waitHas("gateway gone", wallOfPods)
}

// TestPodsClaim: with claims, everything is in the claim's namespace, and
// Crossplane may write the parameters. In this cluster, policies come late.
func TestPodsClaim(t *testing.T) {
	t.Parallel()
	c := harness.Start(t, harness.Options{Flavour: harness.Claim})
	vpn, apps := newNamespace(t, c, "vpn-"), newPodNamespace(t, c, nil)
	g := newGatewayIn(t, c, vpn, "home", fmt.Sprintf(openGateway, apps))
	p := newPods(t, g, apps, "{}")
	// The user is told before any pod leaks.
	p.waitCondition("PodsReady", "False", "AdmissionMissing")
	early := podOf(t, apps, `{metadata: {name: early, labels: {wireguardgateway.io/peer: media}, finalizers: [example.com/keeps]}, spec: {hostNetwork: true, containers: [{name: wireguard, image: x}]}}`)
	if err := c.Client.Create(t.Context(), early); err != nil {
		t.Fatal(err)
	}
	installInjection(t, c)
	start := time.Now()
	p.waitCondition("PodsReady", "True", "Available")
	t.Logf("policies installed: ready after %v", time.Since(start).Round(10*time.Millisecond))
	p.waitHas("let in", allOfPods)
	g.waitClasses(1)
	if _, err := tryPod(t, c, apps, "media"); err != nil {
		t.Error(err)
	}

	// A pod that was there before is let be.
	for what, patch := range map[string]string{"annotation": `{"metadata":{"annotations":{"a":"b"}}}`, "finalizers": `{"metadata":{"finalizers":null}}`} {
		if err := c.MergePatch(t.Context(), early.DeepCopy(), patch); err != nil {
			t.Errorf("%s of a pod that was there before: %v", what, err)
		}
	}
	if err := c.Client.SubResource("status").Patch(t.Context(), early.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Running"}}`))); err != nil {
		t.Errorf("status of a pod that was there before: %v", err)
	}
	if err := c.Client.Delete(t.Context(), early, client.GracePeriodSeconds(0)); err != nil {
		t.Errorf("want a pod that was there before deleted, got %v", err)
	}

	g.apply(closedGateway)
	g.waitClasses(0)
	p.waitHas("withdrawn", wallOfPods)
	if _, err := tryPod(t, c, apps, "media"); err == nil {
		t.Error("withdrawn: want new pods refused")
	}
	g.apply(fmt.Sprintf(openGateway, apps))
	p.waitCondition("PodsReady", "True", "Available")
	checkReinstalled(t, c, apps)
}

// checkReinstalled takes the policies away and brings them back. The API server
// stops to watch parameters with the last policy that has some, and does not begin
// again before it is restarted. Until then it knows no new ones: pods are refused,
// and none is stored without the sidecar.
func checkReinstalled(t *testing.T, c *harness.Cluster, ns string) {
	t.Helper()
	for _, o := range injection(t, c) {
		if err := c.Client.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	c.Eventually(t, "the policies to be gone", func() error {
		_, err := tryPod(t, c, ns, "nobody")
		return err
	})
	for _, o := range injection(t, c) {
		if err := c.Apply(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	parameters(t, c, ns, "fresh", nil)
	c.Eventually(t, "the policies to be back", func() error {
		if p, err := tryPod(t, c, ns, "fresh"); err == nil && len(p.Spec.InitContainers) == 0 {
			return errors.New("a pod is stored without the sidecar")
		}
		return nil
	})
	_, err := tryPod(t, c, ns, "fresh")
	t.Logf("after the policies were taken away and came back: %v", err)
	c.StopAPIServer()
	if err := c.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Eventually(t, "pods to be admitted once the API server was restarted", func() error {
		p, err := tryPod(t, c, ns, "fresh")
		if err == nil && len(p.Spec.InitContainers) == 0 {
			err = errors.New("a pod is stored without the sidecar")
		}
		return err
	})
}

// TestPodsCiliumMissing: where the platform says that the network is Cilium's, and
// the cluster has no such kind, the rest is composed.
func TestPodsCiliumMissing(t *testing.T) {
	c := shared(t)
	installInjection(t, c)
	vpn, apps := newNamespace(t, c, "vpn-"), newPodNamespace(t, c, nil)
	g := newGatewayIn(t, c, vpn, "home", fmt.Sprintf(openGateway, apps))
	p := newPods(t, g, apps, "{networkPolicy: {type: Cilium}}")
	p.waitCondition("PodsReady", "False", "KindMissing")
	p.waitHas("without the wall", slices.DeleteFunc(slices.Clone(allOfPods), func(s string) bool { return s == wallOfPods[0] }))
	if err := harness.HasCondition(p.get(), "Synced", "True", ""); err != nil {
		t.Error(err)
	}
}
