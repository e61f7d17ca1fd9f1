package plan

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
)

// distinctRoutes rejects peers that announce a network of which another has
// some: traffic can go to one of them only. Peers that are off the device are in
// nobody's way, so that one site can stand in for another.
func (g *Gateway) distinctRoutes(before before) {
	// Who had what is decided for each network below, not for all of a peer.
	asking := g.settledFirst(before, func(*Peer) bool { return false })
	asking = slices.DeleteFunc(asking, func(p *Peer) bool { return len(p.Routes) == 0 || p.State != v1alpha1.PeerActive })

	var nets []netip.Prefix
	for _, p := range asking {
		nets = append(nets, p.Routes...)
		nets = append(nets, before.routes[p.ID()]...)
	}
	d := routeDecision{networks: nest(nets), judged: make(map[*Peer]bool, len(asking))}
	for _, p := range asking {
		for _, n := range before.keptRoutes(p) {
			d.networks[n].keep(p)
		}
	}
	for _, p := range asking {
		d.judge(p)
	}
	// Peers are rejected only now that it is known who has what, so that messages
	// are the same in every pass.
	for _, p := range asking {
		for _, r := range p.Routes {
			if o := d.networks[r].overlapping(); o != nil && o.peer != p {
				p.reject(v1alpha1.ReasonRouteConflict, fmt.Sprintf(
					"the route %s of peer %q overlaps with %s of peer %q: a network can be behind one peer only", r, p.title(), o.net, o.peer.title()))
			}
		}
	}
}

// routeDecision is who gets the networks that are asked for.
type routeDecision struct {
	networks map[netip.Prefix]*network
	judged   map[*Peer]bool
}

// judge gives a peer all networks that it asks for, if others have none of them.
// Peers that had some of them until now are judged first, so that nobody loses a
// network to a peer that asks for more than it had.
func (d *routeDecision) judge(p *Peer) {
	if d.judged[p] {
		return
	}
	d.judged[p] = true
	for _, r := range p.Routes {
		for n := d.networks[r]; n != nil; n = n.around {
			for _, other := range n.keeps {
				d.judge(other)
			}
		}
		for _, other := range d.networks[r].keepWithin {
			d.judge(other)
		}
	}
	for _, r := range p.Routes {
		if d.networks[r].overlapping() != nil {
			return
		}
	}
	for _, r := range p.Routes {
		d.networks[r].take(p)
	}
}

// network is one of all that peers ask for or have. Those that overlap with it
// are around it or within it, so that it need not be compared with every other.
type network struct {
	net    netip.Prefix
	around *network // the smallest that it is a part of, nil where there is none

	keeps, keepWithin  []*Peer // who had it until now, or a part of it
	taken, takenWithin *site
}

// nest returns the networks, each with those around it.
func nest(nets []netip.Prefix) map[netip.Prefix]*network {
	// What is around others sorts right before them.
	slices.SortFunc(nets, netip.Prefix.Compare)
	out := make(map[netip.Prefix]*network, len(nets))
	var around *network
	for _, n := range slices.Compact(nets) {
		for around != nil && !around.net.Overlaps(n) {
			around = around.around
		}
		around = &network{net: n, around: around}
		out[n] = around
	}
	return out
}

// keep notes that the peer had the network until now.
func (n *network) keep(p *Peer) {
	n.keeps = append(n.keeps, p)
	for o := n.around; o != nil; o = o.around {
		o.keepWithin = append(o.keepWithin, p)
	}
}

// take gives the network to the peer. Networks around it remember the first one
// that is taken within them, by address and not by the order of taking: messages
// name it.
func (n *network) take(p *Peer) {
	n.taken = &site{peer: p, net: n.net}
	for o := n.around; o != nil; o = o.around {
		if o.takenWithin == nil || n.net.Compare(o.takenWithin.net) < 0 {
			o.takenWithin = n.taken
		}
	}
}

// overlapping returns a network that is taken and overlaps with this one, nil
// where there is none.
func (n *network) overlapping() *site {
	for o := n; o != nil; o = o.around {
		if o.taken != nil {
			return o.taken
		}
	}
	return n.takenWithin
}
