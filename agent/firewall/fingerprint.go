package firewall

import (
	"slices"

	"golang.org/x/sys/unix"
)

// fingerprint tells, without reading the whole table, whether somebody else
// has changed its rules.
type fingerprint struct {
	known bool
	// generation counts every change to any table in this network namespace.
	generation uint32
	// rules are the handles of our rules, once they have been read. The kernel
	// uses each handle of a table once.
	rules []uint64
}

// Check notices whether the table was changed or deleted by somebody else, so
// that the next Ensure writes it again. It returns false if so. Its usual cost
// is one small request. It is meant to be called every few seconds.
func (f *Firewall) Check() (bool, error) {
	if !f.state.known {
		return false, nil
	}
	now, err := f.sockets.generation()
	if err != nil {
		return false, err
	}
	untouched := now == f.state.generation
	if untouched && f.state.rules != nil {
		return true, nil
	}
	read, err := f.sockets.fingerprint(f.applied)
	if err != nil {
		return false, err
	}
	// Reading the rules takes too long for a sync that clients wait for, so
	// Ensure leaves it to the first check.
	untouched = untouched && read.generation == f.state.generation && len(read.rules) > 0
	if !untouched && (f.state.rules == nil || !slices.Equal(read.rules, f.state.rules)) {
		f.state = fingerprint{}
		return false, nil
	}
	f.state = read
	return true, nil
}

// Touched tells whether any table was changed since this one was written or
// checked. It is one small request, and says when a Check is worth its cost.
func (f *Firewall) Touched() (bool, error) {
	now, err := f.sockets.generation()
	return !f.state.known || now != f.state.generation, err
}

// Learn checks a table that was written since the last check. The sooner it is
// called after Ensure the better: what others have changed meanwhile, to whatever
// table, may have been changed in this one.
func (f *Firewall) Learn() error {
	if !f.state.known || f.state.rules != nil {
		return nil
	}
	_, err := f.Check()
	return err
}

func (s *sockets) fingerprint(r Ruleset) (fingerprint, error) {
	g, err := s.generation()
	if err != nil {
		return fingerprint{}, err
	}
	f := fingerprint{known: true, generation: g}
	f.rules, err = s.rules(unix.NFPROTO_INET, r.table)
	if err != nil || !r.egress {
		return f, err
	}
	egress, err := s.rules(unix.NFPROTO_NETDEV, r.table)
	f.rules = append(f.rules, egress...)
	return f, err
}
