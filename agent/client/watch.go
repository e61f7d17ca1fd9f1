package client

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// resolveInterval is how often the gateway's name is looked up while the
// tunnel is not up.
const resolveInterval = time.Second

// resolution is the outcome of a lookup.
type resolution struct {
	host      string
	addresses []netip.Addr
	err       error
}

// watch looks at the tunnel, and does what it needs.
func (c *client) watch(ctx context.Context, resolved chan<- resolution) {
	now := time.Now()
	if c.enrolment == nil {
		return
	}
	if c.failure != "" && c.retry.due(now) {
		c.sync()
	}
	if c.failure != "" {
		c.unreadableSince = time.Time{}
		return
	}
	if !c.tunnel.up || c.outdated {
		c.lookUp(ctx, now, resolved)
	}
	d, err := c.wireguard.Device(wireguard.ClientDevice)
	if err != nil {
		// It went away. The event may still be on its way.
		c.tunnel.up = false
		c.sync()
		if c.unreadableSince.IsZero() {
			c.unreadableSince = now
		}
		return
	}
	c.unreadableSince = time.Time{}
	probe, renew := c.inspect(now, d)
	if (renew || c.outdated) && len(c.addresses) > 0 {
		if err := c.renew(now); err != nil {
			c.log.Error("cannot reach the gateway", "error", err)
			return
		}
		c.outdated, probe = false, true
	}
	if probe {
		c.probe(ctx)
	}
	c.announce()
}

// inspect puts the device right where somebody else has changed it. It returns
// whether to probe the tunnel, and whether to make the peer anew.
func (c *client) inspect(now time.Time, d *wgtypes.Device) (probe, renew bool) {
	switch {
	case !c.isDevice(d):
		c.log.Warn("somebody else has changed the device")
		if err := c.configure(); err != nil {
			c.log.Error("cannot put the device right", "error", err)
		}
	case c.isPeer(d):
		p := d.Peers[0]
		s := sight{handshake: p.LastHandshakeTime, rx: p.ReceiveBytes, tx: p.TransmitBytes}
		probe, renew = c.tunnel.look(now, s)
		c.health.saw(s)
		// A kernel's device that an earlier sidecar left has its peer already.
		return probe, renew || c.tunnel.made.IsZero() && p.LastHandshakeTime.IsZero()
	}
	return false, true
}

// probe also starts the handshake where no keepalive does.
func (c *client) probe(ctx context.Context) {
	reason := ""
	if err := c.pod.probe(ctx); err != nil {
		reason = err.Error()
	}
	if reason != "" && reason != c.probing {
		c.log.Warn("cannot probe", "error", reason)
	}
	c.probing = reason
}

// announce logs when the tunnel comes up or is lost.
func (c *client) announce() {
	if c.tunnel.up == c.wasUp {
		return
	}
	c.wasUp = c.tunnel.up
	if c.wasUp {
		c.log.Info("the tunnel is up", "gateway", c.enrolment.Gateway)
	} else {
		c.log.Warn("nothing comes back through the tunnel", "gateway", c.enrolment.Gateway)
	}
}

// lookUp starts a lookup of the gateway's name, unless there was one a moment
// ago.
func (c *client) lookUp(ctx context.Context, now time.Time, resolved chan<- resolution) {
	host := c.enrolment.host
	if a, err := netip.ParseAddr(host); err == nil {
		c.addresses = []netip.Addr{a.Unmap()}
		return
	}
	if c.resolving || now.Sub(c.lookedUp) < resolveInterval {
		return
	}
	c.resolving, c.lookedUp = true, now
	go func() {
		addresses, err := c.pod.resolve(ctx, host)
		resolved <- resolution{host: host, addresses: addresses, err: err}
	}()
}

// learn takes the outcome of a lookup. Addresses stay where a lookup fails.
func (c *client) learn(r resolution) {
	c.resolving = false
	if r.host != c.enrolment.host {
		return
	}
	if r.err != nil {
		if c.unresolved != r.err.Error() {
			c.unresolved = r.err.Error()
			c.log.Warn("cannot look up the gateway", "error", r.err)
		}
		return
	}
	c.unresolved = ""
	if slices.Equal(c.addresses, r.addresses) {
		return
	}
	c.log.Info("looked up the gateway", "name", r.host, "addresses", r.addresses)
	c.addresses = r.addresses
	if !c.tunnel.up {
		// The next look makes the peer anew with them.
		c.tunnel.made = time.Time{}
	}
}
