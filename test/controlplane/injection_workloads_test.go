package controlplane

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/test/controlplane/harness"
)

// TestPodsOfWorkloads plays the controllers of every kind of workload: the pods
// that they make of their templates join, and the templates stay as they are.
func TestPodsOfWorkloads(t *testing.T) {
	c := shared(t)
	installInjection(t, c)
	ns := newPodNamespace(t, c, nil)
	parameters(t, c, ns, "media", nil)
	template := func(restart corev1.RestartPolicy) corev1.PodTemplateSpec {
		return corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "media", "wireguardgateway.io/peer": "media"}},
			Spec: corev1.PodSpec{
				RestartPolicy:  restart,
				InitContainers: []corev1.Container{{Name: "migrate", Image: "example.com/app"}},
				Containers:     []corev1.Container{{Name: "app", Image: "example.com/app"}},
			},
		}
	}
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "media"}}
	always := template(corev1.RestartPolicyAlways)
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }
	once := template(corev1.RestartPolicyOnFailure)
	deployment := &appsv1.Deployment{ObjectMeta: meta("deployment"), Spec: appsv1.DeploymentSpec{Selector: selector, Template: always}}
	stateful := &appsv1.StatefulSet{ObjectMeta: meta("stateful"), Spec: appsv1.StatefulSetSpec{Selector: selector, Template: always, ServiceName: "media"}}
	daemon := &appsv1.DaemonSet{ObjectMeta: meta("daemon"), Spec: appsv1.DaemonSetSpec{Selector: selector, Template: always}}
	job := &batchv1.Job{ObjectMeta: meta("job"), Spec: batchv1.JobSpec{Template: once}}
	cron := &batchv1.CronJob{ObjectMeta: meta("cron"), Spec: batchv1.CronJobSpec{Schedule: "@daily", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: once}}}}
	for kind, w := range map[string]struct {
		object   client.Object
		template *corev1.PodTemplateSpec
		pod      metav1.ObjectMeta
		change   func(*corev1.PodSpec) // what its controller adds to the template
	}{
		"Deployment": {deployment, &deployment.Spec.Template, metav1.ObjectMeta{GenerateName: "deployment-5d9c7-"}, nil},
		"StatefulSet": {stateful, &stateful.Spec.Template, metav1.ObjectMeta{Name: "stateful-0"}, func(s *corev1.PodSpec) {
			s.Hostname, s.Subdomain = "stateful-0", "media"
			s.Volumes = append(s.Volumes, corev1.Volume{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-stateful-0"}}})
		}},
		"DaemonSet": {daemon, &daemon.Spec.Template, metav1.ObjectMeta{GenerateName: "daemon-"}, func(s *corev1.PodSpec) {
			s.Tolerations = []corev1.Toleration{{Key: "node.kubernetes.io/not-ready", Operator: corev1.TolerationOpExists}}
		}},
		"Job":     {job, &job.Spec.Template, metav1.ObjectMeta{GenerateName: "job-"}, nil},
		"CronJob": {cron, &cron.Spec.JobTemplate.Spec.Template, metav1.ObjectMeta{GenerateName: "cron-29000000-"}, nil},
	} {
		t.Run(kind, func(t *testing.T) {
			if err := c.Client.Create(t.Context(), w.object); err != nil {
				t.Fatal(err)
			}
			stored := w.template
			if len(stored.Spec.InitContainers) != 1 || len(stored.Spec.Volumes) != 0 {
				t.Errorf("want the template as it was, got %d init containers and %d volumes", len(stored.Spec.InitContainers), len(stored.Spec.Volumes))
			}
			gvk, err := c.Client.GroupVersionKindFor(w.object)
			if err != nil {
				t.Fatal(err)
			}
			p := &corev1.Pod{ObjectMeta: w.pod, Spec: *stored.Spec.DeepCopy()}
			p.Namespace, p.Labels = ns, stored.Labels
			p.OwnerReferences = []metav1.OwnerReference{{
				APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Name: w.object.GetName(), UID: w.object.GetUID(), Controller: new(true), BlockOwnerDeletion: new(true),
			}}
			if w.change != nil {
				w.change(&p.Spec)
			}
			asked := p.DeepCopy()
			if err := c.Client.Create(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			for _, why := range checkInjected("media", asked, p, nil) {
				t.Error(why)
			}
		})
	}
}

// TestPodsRoll rolls 200 pods as a Deployment's controllers would, and counts what
// the API server is asked to write: for each pod, what Kubernetes itself writes
// and nothing else.
func TestPodsRoll(t *testing.T) {
	const pods, workers = 200, 8
	c := shared(t)
	installInjection(t, c)
	vpn, apps := newNamespace(t, c, "vpn-"), newPodNamespace(t, c, nil)
	g := newGatewayIn(t, c, vpn, "home", fmt.Sprintf(openGateway, apps))
	p := newPods(t, g, apps, "{}")
	p.waitCondition("PodsReady", "True", "Available")
	create := func(name string) error {
		pod := podOf(t, apps, `{metadata: {labels: {wireguardgateway.io/peer: media}}, spec: {`+app+`}}`)
		pod.Name = name
		if err := c.Client.Create(t.Context(), pod); err != nil {
			return err
		}
		if len(pod.Spec.InitContainers) != 1 {
			return errors.New("it has no sidecar")
		}
		// What the kubelet reports once it runs.
		return c.Client.SubResource("status").Patch(t.Context(), pod, client.RawPatch("application/merge-patch+json",
			[]byte(`{"status":{"phase":"Running","podIP":"10.42.0.7","podIPs":[{"ip":"10.42.0.7"}]}}`)))
	}
	remove := func(name string) error {
		return c.Client.Delete(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: apps, Name: name}}, client.GracePeriodSeconds(0))
	}
	// each runs a step for all pods, some at a time.
	each := func(step func(i int) error) {
		t.Helper()
		var all sync.WaitGroup
		errs := make([]error, workers)
		for w := range workers {
			all.Go(func() {
				for i := w; i < pods && errs[w] == nil; i += workers {
					errs[w] = step(i)
				}
			})
		}
		all.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
	}
	each(func(i int) error { return create(fmt.Sprintf("old-%d", i)) })
	waitQuiet(t, c)
	// From now on, gateway and peer ask for themselves once their responses expire.
	g.poke()
	p.poke()
	before := waitQuiet(t, c)
	mark, err := c.Mark()
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	each(func(i int) error {
		return errors.Join(create(fmt.Sprintf("new-%d", i)), remove(fmt.Sprintf("old-%d", i)))
	})
	rolled := time.Since(start)
	after := waitQuiet(t, c)
	window := time.Since(start)
	writes, err := c.AllWrites(mark)
	if err != nil {
		t.Fatal(err)
	}
	counts, others := map[string]int{}, map[string]int{}
	for _, w := range writes {
		switch {
		case w.DryRun:
		case w.Namespace == apps && w.Resource == "pods":
			counts[strings.TrimSuffix(w.Verb+" "+w.Subresource, " ")]++
		case w.Namespace == apps || w.Namespace == vpn:
			others[w.User+" "+w.Verb+" "+w.Object()]++
		}
	}
	t.Logf("%d pods rolled in %v: writes of pods %v; other writes in both namespaces within %v: %d; reconciles of composite resources: %d",
		pods, rolled.Round(time.Millisecond), counts, window.Round(time.Millisecond), len(others), after.Reconciles-before.Reconciles)
	if diff := cmp.Diff(map[string]int{"create": pods, "patch status": pods, "delete": pods}, counts); diff != "" {
		t.Errorf("writes of pods: -want, +got:\n%s", diff)
	}
	// Where it took longer than a response is valid, both were reconciled once
	// meanwhile, for themselves.
	if window < 50*time.Second && len(others) > 0 {
		t.Errorf("want nothing else written, got %v", others)
	}
	if window < 50*time.Second && after.Reconciles > before.Reconciles {
		t.Errorf("want no composite resource reconciled, got %d", after.Reconciles-before.Reconciles)
	}
}

