package client

import (
	"errors"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/firewall"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/route"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// forgetAfter is longer than an answer is on its way.
const forgetAfter = time.Second

// lock makes the lockdown what it has to be. Before there is an enrolment it
// lets nothing out.
func (c *client) lock() error {
	l := firewall.Lockdown{Guard: c.guard, NoInbound: c.noInbound}
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

// forget makes the kernel forget the pod's connections. One that was opened
// before there was a lockdown may be taken for one from outside, if its answer
// is seen first, and would be let out from then on. Those that are from outside
// are known again with their next packet.
func (c *client) forget() {
	if err := route.Forget(c.pod.addresses); err != nil {
		c.log.Warn("cannot forget connections from before the lockdown", "error", err)
	}
}

// allowInbound has connections from outside answered from now on, if it is time.
// A pod that had no lockdown answers none until the tunnel is up, before which
// its containers do not start. By then nothing is on its way any more.
func (c *client) allowInbound() {
	if c.noInbound && c.tunnel.up {
		c.noInbound = false
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
