package object

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestEncode(t *testing.T) {
	cases := map[string]struct {
		reason string
		object runtime.Object
		kind   schema.GroupVersionKind
		want   map[string]any
	}{
		"Deployment": {
			reason: "Nothing but what was set is there, and an emptyDir stays.",
			object: &appsv1.Deployment{
				ObjectMeta: metav1.ObjectMeta{Name: "a"},
				Spec: appsv1.DeploymentSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: "b"}},
					Volumes:    []corev1.Volume{{Name: "c", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
				}}},
			},
			kind: appsv1.SchemeGroupVersion.WithKind("Deployment"),
			want: map[string]any{
				"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "a"},
				"spec": map[string]any{
					"selector": nil,
					"template": map[string]any{"metadata": map[string]any{}, "spec": map[string]any{
						"containers": []any{map[string]any{"name": "b"}},
						"volumes":    []any{map[string]any{"name": "c", "emptyDir": map[string]any{}}},
					}},
				},
			},
		},
		"NetworkPolicy": {
			reason: "A selector of everything says something.",
			object: &networkingv1.NetworkPolicy{
				ObjectMeta: metav1.ObjectMeta{Name: "a"},
				Spec: networkingv1.NetworkPolicySpec{
					Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{}}}}},
				},
			},
			kind: networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"),
			want: map[string]any{
				"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": map[string]any{"name": "a"},
				"spec": map[string]any{
					"podSelector": map[string]any{},
					"ingress":     []any{map[string]any{"from": []any{map[string]any{"namespaceSelector": map[string]any{}}}}},
				},
			},
		},
		"Service": {
			reason: "The status is the cluster's to say.",
			object: &corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: "a"},
				Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1}}},
				Status:     corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}}},
			},
			kind: corev1.SchemeGroupVersion.WithKind("Service"),
			want: map[string]any{
				"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "a"},
				"spec": map[string]any{"ports": []any{map[string]any{"port": 1.0, "targetPort": 0.0}}},
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s, err := Encode(tc.object, tc.kind)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(withoutNulls(tc.want), s.AsMap()); diff != "" {
				t.Errorf("%s\n-want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// withoutNulls drops what a case names as absent.
func withoutNulls(m map[string]any) map[string]any {
	for k, v := range m {
		switch v := v.(type) {
		case nil:
			delete(m, k)
		case map[string]any:
			withoutNulls(v)
		}
	}
	return m
}

// TestDecode reads what Encode wrote, and what a newer API server added.
func TestDecode(t *testing.T) {
	want := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 1, NodePort: 31820}}}}
	s, err := Encode(want, corev1.SchemeGroupVersion.WithKind("Service"))
	if err != nil {
		t.Fatal(err)
	}
	s.Fields["novelty"] = s.GetFields()["spec"]
	got := &corev1.Service{}
	if err := Decode(s, got); err != nil {
		t.Fatal(err)
	}
	got.TypeMeta = metav1.TypeMeta{}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}
