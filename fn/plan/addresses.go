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
	owner    map[netip.Addr]*Peer
	claims   []claim
}

// claim is what one peer has, wants and gets. An address that is not valid is
// none.
type claim struct {
	peer *Peer
	held netip.Addr // from before
	pin  netip.Addr
	got  netip.Addr
}

// peerAddresses gives every peer one address of each pool.
func (g *Gateway) peerAddresses(before before) {
	g.Reservations = make(map[string][]netip.Addr, len(g.Peers))
	for _, pool := range g.Pools {
		a := &addresses{
			pool:     pool,
			reserved: g.Reserved,
			owner:    make(map[netip.Addr]*Peer, len(g.Peers)),
			claims:   make([]claim, len(g.Peers)),
		}
		for i := range g.Peers {
			p := &g.Peers[i]
			a.claims[i] = claim{peer: p, held: inPool(pool, before.addresses[p.ID()]), pin: inPool(pool, p.Pinned)}
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

// settle decides who gets what. The order decides who stays: incumbents that
// pin what they have, other incumbents, new pins, and new peers, sorted by
// namespace and name, never by their place in a list. So nobody moves because
// of somebody else.
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
	for i := range a.claims {
		if c := &a.claims[i]; c.pin.IsValid() && !c.got.IsValid() && !a.take(c, c.pin) {
			c.peer.reject(v1alpha1.ReasonDuplicateAddress, fmt.Sprintf(
				"peer %q pins the address %s, which peer %q has: pin another address, or none", c.peer.Name, c.pin, a.owner[c.pin].Name))
		}
	}
	// Who asked for a taken address keeps the one from before, for when the pin
	// is taken back.
	for i := range a.claims {
		if c := &a.claims[i]; c.pin.IsValid() && !c.got.IsValid() {
			a.take(c, c.held)
		}
	}
	for i := range a.claims {
		if c := &a.claims[i]; !c.pin.IsValid() && !c.got.IsValid() && !a.take(c, a.next(c.peer.ID())) {
			c.peer.reject(v1alpha1.ReasonPoolExhausted, fmt.Sprintf(
				"the pool %s has no address left: remove peers, free some of spec.reservedAddresses, or use a larger pool", a.pool.Prefix))
		}
	}
}

// take gives the address to the peer, if it is one and free.
func (a *addresses) take(c *claim, ip netip.Addr) bool {
	if !ip.IsValid() || !a.free(ip) {
		return false
	}
	c.got = ip
	a.owner[ip] = c.peer
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

// maxHostBits bounds how much of a pool is handed out, so that offsets into it
// and their sums fit an int64.
const maxHostBits = 62

// next returns the address that a hash of the peer's identity picks, or the
// first free one onward from there. So the allocation can be lost, and nearly
// all addresses still come back the same. It is not valid where none is free.
func (a *addresses) next(id string) netip.Addr {
	bits := min(a.pool.Prefix.Addr().BitLen()-a.pool.Prefix.Bits(), maxHostBits)
	size := int64(1) << bits
	h := sha256.Sum256([]byte(id))
	start := int64(binary.BigEndian.Uint64(h[:8]) & uint64(size-1))
	for walked := int64(0); walked < size; {
		offset := (start + walked) & (size - 1)
		ip := a.at(offset)
		if a.free(ip) {
			return ip
		}
		walked += a.skip(ip, offset, size)
	}
	return netip.Addr{}
}

// skip returns how far to go on from an address that is not free: past the
// whole of a reserved range, which may be most of a large pool.
func (a *addresses) skip(ip netip.Addr, offset, size int64) int64 {
	for _, r := range a.reserved {
		if !r.Contains(ip) {
			continue
		}
		if last := a.at(size - 1); last.Less(r.Last) {
			return size - offset
		}
		return a.offset(r.Last) - offset + 1
	}
	return 1
}

// at returns the address at an offset into the pool. The pool's own host bits
// are zero, so nothing carries.
func (a *addresses) at(offset int64) netip.Addr {
	b := a.pool.Prefix.Addr().AsSlice()
	o := uint64(offset)
	for i := len(b) - 1; i >= 0 && o > 0; i-- {
		b[i] |= byte(o)
		o >>= 8
	}
	ip, _ := netip.AddrFromSlice(b)
	return ip
}

// offset is the inverse of at.
func (a *addresses) offset(ip netip.Addr) int64 {
	base, b := a.pool.Prefix.Addr().AsSlice(), ip.AsSlice()
	var o int64
	for i := max(0, len(b)-8); i < len(b); i++ {
		o = o<<8 | int64(b[i]&^base[i])
	}
	return o
}
