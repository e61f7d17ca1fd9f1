package gateway

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/config"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/route"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// egress returns what is seen of gluetun, and why peers' traffic does not leave
// as configured, if it does not.
func (g *gateway) egress(c *config.Config) (wireguard.EgressReport, string) {
	if c.Egress.Mode != wireguard.EgressGluetun {
		uplink, err := findUplink(c)
		if err != nil {
			return wireguard.EgressReport{}, err.Error()
		}
		return wireguard.EgressReport{}, noWayOut(c, uplink)
	}
	state, reason := g.tunnelState(c)
	r := wireguard.EgressReport{State: state}
	if state == wireguard.EgressTunnelUp {
		g.tunnelUp = true
		r.PublicIP, r.Country, r.ForwardedPorts = g.seen.Exit.PublicIP, g.seen.Exit.Country, g.seen.Exit.Ports
	}
	if state != g.egressWas {
		g.egressWas = state
		g.log.Info("gluetun's tunnel has another state", "state", state)
	}
	return r, reason
}

// noWayOut returns why nothing of peers can leave the gateway, if so. Networks
// behind peers leave by their own family. Pods have the families of the cluster,
// and peers that have each other have where to go.
func noWayOut(c *config.Config, u route.Uplink) string {
	if u.IPv4 == "" && u.IPv6 == "" {
		return "the pod has no default route, so peers' traffic is dropped"
	}
	ipv4, ipv6 := c.HasIPv4(), c.HasIPv6()
	for _, p := range c.Peers {
		for _, r := range p.Routes {
			ipv4, ipv6 = ipv4 || r.Addr().Is4(), ipv6 || r.Addr().Is6()
		}
	}
	switch {
	case ipv4 && u.IPv4 != "" || ipv6 && u.IPv6 != "" || len(c.PodClasses) > 0 || c.PeerToPeer:
		return ""
	case ipv6:
		return "the pod has no IPv6 default route, and the gateway no IPv4 pool, so peers' traffic is dropped: set peerCIDR, or run it where pods have IPv6"
	default:
		return "the pod has no IPv4 default route, and the gateway no IPv6 pool, so peers' traffic is dropped: set peerCIDRv6, or run it where pods have IPv4"
	}
}

// tunnelState returns the state of gluetun's tunnel, and why peers' traffic is
// dropped, if it is. What was seen counts for the device that it was seen of.
func (g *gateway) tunnelState(c *config.Config) (state, reason string) {
	t, err := route.FindTunnel(wireguard.GluetunDevice)
	if err != nil {
		t = route.Tunnel{}
	}
	clash := t.Clash(c.Addresses)
	if t.Index != 0 && g.seen.Up && g.seen.Device == t.Index && !clash.IsValid() {
		return wireguard.EgressTunnelUp, ""
	}
	// A tunnel that is up needs them no more.
	if missing := missingFiles(wireguard.GluetunCredentials, c.Egress.Credentials); len(missing) > 0 && !clash.IsValid() {
		return wireguard.EgressCredentialsMissing,
			"gluetun's credentials lack " + strings.Join(missing, " and ") + ", so peers' traffic is dropped"
	}
	state, reason = wireguard.EgressTunnelStarting, "gluetun's tunnel is not up yet"
	if g.tunnelUp {
		state, reason = wireguard.EgressTunnelDown, "gluetun's tunnel is down"
	}
	if clash.IsValid() {
		reason = fmt.Sprintf("gluetun's tunnel has addresses of %s, which overlaps with the gateway's: choose another pool", clash)
	}
	return state, reason + ", so peers' traffic is dropped"
}

// tunnelDevice returns the index of gluetun's tunnel, and 0 where there is none.
func (g *gateway) tunnelDevice() int {
	if g.config == nil || g.config.Egress.Mode != wireguard.EgressGluetun {
		return 0
	}
	return tunnelIndex()
}

// missingFiles returns which of the files are not there, or empty. Nobody but
// gluetun reads them.
func missingFiles(dir string, names []string) []string {
	var out []string
	for _, n := range names {
		if info, err := os.Stat(filepath.Join(dir, n)); err != nil || info.Size() == 0 {
			out = append(out, n)
		}
	}
	return out
}

// findTunnelIndex returns the index of the device that gluetun leads into, and 0
// where there is none.
func findTunnelIndex() (int, error) {
	t, err := route.FindTunnel(wireguard.GluetunDevice)
	return t.Index, err
}

// tunnelIndex returns the same index, and 0 also where it cannot be found out.
func tunnelIndex() int {
	index, err := findTunnelIndex()
	if err != nil {
		return 0
	}
	return index
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
		return "IPv6 is not forwarded: the sysctl " + wireguard.IPv6Forwarding + " of the pod is 0, set it to 1 or use no IPv6 pool"
	default:
		return ""
	}
}
