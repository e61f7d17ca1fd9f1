package gateway

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/config"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/device"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/firewall"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/metrics"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/source"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/tunnel"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

const (
	onceTimeout = 10 * time.Second

	// minPoll is the shortest time between two looks at the device, and bounds
	// the age of the endpoints that a restart finds. After a long look, pollShare
	// times as long passes before the next.
	minPoll   = time.Second
	pollShare = 50

	// checkInterval is how often the firewall is checked for changes by
	// others, beside when the kernel tells of one. Where others keep changing
	// their tables, that is not before tablesRest has passed, or tablesShare times
	// as long as the last time took.
	checkInterval = 10 * time.Second
	tablesRest    = 50 * time.Millisecond
	tablesShare   = 3

	// Events of the network come in bursts: one sync follows a burst after
	// networkSettle, and the next one not before networkInterval, unless
	// gluetun's tunnel is another one.
	networkSettle   = 50 * time.Millisecond
	networkInterval = time.Second

	// podInterval is how soon after the begin of a sync for pods the next one may
	// be, or podShare times as long as that one took. The first of a burst is
	// served at once.
	podInterval = 50 * time.Millisecond
	podShare    = 3

	// forgetAfter is longer than a packet is on its way that met no firewall.
	forgetAfter = time.Second

	minRetry, maxRetry = 500 * time.Millisecond, 30 * time.Second
)

// gateway is the agent's state. One goroutine runs it, so that nothing here
// needs a lock, and no two changes ever meet.
type gateway struct {
	log      *slog.Logger
	device   *device.Device
	firewall firewall.Firewall
	metrics  *metrics.Metrics
	peers    *metrics.Peers
	health   *health
	publish  func(wireguard.Report) // nil where there is no ConfigMap
	pods     podState

	// owners are the peers whose addresses the kernel may have connections of,
	// and access is what they were checked against. Without any value nobody
	// knows.
	owners     owners
	ownersFile ownersFile
	had        owners // before the last sync, with those of what nobody had any more
	access     byNetwork[access]
	// unkeptOwners tells that the file could not be written the last time.
	unkeptOwners bool
	// onDevice is what the device gave to whom before the first sync, where the
	// owners were not known. Nil is not read yet.
	onDevice map[netip.Prefix]wgtypes.Key

	config   *config.Config // in force, or about to be
	rejected string         // why a newer one is not
	applied  string         // hash of the one that was applied last
	failure  string         // of the last sync
	notes    string         // of the last sync

	received time.Time // when config came
	next     schedule
	rest     schedule // when the next may be due at the earliest
	retry    time.Duration

	tunnel    *tunnel.Watcher
	seen      tunnel.Seen // what the watcher said last
	tunnelUp  bool        // gluetun's tunnel was up once
	synced    int         // index of its device at the last sync, 0 where there was none
	egressWas string      // state that was logged last
}

// schedule is when the next syncs are due. The zero time is never.
type schedule struct {
	expiry, retry, network, pods time.Time
	// forget is the one that looks once more at what was opened while the firewall
	// was not there.
	forget time.Time
}

func (s schedule) earliest() time.Time {
	out := time.Time{}
	for _, t := range []time.Time{s.expiry, s.retry, s.network, s.pods, s.forget} {
		if !t.IsZero() && (out.IsZero() || t.Before(out)) {
			out = t
		}
	}
	return out
}

// run applies updates, and follows the network and nftables, until the context
// ends.
func (g *gateway) run(ctx context.Context, updates <-chan source.Update, network, tables <-chan struct{}) {
	resolved := make(chan map[wgtypes.Key]device.Resolved)
	due := time.NewTimer(0)
	poll := time.NewTimer(minPoll)
	check := time.NewTicker(checkInterval)
	touched := time.NewTimer(0)
	rested := time.Time{} // after the last look at nftables
	defer due.Stop()
	defer poll.Stop()
	defer check.Stop()
	defer touched.Stop()
	for {
		g.health.Alive(time.Now())
		due.Stop()
		if t := g.next.earliest(); !t.IsZero() {
			due.Reset(time.Until(t))
		}
		select {
		case <-ctx.Done():
			// What was seen last is kept for the next agent.
			_, _ = g.device.Observe(time.Now())
			return
		case u, open := <-updates:
			if open && g.take(u) {
				g.sync(ctx, metrics.CauseConfig)
			}
		case <-g.pods.watcher.Changed():
			if g.next.pods.IsZero() {
				g.next.pods = latest(time.Now(), g.rest.pods)
			}
		case _, open := <-network:
			if !open {
				network = nil
				continue
			}
			g.changed(time.Now(), g.tunnelDevice())
		case _, open := <-tables:
			if !open {
				tables = nil
				continue
			}
			touched.Reset(time.Until(rested))
		case <-touched.C:
			start := time.Now()
			g.touched(ctx)
			rested = time.Now().Add(max(tablesRest, tablesShare*time.Since(start)))
		case now := <-due.C:
			g.due(ctx, now)
		case endpoints := <-resolved:
			if err := g.device.SetEndpoints(endpoints); err != nil {
				g.log.Warn("cannot use resolved endpoints", "error", err)
			}
		case <-poll.C:
			start := time.Now()
			names := g.observe(ctx, start)
			poll.Reset(max(minPoll, pollShare*time.Since(start)))
			if len(names) > 0 {
				go g.resolve(ctx, names, resolved)
			}
		case <-check.C:
			g.check(ctx)
		case s := <-g.tunnel.Seen():
			g.see(ctx, s)
		}
	}
}

