// Package firewall keeps one nftables table: on a gateway the one that decides
// where peers' traffic may go, in a pod that joins one the one that lets
// nothing out but through the tunnel. Render and RenderLockdown compute them,
// Firewall.Ensure puts one in place in one transaction. Tables and chains of others are never
// read or written, and their rules keep deciding too: in nftables a packet has
// to be accepted by every table.
package firewall

import (
	"math"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
)

// Ruleset is the whole content of the table.
type Ruleset struct {
	table string
	// egress is whether there is a table of the same name for what leaves by
	// interfaces, which chains with a device belong to.
	egress   bool
	counters []string // named ones, which rules refer to
	sets     []set
	chains   []chain
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

// chain is a list of rules. With a hook it is a base chain, which drops or
// accepts what no rule decides. A chain whose name
// is made from its rules is never changed, only added and removed.
type chain struct {
	name     string
	hook     *nftables.ChainHook
	kind     nftables.ChainType
	priority int
	drops    bool
	device   string
	hashed   bool
	rules    []rule
}

// Priorities of the base chains, in the order in which chains of one hook run.
const (
	// priorityMangle is ahead of every filter. In the output hook the kernel
	// looks for the route again where a mark has changed.
	priorityMangle = -150 // NF_IP_PRI_MANGLE

	// priorityMark is after the kernel has put back the destination of an answer
	// that was masqueraded (-100), which tells it from a packet to the gateway.
	priorityMark = -90

	// priorityFilter is ahead of iptables' filters (0), so that a packet we drop
	// is not counted or logged by rules that come later.
	priorityFilter = -10

	priorityWall        = 0   // NF_IP_PRI_FILTER
	priorityOutputGuard = 10  // after gluetun's own rules
	prioritySourceNAT   = 100 // NF_IP_PRI_NAT_SRC
	priorityAfterNAT    = 300 // after every source NAT
	priorityLast        = math.MaxInt32
)

// rule is the expressions of one rule, in the order of evaluation.
type rule []expr.Any

// elements returns intervals in the form of the kernel: each is its first
// address, and the one after its last as end. The last address of all needs no
// end.
func (s set) elements(intervals []interval) []nftables.SetElement {
	out := make([]nftables.SetElement, 0, 2*len(intervals))
	for _, i := range intervals {
		e := nftables.SetElement{Key: i.first.AsSlice()}
		if s.verdicts {
			e.VerdictData = &expr.Verdict{Kind: expr.VerdictAccept}
			if i.chain != acceptChain {
				e.VerdictData = &expr.Verdict{Kind: expr.VerdictGoto, Chain: i.chain}
			}
		}
		out = append(out, e)
		if after := i.last.Next(); after.IsValid() {
			out = append(out, nftables.SetElement{Key: after.AsSlice(), IntervalEnd: true})
		}
	}
	return out
}
