package plan

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
)

// need is what a peer takes of a gateway, or what a gateway has left.
type need struct {
	routes   int // their number
	config   int // bytes of the agent's configuration
	object   int // bytes of the gateway's object
	response int // bytes
	narrow   int // bytes of routes that come to each narrow configuration
}

// room is what a gateway has left for WireguardPeers.
type room struct {
	need

	// repeated is how many times a narrow configuration, or what is made of it,
	// stands in the response.
	repeated int
	// full tells that who asks for more has to fit as if it was new, where what is
	// more is what it asks for, and not what the gateway's owner allows.
	full bool
}

// room returns what the owner's own peers leave.
func (g *Gateway) room(in *Inputs, before before) room {
	r := room{need: need{
		routes:   maxAttachedRoutes,
		config:   maxPeersSize,
		object:   MaxObject - in.ObjectSize,
		response: MaxResponse - in.ObjectSize - in.ResponseSize - fixedSize,
		narrow:   corev1.MaxSecretSize,
	}, full: in.Full && before.limits != nil && *before.limits == g.limitsID()}
	own := slices.DeleteFunc(g.sites(), func(s site) bool { return s.peer.Attached })
	for i := range g.Peers {
		if p := &g.Peers[i]; !p.Attached {
			g.inline(p, own, &r)
		}
		if r.response < 0 {
			break // Nothing is left, whatever the others need.
		}
	}
	return r
}

// spend takes what a peer needs, whether there is enough or not.
func (r *room) spend(n need) {
	r.routes -= n.routes
	r.config -= n.config
	r.object -= n.object
	r.response -= n.response
	r.narrow -= n.narrow
}

// asking is a WireguardPeer that asks for room.
type asking struct {
	id     string
	rank   int  // the least is served first
	more   bool // it asks for routes that it did not have
	size   int  // of its part of the configuration, in bytes
	held   need // what it keeps with its address, even where it is rejected
	need   need // what it asks for beside
	reject func(reason, message string)
}

// Ranks of those that ask for room.
const (
	rankHas    = iota // had at least as much
	rankServed        // was served, and asks for more
	rankNew
)

// withinRoom rejects the WireguardPeers for which the gateway has no room. One
// that was served and asks for no more routes stays, as far as the configuration
// holds it, and where the gateway is full, one that asks for no more of anything. One that is rejected and has an address keeps it, and the others take
// part in nothing any more. withinRoom returns those of them that still have an
// entry in the status, and the duplicates that do. For the rest there is no room
// to be told, and they are refused.
func (g *Gateway) withinRoom(in *Inputs, before before, duplicates []Peer) (apart []Peer) {
	room := g.room(in, before)
	all := g.asking(before, duplicates, room.repeated)
	slices.SortStableFunc(all, func(a, b asking) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.id, b.id))
	})
	for _, a := range all {
		room.spend(a.held)
	}
	told, refused := map[string]bool{}, map[string]bool{}
	for _, a := range all {
		lacks := room.lacks(a)
		if lacks == "" {
			room.spend(a.need)
			g.Grown = g.Grown || a.rank == rankServed
			continue
		}
		a.reject(v1alpha1.ReasonTooLarge, lacks)
		switch {
		case a.held != need{}:
			// It keeps its address, and its entry is held with it.
		case entry.object <= room.object && entry.response <= room.response:
			room.spend(entry)
			told[a.id] = true
		default:
			refused[a.id] = true
		}
	}
	g.Refused += len(refused)
	g.PodClasses = slices.DeleteFunc(g.PodClasses, func(c PodClass) bool { return refused[c.ID()] })
	apart = slices.DeleteFunc(duplicates, func(p Peer) bool { return refused[p.ID()] })
	peers := make([]Peer, 0, len(g.Peers))
	for _, p := range g.Peers {
		switch {
		case p.Attached && told[p.ID()]:
			apart = append(apart, p)
		case p.Attached && refused[p.ID()]:
		default:
			peers = append(peers, p)
		}
	}
	g.Peers = peers
	return apart
}

// lacks says what there is not enough of for a WireguardPeer, and nothing where
// there is enough of everything.
func (r *room) lacks(a asking) (message string) {
	// Who needs nothing of something does not lack it, however little is left.
	beyond := func(needed, left int) bool { return needed > max(left, 0) }
	stays := a.rank == rankHas || a.rank == rankServed && !a.more && !r.full
	config := r.config
	if stays {
		config += servedSize
	}
	switch {
	case a.size > maxPeerSize:
		return fmt.Sprintf("the access rules of peer %q, within those of the gateway's owner, are %d bytes, and at most %d fit: use fewer or wider rules", a.id, a.size, maxPeerSize)
	case beyond(a.need.config, config):
		return fmt.Sprintf("the gateway's configuration has no room left for the access rules and routes of peer %q: use fewer of them, or another gateway", a.id)
	case stays:
		return ""
	case beyond(a.need.routes, r.routes):
		return fmt.Sprintf("WireguardPeers announce at most %d routes of one gateway, and there is no room left for those of peer %q: use fewer of them, or another gateway", maxAttachedRoutes, a.id)
	case beyond(a.need.narrow, r.narrow):
		return fmt.Sprintf("the configurations and QR codes of the gateway's own peers have no room left for the routes of peer %q: use fewer of them, or another gateway", a.id)
	case beyond(a.need.object, r.object-Reserve), beyond(a.need.response, r.response-Reserve):
		return fmt.Sprintf("the gateway has no room left for the settings and routes of peer %q: use fewer of them, or another gateway", a.id)
	default:
		return ""
	}
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

// askingPods is what a class of pods asks for. It has no address, so it holds
// nothing.
func askingPods(c *PodClass, before before) asking {
	a := asking{id: c.ID(), rank: rankNew, need: entry, reject: c.reject}
	if c.State == v1alpha1.PeerActive {
		a.size = size(c.PodClass)
		a.need = entry.withConfig(a.size)
		a.rank = before.rank(a.id, a.size, false)
	}
	return a
}

// askingPeer is what a client asks for. One without an address asks for one, too.
func (g *Gateway) askingPeer(p *Peer, before before, repeated int) asking {
	a := asking{id: p.ID(), rank: rankNew, need: entry.withConfig(g.reservationSize(p)), reject: p.reject}
	if _, ok := before.addresses[a.id]; ok {
		a.held, a.need = a.need, need{}
	}
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
