package harness

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Inject plays, until the test ends, another injector of a namespace's pods: a
// webhook that answers with a JSON patch for each pod that is created.
func (c *Cluster) Inject(tb testing.TB, name, namespace string, reinvocation admissionregistrationv1.ReinvocationPolicyType, patch func(*corev1.Pod) string) {
	tb.Helper()
	p, err := c.authority.issue(name)
	if err != nil {
		tb.Fatal(err)
	}
	cert, err := tls.X509KeyPair(p.cert, p.key)
	if err != nil {
		tb.Fatal(err)
	}
	l, err := c.network.listen("127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	s := &http.Server{ReadHeaderTimeout: startTimeout, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review, pod := admissionv1.AdmissionReview{}, corev1.Pod{}
		if json.NewDecoder(r.Body).Decode(&review) != nil || json.Unmarshal(review.Request.Object.Raw, &pod) != nil {
			http.Error(w, "no review of a pod", http.StatusBadRequest)
			return
		}
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true}
		if text := patch(&pod); text != "" {
			review.Response.Patch, review.Response.PatchType = []byte(text), ptr.To(admissionv1.PatchTypeJSONPatch)
		}
		_ = json.NewEncoder(w).Encode(review)
	})}
	go func() {
		_ = s.Serve(tls.NewListener(l, &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert}}))
	}()
	tb.Cleanup(func() { _ = s.Close() })

	webhook := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name:                    name + ".example.com",
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: new("https://" + l.Addr().String() + "/"), CABundle: c.authority.pem},
			AdmissionReviewVersions: []string{"v1"},
			SideEffects:             ptr.To(admissionregistrationv1.SideEffectClassNone),
			ReinvocationPolicy:      &reinvocation,
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}},
			}},
		}},
	}
	if err := c.Client.Create(tb.Context(), webhook); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := c.Client.Delete(context.WithoutCancel(tb.Context()), webhook); err != nil {
			tb.Error(err)
		}
	})
}
