package gateway

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/config"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/device"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/firewall"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/metrics"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/route"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// sync makes everything what the configuration says, and tells the outcome.
// Where nothing has changed it reads much and writes nothing.
func (g *gateway) sync(ctx context.Context, cause string) {
	if g.config == nil {
		return
	}
	start := time.Now()
	if cause == metrics.CauseConfig {
		start = g.received
	}
	g.synced = g.tunnelDevice()
	g.pods.watcher.Follow(ctx, g.config.PodClasses)
	configured, expiry := g.config.Active(time.Now())
	// A copy: apply adds pods to it, and leaves routes out of it.
	active := *configured
	changes, notes, err := g.apply(&active)
	took := time.Since(start)
	g.metrics.SyncDuration.WithLabelValues(cause).Observe(took.Seconds())
	// Clients wait for all else, but nothing that comes next may come before it.
	defer g.learn()

	g.next.expiry, g.next.retry = expiry, time.Time{}
	if err != nil {
		g.metrics.SyncErrors.Inc()
		g.again(time.Now())
		if g.failure != err.Error() {
			g.log.Error("cannot apply configuration", "hash", active.Hash, "error", err)
		}
		g.failure = err.Error()
		g.tell()
		return
	}
	g.retry = 0
	if g.applied != active.Hash {
		g.applied = active.Hash
		g.metrics.Applied(&active, time.Now())
	}
	if g.failure != "" || changes != (device.Changes{}) {
		g.log.Info("applied configuration", "hash", active.Hash, "cause", cause, "added", changes.Added,
			"removed", changes.Removed, "changed", changes.Changed, "milliseconds", took.Milliseconds())
	}
	if n := strings.Join(notes, "; "); n != g.notes {
		g.notes = n
		if n != "" {
			g.log.Warn("applied configuration with limits", "notes", n)
		}
	}
	g.failure = ""
	// A change of the network may be the tunnel's.
	g.tunnel.Enable(active.Egress.Mode == wireguard.EgressGluetun)
	g.metrics.Peers.Set(float64(len(active.Peers)))
	g.peers.Name(&active)
	g.noteServed()
	g.tell()
}

// learn reads the firewall where it was written. Until then any change of others,
// to whatever table, is taken for one of ours.
func (g *gateway) learn() {
	if err := g.firewall.Learn(); err != nil {
		g.log.Warn("cannot check firewall", "error", err)
	}
}

// apply is one sync from top to bottom. The order keeps it closed at each
// point, whether the agent is killed there or a step fails: what is revoked
// goes first, then the firewall changes, and with it what peers may no longer
// reach is forgotten, and only then comes what is new. The
// rules that keep traffic in the tunnel are there before the device is up.
//
// An address that passes from one peer or pod to another, or to nobody, has its
// connections forgotten before anything else changes, so that nobody else gets
// what is meant for this one. That of a pod is also outside of the tunnel, and so
// it is blocked before the pod is revoked.
func (g *gateway) apply(c *config.Config) (device.Changes, []string, error) {
	uplink, uplinkErr := findUplink(c)
	own, ownErr := ownNetworks(c, uplink)
	notes := withoutOwn(c, own)
	left := g.selectPods(c, uplink.Addresses)
	if err := route.Block(left); err != nil {
		return device.Changes{}, nil, err
	}
	if err := g.readOwners(); err != nil {
		return device.Changes{}, nil, err
	}
	revoked, err := g.device.Revoke(c)
	if err != nil {
		return device.Changes{}, nil, err
	}
	if err := route.Forget(left); err != nil {
		return device.Changes{}, nil, err
	}
	leftErr := g.forgetLeft(c)
	if leftErr != nil && !errors.Is(leftErr, route.ErrCannotForget) {
		return device.Changes{}, nil, leftErr
	}
	if err := errors.Join(uplinkErr, ownErr); err != nil {
		return device.Changes{}, nil, err
	}
	g.keepPods()
	wrote, err := g.firewall.Ensure(firewall.Render(c, firewall.Network{IPv4: uplink.IPv4, IPv6: uplink.IPv6, Addresses: uplink.Addresses}))
	if err != nil {
		return device.Changes{}, nil, err
	}
	if wrote {
		g.log.Debug("wrote firewall")
	}
	rejectedErr := g.forgetRejected(c, uplink.Addresses)
	if rejectedErr != nil && !errors.Is(rejectedErr, route.ErrCannotForget) {
		return device.Changes{}, nil, rejectedErr
	}
	if leftErr != nil || rejectedErr != nil {
		notes = append(notes, unforgotten)
	}
	if err := ensureRules(c); err != nil {
		return device.Changes{}, nil, err
	}
	if err := g.device.Ensure(c, uplink.DeviceMTU(c.MTU, c.HasIPv6())); err != nil {
		return device.Changes{}, nil, err
	}
	changes, err := g.device.Grant(c, time.Now())
	if err != nil {
		return device.Changes{}, nil, err
	}
	changes.Removed += revoked.Removed
	if err := route.EnsureAddresses(wireguard.Device, c.Addresses); err != nil {
		return changes, nil, err
	}
	if err := g.device.Up(); err != nil {
		return changes, nil, err
	}
	unrouted, err := route.EnsureRoutes(wireguard.Device, routes(c))
	if err != nil {
		return changes, nil, err
	}
	notes = slices.Concat(notes, notRouted(c, unrouted), limits(c, uplink))
	if err := ensurePodRoutes(c); err != nil {
		return changes, nil, err
	}
	return changes, notes, g.ensureForwarding(c, uplink)
}