// TestPodsOfExamples: what the examples tell users to apply is taken, and the pods
// of their workloads join.
func TestPodsOfExamples(t *testing.T) {
	c := shared(t)
	installInjection(t, c)
	folders, err := filepath.Glob(filepath.Join(c.Root, "example", "pods*"))
	if err != nil || len(folders) == 0 {
		t.Fatalf("want examples, got %v (%v)", folders, err)
	}
	for _, folder := range folders {
		t.Run(filepath.Base(folder), func(t *testing.T) {
			ns := newPodNamespace(t, c, nil)
			peers, joined := map[string]bool{}, 0
			for _, file := range []string{"gateway.yaml", "xr.yaml", "other.yaml", "workload.yaml"} {
				objects, err := harness.ReadObjects(filepath.Join(folder, file))
				if errors.Is(err, fs.ErrNotExist) && file == "other.yaml" {
					continue
				}
				if err != nil {
					t.Fatal(err)
				}
				for _, o := range objects {
					o.SetNamespace(ns)
					if err := c.Client.Create(t.Context(), o.DeepCopy(), client.DryRunAll); err != nil {
						t.Errorf("%s %s: %v", o.GetKind(), o.GetName(), err)
					}
					if peer := o.GetName(); o.GetKind() == v1alpha1.PeerKind && !peers[peer] {
						parameters(t, c, ns, peer, nil)
						peers[peer] = true
					}
					p := podOfTemplate(t, o)
					if p == nil {
						continue
					}
					peer := p.Labels["wireguardgateway.io/peer"]
					if !peers[peer] {
						t.Errorf("%s %s: there is no WireguardPeer %q", o.GetKind(), o.GetName(), peer)
					}
					asked := p.DeepCopy()
					if err := c.Client.Create(t.Context(), p); err != nil {
						t.Fatalf("%s %s: %v", o.GetKind(), o.GetName(), err)
					}
					for _, why := range checkInjected(peer, asked, p, nil) {
						t.Errorf("%s %s: %s", o.GetKind(), o.GetName(), why)
					}
					joined++
				}
			}
			if joined == 0 {
				t.Error("want a workload, got none")
			}
		})
	}
}

// podOfTemplate is the pod that a workload's controllers would make, nil where it
// is no workload.
func podOfTemplate(t *testing.T, o *unstructured.Unstructured) *corev1.Pod {
	t.Helper()
	template, ok, _ := unstructured.NestedMap(o.Object, "spec", "template")
	if !ok {
		template, ok, _ = unstructured.NestedMap(o.Object, "spec", "jobTemplate", "spec", "template")
	}
	if !ok {
		return nil
	}
	p := &corev1.Pod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(template, p); err != nil {
		t.Fatal(err)
	}
	p.Namespace, p.GenerateName = o.GetNamespace(), o.GetName()+"-"
	return p
}