// changed has a sync follow a change of the network. It comes without a rest
// where gluetun's tunnel is another one, or gone: until then the gateway says
// that it is ready, and does not forward IPv4 that comes in by a new device.
func (g *gateway) changed(now time.Time, tunnel int) {
	at := now.Add(networkSettle)
	if tunnel == g.synced {
		at = latest(at, g.rest.network)
	}
	if g.next.network.IsZero() || at.Before(g.next.network) {
		g.next.network = at
	}
}

// due syncs if that is due, and says how long to rest before the next one of its
// kind.
func (g *gateway) due(ctx context.Context, now time.Time) {
	cause := g.cause(now)
	if cause == "" {
		return
	}
	g.sync(ctx, cause)
	switch cause {
	case metrics.CauseNetwork:
		g.rest.network = now.Add(networkInterval)
	case metrics.CausePods:
		g.rest.pods = now.Add(max(podInterval, podShare*time.Since(now)))
	}
}

// cause returns why a sync is due, and empty where none is.
func (g *gateway) cause(now time.Time) string {
	is := func(t *time.Time) bool {
		if t.IsZero() || t.After(now) {
			return false
		}
		*t = time.Time{}
		return true
	}
	switch {
	case is(&g.next.expiry):
		return metrics.CauseExpiry
	case is(&g.next.retry):
		return metrics.CauseRetry
	case is(&g.next.pods):
		return metrics.CausePods
	case is(&g.next.network):
		return metrics.CauseNetwork
	case is(&g.next.forget):
		g.access = byNetwork[access]{}
		return metrics.CauseDrift
	default:
		return ""
	}
}

// take reads an update. It returns false where the configuration in force
// stays: because there is none to be had, or because it cannot be used.
func (g *gateway) take(u source.Update) bool {
	now := time.Now()
	err := u.Err
	if err == nil {
		var c *config.Config
		if c, err = config.Parse(u.Data); err == nil {
			g.config, g.received, g.rejected = c, now, ""
			g.metrics.ConfigValid.Set(1)
			g.log.Info("read configuration", "from", u.Origin, "hash", c.Hash, "peers", len(c.Peers), "podClasses", len(c.PodClasses))
			return true
		}
		g.metrics.Rejected.Inc()
	}
	if reason := err.Error(); reason != g.rejected {
		g.rejected = reason
		g.log.Error("cannot take configuration, the last good one stays in force", "from", u.Origin, "error", err, "applied", g.applied)
	}
	g.metrics.ConfigValid.Set(0)
	g.tell()
	return false
}

// observe looks at the device, and returns the endpoints to resolve.
func (g *gateway) observe(ctx context.Context, now time.Time) map[wgtypes.Key]string {
	o, err := g.device.Observe(now)
	if err != nil {
		g.log.Debug("cannot observe device", "error", err)
	}
	g.observed(ctx, now, o)
	return o.Due
}

// observed has a sync put right what is wrong with the device.
func (g *gateway) observed(ctx context.Context, now time.Time, o device.Observation) {
	if o.Drifted {
		g.log.Warn("somebody else has changed the device")
		g.sync(ctx, metrics.CauseDrift)
	}
	if o.Unknown && g.next.retry.IsZero() {
		g.again(now)
	}
}

// again has a sync follow a failure, after a pause.
func (g *gateway) again(now time.Time) {
	g.retry = max(minRetry, min(2*g.retry, maxRetry))
	g.next.retry = now.Add(g.retry)
}

// see takes what was seen of gluetun's tunnel. A new device brings a sync at
// once: until then IPv4 that comes in by it is not forwarded, and the gateway
// must not say that it is ready. The sync that the network's events bring may
// be yet to come.
func (g *gateway) see(ctx context.Context, s tunnel.Seen) {
	if s.Equal(g.seen) {
		return
	}
	isNew := s.Device != g.seen.Device
	g.seen = s
	if isNew {
		g.sync(ctx, metrics.CauseNetwork)
		return
	}
	g.tell()
}

// check looks whether the firewall is as it was left.
func (g *gateway) check(ctx context.Context) {
	if g.applied == "" {
		return
	}
	intact, err := g.firewall.Check()
	if err != nil {
		g.log.Warn("cannot check firewall", "error", err)
		return
	}
	if !intact {
		// Soon after a start it may have been another table, as gluetun's.
		g.log.Warn("somebody else has changed nftables, so the firewall is written again")
		// Anything may have been opened meanwhile.
		g.access = byNetwork[access]{}
		g.sync(ctx, metrics.CauseDrift)
		g.next.forget = time.Now().Add(forgetAfter)
		return
	}
	// Nobody tells of a sysctl.
	g.tell()
}

// touched checks the firewall where the kernel tells of changes of others. Most
// that it tells of are our own.
func (g *gateway) touched(ctx context.Context) {
	if is, err := g.firewall.Touched(); err == nil && !is {
		return
	}
	g.check(ctx)
}

func (g *gateway) resolve(ctx context.Context, names map[wgtypes.Key]string, resolved chan<- map[wgtypes.Key]device.Resolved) {
	err := device.Resolve(ctx, names, func(endpoints map[wgtypes.Key]device.Resolved) {
		select {
		case resolved <- endpoints:
		case <-ctx.Done():
		}
	})
	if err != nil && ctx.Err() == nil {
		g.log.Warn("cannot resolve endpoints", "error", err)
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
