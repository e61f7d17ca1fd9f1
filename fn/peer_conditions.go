package fn

import (
	"fmt"

	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
)

// notRequested marks the condition that is not about this peer: a client has no
// pods, and pods have no configuration.
func (c *conditions) notRequested(p *spec.WireguardPeer) {
	if p.Pods == nil {
		c.true(conditionPodsReady, reasonNotRequested, "")
		return
	}
	c.true(conditionConfigReady, reasonNotRequested, "")
}

func (c *conditions) gatewayNotFound(p *spec.WireguardPeer) {
	c.waits(p, "Waiting for the gateway, which the condition GatewayFound speaks of. Until then pods with the label are refused.")
	c.false(conditionGatewayFound, reasonNotFound, fmt.Sprintf(
		"There is no WireguardGateway %q in namespace %q: create it, or correct spec.gatewayRef.", p.GatewayName, p.GatewayNamespace))
}

// refuse says that the namespace is not let in, and nothing else of the gateway.
func (c *conditions) refuse(p *spec.WireguardPeer) {
	c.waits(p, "Waiting for the gateway to allow this namespace, which the condition Permitted speaks of. Until then pods with the label are refused.")
	c.false(conditionPermitted, v1alpha1.ReasonNamespaceNotAllowed, fmt.Sprintf(
		"The gateway does not allow WireguardPeers of namespace %q: ask its owner to allow it in the gateway's spec.allowedPeerNamespaces.", p.Namespace))
}

// waits tells what pods wait for.
func (c *conditions) waits(p *spec.WireguardPeer, message string) {
	if p.Pods != nil {
		c.false(conditionPodsReady, reasonWaitingForGateway, message)
	}
}

// gatewayInvalid is the error where the gateway cannot be read. What is wrong with
// it is for its owner to know, and is not told here.
func gatewayInvalid(p *spec.WireguardPeer) error {
	return &plan.ConditionError{Condition: plan.ConditionOf(p), Reason: reasonGatewayInvalid, Message: fmt.Sprintf(
		"the gateway %q in namespace %q cannot be read; nothing was changed. Its owner finds what to do in its condition SpecValid", p.GatewayName, p.GatewayNamespace)}
}

// awaitsSeed tells whether the gateway is so new that it has no seed yet. Where the
// gateway had one, or the peer has objects that depend on it, the seed got lost
// instead, and nothing may be changed. The network policy around pods depends on no
// seed.
func (c *conditions) awaitsSeed(in *plan.PeerInputs, observed map[string]*fnv1.Resource) bool {
	had := len(observed)
	for _, key := range []string{names.KeyNetworkPolicy, names.KeyCiliumNetworkPolicy} {
		if observed[key] != nil {
			had--
		}
	}
	if in.Seed != nil || in.GatewayStatus.PublicKey != "" || had > 0 {
		return false
	}
	c.false(plan.ConditionOf(in.Peer), reasonWaitingForGateway, "Waiting for the gateway to make its keys. If this lasts, look at the conditions of the gateway.")
	return true
}

// config tells whether the client has a configuration with which it can
// connect.
func (c *conditions) config(client *plan.Client) (ready bool) {
	switch {
	case client.State == v1alpha1.PeerRejected:
		c.false(conditionConfigReady, client.Reason, client.Message)
		return false
	case len(client.Addresses) == 0:
		c.false(conditionConfigReady, reasonWaitingForAddress, "Waiting for the gateway to give this peer an address. If this lasts, look at the conditions of the gateway.")
		return false
	case !client.Settled:
		c.false(conditionConfigReady, reasonPending, "The gateway has not taken up this peer as it is now yet. If this lasts, look at the conditions of the gateway.")
		return false
	case client.Kept != nil:
		c.false(conditionConfigReady, reasonWaitingForAddress, "Waiting for the gateway to give this peer addresses of its new pools. Until then its Secret stays as it is. If this lasts, look at the conditions of the gateway.")
		return false
	}
	reason, message := reasonAvailable, ""
	switch {
	case client.State != v1alpha1.PeerActive:
		reason, message = client.State, "The peer keeps its configuration, but cannot connect."
	case client.Direct == "":
		message = "direct.conf is left out, since the gateway has no endpoint for clients outside the cluster, or none yet."
	}
	c.true(conditionConfigReady, reason, message)
	return true
}
