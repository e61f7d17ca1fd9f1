package tunnel

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fake is a tunnel, a control server and a clock.
type fake struct {
	*Watcher
	now    time.Time
	device int
	works  bool
	exit   Exit
	err    error // of the control server

	probes, asked int
	targets       []string
	log           bytes.Buffer
}

func newFake() *fake {
	f := &fake{now: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
	f.Watcher = New(Options{}, slog.New(slog.NewTextHandler(&f.log, nil)))
	f.index = func() (int, error) { return f.device, nil }
	f.probe = func(_ context.Context, addresses []string) error {
		f.probes++
		f.targets = append(f.targets, addresses[0])
		if f.works {
			return nil
		}
		return errors.New("no answer")
	}
	f.Watcher.exit = func(context.Context) (Exit, error) {
		f.asked++
		return f.exit, f.err
	}
	return f
}

// look looks when it is due.
func (f *fake) look(t *testing.T) Seen {
	t.Helper()
	f.now = f.now.Add(f.pause(f.now))
	return f.Look(t.Context(), f.now)
}

func TestWatcher(t *testing.T) {
	f := newFake()
	f.exit = Exit{PublicIP: "198.51.100.10", Country: "CH", Ports: []int{41230}}
	up := func(device int) Seen { return Seen{Device: device, Up: true, Exit: f.exit} }
	steps := []struct {
		reason string
		change func()
		looks  int
		want   func() Seen
	}{
		{"no device", func() {}, 3, func() Seen { return Seen{} }},
		{"a device through which nothing answers", func() { f.device = 7 }, 5, func() Seen { return Seen{Device: 7} }},
		{"up at the first answer", func() { f.works = true }, 1, func() Seen { return up(7) }},
		{"another port", func() { f.exit.Ports = []int{41231} }, 5, func() Seen { return up(7) }},
		{"one failure is none", func() { f.works = false }, 1, func() Seen { return up(7) }},
		{"nor are two", func() {}, 1, func() Seen { return up(7) }},
		{"an answer makes good", func() { f.works = true }, 1, func() Seen { return up(7) }},
		{"so two more are none", func() { f.works = false }, 2, func() Seen { return up(7) }},
		{"three in a row are, and nothing is known any more", func() {}, 1, func() Seen { return Seen{Device: 7} }},
		{"back at the first answer", func() { f.works = true }, 1, func() Seen { return up(7) }},
		{"the device goes", func() { f.device = 0 }, 1, func() Seen { return Seen{} }},
		{"it comes back, and has to answer again", func() { f.device, f.works = 8, false }, 1, func() Seen { return Seen{Device: 8} }},
		{"and does", func() { f.works = true }, 1, func() Seen { return up(8) }},
	}
	for _, s := range steps {
		s.change()
		got := Seen{}
		for range s.looks {
			got = f.look(t)
		}
		if diff := cmp.Diff(s.want(), got); diff != "" {
			t.Fatalf("%s: -want, +got:\n%s", s.reason, diff)
		}
	}
	// A device that was replaced between two looks has to answer by itself.
	f.device, f.works = 9, false
	if got := f.Look(t.Context(), f.now); got.Up {
		t.Error("another device counts as up without having answered")
	}
	if one, two := targets[0][0], targets[1][0]; f.targets[0] != one || f.targets[1] != two || f.targets[2] != one {
		t.Errorf("want %s and %s in turn, got %v", one, two, f.targets)
	}
}

// Whoever wakes the watcher often makes it no busier while the tunnel is up.
func TestWatcherIsBounded(t *testing.T) {
	f := newFake()
	f.device, f.works, f.exit = 7, true, Exit{PublicIP: "198.51.100.10"}
	for range 600 {
		f.Look(t.Context(), f.now)
		f.now = f.now.Add(100 * time.Millisecond)
	}
	if most := int(time.Minute / upInterval); f.probes > most {
		t.Errorf("%d probes in a minute, want %d at most", f.probes, most)
	}
	if most := int(time.Minute / exitInterval); f.asked > most {
		t.Errorf("asked for the exit %d times in a minute, want %d at most", f.asked, most)
	}
}

// A control server that does not answer says nothing about the tunnel, and
// fills no log.
func TestWatcherWithoutControl(t *testing.T) {
	f := newFake()
	f.device, f.works, f.err = 7, true, errors.New("gluetun answers 401")
	for range 10 {
		if s := f.look(t); !s.Equal(Seen{Device: 7, Up: true}) {
			t.Fatalf("want a tunnel that is up, got %+v", s)
		}
	}
	if n := strings.Count(f.log.String(), "401"); n != 1 {
		t.Errorf("want one line in the log, got %d:\n%s", n, f.log.String())
	}
	f.err, f.exit = nil, Exit{PublicIP: "198.51.100.10", Ports: []int{8}}
	if s := f.look(t); !s.Exit.Equal(f.exit) {
		t.Errorf("want the exit as soon as there is one, got %+v", s)
	}
	f.err = errors.New("gluetun answers 500")
	for range 10 {
		if s := f.look(t); !s.Exit.Equal(f.exit) {
			t.Errorf("want what is known to stay, got %+v", s)
		}
	}
}

// One answer of the control server is better than none, and what was known
// before is better than no answer.
func TestWatcherWithHalfOfControl(t *testing.T) {
	f := newFake()
	f.device, f.works, f.err = 7, true, errors.New("gluetun answers 500 to one")
	full := Exit{PublicIP: "198.51.100.10", Country: "CH", Ports: []int{41230}}
	steps := []struct {
		reason string
		exit   Exit
		err    error
		want   Exit
	}{
		{"a port without address", Exit{Ports: []int{8}}, f.err, Exit{Ports: []int{8}}},
		{"another port", Exit{Ports: []int{9}}, f.err, Exit{Ports: []int{9}}},
		{"neither", Exit{}, f.err, Exit{Ports: []int{9}}},
		{"an address without port", Exit{PublicIP: "198.51.100.9", Country: "DE"}, f.err, Exit{PublicIP: "198.51.100.9", Country: "DE", Ports: []int{9}}},
		{"both", full, nil, full},
		{"the address moves, and the port is not to be had", Exit{PublicIP: "198.51.100.11"}, f.err, Exit{PublicIP: "198.51.100.11", Ports: []int{41230}}},
		{"no port any more", Exit{PublicIP: "198.51.100.11"}, nil, Exit{PublicIP: "198.51.100.11"}},
	}
	for _, s := range steps {
		f.exit, f.err = s.exit, s.err
		asked := f.asked
		for f.asked == asked {
			f.look(t)
		}
		if diff := cmp.Diff(s.want, f.state.Exit); diff != "" {
			t.Fatalf("%s: -want, +got:\n%s", s.reason, diff)
		}
	}
}

// Run tells what it sees, from when it is enabled, and never waits for whoever
// listens.
func TestWatcherRun(t *testing.T) {
	f := newFake()
	f.device, f.works = 7, true
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		f.Run(ctx)
		close(done)
	}()
	f.Enable(false)
	f.Enable(true)
	if s := <-f.Seen(); !s.Up {
		t.Errorf("want a tunnel that is up, got %+v", s)
	}
	for range 100 {
		f.Enable(true)
	}
	cancel()
	<-done
}
