package fn

import (
	"fmt"
	"slices"
	"strings"

	"github.com/crossplane/function-sdk-go/errors"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"github.com/crossplane/function-sdk-go/request"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/render"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
)

// composePods composes a WireguardPeer whose pods join by a label, once its
// gateway lets it in.
func composePods(ask *questions, c *conditions, xr *compositePeer, peer *spec.WireguardPeer, around surroundings, gateway *gatewayObject) error {
	in, err := peerInputs(ask, xr, peer, gateway)
	if err != nil {
		return err
	}
	labels := ask.namespace(peer)
	if !ask.answered() {
		return nil
	}
	observed := ask.req.GetObserved().GetResources()
	objects := around.podsPolicy(peer, in.Gateway.ListenPort)
	if c.awaitsSeed(&in, observed) {
		return encodePeer(ask, xr, objects, v1alpha1.WireguardPeerStatus{}, false)
	}
	pods, err := plan.NewPods(in)
	if err != nil {
		return err
	}
	more, err := render.Pods(peer, pods)
	if err != nil {
		return errors.Wrap(err, "cannot render pods")
	}
	if !mayJoin(observed, objects) {
		more = slices.DeleteFunc(more, func(o render.Composed) bool { return o.Key == names.KeyInjection })
	}
	objects = append(objects, more...)
	there := !slices.ContainsFunc(objects, func(o render.Composed) bool { return observed[o.Key] == nil })
	ready := c.podsReady(peer, pods, around, labels, there)
	return encodePeer(ask, xr, objects, v1alpha1.WireguardPeerStatus{Gateway: &v1alpha1.PeerGateway{
		PublicKey: pods.Enrolment.GatewayPublicKey.String(),
		Endpoint:  pods.Enrolment.Endpoint,
	}}, ready)
}

// surroundings are what pods depend on beside their gateway.
type surroundings struct {
	lacks   missingKinds
	missing []string // kinds of the objects of admission that are not there
}

// admissionKind returns a kind of the objects that let pods join.
func admissionKind(kind string) schema.GroupVersionKind {
	return admissionv1.SchemeGroupVersion.WithKind(kind)
}

// mutatingPolicyKind is new in Kubernetes 1.36.
var mutatingPolicyKind = admissionKind("MutatingAdmissionPolicy")

// admission are the objects that let pods join. They all have the same name.
var admission = []struct {
	key  string
	kind schema.GroupVersionKind
}{
	{requireMutatingPolicy, mutatingPolicyKind},
	{requireMutatingBinding, admissionKind("MutatingAdmissionPolicyBinding")},
	{requireValidatingPolicy, admissionKind("ValidatingAdmissionPolicy")},
	{requireValidatingBinding, admissionKind("ValidatingAdmissionPolicyBinding")},
}

// surroundings asks what the cluster has for pods. To ask for an object of a kind
// that it does not have would be an error, so kinds come first. Crossplane before
// 2.2 cannot tell: there everything is taken for granted.
func (q *questions) surroundings(p *spec.WireguardPeer) surroundings {
	s := surroundings{lacks: missingKinds{}}
	if p.Pods == nil || !request.HasCapability(q.req, fnv1.Capability_CAPABILITY_REQUIRED_SCHEMAS) {
		return s
	}
	q.kind(requireMutatingPolicy, mutatingPolicyKind, s.lacks)
	if p.Pods.NetworkPolicy == v1alpha1.PodsNetworkPolicyCilium {
		q.kind(names.KeyCiliumNetworkPolicy, render.CiliumNetworkPolicyKind, s.lacks)
	}
	if !q.answered() || s.lacks[mutatingPolicyKind] {
		return s
	}
	for _, a := range admission {
		o := q.one(a.key, &fnv1.ResourceSelector{
			ApiVersion: a.kind.GroupVersion().String(),
			Kind:       a.kind.Kind,
			Match:      &fnv1.ResourceSelector_MatchName{MatchName: names.Admission},
		})
		if o == nil {
			s.missing = append(s.missing, a.kind.Kind)
		}
	}
	return s
}

// podsPolicy returns the network policy around pods, none where there are no pods,
// or where the cluster lacks its kind.
func (s surroundings) podsPolicy(p *spec.WireguardPeer, gatewayPort int) []render.Composed {
	if p.Pods == nil {
		return nil
	}
	return slices.DeleteFunc(render.PodsPolicy(p, gatewayPort), func(o render.Composed) bool { return s.lacks[o.GVK] })
}

// mayJoin tells whether admission may let pods join: once the network policy
// around them exists, which the API server may refuse. What already lets them join
// stays, since without it pods that run could not start again.
func mayJoin(observed map[string]*fnv1.Resource, policy []render.Composed) bool {
	return observed[names.KeyInjection] != nil ||
		!slices.ContainsFunc(policy, func(o render.Composed) bool { return observed[o.Key] == nil })
}

// podSecurityLabel is the label of a namespace by which Kubernetes decides which
// pods it admits there.
const podSecurityLabel = "pod-security.kubernetes.io/enforce"

// podsReady tells whether pods with the label join. What would let them start
// outside of the tunnel comes first.
func (c *conditions) podsReady(p *spec.WireguardPeer, pods *plan.Pods, around surroundings, labels map[string]string, there bool) (ready bool) {
	switch level := labels[podSecurityLabel]; {
	case around.lacks[mutatingPolicyKind]:
		c.false(conditionPodsReady, reasonKindMissing, "The cluster has no MutatingAdmissionPolicy of admissionregistration.k8s.io/v1: pods join on Kubernetes 1.36 or later. Here they start without the sidecar, or are refused.")
	case len(around.missing) > 0:
		c.false(conditionPodsReady, reasonAdmissionMissing, fmt.Sprintf(
			"The cluster has no %s %q: apply package/cluster/injection.yaml. Until then pods with the label start without the sidecar, or are refused.",
			strings.Join(around.missing, ", no "), names.Admission))
	case around.lacks[render.CiliumNetworkPolicyKind]:
		c.false(conditionPodsReady, reasonKindMissing, leftOut("CiliumNetworkPolicy", "Cilium")+" Or set spec.pods.networkPolicy.type to Kubernetes.")
	case pods.State == v1alpha1.PeerRejected:
		c.false(conditionPodsReady, pods.Reason, pods.Message)
	case level == "baseline" || level == "restricted":
		c.false(conditionPodsReady, reasonPodSecurity, fmt.Sprintf(
			"Namespace %q admits no pods with the sidecar, since it has the label %s=%s and the sidecar needs NET_ADMIN: set the label to privileged.", p.Namespace, podSecurityLabel, level))
	case !pods.Taken:
		c.false(conditionPodsReady, reasonPending, "The gateway has not taken up these pods yet. If this lasts, look at the conditions of the gateway.")
	case !there:
		c.false(conditionPodsReady, reasonPending, "What the pods need does not exist yet. If this lasts, look at the condition Synced.")
	default:
		message := ""
		if len(plan.BypassCIDRs(p)) == 0 {
			message = "The pods reach nothing directly, not even the cluster's DNS: neither spec.pods.bypassCIDRs nor podCIDRs and serviceCIDRs of the function's input name a network."
		}
		c.true(conditionPodsReady, reasonAvailable, message)
		return true
	}
	return false
}
