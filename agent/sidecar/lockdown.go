package sidecar

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
func (s *sidecar) lock() error {
	l := firewall.Lockdown{Guard: s.guard, NoInbound: s.noInbound}
	_, top, err := route.Interfaces()
	if err != nil {
		return err
	}
	l.Interfaces = slices.DeleteFunc(top, func(name string) bool { return name == wireguard.ClientDevice })
	// Without nameservers nothing is let out to any.
	servers, unread := nameservers(resolvConf)
	l.Nameservers = servers
	if e := s.enrolment; e != nil {
		l.GatewayPort, l.Bypass = e.port, s.bypass()
	}
	_, err = s.firewall.Ensure(firewall.RenderLockdown(l))
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EAFNOSUPPORT) {
		s.log.Warn("this kernel cannot guard interfaces: a process with CAP_NET_RAW can send frames around the tunnel")
		s.guard, l.Guard = 0, 0
		_, err = s.firewall.Ensure(firewall.RenderLockdown(l))
	}
	if err != nil {
		return err
	}
	return unread
}

// bypass returns the networks that the pod reaches directly. A family that the
// pod has no address of has no way out at all.
func (s *sidecar) bypass() []netip.Prefix {
	return slices.DeleteFunc(slices.Clone(s.enrolment.BypassCIDRs), func(p netip.Prefix) bool {
		return !s.pod.has(p.Addr())
	})
}

// forget makes the kernel forget the pod's connections. One that was opened
// before there was a lockdown may be taken for one from outside, if its answer
// is seen first, and would be let out from then on. Those that are from outside
// are known again with their next packet.
func (s *sidecar) forget() {
	if err := route.Forget(s.pod.addresses); err != nil {
		s.log.Warn("cannot forget connections from before the lockdown", "error", err)
	}
}

// allowInbound has connections from outside answered from now on, if it is time.
// A pod that had no lockdown answers none until the tunnel is up, before which
// its containers do not start. By then nothing is on its way any more.
func (s *sidecar) allowInbound() {
	if s.noInbound && s.tunnel.up {
		s.noInbound = false
		s.forget()
		s.sync()
	}
}

// check notices whether somebody else has changed the lockdown, and puts it
// right.
func (s *sidecar) check() {
	intact, err := s.firewall.Check()
	switch {
	case err != nil:
		s.log.Warn("cannot check the lockdown", "error", err)
	case !intact:
		s.log.Warn("somebody else has changed the lockdown")
		s.sync()
		s.forget()
		s.forgetAgain = time.Now().Add(forgetAfter)
	}
	if n, err := s.firewall.Count(firewall.DroppedCounter); err == nil {
		s.health.drops(n)
	}
}
