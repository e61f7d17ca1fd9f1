package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/device"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/firewall"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/route"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/source"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

const (
	// The device is looked at every slowTick. While the tunnel is not up it is
	// so often that an answer is seen in a looks'th of the time that it may take.
	// A sync that has failed is tried again then too, once it has rested.
	slowTick = time.Second
	looks    = 5

	// Events of the network come in bursts: one sync follows a burst after
	// networkSettle, and the next one not before networkInterval.
	networkSettle   = 20 * time.Millisecond
	networkInterval = 500 * time.Millisecond

	// syncInterval is how often everything is looked at that may have changed
	// without an event.
	syncInterval = 30 * time.Second

	// blindTime is how long the device may be there without answering, as
	// happens when somebody moves its control socket.
	blindTime = 5 * time.Second

	// forgetAfter is longer than an answer is on its way.
	forgetAfter = time.Second

	// resolveInterval is how often the gateway's name is looked up while the
	// tunnel is not up.
	resolveInterval = time.Second
)

// client is the sidecar's state. One goroutine runs it, so that nothing here
// needs a lock, and no two changes ever meet.
type client struct {
	log       *slog.Logger
	pod       pod
	firewall  firewall.Firewall
	device    *device.Device
	wireguard *wgctrl.Client
	health    *health

	guard     uint32     // what may leave is marked with it, 0 where the kernel cannot
	enrolment *enrolment // in force, nil before the first good one
	rejected  string     // why a newer one is not
	failure   string     // of the last sync
	retry     backoff    // of syncs, while they fail
	applied   string     // hash of the enrolment that was applied last

	addresses  []netip.Addr // of the gateway's name
	resolving  bool
	lookedUp   time.Time // when the last lookup began
	unresolved string    // why there is no newer address

	forgetAgain time.Time // zero is never
	blind       time.Time // since when the device does not answer, zero if it does
	deaf        bool      // what comes from outside is not answered yet

	tunnel   tunnel
	outdated bool // the session is with an endpoint, or a key, of before
	wasUp    bool
	probing  string // why the last probe failed
}

// resolution is the outcome of a lookup.
type resolution struct {
	host      string
	addresses []netip.Addr
	err       error
}

// run follows enrolment, network and tunnel until the context ends.
// It returns an error where only a new process helps.
func (c *client) run(ctx context.Context, updates <-chan source.Update, network, tables <-chan struct{}) error {
	resolved := make(chan resolution, 1)
	due := time.NewTimer(0) // of a sync
	next := time.Now()      // when it is due
	tick := time.NewTimer(0)
	defer due.Stop()
	defer tick.Stop()
	last := time.Time{}
	for {
		c.health.Alive(time.Now())
		select {
		case <-ctx.Done():
			return nil
		case u, open := <-updates:
			if !open {
				updates = nil
				continue
			}
			if c.take(u) {
				c.sync()
				c.watch(ctx, resolved)
			}
		case <-network:
			next = soon(time.Now(), next, last)
			due.Reset(time.Until(next))
		case <-tables:
			c.check()
		case last = <-due.C:
			c.sync()
			next = time.Now().Add(syncInterval)
			due.Reset(syncInterval)
		case r := <-resolved:
			c.learn(r)
			c.watch(ctx, resolved)
		case now := <-tick.C:
			c.check()
			if !c.forgetAgain.IsZero() && now.After(c.forgetAgain) {
				c.forget()
				c.forgetAgain = time.Time{}
			}
			c.watch(ctx, resolved)
			if c.tunnel.up {
				tick.Reset(slowTick)
			} else {
				tick.Reset(pause(max(c.tunnel.attempts, c.retry.failures)) / looks)
			}
		}
		c.hear()
		c.tell()
		if !c.blind.IsZero() && time.Since(c.blind) > blindTime {
			return fmt.Errorf("cannot look at %s for %s", wireguard.ClientDevice, blindTime)
		}
	}
}

// soon returns when a sync is to follow a change of the network, where one is due
// already and the last one was then.
func soon(now, due, last time.Time) time.Time {
	at := now.Add(networkSettle)
	if rested := last.Add(networkInterval); rested.After(at) {
		at = rested
	}
	if due.Before(at) {
		return due
	}
	return at
}

// take reads an update. It returns false where the enrolment in force stays.
func (c *client) take(u source.Update) bool {
	err := u.Err
	if err == nil {
		var e *enrolment
		if e, err = parseEnrolment(u.Data); err == nil {
			if c.enrolment == nil || c.enrolment.host != e.host {
				c.addresses, c.lookedUp, c.unresolved = nil, time.Time{}, ""
			}
			if c.enrolment != nil && (c.enrolment.Endpoint != e.Endpoint || c.enrolment.ClassKey != e.ClassKey) {
				c.outdated = true
			}
			c.enrolment, c.rejected, c.retry = e, "", backoff{}
			c.log.Info("read enrolment", "from", u.Origin, "hash", e.hash, "gateway", e.Gateway, "endpoint", e.Endpoint)
			return true
		}
	}
	if reason := err.Error(); reason != c.rejected {
		c.rejected = reason
		c.log.Error("cannot take enrolment, the last good one stays in force", "from", u.Origin, "error", err)
	}
	return false
}

