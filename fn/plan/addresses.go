package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
)

// addresses hands out the addresses of one pool.
type addresses struct {
	pool     spec.Pool
	reserved []spec.Range
	owner    map[netip.Addr]*claim
	claims   []claim
}

// claim is what one peer has, wants and gets. An address that is not valid is
// none.
type claim struct {
	peer   *Peer
	served bool       // until now
	held   netip.Addr // from before
	pin    netip.Addr
	got    netip.Addr
}

// peerAddresses gives every peer one address of each pool.
func (g *Gateway) peerAddresses(before before) {
	g.Reservations = make(map[string][]netip.Addr, len(g.Peers))
	for _, pool := range g.Pools {
		a := &addresses{
			pool:     pool,
			reserved: g.Reserved,
			owner:    make(map[netip.Addr]*claim, len(g.Peers)),
			claims:   make([]claim, len(g.Peers)),
		}
		for i := range g.Peers {
			p := &g.Peers[i]
			a.claims[i] = claim{peer: p, served: before.served(p.ID()), held: inPool(pool, before.addresses[p.ID()]), pin: inPool(pool, p.Pinned)}
		}
		a.settle()
		for _, c := range a.claims {
			if c.got.IsValid() {
				c.peer.Addresses = append(c.peer.Addresses, c.got)
				g.Reservations[c.peer.ID()] = c.peer.Addresses
			}
		}
	}
}

// settle decides who gets what. It asks incumbents that pin what they have first,
// then other incumbents, then new pins (of peers that were served before those of
// others), and then new peers. Within each of these it goes by namespace and name,
// never by a place in a list. So nobody moves because of somebody else.
func (a *addresses) settle() {
	for i := range a.claims {
		if c := &a.claims[i]; c.pin == c.held {
			a.take(c, c.pin)
		}
	}
	for i := range a.claims {
		if c := &a.claims[i]; !c.pin.IsValid() {
			a.take(c, c.held)
		}
	}
	for _, served := range []bool{true, false} {
		for i := range a.claims {
			if c := &a.claims[i]; c.moves() && c.served == served && !a.take(c, c.pin) {
				a.goBack(c)
			}
		}
	}
	for i := range a.claims {
		if c := &a.claims[i]; c.pin.IsValid() && c.got != c.pin {
			c.peer.reject(v1alpha1.ReasonDuplicateAddress, fmt.Sprintf(
				"peer %q pins the address %s, which peer %q has: pin another address, or none", c.peer.title(), c.pin, a.owner[c.pin].peer.title()))
		}
	}
	for i := range a.claims {
		if c := &a.claims[i]; !c.pin.IsValid() && !c.got.IsValid() && !a.take(c, a.next(c.peer.ID())) {
			c.peer.reject(v1alpha1.ReasonPoolExhausted, fmt.Sprintf(
				"the pool %s has no address left: remove peers, free some of spec.reservedAddresses, or use a larger pool", a.pool.Prefix))
		}
	}
}

// moves tells whether the peer asks for another address than it had.
func (c *claim) moves() bool { return c.pin.IsValid() && c.pin != c.held }

// goBack gives a peer that does not get its pin the address that it had before,
// for when the pin is removed. A peer that was given that address meanwhile goes
// back to its own, too.
func (a *addresses) goBack(c *claim) {
	for {
		other := a.owner[c.held]
		if other == nil {
			a.take(c, c.held)
			return
		}
		if !other.moves() || other.pin != c.held {
			return
		}
		delete(a.owner, c.held)
		other.got = netip.Addr{}
		a.take(c, c.held)
		c = other
	}
}

// take gives the address to the peer, if it is one and free.
func (a *addresses) take(c *claim, ip netip.Addr) bool {
	if !ip.IsValid() || !a.free(ip) {
		return false
	}
	c.got = ip
	a.owner[ip] = c
	return true
}

// free tells whether a peer may still have the address.
func (a *addresses) free(ip netip.Addr) bool {
	if _, taken := a.owner[ip]; taken || !a.pool.Assignable(ip) {
		return false
	}
	return !slices.ContainsFunc(a.reserved, func(r spec.Range) bool { return r.Contains(ip) })
}

func inPool(pool spec.Pool, ips []netip.Addr) netip.Addr {
	for _, ip := range ips {
		if pool.Prefix.Contains(ip) {
			return ip
		}
	}
	return netip.Addr{}
}

// next returns the address that a hash of the peer's identity picks, or the
// first free one onward from there, none where none is free. So the allocation
// can be lost, and nearly all addresses still come back the same.
func (a *addresses) next(id string) netip.Addr {
	start := a.pick(id)
	for ip := start; a.pool.Prefix.Contains(ip); ip = a.after(ip) {
		if a.free(ip) {
			return ip
		}
	}
	for ip := a.pool.Prefix.Addr(); ip.Less(start); ip = a.after(ip) {
		if a.free(ip) {
			return ip
		}
	}
	return netip.Addr{}
}

// maxHostBits bounds how much of a large pool hashes pick from. It is frozen:
// other bits would be other addresses.
const maxHostBits = 62

// pick sets host bits of the pool to a hash. The pool's own are zero, so
// nothing carries.
func (a *addresses) pick(id string) netip.Addr {
	ip := a.pool.Prefix.Addr().AsSlice()
	bits := min(len(ip)*8-a.pool.Prefix.Bits(), maxHostBits)
	h := sha256.Sum256([]byte(id))
	host := binary.BigEndian.Uint64(h[:8]) & (1<<bits - 1)
	for i := len(ip) - 1; i >= 0 && host > 0; i-- {
		ip[i] |= byte(host)
		host >>= 8
	}
	start, _ := netip.AddrFromSlice(ip)
	return start
}

// after returns the next address that is worth a look: past the whole of a
// reserved range, which may be most of a large pool. After the last of all
// addresses it is none.
func (a *addresses) after(ip netip.Addr) netip.Addr {
	for _, r := range a.reserved {
		if r.Contains(ip) {
			ip = r.Last
		}
	}
	return ip.Next()
}
