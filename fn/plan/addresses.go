package plan

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
)

// addresses hands out the addresses of one pool.
type addresses struct {
	pool     spec.Pool
	reserved []spec.Range
	owner    map[netip.Addr]string
}

// free tells whether a peer may still have the address.
func (a *addresses) free(ip netip.Addr) bool {
	_, taken := a.owner[ip]
	return !taken && a.assignable(ip)
}

func (a *addresses) assignable(ip netip.Addr) bool {
	if !a.pool.Assignable(ip) {
		return false
	}
	for _, r := range a.reserved {
		if r.Contains(ip) {
			return false
		}
	}
	return true
}

// peerAddresses gives every peer one address of each pool. The order decides
// who stays: incumbents that pin what they have, other incumbents, new pins,
// and new peers, never by their place in a list. So nobody moves because of
// somebody else.
func (g *Gateway) peerAddresses(before before) {
	g.Reservations = make(map[string][]netip.Addr, len(g.Peers))
	for _, pool := range g.Pools {
		a := &addresses{pool: pool, reserved: g.Reserved, owner: make(map[netip.Addr]string, len(g.Peers))}
		got := make([]netip.Addr, len(g.Peers))
		take := func(i int, ip netip.Addr) {
			a.owner[ip] = g.Peers[i].Name
			got[i] = ip
		}
		held := make([]netip.Addr, len(g.Peers))
		pin := make([]netip.Addr, len(g.Peers))
		for i := range g.Peers {
			held[i] = inPool(pool, before.addresses[g.Peers[i].ID()])
			pin[i] = inPool(pool, g.Peers[i].Pinned)
		}

		for i := range g.Peers {
			if pin[i].IsValid() && pin[i] == held[i] && a.free(pin[i]) {
				take(i, pin[i])
			}
		}
		for i := range g.Peers {
			if !pin[i].IsValid() && held[i].IsValid() && a.free(held[i]) {
				take(i, held[i])
			}
		}
		var lost []int
		for i := range g.Peers {
			switch {
			case got[i].IsValid() || !pin[i].IsValid():
			case a.free(pin[i]):
				take(i, pin[i])
			default:
				g.Peers[i].reject(v1alpha1.ReasonDuplicateAddress, fmt.Sprintf(
					"peer %q pins the address %s, which peer %q has: pin another address, or none", g.Peers[i].Name, pin[i], a.owner[pin[i]]))
				lost = append(lost, i)
			}
		}
		// Who asked for a taken address keeps the one from before, for when the
		// pin is taken back.
		for _, i := range lost {
			if held[i].IsValid() && a.free(held[i]) {
				take(i, held[i])
			}
		}
		for i := range g.Peers {
			if got[i].IsValid() || pin[i].IsValid() {
				continue
			}
			ip, ok := a.next(g.Peers[i].ID())
			if !ok {
				g.Peers[i].reject(v1alpha1.ReasonPoolExhausted, fmt.Sprintf(
					"the pool %s has no address left: remove peers, free some of spec.reservedAddresses, or use a larger pool", pool.Prefix))
				continue
			}
			take(i, ip)
		}
		for i, ip := range got {
			if ip.IsValid() {
				g.Peers[i].Addresses = append(g.Peers[i].Addresses, ip)
			}
		}
	}
	for i := range g.Peers {
		if p := &g.Peers[i]; len(p.Addresses) > 0 {
			g.Reservations[p.ID()] = p.Addresses
		}
	}
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
// all addresses still come back the same.
func (a *addresses) next(id string) (netip.Addr, bool) {
	bits := min(a.pool.Prefix.Addr().BitLen()-a.pool.Prefix.Bits(), maxHostBits)
	size := int64(1) << bits
	h := sha256.Sum256([]byte(id))
	start := int64(binary.BigEndian.Uint64(h[:8]) & uint64(size-1)) //nolint:gosec // Masked to at most 62 bits.
	for walked := int64(0); walked < size; {
		offset := (start + walked) & (size - 1)
		ip := a.at(offset)
		if a.free(ip) {
			return ip, true
		}
		walked += a.skip(ip, offset, size)
	}
	return netip.Addr{}, false
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
	o := uint64(offset) //nolint:gosec // Never negative.
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