// lock makes the lockdown what it has to be. Before there is an enrolment it
// lets nothing out.
func (c *client) lock() error {
	l := firewall.Lockdown{Guard: c.guard, Deaf: c.deaf}
	_, top, err := route.Interfaces()
	if err != nil {
		return err
	}
	l.Interfaces = slices.DeleteFunc(top, func(name string) bool { return name == wireguard.ClientDevice })
	// Without nameservers nothing is let out to any.
	servers, unread := nameservers(resolvConf)
	l.Nameservers = servers
	if e := c.enrolment; e != nil {
		l.GatewayPort, l.Bypass = e.port, c.bypass()
	}
	_, err = c.firewall.Ensure(firewall.RenderLockdown(l))
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) {
		c.log.Warn("this kernel cannot guard interfaces: a process with CAP_NET_RAW can send frames around the tunnel")
		c.guard, l.Guard = 0, 0
		_, err = c.firewall.Ensure(firewall.RenderLockdown(l))
	}
	if err != nil {
		return err
	}
	return unread
}

// bypass returns the networks that the pod reaches directly. A family that the
// pod has no address of has no way out at all.
func (c *client) bypass() []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(c.enrolment.BypassCIDRs), func(p netip.Prefix) bool {
		return !c.pod.has(p.Addr())
	})
}

// sync makes everything what the enrolment says. Where nothing has changed it
// reads much and writes nothing.
func (c *client) sync() {
	err := c.apply()
	if err != nil {
		c.retry.failed(time.Now())
		if c.failure != err.Error() {
			c.failure = err.Error()
			c.log.Error("cannot bring up the tunnel", "error", err)
		}
		return
	}
	if c.enrolment != nil && (c.failure != "" || c.applied != c.enrolment.hash) {
		c.applied = c.enrolment.hash
		c.log.Info("applied enrolment", "hash", c.applied)
	}
	c.failure, c.retry = "", backoff{}
}

// apply is one sync from top to bottom. The lockdown comes first, and the
// device comes up last.
func (c *client) apply() error {
	if err := c.lock(); err != nil {
		return err
	}
	e := c.enrolment
	if e == nil {
		return nil
	}
	if err := route.EnsureRules(route.ClientRules(c.pod.addresses, c.bypass())); err != nil {
		return err
	}
	uplink, err := route.FindUplink(wireguard.ClientDevice)
	if err != nil {
		return err
	}
	if err := c.device.Ensure(c.deviceConfig(), uplink.DeviceMTU(e.MTU, c.pod.hasIPv6())); err != nil {
		return err
	}
	if err := route.EnsureUnnumbered(wireguard.ClientDevice); err != nil {
		return err
	}
	if err := c.device.Up(); err != nil {
		return err
	}
	interfaces, _, err := route.Interfaces()
	if err != nil {
		return err
	}
	for _, name := range interfaces {
		if _, err := route.EnsureConf(name, route.ReversePath); err != nil {
			return err
		}
	}
	_, err = route.EnsureClientRoutes(wireguard.ClientDevice, c.pod.addresses)
	return err
}

// forget makes the kernel forget the pod's connections. One that was opened
// before there was a lockdown may be taken for one from outside, if its answer
// is seen first, and would be let out from then on. Those that are from outside
// are known again with their next packet.
func (c *client) forget() {
	if err := route.Forget(c.pod.addresses); err != nil {
		c.log.Warn("cannot forget connections from before the lockdown", "error", err)
	}
}

// hear ends the time in which nothing from outside is answered. A pod that had
// no lockdown is deaf until the tunnel is up, before which its containers do not
// start. By then nothing is on its way any more.
func (c *client) hear() {
	if c.deaf && c.tunnel.up {
		c.deaf = false
		c.forget()
		c.sync()
	}
}

// check notices whether somebody else has changed the lockdown, and puts it
// right.
func (c *client) check() {
	intact, err := c.firewall.Check()
	switch {
	case err != nil:
		c.log.Warn("cannot check the lockdown", "error", err)
	case !intact:
		c.log.Warn("somebody else has changed the lockdown")
		c.sync()
		c.forget()
		c.forgetAgain = time.Now().Add(forgetAfter)
	}
	if n, err := c.firewall.Count(firewall.DroppedCounter); err == nil {
		c.health.drops(n)
	}
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
		c.blind = time.Time{}
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
		if c.blind.IsZero() {
			c.blind = now
		}
		return
	}
	c.blind = time.Time{}
	probe, renew := false, true
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
		renew = renew || c.tunnel.made.IsZero() && p.LastHandshakeTime.IsZero()
	}
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
