package agent

import (
	"github.com/wireguardgateway/function-wireguard-gateway/agent/config"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/firewall"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/route"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// egress returns what is seen of gluetun, and why peers' traffic does not leave
// as configured, if it does not.
func (g *gateway) egress(c *config.Config) (wireguard.EgressReport, string) {
	if c.Egress.Mode != wireguard.EgressGluetun {
		uplink, err := route.FindUplink(wireguard.Device)
		if err != nil {
			return wireguard.EgressReport{}, err.Error()
		}
		if uplink.IPv4 == "" && uplink.IPv6 == "" {
			return wireguard.EgressReport{}, "the pod has no default route, so peers' traffic is dropped"
		}
		return wireguard.EgressReport{}, ""
	}
	t := tunnel()
	switch {
	case t.State == wireguard.EgressTunnelUp:
		g.tunnelUp = true
		return t, ""
	case g.tunnelUp:
		t.State = wireguard.EgressTunnelDown
		return t, "gluetun's tunnel is down, so peers' traffic is dropped"
	default:
		return t, "gluetun's tunnel is not up yet, so peers' traffic is dropped"
	}
}

// tunnel returns the state of gluetun's tunnel as its device and its routes
// show it.
func tunnel() wireguard.EgressReport {
	up, err := route.HasDefault(firewall.TunnelDevice, wireguard.FirewallMark)
	if err == nil && up {
		return wireguard.EgressReport{State: wireguard.EgressTunnelUp}
	}
	return wireguard.EgressReport{State: wireguard.EgressTunnelStarting}
}

// forwarding returns why peers' traffic is not forwarded, if it is not. IPv4
// is switched on by every sync; IPv6 the agent can only look at.
func forwarding(c *config.Config) string {
	if !c.HasIPv6() {
		return ""
	}
	on, err := route.ForwardsIPv6()
	switch {
	case err != nil:
		return err.Error()
	case !on:
		return "IPv6 is not forwarded: the sysctl " + route.IPv6Forwarding + " of the pod is 0, set it to 1 or use no IPv6 pool"
	default:
		return ""
	}
}
