package sidecar

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/device"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/firewall"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/route"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/source"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

const (
	// The device is looked at every slowTick. While the tunnel is not up, it is
	// looked at more often: as many times as looks within the time that an answer
	// may take. A sync that has failed is tried again at such a look, once its
	// pause is over.
	slowTick = time.Second
	looks    = 5

	// Events of the network come in bursts: one sync follows a burst after
	// networkSettle, and the next one not before networkInterval.
	networkSettle   = 20 * time.Millisecond
	networkInterval = 500 * time.Millisecond

	// syncInterval is how often everything is looked at that may have changed
	// without an event.
	syncInterval = 30 * time.Second

	// unreadableTime is how long the device may be there without answering, as
	// happens when somebody moves its control socket.
	unreadableTime = 5 * time.Second
)

// sidecar is the process's state. One goroutine runs it, so that nothing here
// needs a lock, and no two changes ever meet.
type sidecar struct {
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

	forgetAgain     time.Time // zero is never
	unreadableSince time.Time // when the device began not to answer, zero if it does
	noInbound       bool      // connections from outside are not answered yet

	tunnel   tunnel
	outdated bool // the session is with an endpoint, or a key, of before
	wasUp    bool
	probing  string // why the last probe failed
}

// run follows enrolment, network and tunnel until the context ends.
// It returns an error where only a new process helps.
func (s *sidecar) run(ctx context.Context, updates <-chan source.Update, network, tables <-chan struct{}) error {
	resolved := make(chan resolution, 1)
	due := time.NewTimer(0) // of a sync
	next := time.Now()      // when it is due
	tick := time.NewTimer(0)
	defer due.Stop()
	defer tick.Stop()
	last := time.Time{}
	for {
		s.health.Alive(time.Now())
		select {
		case <-ctx.Done():
			return nil
		case u, open := <-updates:
			if !open {
				updates = nil
				continue
			}
			if s.take(u) {
				s.sync()
				s.watch(ctx, resolved)
			}
		case <-network:
			next = soon(time.Now(), next, last)
			due.Reset(time.Until(next))
		case <-tables:
			s.check()
		case last = <-due.C:
			s.sync()
			next = time.Now().Add(syncInterval)
			due.Reset(syncInterval)
		case r := <-resolved:
			s.learn(r)
			s.watch(ctx, resolved)
		case now := <-tick.C:
			s.check()
			if !s.forgetAgain.IsZero() && now.After(s.forgetAgain) {
				s.forget()
				s.forgetAgain = time.Time{}
			}
			s.watch(ctx, resolved)
			if s.tunnel.up {
				tick.Reset(slowTick)
			} else {
				tick.Reset(pause(max(s.tunnel.attempts, s.retry.failures)) / looks)
			}
		}
		s.allowInbound()
		s.tell()
		if !s.unreadableSince.IsZero() && time.Since(s.unreadableSince) > unreadableTime {
			return fmt.Errorf("cannot look at %s for %s", wireguard.ClientDevice, unreadableTime)
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
func (s *sidecar) take(u source.Update) bool {
	err := u.Err
	if err == nil {
		var e *enrolment
		if e, err = parseEnrolment(u.Data); err == nil {
			if s.enrolment == nil || s.enrolment.host != e.host {
				s.addresses, s.lookedUp, s.unresolved = nil, time.Time{}, ""
			}
			if s.enrolment != nil && (s.enrolment.Endpoint != e.Endpoint || s.enrolment.ClassKey != e.ClassKey) {
				s.outdated = true
			}
			s.enrolment, s.rejected, s.retry = e, "", backoff{}
			s.log.Info("read enrolment", "from", u.Origin, "hash", e.hash, "gateway", e.Gateway, "endpoint", e.Endpoint)
			return true
		}
	}
	if reason := err.Error(); reason != s.rejected {
		s.rejected = reason
		s.log.Error("cannot take enrolment, the last good one stays in force", "from", u.Origin, "error", err)
	}
	return false
}

// sync makes everything what the enrolment says. Where nothing has changed it
// reads much and writes nothing.
func (s *sidecar) sync() {
	err := s.apply()
	if err != nil {
		s.retry.failed(time.Now())
		if s.failure != err.Error() {
			s.failure = err.Error()
			s.log.Error("cannot bring up the tunnel", "error", err)
		}
		return
	}
	if s.enrolment != nil && (s.failure != "" || s.applied != s.enrolment.hash) {
		s.applied = s.enrolment.hash
		s.log.Info("applied enrolment", "hash", s.applied)
	}
	s.failure, s.retry = "", backoff{}
}

// apply is one sync from top to bottom. The lockdown comes first, and the
// device comes up last.
func (s *sidecar) apply() error {
	if err := s.lock(); err != nil {
		return err
	}
	e := s.enrolment
	if e == nil {
		return nil
	}
	if err := route.EnsureRules(route.ClientRules(s.pod.addresses, s.bypass())); err != nil {
		return err
	}
	uplink, err := route.FindUplink(wireguard.ClientDevice)
	if err != nil {
		return err
	}
	if err := s.device.Ensure(s.deviceConfig(), uplink.DeviceMTU(e.MTU, s.pod.hasIPv6())); err != nil {
		return err
	}
	if err := route.EnsureUnnumbered(wireguard.ClientDevice); err != nil {
		return err
	}
	if err := s.device.Up(); err != nil {
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
	_, err = route.EnsureClientRoutes(wireguard.ClientDevice, s.pod.addresses)
	return err
}
