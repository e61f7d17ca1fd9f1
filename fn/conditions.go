package fn

import (
	"fmt"
	"strings"

	"github.com/crossplane/function-sdk-go/errors"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"github.com/crossplane/function-sdk-go/response"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/render"
)

// Conditions of a gateway. The set is closed: every response has all of them,
// since Crossplane cannot remove one again.
const (
	conditionSpecValid     = plan.ConditionSpecValid
	conditionKeysReady     = plan.ConditionKeysReady
	conditionPeersReady    = "PeersReady"
	conditionEndpointReady = "EndpointReady"
	conditionWorkloadReady = "WorkloadReady"
	conditionRouteReady    = "RouteReady"
	conditionEgressReady   = "EgressReady"
)

// Conditions of a WireguardPeer beside SpecValid, which are closed too.
const (
	conditionGatewayFound = "GatewayFound"
	conditionPermitted    = "Permitted"
	conditionConfigReady  = plan.ConditionConfigReady
	conditionPodsReady    = plan.ConditionPodsReady
)

// The conditions of each kind, in the order in which a response has them.
var (
	gatewayConditions = []string{
		conditionSpecValid, conditionKeysReady, conditionPeersReady, conditionEndpointReady,
		conditionWorkloadReady, conditionRouteReady, conditionEgressReady,
	}
	peerConditions = []string{
		conditionSpecValid, conditionGatewayFound, conditionPermitted, conditionConfigReady, conditionPodsReady,
	}
)

// Reasons of conditions.
const (
	reasonValid        = "Valid"
	reasonAvailable    = "Available"
	reasonNotEvaluated = "NotEvaluated"
	reasonNotRequested = "NotRequested"
	reasonInternalOnly = "InternalOnly"
	reasonPending      = "Pending"
	reasonRejected     = "PeersRejected"
	reasonKindMissing  = "KindMissing"
	reasonError        = "Error"
	reasonTooLarge     = v1alpha1.ReasonTooLarge

	// reasonOutboundSubnetOverlap is that of a spec which is valid, but likely a
	// mistake.
	reasonOutboundSubnetOverlap = "OutboundSubnetOverlap"

	reasonNotFound          = "NotFound"
	reasonGatewayInvalid    = "GatewayInvalid"
	reasonWaitingForGateway = "WaitingForGateway"
	reasonWaitingForAddress = "WaitingForAddress"
	reasonPodSecurity       = "PodSecurity"
	reasonAdmissionMissing  = "AdmissionMissing"
)

type condition struct {
	status  fnv1.Status
	reason  string
	message string
}

// conditions collects one condition of each type, in a fixed order.
type conditions struct {
	types []string
	by    map[string]condition
}

// newConditions returns conditions that are all unknown, since nothing was looked
// at yet.
func newConditions(types ...string) *conditions {
	c := &conditions{by: map[string]condition{}, types: types}
	for _, t := range c.types {
		c.by[t] = condition{status: fnv1.Status_STATUS_CONDITION_UNKNOWN, reason: reasonNotEvaluated}
	}
	return c
}

func (c *conditions) true(t, reason, message string) {
	c.by[t] = condition{fnv1.Status_STATUS_CONDITION_TRUE, reason, message}
}

func (c *conditions) false(t, reason, message string) {
	c.by[t] = condition{fnv1.Status_STATUS_CONDITION_FALSE, reason, message}
}

// fail makes the condition false that an error is about.
func (c *conditions) fail(err error) {
	f := &plan.ConditionError{}
	if errors.As(err, &f) {
		c.false(f.Condition, f.Reason, f.Message)
		return
	}
	// An error of the function itself: the spec may be valid, but it could not be
	// composed.
	c.false(conditionSpecValid, reasonError, err.Error())
}

func (c *conditions) specValid() {
	c.true(conditionSpecValid, reasonValid, "")
}

// planned sets the conditions that follow from the plan.
func (c *conditions) planned(g *plan.Gateway, o *observed, lacks missingKinds) {
	c.true(conditionKeysReady, reasonAvailable, "")
	c.egress(g, o)
	c.routes(g, o, lacks)
	c.peers(g)
	if g.PodMonitor != nil && lacks[render.PodMonitorKind] {
		c.true(conditionSpecValid, reasonKindMissing, leftOut("PodMonitor", "the Prometheus operator"))
	}
	switch e := g.Endpoints; {
	case e.Direct.String() != "":
		c.true(conditionEndpointReady, reasonAvailable, e.Hint)
	case e.Awaited != "":
		c.false(conditionEndpointReady, reasonPending, "Waiting for "+e.Awaited+".")
	case e.Tunnel != "":
		c.true(conditionEndpointReady, reasonInternalOnly, "Clients outside of the cluster connect by tunnel.conf only: set spec.endpoint.host for direct.conf.")
	default:
		c.true(conditionEndpointReady, reasonInternalOnly, "Clients connect from within the cluster only: set spec.endpoint.host for others.")
	}
}

// maxExplained is how many rejected peers a message explains. The status has
// all of them.
const maxExplained = 3

// peers tells whether all peers are accepted, and explains why some are not.
func (c *conditions) peers(g *plan.Gateway) {
	rejected := g.Rejected()
	why := make([]string, 0, maxExplained)
	why = append(why, rejected[:min(len(rejected), maxExplained)]...)
	if more := len(rejected) - len(why); more > 0 {
		why = append(why, fmt.Sprintf("%d more, see status.peers", more))
	}
	// Of attachments only the number is told: anybody may have written them.
	if g.Refused > 0 {
		why = append(why, refused(g.Refused))
	}
	message := strings.Join(why, "; ")
	if len(rejected) == 0 {
		c.true(conditionPeersReady, reasonAvailable, message)
		return
	}
	c.false(conditionPeersReady, reasonRejected, message)
}

func refused(n int) string {
	if n == 1 {
		return "1 attachment was not accepted"
	}
	return fmt.Sprintf("%d attachments were not accepted", n)
}

// set writes all conditions into the response, for the claim too.
func (c *conditions) set(rsp *fnv1.RunFunctionResponse) {
	for _, t := range c.types {
		in := c.by[t]
		var o *response.ConditionOption
		switch in.status {
		case fnv1.Status_STATUS_CONDITION_TRUE:
			o = response.ConditionTrue(rsp, t, in.reason)
		case fnv1.Status_STATUS_CONDITION_FALSE:
			o = response.ConditionFalse(rsp, t, in.reason)
		default:
			o = response.ConditionUnknown(rsp, t, in.reason)
		}
		if in.message != "" {
			o.WithMessage(in.message)
		}
		o.TargetCompositeAndClaim()
	}
}
