package fn

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

func TestDeploymentReady(t *testing.T) {
	good := appsv1.DeploymentStatus{ObservedGeneration: 3, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1, AvailableReplicas: 1}
	with := func(edit func(s *appsv1.DeploymentStatus)) *appsv1.Deployment {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: 3}, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](1)}, Status: *good.DeepCopy()}
		edit(&d.Status)
		return d
	}
	says := func(kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string) func(s *appsv1.DeploymentStatus) {
		return func(s *appsv1.DeploymentStatus) {
			s.AvailableReplicas = 0
			s.Conditions = []appsv1.DeploymentCondition{{Type: kind, Status: status, Reason: reason, Message: message}}
		}
	}
	cases := map[string]struct {
		why             string
		deployment      *appsv1.Deployment
		ready           bool
		reason, message string // a part of the message
	}{
		"None":         {"It was not applied yet.", nil, false, "Pending", "does not exist yet"},
		"Ready":        {"One pod of the latest change is available.", with(func(*appsv1.DeploymentStatus) {}), true, "Available", ""},
		"New":          {"Its controller has said nothing yet.", with(func(s *appsv1.DeploymentStatus) { *s = appsv1.DeploymentStatus{} }), false, "Pending", "has not seen its latest change"},
		"Stale":        {"What it says is about the change before.", with(func(s *appsv1.DeploymentStatus) { s.ObservedGeneration = 2 }), false, "Pending", "has not seen its latest change"},
		"OldPod":       {"The pod is of the change before.", with(func(s *appsv1.DeploymentStatus) { s.UpdatedReplicas = 0 }), false, "Pending", "1 of 1 pods"},
		"TwoPods":      {"The old pod is not gone yet.", with(func(s *appsv1.DeploymentStatus) { s.Replicas = 2 }), false, "Pending", ""},
		"Starting":     {"The pod is not available.", with(func(s *appsv1.DeploymentStatus) { s.AvailableReplicas = 0 }), false, "Pending", "0 of 1 pods are available"},
		"Stuck":        {"The Deployment says that it gave up.", with(says(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ProgressDeadlineExceeded", "timed out")), false, "Pending", "timed out"},
		"Progressing":  {"What goes as it should is no news.", with(says(appsv1.DeploymentProgressing, corev1.ConditionTrue, "ReplicaSetUpdated", "is progressing")), false, "Pending", "0 of 1"},
		"Refused":      {"What refuses the pod is what the user needs to hear.", with(says(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate", "exceeded quota")), false, "FailedCreate", "exceeded quota"},
		"PodSecurity":  {"The way out is given with it.", with(says(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate", "violates PodSecurity")), false, "FailedCreate", "pod-security.kubernetes.io/enforce=privileged"},
		"FirstFailure": {"Pod Security may refuse the pod ever since.", with(says(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate", `error looking up service account vpn/home-wireguard: serviceaccount "home-wireguard" not found`)), false, "FailedCreate", "pod-security.kubernetes.io/enforce=privileged"},
		"Speechless":   {"A condition needs a reason and a message.", with(says(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "", "")), false, "ReplicaFailure", "cannot be created"},
		"NoLonger": {"A failure that is over is none.", with(func(s *appsv1.DeploymentStatus) {
			s.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionFalse, Message: "was"}}
		}), true, "Available", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			ready, reason, message := deploymentReady(tc.deployment)
			if ready != tc.ready || reason != tc.reason || !strings.Contains(message, tc.message) {
				t.Errorf("%s\nwant %t, %s and %q, got %t, %s and %q", tc.why, tc.ready, tc.reason, tc.message, ready, reason, message)
			}
		})
	}

	scaled := with(func(s *appsv1.DeploymentStatus) { *s = appsv1.DeploymentStatus{ObservedGeneration: 3} })
	scaled.Spec.Replicas = ptr.To[int32](0)
	if ready, _, _ := deploymentReady(scaled); ready {
		t.Error("a Deployment that somebody scaled to nothing is not ready")
	}
}

func TestServiceReady(t *testing.T) {
	balanced := &corev1.Service{
		Spec:   corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
		Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "203.0.113.9"}}}},
	}
	waiting := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	plain := &corev1.Service{Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP}}
	cases := map[string]struct {
		why     string
		kind    string
		host    string
		route   bool
		service *corev1.Service
		want    bool
	}{
		"None":            {"It is not there yet.", "LoadBalancer", "vpn.example.com", false, nil, false},
		"Waiting":         {"It has no address yet.", "LoadBalancer", "", false, waiting, false},
		"Balanced":        {"It has an address.", "LoadBalancer", "", false, balanced, true},
		"HostInstead":     {"Its address does not matter.", "LoadBalancer", "vpn.example.com", false, waiting, true},
		"RouteInstead":    {"The Gateway's address matters.", "LoadBalancer", "", true, waiting, true},
		"ClusterIP":       {"It waits for nothing.", "ClusterIP", "", false, plain, true},
		"NodePort":        {"It waits for nothing.", "NodePort", "", false, plain, true},
		"BecomesBalanced": {"What it was before is not what it is to be.", "LoadBalancer", "", false, plain, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := &plan.Gateway{Gateway: &spec.Gateway{Endpoint: spec.Endpoint{Host: tc.host}}}
			g.Service.Type = tc.kind
			if tc.route {
				g.GatewayAPI.UDPRoute = &spec.UDPRoute{}
			}
			if got := serviceReady(g, tc.service); got != tc.want {
				t.Errorf("%s\nwant %t, got %t", tc.why, tc.want, got)
			}
		})
	}
}

// TestAgentReport: the agent's own words reach the condition where the pod is
// not ready, and are not waited for where it is.
func TestAgentReport(t *testing.T) {
	starting := &appsv1.Deployment{Status: appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1}}
	running := &appsv1.Deployment{Status: appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1, AvailableReplicas: 1}}
	failing := &wireguard.Report{Reasons: []string{"IPv6 forwarding is off", "no device"}}
	cases := map[string]struct {
		why        string
		deployment *appsv1.Deployment
		report     *wireguard.Report
		want       string // a part of the message
		ready      bool
	}{
		"Says":     {"Every reason is passed on.", starting, failing, "The agent says: IPv6 forwarding is off; no device", false},
		"Silent":   {"Without a report there is nothing to pass on.", starting, nil, "0 of 1 pods are available", false},
		"Ready":    {"A report of readiness explains nothing.", starting, &wireguard.Report{Ready: true}, "0 of 1 pods are available", false},
		"NoReason": {"Nor does one without reasons.", starting, &wireguard.Report{}, "0 of 1 pods are available", false},
		"OldNews":  {"The pod is available: a report may be late.", running, failing, "", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := newConditions()
			c.workload(&observed{deployment: tc.deployment, report: tc.report})
			got := c.by[conditionWorkloadReady]
			if !strings.Contains(got.message, tc.want) || (got.message != "" && tc.want == "") || (got.reason == reasonAvailable) != tc.ready {
				t.Errorf("%s\nwant ready %t and %q, got %+v", tc.why, tc.ready, tc.want, got)
			}
		})
	}
}
