package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// Estimates of what is not measured, in bytes. They err on the high side.
const (
	entrySize     = 1 << 10   // a WireguardPeer in the status, without routes: its messages are short
	inlineSize    = 400       // an inline peer in the status, without names and routes
	secretSize    = 400       // its Secret, without names and configurations
	fixedSize     = 128 << 10 // the objects that every gateway has, beside what its spec says
	minQRCode     = 4500      // a QR code as an image and as text, without its content
	qrCodePerByte = 28        // what each byte of its content adds
)

// entry is what a WireguardPeer needs that only has an entry in the status.
var entry = need{object: entrySize, response: entrySize}

// withConfig adds so many bytes of the configuration.
func (n need) withConfig(size int) need {
	n.config += size
	n.response += inBase64(size)
	return n
}

// withRoutes adds routes, to the status and to the narrow configurations.
func (n need) withRoutes(routes []netip.Prefix, repeated int) need {
	text := textSize(routes)
	n.routes += len(routes)
	n.object += text
	n.response += text + inBase64(text*repeated)
	n.narrow += text
	return n
}

// inline takes what an inline peer needs.
func (g *Gateway) inline(p *Peer, sites []site, r *room) {
	config := g.reservationSize(p)
	if p.State == v1alpha1.PeerActive {
		config += deviceSize(p.device()) + g.addressesSize()
	}
	names := len(p.Namespace) + 2*len(p.Name) + len(g.Name)
	status := inlineSize + names + textSize(p.Routes)
	r.spend(need{object: status, response: status}.withConfig(config))
	if p.State == v1alpha1.PeerRejected {
		return
	}
	g.configure(p, sites)
	// A direct endpoint that is not known yet may come.
	direct := len(g.ClientConfig(p, cmp.Or(p.Direct, g.Endpoints.Internal.String())).String()) + g.addressesSize()
	secret, copies := direct+len(g.ClientConfig(p, g.Endpoints.Internal.String()).String())+g.addressesSize(), 2
	if g.Tunnel != nil {
		secret, copies = secret+len(g.TunnelConfig(p).String())+g.addressesSize(), copies+1
	}
	if p.QRCode && direct-g.addressesSize() <= MaxQRCode {
		secret, copies = secret+minQRCode+qrCodePerByte*direct, copies+qrCodePerByte
	}
	r.response -= secretSize + 2*names + inBase64(secret)
	if !g.grows(p) {
		return
	}
	r.repeated += copies
	r.narrow = min(r.narrow, max(0, corev1.MaxSecretSize-secret)/copies)
	if p.QRCode && direct <= MaxQRCode {
		r.narrow = min(r.narrow, MaxQRCode-direct)
	}
}

// grows tells whether routes of WireguardPeers come to the configurations of the
// peer.
func (g *Gateway) grows(p *Peer) bool {
	return g.PeerToPeer && len(p.Peer.AllowedIPs) > 0 &&
		!containsAll(p.Peer.AllowedIPs, g.Consent.Limits.Routes)
}

func containsAll(outer, inner []netip.Prefix) bool {
	within := spec.Limits{Routes: outer}.Within
	return !slices.ContainsFunc(inner, func(n netip.Prefix) bool { return !within(n) })
}

// reservationSize is how many bytes of the configuration a peer takes that is not
// on the device: it keeps its addresses there.
func (g *Gateway) reservationSize(p *Peer) int {
	return len(p.ID()) + len(`"":[],`) + g.addressesSize()
}

// addressesSize is how many bytes the addresses of a peer take at most. They are
// not known yet.
func (g *Gateway) addressesSize() int {
	n := 0
	for _, pool := range g.Pools {
		n += len(`"",`) + len("/128") + len(pool.Last().StringExpanded())
	}
	return n
}

// textSize is how many bytes routes take in a status or in a configuration, with
// what stands between them.
func textSize(routes []netip.Prefix) int {
	const between = 8
	n := 0
	for _, r := range routes {
		n += len(r.String()) + between
	}
	return n
}

// inBase64 is how many bytes of a response so many bytes of a Secret take.
func inBase64(n int) int { return (n + 2) / 3 * 4 }

// deviceSize is how many bytes of the configuration a peer takes, without its
// addresses.
func deviceSize(p wireguard.Peer) int {
	p.Addresses = nil
	return size(p)
}

// size is how many bytes of the configuration a peer or a class of pods takes.
func size(p any) int { return len(encoded(p)) }

// limitsID identifies what the owner lets WireguardPeers reach, and is empty where
// that is everything.
func (g *Gateway) limitsID() string {
	if len(g.Consent.Limits.Access) == 0 {
		return ""
	}
	const length = 8
	sum := sha256.Sum256(encoded(g.Consent.Limits.Access))
	return hex.EncodeToString(sum[:length])
}

func encoded(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		// Keys, addresses and rules always encode.
		panic(err)
	}
	return b
}
