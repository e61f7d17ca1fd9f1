package fn

import (
	"cmp"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
)

// readiness returns a function that tells whether the composed object under a
// key is ready. Objects that have no status are ready once they are there.
func readiness(g *plan.Gateway, o *observed) func(key string) bool {
	want := routesWanted(g)
	return func(key string) bool {
		switch key {
		case names.KeyHTTPRoute, names.KeyUDPRoute:
			ready, _, _ := routeReady(o.routes[key], want[key])
			return ready
		case names.KeyDeployment:
			ready, _, _ := deploymentReady(o.deployment)
			return ready
		case names.KeyService:
			return serviceReady(g, o.service)
		default:
			return o.exists[key]
		}
	}
}

// serviceReady tells whether clients can reach the Service: a load balancer has
// given it an address, or its own address does not matter.
func serviceReady(g *plan.Gateway, s *corev1.Service) bool {
	switch {
	case s == nil:
		return false
	case g.Service.Type != v1alpha1.ServiceLoadBalancer, g.Endpoint.Host != "", g.GatewayAPI.UDPRoute != nil:
		return true
	default:
		return len(s.Status.LoadBalancer.Ingress) > 0
	}
}

// deploymentReady judges the Deployment at its current generation: before the
// controller has seen it, its status speaks of another one.
func deploymentReady(d *appsv1.Deployment) (ready bool, reason, message string) {
	if d == nil {
		return false, reasonPending, "The Deployment does not exist yet."
	}
	// A quota or the namespace's Pod Security level may refuse every pod. The
	// Deployment says so, and it is what the user needs to hear first.
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
			return false, cmp.Or(c.Reason, string(c.Type)), podRefused(cmp.Or(c.Message, "Its pods cannot be created."))
		}
	}
	// One, even if somebody has scaled it to more.
	const want = 1
	s := d.Status
	switch {
	case s.ObservedGeneration < d.Generation:
		return false, reasonPending, "The Deployment's controller has not seen its latest change yet."
	case s.UpdatedReplicas < want || s.AvailableReplicas < want || s.Replicas > want:
		return false, reasonPending, progress(d)
	default:
		return true, reasonAvailable, ""
	}
}

// podRefused adds what can be done to the message of why a pod was refused.
func podRefused(message string) string {
	const wayOut = ". The gateway's pod needs NET_ADMIN: label its namespace pod-security.kubernetes.io/enforce=privileged"
	switch {
	case strings.Contains(message, "PodSecurity"):
		return message + wayOut
	// A ReplicaSet goes on to state its first failure, whatever the later ones are.
	// Objects are created in any order, so that the first one may be over at once.
	case strings.Contains(message, "looking up service account"):
		return message + ". This was the first failure; if it is over, the namespace's events have the present one" + wayOut
	default:
		return message
	}
}

func progress(d *appsv1.Deployment) string {
	m := fmt.Sprintf("%d of 1 pods are available.", d.Status.AvailableReplicas)
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse && c.Message != "" {
			return m + " " + c.Message
		}
	}
	return m
}

// workload tells whether the gateway's pod runs, and what the agent in it says
// where it does not.
func (c *conditions) workload(o *observed) {
	ready, reason, message := deploymentReady(o.deployment)
	if ready {
		c.true(conditionWorkloadReady, reason, message)
		return
	}
	if o.report != nil && !o.report.Ready && len(o.report.Reasons) > 0 {
		message += " The agent says: " + strings.Join(o.report.Reasons, "; ")
	}
	c.false(conditionWorkloadReady, reason, message)
}
