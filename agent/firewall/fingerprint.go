package firewall

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/mdlayher/netlink"
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

// rules returns the handles of a table's rules.
func (s *sockets) rules(family byte, name string) ([]uint64, error) {
	table, err := netlink.MarshalAttributes([]netlink.Attribute{
		{Type: unix.NFTA_RULE_TABLE, Data: []byte(name + "\x00")},
	})
	if err != nil {
		return nil, fmt.Errorf("cannot encode nftables request: %w", err)
	}
	messages, err := s.request(family, unix.NFT_MSG_GETRULE, netlink.Request|netlink.Dump, table)
	if err != nil {
		return nil, fmt.Errorf("cannot list nftables rules: %w", err)
	}
	var handles []uint64
	for _, m := range messages {
		handle, err := attribute(m, unix.NFTA_RULE_HANDLE)
		if err != nil {
			return nil, err
		}
		handles = append(handles, binary.BigEndian.Uint64(handle))
	}
	return handles, nil
}

// Exists tells whether there is a table of the name.
func (f *Firewall) Exists(name string) (bool, error) {
	b, err := netlink.MarshalAttributes([]netlink.Attribute{{Type: unix.NFTA_TABLE_NAME, Data: []byte(name + "\x00")}})
	if err != nil {
		return false, fmt.Errorf("cannot encode nftables request: %w", err)
	}
	_, err = f.sockets.request(unix.NFPROTO_INET, unix.NFT_MSG_GETTABLE, netlink.Request, b)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot look for nftables table: %w", err)
	}
	return true, nil
}

func (s *sockets) generation() (uint32, error) {
	messages, err := s.request(unix.NFPROTO_UNSPEC, unix.NFT_MSG_GETGEN, netlink.Request, nil)
	if err != nil {
		return 0, fmt.Errorf("cannot read nftables generation: %w", err)
	}
	if len(messages) != 1 {
		return 0, fmt.Errorf("cannot read nftables generation: got %d answers", len(messages))
	}
	id, err := attribute(messages[0], unix.NFTA_GEN_ID)
	if err != nil {
		return 0, err
	}
	return binary.BigEndian.Uint32(id), nil
}

func attribute(m netlink.Message, kind uint16) ([]byte, error) {
	const header = 4 // struct nfgenmsg
	if len(m.Data) < header {
		return nil, fmt.Errorf("cannot read nftables answer of %d bytes", len(m.Data))
	}
	attributes, err := netlink.UnmarshalAttributes(m.Data[header:])
	if err != nil {
		return nil, fmt.Errorf("cannot read nftables answer: %w", err)
	}
	for _, a := range attributes {
		if a.Type == kind {
			return a.Data, nil
		}
	}
	return nil, fmt.Errorf("cannot find attribute %d in nftables answer", kind)
}