// unforgotten is what a kernel that cannot forget connections costs. Each sync
// tries again.
const unforgotten = "this kernel cannot forget connections: what a peer had may go on until it times out"

// ownNetworks returns those of the devices by which the pod is reached.
func ownNetworks(c *config.Config, u route.Uplink) ([]route.Network, error) {
	devices := slices.DeleteFunc([]string{u.IPv4, u.IPv6}, func(d string) bool { return d == "" })
	devices = slices.Compact(devices)
	if c.Egress.Mode == wireguard.EgressGluetun {
		devices = append(devices, wireguard.GluetunDevice)
	}
	return route.Networks(devices...)
}

// withoutOwn takes from peers the routes to networks in which the pod itself is,
// and says so. The firewall would take the pod for a peer who is outside of the
// tunnel, and nobody would be served.
func withoutOwn(c *config.Config, own []route.Network) []string {
	var notes []string
	c.Peers = slices.Clone(c.Peers)
	for i := range c.Peers {
		p := &c.Peers[i]
		p.Routes = slices.DeleteFunc(slices.Clone(p.Routes), func(r netip.Prefix) bool {
			j := slices.IndexFunc(own, func(n route.Network) bool { return r.Contains(n.Addr()) })
			if j >= 0 {
				c.LeftOut = append(c.LeftOut, r)
				notes = append(notes, leftOut(r, *p, fmt.Sprintf("the pod has %s on %s", own[j].Prefix, own[j].Device)))
			}
			return j >= 0
		})
	}
	return notes
}

// notRouted says whose networks could not be routed.
func notRouted(c *config.Config, unrouted []route.Unrouted) []string {
	var notes []string
	for _, u := range unrouted {
		for _, p := range c.Peers {
			if slices.Contains(p.AllowedIPs(), u.Network) {
				notes = append(notes, leftOut(u.Network, p, u.Reason))
			}
		}
	}
	return notes
}

func leftOut(n netip.Prefix, p wireguard.Peer, reason string) string {
	return fmt.Sprintf("route %s of peer %s is left out: %s", n, config.PeerName(p), reason)
}

// ensureRules keeps peers in gluetun's tunnel, and cleans up after a gluetun
// that was killed.
func ensureRules(c *config.Config) error {
	var rules []route.Rule
	if len(c.PodClasses) > 0 {
		rules = route.PodRules(wireguard.FirewallMark)
		forwards, err := route.ForwardsIPv6()
		if err != nil {
			return err
		}
		if !forwards {
			rules = append(rules, route.WithoutIPv6(wireguard.Device))
		}
	}
	if c.Egress.Mode != wireguard.EgressGluetun {
		return route.EnsureRules(rules)
	}
	t, err := route.FindTunnel(wireguard.GluetunDevice)
	if err != nil {
		return err
	}
	if err := route.EnsureRules(append(rules, route.TunnelRules(wireguard.Device, inside(c), c.Egress.ClusterCIDRs, t)...)); err != nil {
		return err
	}
	if err := route.EnsureTunnelRoutes(t); err != nil {
		return err
	}
	_, err = route.RemoveStaleRule(wireguard.GluetunDevice)
	return err
}

// findUplink returns the pod's own way out. OpenVPN may put the default route
// of its tunnel in the place of the pod's.
func findUplink(c *config.Config) (route.Uplink, error) {
	if c.Egress.Mode == wireguard.EgressGluetun {
		return route.FindUplink(wireguard.Device, wireguard.GluetunDevice)
	}
	return route.FindUplink(wireguard.Device)
}

// inside returns the networks within the tunnel: the pools, and what peers
// have beyond them.
func inside(c *config.Config) []netip.Prefix {
	var out []netip.Prefix
	for _, a := range c.Addresses {
		out = append(out, a.Masked())
	}
	return append(out, routes(c)...)
}

// routes returns the networks that the device's own addresses do not route.
func routes(c *config.Config) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range c.Peers {
		for _, n := range p.AllowedIPs() {
			if !c.InPools(n) {
				out = append(out, n)
			}
		}
	}
	return out
}

// ensureForwarding makes the kernel forward IPv4 between the device and every
// interface by which peers' traffic leaves and its replies come back. With pods,
// it also has to take what comes from them outside of the tunnel.
func (g *gateway) ensureForwarding(c *config.Config, u route.Uplink) error {
	if !c.HasIPv4() && len(c.PodClasses) == 0 {
		return nil
	}
	devices := []string{wireguard.Device, u.IPv4}
	if c.Egress.Mode == wireguard.EgressGluetun && tunnelIndex() != 0 {
		devices = append(devices, wireguard.GluetunDevice)
	}
	for _, d := range devices {
		if d == "" {
			continue
		}
		changed, err := route.EnsureForwarding(d)
		if err != nil {
			return err
		}
		if changed {
			g.log.Info("switched on forwarding", "device", d)
		}
		if len(c.PodClasses) == 0 {
			continue
		}
		if _, err := route.EnsureConf(d, route.ReversePath); err != nil {
			return err
		}
	}
	return nil
}

// limits returns what the gateway cannot do for its peers, although it works.
func limits(c *config.Config, u route.Uplink) []string {
	var out []string
	if c.Egress.Mode == wireguard.EgressGluetun || noWayOut(c, u) != "" {
		return nil
	}
	if c.HasIPv4() && u.IPv4 == "" {
		out = append(out, "the pod has no IPv4 default route, so peers' IPv4 traffic is dropped")
	}
	if c.HasIPv6() && u.IPv6 == "" {
		out = append(out, "the pod has no IPv6 default route, so peers' IPv6 traffic is dropped")
	}
	return out
}
