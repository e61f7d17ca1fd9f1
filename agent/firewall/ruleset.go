// Package firewall keeps one nftables table that decides where peers' traffic
// may go. Render computes the table from the configuration, Firewall.Ensure
// puts it in place in one transaction. Tables and chains of others are never
// read or written, and their rules keep deciding too: in nftables a packet has
// to be accepted by every table.
package firewall

import (
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// Ruleset is the whole content of the table.
type Ruleset struct {
	sets   []set
	chains []chain
}

// set is a named set of addresses of one family, or, where its intervals name
// chains, a map from addresses to verdicts.
type set struct {
	name      string
	v4        bool
	verdicts  bool
	intervals []interval
}

// acceptChain stands for the verdict accept in a map of verdicts.
const acceptChain = ""

// chain is a list of rules. With a hook it is a base chain.
type chain struct {
	name     string
	hook     *nftables.ChainHook
	kind     nftables.ChainType
	priority int
	rules    []rule
}

// rule is the expressions of one rule, in the order of evaluation.
type rule []expr.Any

// keyOf returns the bytes by which nftables compares an address.
func keyOf(a netip.Addr) []byte {
	return a.AsSlice()
}

// elements returns a set's elements in the form of the kernel: each interval
// is its first address, and the one after its last as end. The last address of
// all needs no end.
func (s set) elements() []nftables.SetElement {
	out := make([]nftables.SetElement, 0, 2*len(s.intervals))
	for _, i := range s.intervals {
		e := nftables.SetElement{Key: keyOf(i.first)}
		if s.verdicts {
			e.VerdictData = &expr.Verdict{Kind: expr.VerdictAccept}
			if i.chain != acceptChain {
				e.VerdictData = &expr.Verdict{Kind: expr.VerdictGoto, Chain: i.chain}
			}
		}
		out = append(out, e)
		if after := i.last.Next(); after.IsValid() {
			out = append(out, nftables.SetElement{Key: keyOf(after), IntervalEnd: true})
		}
	}
	return out
}
