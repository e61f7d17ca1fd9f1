package firewall

import (
	"errors"
	"fmt"
	"reflect"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// elementsPerMessage keeps a list of elements below the 64 KiB that a netlink
// attribute can hold: an element with a verdict takes up to 100 bytes.
const elementsPerMessage = 500

// Firewall keeps one table. The zero value is ready for use. It is not safe
// for concurrent use.
type Firewall struct {
	applied Ruleset
	state   fingerprint
	sockets sockets
}

// Close ends the talk with nftables. The table stays.
func (f *Firewall) Close() {
	f.sockets.close()
}

// Ensure makes the table what the rule set says, in one transaction: there is
// no moment with half of the rules, or none. It does nothing, and returns
// false, where the table is as it was left.
func (f *Firewall) Ensure(r Ruleset) (bool, error) {
	known := f.state.known
	if known && reflect.DeepEqual(f.applied, r) {
		return false, nil
	}
	f.state = fingerprint{}
	d, small := difference(f.applied, r)
	if !known || !small || f.sockets.change(d.write) != nil {
		// The difference may fail where somebody has just changed the table.
		// Writing all of it needs nothing of what is there.
		if err := f.sockets.change(r.write); err != nil {
			return false, fmt.Errorf("cannot replace nftables table: %w", err)
		}
	}
	g, err := f.sockets.generation()
	if err != nil {
		return true, err
	}
	f.applied, f.state = r, fingerprint{known: true, generation: g}
	return true, nil
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

// Count returns how many packets a counter of the table has seen. It starts
// anew when the table is written.
func (f *Firewall) Count(name string) (uint64, error) {
	n, err := f.sockets.count(unix.NFPROTO_INET, f.applied.table, name)
	if err != nil || !f.applied.egress {
		return n, err
	}
	egress, err := f.sockets.count(unix.NFPROTO_NETDEV, f.applied.table, name)
	return n + egress, err
}

// Remove deletes the table of the given name. It is no error if there is none.
func Remove(name string) error {
	s := sockets{}
	defer s.close()
	err := s.change(func(c *nftables.Conn) error {
		// Adding it first makes the deletion succeed in any case.
		c.DelTable(c.AddTable(table(name)))
		return nil
	})
	if err != nil {
		return fmt.Errorf("cannot delete nftables table: %w", err)
	}
	return nil
}

func table(name string) *nftables.Table {
	return &nftables.Table{Name: name, Family: nftables.TableFamilyINet}
}

func egressTable(name string) *nftables.Table {
	return &nftables.Table{Name: name, Family: nftables.TableFamilyNetdev}
}

// write deletes the table and writes it anew.
func (r Ruleset) write(c *nftables.Conn) error {
	t := c.AddTable(table(r.table))
	c.DelTable(t)
	t = c.AddTable(table(r.table))

	for _, name := range r.counters {
		c.AddObj(&nftables.CounterObj{Table: t, Name: name})
	}
	if r.egress {
		r.writeEgress(c)
	}
	// Chains before maps, since maps name chains; rules last, since they name
	// both.
	chains := make([]*nftables.Chain, len(r.chains))
	for i, ch := range r.chains {
		if ch.device == "" {
			chains[i] = c.AddChain(nftablesChain(t, ch))
		}
	}
	for _, s := range r.sets {
		if err := addSet(c, t, s); err != nil {
			return fmt.Errorf("set %s: %w", s.name, err)
		}
	}
	for i, ch := range r.chains {
		if ch.device != "" {
			continue
		}
		for _, rule := range ch.rules {
			c.AddRule(&nftables.Rule{Table: t, Chain: chains[i], Exprs: rule})
		}
	}
	return nil
}

// writeEgress writes the other table of the rule set, in the same transaction.
func (r Ruleset) writeEgress(c *nftables.Conn) {
	t := c.AddTable(egressTable(r.table))
	c.DelTable(t)
	t = c.AddTable(egressTable(r.table))
	for _, name := range r.counters {
		c.AddObj(&nftables.CounterObj{Table: t, Name: name})
	}
	for _, ch := range r.chains {
		if ch.device == "" {
			continue
		}
		nc := nftablesChain(t, ch)
		nc.Device = ch.device
		nc = c.AddChain(nc)
		for _, rule := range ch.rules {
			c.AddRule(&nftables.Rule{Table: t, Chain: nc, Exprs: rule})
		}
	}
}

func nftablesChain(t *nftables.Table, ch chain) *nftables.Chain {
	out := &nftables.Chain{Name: ch.name, Table: t}
	if ch.hook != nil {
		policy := nftables.ChainPolicyAccept
		if ch.drops {
			policy = nftables.ChainPolicyDrop
		}
		out.Hooknum, out.Type, out.Policy = ch.hook, ch.kind, &policy
		out.Priority = new(nftables.ChainPriority(ch.priority))
	}
	return out
}

func addSet(c *nftables.Conn, t *nftables.Table, s set) error {
	ns := nftablesSet(t, s)
	if err := c.AddSet(ns, nil); err != nil {
		return err
	}
	return inPortions(s.elements(s.intervals), func(es []nftables.SetElement) error { return c.SetAddElements(ns, es) })
}

func nftablesSet(t *nftables.Table, s set) *nftables.Set {
	ns := &nftables.Set{Table: t, Name: s.name, Interval: true, KeyType: nftables.TypeIP6Addr}
	if s.v4 {
		ns.KeyType = nftables.TypeIPAddr
	}
	if s.verdicts {
		ns.IsMap, ns.DataType = true, nftables.TypeVerdict
	}
	return ns
}

// inPortions calls f with as many elements at a time as fit a message.
func inPortions(elements []nftables.SetElement, f func([]nftables.SetElement) error) error {
	for len(elements) > 0 {
		n := min(elementsPerMessage, len(elements))
		if err := f(elements[:n]); err != nil {
			return err
		}
		elements = elements[n:]
	}
	return nil
}
