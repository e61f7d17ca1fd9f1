package device

import (
	"bytes"
	"net/netip"
	"slices"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/ipnet"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// peer is what we decide about a peer on the device. Its endpoint is not part
// of it: the device learns that from the peer's own packets.
type peer struct {
	preshared  wgtypes.Key
	keepalive  time.Duration
	allowedIPs []netip.Prefix // sorted
}

func (p peer) equal(q peer) bool {
	return p.preshared == q.preshared && p.keepalive == q.keepalive && slices.Equal(p.allowedIPs, q.allowedIPs)
}

// wanted returns the peers of a configuration by public key.
func wanted(peers []wireguard.Peer) map[wgtypes.Key]peer {
	out := make(map[wgtypes.Key]peer, len(peers))
	for _, p := range peers {
		w := peer{keepalive: time.Duration(p.PersistentKeepalive) * time.Second, allowedIPs: p.AllowedIPs()}
		slices.SortFunc(w.allowedIPs, comparePrefixes)
		if p.PresharedKey != nil {
			w.preshared = p.PresharedKey.Key
		}
		out[p.PublicKey.Key] = w
	}
	return out
}

// present returns the peers that a device has.
func present(peers []wgtypes.Peer) map[wgtypes.Key]peer {
	out := make(map[wgtypes.Key]peer, len(peers))
	for _, p := range peers {
		w := peer{preshared: p.PresharedKey, keepalive: p.PersistentKeepaliveInterval}
		for _, n := range p.AllowedIPs {
			w.allowedIPs = append(w.allowedIPs, ipnet.Prefix(&n))
		}
		slices.SortFunc(w.allowedIPs, comparePrefixes)
		out[p.PublicKey] = w
	}
	return out
}

// revocations returns what has to be taken from the device: peers, and
// addresses of peers, that are no longer wanted.
func revocations(have, want map[wgtypes.Key]peer) []wgtypes.PeerConfig {
	var out []wgtypes.PeerConfig
	for k, h := range have {
		w, wanted := want[k]
		if !wanted {
			out = append(out, wgtypes.PeerConfig{PublicKey: k, Remove: true, UpdateOnly: true})
			continue
		}
		if slices.Equal(h.allowedIPs, w.allowedIPs) {
			continue
		}
		kept := slices.DeleteFunc(slices.Clone(h.allowedIPs), func(p netip.Prefix) bool { return !slices.Contains(w.allowedIPs, p) })
		if len(kept) < len(h.allowedIPs) {
			out = append(out, wgtypes.PeerConfig{PublicKey: k, UpdateOnly: true, ReplaceAllowedIPs: true, AllowedIPs: ipnet.List(kept)})
		}
	}
	return sorted(out)
}

// grants returns what the device has to be given: new peers, and what is new
// or different of the others. Peers that are as wanted are not mentioned, so
// that their sessions and endpoints stay.
func grants(have, want map[wgtypes.Key]peer) []wgtypes.PeerConfig {
	var out []wgtypes.PeerConfig
	for k, w := range want {
		h, there := have[k]
		if there && h.equal(w) {
			continue
		}
		c := wgtypes.PeerConfig{PublicKey: k, UpdateOnly: there}
		if h.preshared != w.preshared {
			c.PresharedKey = &w.preshared
		}
		if h.keepalive != w.keepalive {
			c.PersistentKeepaliveInterval = &w.keepalive
		}
		added := slices.DeleteFunc(slices.Clone(w.allowedIPs), func(p netip.Prefix) bool { return slices.Contains(h.allowedIPs, p) })
		c.AllowedIPs = ipnet.List(added)
		if !there || c.PresharedKey != nil || c.PersistentKeepaliveInterval != nil || len(added) > 0 {
			out = append(out, c)
		}
	}
	return sorted(out)
}

// sorted makes the order of changes the same each time.
func sorted(changes []wgtypes.PeerConfig) []wgtypes.PeerConfig {
	slices.SortFunc(changes, func(a, b wgtypes.PeerConfig) int { return bytes.Compare(a.PublicKey[:], b.PublicKey[:]) })
	return changes
}

func comparePrefixes(a, b netip.Prefix) int {
	if c := a.Addr().Compare(b.Addr()); c != 0 {
		return c
	}
	return a.Bits() - b.Bits()
}
