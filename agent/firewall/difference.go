package firewall

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/google/nftables"
)

// delta is what one rule set has over another of the same shape.
type delta struct {
	table   string
	sets    []setDelta
	added   []chain
	removed []chain
}

type setDelta struct {
	set            set
	added, removed []interval
}

// difference returns how to get from one rule set to another. The second value
// is false where more than the members of sets and hashed chains differ.
func difference(from, to Ruleset) (delta, bool) {
	d := delta{table: to.table}
	if from.table != to.table || len(from.sets) != len(to.sets) || !slices.Equal(from.counters, to.counters) {
		return d, false
	}
	oldFixed, oldHashed := byHashed(from.chains)
	newFixed, newHashed := byHashed(to.chains)
	if !reflect.DeepEqual(oldFixed, newFixed) {
		return d, false
	}
	for name, c := range newHashed {
		if _, there := oldHashed[name]; !there {
			d.added = append(d.added, c)
		}
	}
	for name, c := range oldHashed {
		if _, there := newHashed[name]; !there {
			d.removed = append(d.removed, c)
		}
	}
	for i, s := range to.sets {
		old := from.sets[i]
		if old.name != s.name || old.v4 != s.v4 || old.verdicts != s.verdicts {
			return d, false
		}
		sd := setDelta{set: s, added: without(s.intervals, old.intervals), removed: without(old.intervals, s.intervals)}
		if len(sd.added)+len(sd.removed) > 0 {
			d.sets = append(d.sets, sd)
		}
	}
	return d, true
}

func byHashed(chains []chain) ([]chain, map[string]chain) {
	var fixed []chain
	hashed := map[string]chain{}
	for _, c := range chains {
		if c.hashed {
			hashed[c.name] = c
		} else {
			fixed = append(fixed, c)
		}
	}
	return fixed, hashed
}

// without returns the intervals of one list that are not in the other. Both
// are in ascending order.
func without(list, other []interval) []interval {
	var out []interval
	for _, i := range list {
		for len(other) > 0 && other[0].first.Less(i.first) {
			other = other[1:]
		}
		if len(other) == 0 || other[0] != i {
			out = append(out, i)
		}
	}
	return out
}

// write makes the change.
func (d delta) write(c *nftables.Conn) error {
	t := table(d.table)
	for _, ch := range d.added {
		nc := c.AddChain(nftablesChain(t, ch))
		for _, rule := range ch.rules {
			c.AddRule(&nftables.Rule{Table: t, Chain: nc, Exprs: rule})
		}
	}
	// All that goes comes first: what is added may take its place.
	for _, s := range d.sets {
		ns := nftablesSet(t, s.set)
		err := inPortions(s.set.elements(s.removed), func(es []nftables.SetElement) error { return c.SetDeleteElements(ns, es) })
		if err != nil {
			return fmt.Errorf("set %s: %w", s.set.name, err)
		}
	}
	for _, s := range d.sets {
		ns := nftablesSet(t, s.set)
		err := inPortions(s.set.elements(s.added), func(es []nftables.SetElement) error { return c.SetAddElements(ns, es) })
		if err != nil {
			return fmt.Errorf("set %s: %w", s.set.name, err)
		}
	}
	for _, ch := range d.removed {
		c.DelChain(nftablesChain(t, ch))
	}
	return nil
}
