package sidecar

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
func (s *sidecar) watch(ctx context.Context, resolved chan<- resolution) {
	now := time.Now()
	if s.enrolment == nil {
		return
	}
	if s.failure != "" && s.retry.due(now) {
		s.sync()
	}
	if s.failure != "" {
		s.unreadableSince = time.Time{}
		return
	}
	if !s.tunnel.up || s.outdated {
		s.lookUp(ctx, now, resolved)
	}
	d, err := s.wireguard.Device(wireguard.ClientDevice)
	if err != nil {
		// It went away. The event may still be on its way.
		s.tunnel.up = false
		s.sync()
		if s.unreadableSince.IsZero() {
			s.unreadableSince = now
		}
		return
	}
	s.unreadableSince = time.Time{}
	probe, renew := s.inspect(now, d)
	if (renew || s.outdated) && len(s.addresses) > 0 {
		if err := s.renew(now); err != nil {
			s.log.Error("cannot reach the gateway", "error", err)
			return
		}
		s.outdated, probe = false, true
	}
	if probe {
		s.probe(ctx)
	}
	s.announce()
}

// inspect puts the device right where somebody else has changed it. It returns
// whether to probe the tunnel, and whether to make the peer anew.
func (s *sidecar) inspect(now time.Time, d *wgtypes.Device) (probe, renew bool) {
	switch {
	case !s.isDevice(d):
		s.log.Warn("somebody else has changed the device")
		if err := s.configure(); err != nil {
			s.log.Error("cannot put the device right", "error", err)
		}
	case s.isPeer(d):
		p := d.Peers[0]
		seen := sight{handshake: p.LastHandshakeTime, rx: p.ReceiveBytes, tx: p.TransmitBytes}
		probe, renew = s.tunnel.look(now, seen)
		s.health.saw(seen)
		// A kernel's device that an earlier sidecar left has its peer already.
		return probe, renew || s.tunnel.made.IsZero() && p.LastHandshakeTime.IsZero()
	}
	return false, true
}

// probe also starts the handshake where no keepalive does.
func (s *sidecar) probe(ctx context.Context) {
	reason := ""
	if err := s.pod.probe(ctx); err != nil {
		reason = err.Error()
	}
	if reason != "" && reason != s.probing {
		s.log.Warn("cannot probe", "error", reason)
	}
	s.probing = reason
}

// announce logs when the tunnel comes up or is lost.
func (s *sidecar) announce() {
	if s.tunnel.up == s.wasUp {
		return
	}
	s.wasUp = s.tunnel.up
	if s.wasUp {
		s.log.Info("the tunnel is up", "gateway", s.enrolment.Gateway)
	} else {
		s.log.Warn("nothing comes back through the tunnel", "gateway", s.enrolment.Gateway)
	}
}

// lookUp starts a lookup of the gateway's name, unless there was one a moment
// ago.
func (s *sidecar) lookUp(ctx context.Context, now time.Time, resolved chan<- resolution) {
	host := s.enrolment.host
	if a, err := netip.ParseAddr(host); err == nil {
		s.addresses = []netip.Addr{a.Unmap()}
		return
	}
	if s.resolving || now.Sub(s.lookedUp) < resolveInterval {
		return
	}
	s.resolving, s.lookedUp = true, now
	go func() {
		addresses, err := s.pod.resolve(ctx, host)
		resolved <- resolution{host: host, addresses: addresses, err: err}
	}()
}

// learn takes the outcome of a lookup. Addresses stay where a lookup fails.
func (s *sidecar) learn(r resolution) {
	s.resolving = false
	if r.host != s.enrolment.host {
		return
	}
	if r.err != nil {
		if s.unresolved != r.err.Error() {
			s.unresolved = r.err.Error()
			s.log.Warn("cannot look up the gateway", "error", r.err)
		}
		return
	}
	s.unresolved = ""
	if slices.Equal(s.addresses, r.addresses) {
		return
	}
	s.log.Info("looked up the gateway", "name", r.host, "addresses", r.addresses)
	s.addresses = r.addresses
	if !s.tunnel.up {
		// The next look makes the peer anew with them.
		s.tunnel.made = time.Time{}
	}
}
