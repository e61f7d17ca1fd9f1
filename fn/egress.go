package fn

import (
	"fmt"
	"strings"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// egress tells whether peers' traffic leaves through the VPN, as the agent reports
// it. While it does not, it does not leave at all.
func (c *conditions) egress(g *plan.Gateway, o *observed) {
	if g.Gluetun == nil {
		c.true(conditionEgressReady, reasonNotRequested, "")
		return
	}
	if subnet, tunnel, ok := g.Gluetun.OverlapsTunnel(); ok {
		c.true(conditionSpecValid, reasonOutboundSubnetOverlap, fmt.Sprintf(
			"The outbound subnet %s overlaps with %s, which %s uses inside its tunnel, so that its resolver or port forwarding may fail: name smaller networks.",
			subnet, tunnel, g.Gluetun.Provider))
	}
	state := ""
	if o.report != nil {
		state = o.report.Egress.State
	}
	switch {
	case state == wireguard.EgressTunnelUp && o.unavailable():
		c.false(conditionEgressReady, wireguard.EgressTunnelStarting, "The gateway's pod is not available, and with it the provider's tunnel. WorkloadReady tells why.")
	case state == wireguard.EgressTunnelUp:
		c.true(conditionEgressReady, state, "")
	case state == wireguard.EgressTunnelDown:
		c.false(conditionEgressReady, state, "The provider's tunnel is down. Peers' traffic is dropped until it is back.")
	case state == wireguard.EgressCredentialsMissing:
		c.false(conditionEgressReady, state, fmt.Sprintf("The Secret %q does not hold %s: create it, or add what is missing.",
			g.Gluetun.CredentialsSecret, strings.Join(g.Gluetun.NeededCredentials(), " and ")))
	default:
		message := "Waiting for the tunnel to the provider. Peers' traffic is dropped until then."
		// gluetun's firewall lets the agent reach no API server that is not named.
		if o.report == nil && len(g.Gluetun.OutboundSubnets) == 0 {
			message += " The agent cannot report how it stands: name the cluster's Service networks as serviceCIDRs in the function's input, or in outboundSubnets."
		}
		c.false(conditionEgressReady, wireguard.EgressTunnelStarting, message)
	}
}

// egressStatus is what the internet sees of peers' traffic, nil while there is no
// tunnel.
func egressStatus(g *plan.Gateway, o *observed) *v1alpha1.EgressStatus {
	if g.Gluetun == nil || o.report == nil || o.report.Egress.State != wireguard.EgressTunnelUp || o.unavailable() {
		return nil
	}
	e := o.report.Egress
	s := &v1alpha1.EgressStatus{PublicIP: e.PublicIP, Country: e.Country}
	if len(e.ForwardedPorts) > 0 {
		s.ForwardedPort = int64(e.ForwardedPorts[0])
	}
	if *s == (v1alpha1.EgressStatus{}) {
		return nil
	}
	return s
}
