package plan

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
)

// ConditionSpecValid is the condition that more than fits makes false.
const ConditionSpecValid = "SpecValid"

// need is what a peer takes of a gateway, or what a gateway has left.
type need struct {
	routes   int // their number
	config   int // bytes of the agent's configuration
	object   int // bytes of the gateway's object
	response int // bytes
	narrow   int // bytes of routes that come to each narrow configuration
}

// take takes what a peer needs. Where there is not enough of something it takes
// nothing, and says of what.
func (n *need) take(p need) (lacks string) {
	switch {
	case p.routes > max(n.routes, 0):
		return fmt.Sprintf("WireguardPeers announce at most %d routes of one gateway, and there is no room left for those", maxAttachedRoutes)
	case p.config > n.config:
		return "the gateway's configuration has no room left for the access rules and routes"
	case p.narrow > max(n.narrow, 0):
		return "the configurations and QR codes of the gateway's own peers have no room left for the routes"
	case p.object > n.object || p.response > n.response:
		return "the gateway has no room left for the settings and routes"
	}
	n.spend(p)
	return ""
}

// spend takes it, whether there is enough or not.
func (n *need) spend(p need) {
	n.routes -= p.routes
	n.config -= p.config
	n.object -= p.object
	n.response -= p.response
	n.narrow -= p.narrow
}

// room is what a gateway has for WireguardPeers.
type room struct {
	need

	// kept is for the entries of those that find no room.
	kept need
	// repeated is how many times a narrow configuration, or what is made of it,
	// stands in the response.
	repeated int
}

// room returns what the owner's own peers leave.
func (g *Gateway) room(in *Inputs) room {
	r := room{need: need{
		routes:   maxAttachedRoutes,
		config:   maxPeersSize,
		object:   MaxObject - in.ObjectSize - maxRejectedSize,
		response: MaxResponse - in.ObjectSize - in.ResponseSize - fixedSize - maxRejectedSize,
		narrow:   corev1.MaxSecretSize,
	}}
	own := slices.DeleteFunc(g.sites(), func(s site) bool { return s.peer.Attached })
	for i := range g.Peers {
		if p := &g.Peers[i]; !p.Attached {
			g.inline(p, own, &r)
		}
		if r.response < -maxRejectedSize {
			break // Nothing is left, however much the others need.
		}
	}
	r.kept = need{object: maxRejectedSize + min(r.object, 0), response: maxRejectedSize + min(r.response, 0)}
	return r
}

// asking is a WireguardPeer that asks for room.
type asking struct {
	id     string
	rank   int  // the least is served first
	more   bool // who was served asks for routes that it did not have
	size   int  // of its part of the configuration, in bytes
	need   need
	held   need // by one that is rejected but keeps its address
	holds  bool
	reject func(reason, message string)
}

// Ranks of those that ask for room.
const (
	rankHas    = iota // had at least as much
	rankServed        // was served, and asks for more
	rankNew
)

// withinRoom rejects the WireguardPeers for which the gateway has no room. It
// returns those that take part in nothing any more, and have an entry in the
// status only: the duplicates are among them. For whom even that has no room is
// refused. Who was there and asks for no more stays, whatever the bounds say, and
// so does the address of everybody who has one.
func (g *Gateway) withinRoom(in *Inputs, before before, duplicates []Peer) (apart []Peer) {
	room := g.room(in)
	all := g.asking(before, duplicates, room.repeated)
	slices.SortStableFunc(all, func(a, b asking) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.id, b.id))
	})
	for i := range all {
		if a := &all[i]; a.holds && a.rank == rankNew {
			room.spend(a.held)
			a.need.spend(a.held)
		}
	}
	isApart, isRefused := map[string]bool{}, map[string]bool{}
	for _, a := range all {
		message := room.serve(a)
		if message == "" {
			continue
		}
		a.reject(v1alpha1.ReasonTooLarge, message)
		switch {
		case a.holds && a.rank == rankNew:
		case a.holds:
			room.spend(a.held)
		case room.take(entry) == "", room.kept.take(entry) == "":
			isApart[a.id] = true
		default:
			isRefused[a.id] = true
		}
	}
	g.Refused += len(isRefused)
	g.PodClasses = slices.DeleteFunc(g.PodClasses, func(c PodClass) bool { return isRefused[c.ID()] })
	apart = slices.DeleteFunc(duplicates, func(p Peer) bool { return isRefused[p.ID()] })
	peers := make([]Peer, 0, len(g.Peers))
	for _, p := range g.Peers {
		switch {
		case !p.Attached, !isApart[p.ID()] && !isRefused[p.ID()]:
			peers = append(peers, p)
		case isApart[p.ID()]:
			apart = append(apart, p)
		}
	}
	g.Peers = peers
	return apart
}

// serve takes what a WireguardPeer needs, or says why it cannot have it.
func (r *room) serve(a asking) (message string) {
	if a.size > maxPeerSize {
		return fmt.Sprintf("the access rules of peer %q, within those of the gateway's owner, are %d bytes, and at most %d fit: use fewer or wider rules", a.id, a.size, maxPeerSize)
	}
	if a.rank != rankNew && !a.more {
		if a.need.config > r.config+servedSize {
			return fmt.Sprintf("the gateway's configuration has no room left for peer %q: use fewer access rules, or another gateway", a.id)
		}
		r.spend(a.need)
		return ""
	}
	if lacks := r.take(a.need); lacks != "" {
		return fmt.Sprintf("%s of peer %q: use fewer of them, or another gateway", lacks, a.id)
	}
	return ""
}

// asking returns who asks for what.
func (g *Gateway) asking(before before, duplicates []Peer, repeated int) []asking {
	var all []asking
	for i := range duplicates {
		all = append(all, asking{id: duplicates[i].ID(), rank: rankNew, need: entry, reject: duplicates[i].reject})
	}
	for i := range g.PodClasses {
		all = append(all, askingPods(&g.PodClasses[i], before))
	}
	for i := range g.Peers {
		if p := &g.Peers[i]; p.Attached {
			all = append(all, g.askingPeer(p, before, repeated))
		}
	}
	return all
}

// askingPods is what a class of pods asks for. It has no address to keep, so it
// holds nothing.
func askingPods(c *PodClass, before before) asking {
	a := asking{id: c.ID(), rank: rankNew, need: entry, reject: c.reject}
	if c.State == v1alpha1.PeerActive {
		a.size = size(c.PodClass)
		a.need = entry.withConfig(a.size)
		a.rank = before.rank(a.id, a.size, false)
	}
	return a
}

func (g *Gateway) askingPeer(p *Peer, before before, repeated int) asking {
	a := asking{id: p.ID(), rank: rankNew, held: entry.withConfig(g.reservationSize(p)), reject: p.reject}
	_, a.holds = before.addresses[a.id]
	a.need = a.held
	if p.State == v1alpha1.PeerRejected {
		return a
	}
	if p.State == v1alpha1.PeerActive {
		a.size = deviceSize(p.device())
		a.need = a.need.withConfig(a.size + g.addressesSize())
	}
	a.need = a.need.withRoutes(p.Routes, repeated)
	a.more = !before.announcedAll(p)
	a.rank = before.rank(a.id, a.size, a.more)
	return a
}
