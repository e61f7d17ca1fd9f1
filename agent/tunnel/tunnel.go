// Package tunnel watches gluetun's tunnel. gluetun itself says that it is well
// for minutes after its provider has died, so nothing counts but a connection
// through the tunnel.
package tunnel

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

const (
	// A tunnel that is up is probed every upInterval, and is down after
	// maxFailures in a row. All other probes follow each other after
	// downInterval.
	upInterval   = 5 * time.Second
	downInterval = time.Second
	maxFailures  = 3

	// exitInterval is how often gluetun is asked for the exit once it is known.
	// It is not known at first, since gluetun asks for it through the tunnel.
	exitInterval = 15 * time.Second
)

// Seen is what was seen last.
type Seen struct {
	// Device is the index of the tunnel's device, and 0 where there is none. A
	// tunnel that was started again has another.
	Device int
	// Up tells that the tunnel passes traffic.
	Up   bool
	Exit Exit // while it is up
}

// Equal compares.
func (s Seen) Equal(o Seen) bool {
	return s.Device == o.Device && s.Up == o.Up && s.Exit.Equal(o.Exit)
}

// Options say where the tunnel is.
type Options struct {
	// Device names the tunnel's device.
	Device string
	// Index returns the index of that device, and 0 while nothing is routed
	// into it.
	Index func() (int, error)
	// Control is the URL of gluetun's control server, Auth the file with the
	// role that may read it.
	Control, Auth string
}

// Watcher looks at the tunnel.
type Watcher struct {
	log     *slog.Logger
	index   func() (int, error)
	probe   func(ctx context.Context, addresses []string) error
	exit    func(ctx context.Context) (Exit, error)
	enabled atomic.Bool
	wake    chan struct{}
	seen    chan Seen

	state    Seen
	round    int
	failures int
	next     time.Time // of probing a tunnel that is up
	nextExit time.Time
	failed   string // what was logged last of the control server
}

// New returns a watcher that looks at nothing until it is enabled.
func New(o Options, log *slog.Logger) *Watcher {
	return &Watcher{
		log:   log,
		index: o.Index,
		probe: func(ctx context.Context, addresses []string) error { return probe(ctx, o.Device, addresses) },
		exit:  newControl(o.Control, o.Auth).exit,
		wake:  make(chan struct{}, 1),
		seen:  make(chan Seen, 1),
	}
}

// Seen sends what was seen, after each look. What nobody has taken yet is
// replaced.
func (w *Watcher) Seen() <-chan Seen { return w.seen }

// Enable makes it look at once, and from now on, or stop looking.
func (w *Watcher) Enable(on bool) {
	w.enabled.Store(on)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run looks until the context ends.
func (w *Watcher) Run(ctx context.Context) {
	timer := time.NewTimer(downInterval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.wake:
		case <-timer.C:
		}
		if !w.enabled.Load() {
			w.state, w.failures = Seen{}, 0
			continue
		}
		s := w.Look(ctx, time.Now())
		select {
		case <-w.seen:
		default:
		}
		w.seen <- s
		timer.Reset(w.pause(time.Now()))
	}
}

// pause is how long to wait for the next look.
func (w *Watcher) pause(now time.Time) time.Duration {
	if !w.state.Up {
		return downInterval
	}
	return max(0, w.next.Sub(now))
}

// Look looks once. It takes as long as a probe may take, at most.
func (w *Watcher) Look(ctx context.Context, now time.Time) Seen {
	index, err := w.index()
	if err != nil {
		w.log.Debug("cannot look at the tunnel's device", "error", err)
		index = 0
	}
	if index != w.state.Device {
		w.state, w.failures = Seen{Device: index}, 0
	}
	if index == 0 || w.state.Up && now.Before(w.next) {
		return w.state
	}
	err = w.probe(ctx, targets[w.round%len(targets)])
	w.round++
	w.next = now.Add(upInterval)
	switch {
	case err == nil:
		if !w.state.Up {
			w.nextExit = time.Time{}
		}
		w.state.Up, w.failures = true, 0
	case w.state.Up && w.failures+1 < maxFailures:
		w.failures++
		w.next = now.Add(downInterval)
		return w.state
	default:
		w.log.Debug("nothing answers through the tunnel", "error", err)
		w.state, w.failures = Seen{Device: index}, 0
		return w.state
	}
	if !now.Before(w.nextExit) {
		w.ask(ctx, now)
	}
	return w.state
}

// ask gets the exit. What was known stays where gluetun does not answer: it
// belongs to a tunnel that is up. One answer is taken without the other.
func (w *Watcher) ask(ctx context.Context, now time.Time) {
	exit, err := w.exit(ctx)
	if err != nil {
		if w.failed != err.Error() && ctx.Err() == nil {
			w.failed = err.Error()
			w.log.Warn("cannot ask gluetun for its exit", "error", err)
		}
		if exit.PublicIP != "" {
			w.state.Exit.PublicIP, w.state.Exit.Country = exit.PublicIP, exit.Country
		}
		if len(exit.Ports) > 0 {
			w.state.Exit.Ports = exit.Ports
		}
		return
	}
	w.failed = ""
	w.state.Exit = exit
	if exit.PublicIP != "" {
		w.nextExit = now.Add(exitInterval)
	}
}
