package spec

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// Peer is a client of the gateway.
type Peer struct {
	Namespace string
	Name      string

	PublicKey    *wireguard.Key // nil: it follows from the private key
	PrivateKey   SecretKey      // zero: derived, unless PublicKey is given
	Preshared    bool
	PresharedKey SecretKey // zero: derived, where Preshared
	KeyRotation  int64
	Pinned       []netip.Addr
	AllowedIPs   []netip.Prefix // empty: everything, for the pools in use
	Routes       []netip.Prefix
	Endpoint     string // host and port
	Keepalive    int
	DNS          *DNS // nil: the gateway's
	MTU          int  // 0: no cap
	Advertised   Endpoint
	Disabled     bool
	ExpiresAt    *time.Time
	Access       []wireguard.AccessRule
	QRCode       bool
}

func (p *parser) peers(path *field.Path, g *Gateway) {
	seen := make(map[string]bool, len(p.spec.Peers))
	g.Peers = make([]Peer, 0, len(p.spec.Peers))
	for i := range p.spec.Peers {
		at := path.Index(i)
		in := &p.spec.Peers[i]
		p.name(at.Child("name"), in.Name)
		if seen[in.Name] {
			p.errs = append(p.errs, field.Duplicate(at.Child("name"), in.Name))
		}
		seen[in.Name] = true
		peer := p.client(at, &in.Client, g)
		peer.Namespace, peer.Name = g.Namespace, in.Name
		g.Peers = append(g.Peers, peer)
	}
}

// client reads all of a peer but its name. A gateway without pools is one that
// is not known yet: what depends on them is not judged.
func (p *parser) client(path *field.Path, in *v1alpha1.Client, g *Gateway) Peer {
	out := Peer{
		KeyRotation: in.KeyRotation,
		Keepalive:   int(deref(in.PersistentKeepalive, int32(g.Keepalive))),
		DNS:         p.dns(path.Child("dns"), in.DNS),
		MTU:         int(in.MTU),
		Disabled:    in.Disabled,
		QRCode:      in.QRCode,
	}
	p.clientKeys(path, in, &out)
	p.pinned(path.Child("addresses"), in.Addresses, g, &out)
	out.AllowedIPs = p.cidrs(path.Child("allowedIPs"), in.AllowedIPs)
	p.routes(path.Child("routes"), in.Routes, g, &out)
	if in.Endpoint != "" {
		out.Endpoint = p.hostPort(path.Child("endpoint"), in.Endpoint)
	}
	p.between(path.Child("persistentKeepalive"), out.Keepalive, 0, wireguard.MaxKeepalive)
	if in.MTU != 0 {
		p.mtuWithin(path.Child("mtu"), out.MTU, g)
	}
	if a := in.AdvertisedEndpoint; a != nil {
		at := path.Child("advertisedEndpoint")
		out.Advertised = Endpoint{Host: p.host(at.Child("host"), a.Host), Port: int(a.Port)}
		p.port(at.Child("port"), a.Port)
	}
	if in.ExpiresAt != nil && !in.ExpiresAt.IsZero() {
		t := in.ExpiresAt.UTC()
		out.ExpiresAt = &t
		if t.Year() < 0 || t.Year() > maxYear {
			p.refuse(path.Child("expiresAt"), in.ExpiresAt.Format(time.RFC3339), "must be in the years 0 to 9999 of UTC: leave it out, and the peer never expires")
		}
	}
	out.Access = p.access(path.Child("access"), in.Access)
	return out
}

func (p *parser) clientKeys(path *field.Path, in *v1alpha1.Client, out *Peer) {
	if in.PublicKey != "" && in.PrivateKeySecretRef != nil {
		p.errs = append(p.errs, field.Forbidden(path.Child("privateKeySecretRef"),
			"cannot go together with publicKey: keep publicKey if the private key stays on its device, else privateKeySecretRef"))
	}
	if in.PublicKey != "" {
		k, err := wireguard.ParseKey(in.PublicKey)
		switch {
		case err != nil:
			p.refuse(path.Child("publicKey"), in.PublicKey, "is no public key: it is 44 characters of base64, as `wg pubkey` prints it")
		case k.IsZero():
			p.refuse(path.Child("publicKey"), in.PublicKey, "is all zeros, which is no key: use what `wg pubkey` prints")
		default:
			out.PublicKey = &k
		}
	}
	if r := in.PrivateKeySecretRef; r != nil {
		out.PrivateKey = p.secretKey(path.Child("privateKeySecretRef"), r.Name, r.Key, v1alpha1.DefaultPrivateKeyKey)
	}
	if k := in.PresharedKey; k != nil {
		at := path.Child("presharedKey")
		if k.Generate == (k.SecretRef != nil) {
			p.refuse(at, fmt.Sprintf("generate: %t", k.Generate), "set either generate: true or secretRef")
		}
		out.Preshared = true
		if k.SecretRef != nil {
			out.PresharedKey = p.secretKey(at.Child("secretRef"), k.SecretRef.Name, k.SecretRef.Key, v1alpha1.DefaultPresharedKeyKey)
		}
	}
	p.between(path.Child("keyRotation"), int(in.KeyRotation), 0, maxRotation)
}

// maxYear is the last that JSON has times of (RFC 3339).
const maxYear = 9999

func (p *parser) pinned(path *field.Path, addresses []string, g *Gateway, out *Peer) {
	for i, s := range addresses {
		at := path.Index(i)
		a, ok := p.address(at, s, s)
		if !ok {
			continue
		}
		pool, ok := poolOf(g, a)
		switch {
		case len(g.Pools) == 0:
		case !ok:
			p.refuse(at, s, "is in none of the gateway's pools, "+poolNames(g)+": use an address from there")
			continue
		case !pool.Assignable(a):
			p.refuse(at, s, fmt.Sprintf("is the network's, the gateway's or the broadcast address of %s: use another", pool.Prefix))
			continue
		}
		if r, ok := reserved(g, a); ok {
			p.refuse(at, s, fmt.Sprintf("is in spec.reservedAddresses (%s-%s): use another", r.First, r.Last))
			continue
		}
		for _, other := range out.Pinned {
			if other.BitLen() == a.BitLen() {
				p.refuse(at, s, fmt.Sprintf("is a second address of one family, beside %s: a peer has one of each", other))
			}
		}
		out.Pinned = append(out.Pinned, a)
	}
}

func poolOf(g *Gateway, a netip.Addr) (Pool, bool) {
	for _, pool := range g.Pools {
		if pool.Prefix.Contains(a) {
			return pool, true
		}
	}
	return Pool{}, false
}

func poolNames(g *Gateway) string {
	s := make([]string, len(g.Pools))
	for i, pool := range g.Pools {
		s[i] = pool.Prefix.String()
	}
	return strings.Join(s, " and ")
}

func reserved(g *Gateway, a netip.Addr) (Range, bool) {
	for _, r := range g.Reserved {
		if r.Contains(a) {
			return r, true
		}
	}
	return Range{}, false
}

func (p *parser) routes(path *field.Path, routes []string, g *Gateway, out *Peer) {
	for i, s := range routes {
		n, ok := p.cidr(path.Index(i), s)
		if !ok {
			continue
		}
		if message := checkRoute(n, g); message != "" {
			p.refuse(path.Index(i), s, message)
			continue
		}
		if other, ok := overlap(n, out.Routes); ok {
			p.refuse(path.Index(i), s, fmt.Sprintf("overlaps with %s in the same list: keep one of them", other))
			continue
		}
		out.Routes = append(out.Routes, n)
	}
}

// checkRoute says why nobody may announce a route, and nothing where a peer may: it
// must not take away what the gateway or the cluster needs.
func checkRoute(n netip.Prefix, g *Gateway) (message string) {
	if n.Bits() == 0 {
		return "is everything: name the networks that are really behind this peer"
	}
	for _, pool := range g.Pools {
		if pool.Prefix.Overlaps(n) {
			return fmt.Sprintf("overlaps with the gateway's pool %s: name a network that is behind this peer", pool.Prefix)
		}
	}
	if c, ok := overlap(n, g.Platform.ClusterCIDRs()); ok {
		return fmt.Sprintf("overlaps with the cluster's network %s: name a network that is behind this peer", c)
	}
	return ""
}

// hostPort parses a host and a port, and returns them in canonical form.
func (p *parser) hostPort(path *field.Path, s string) string {
	const want = "is no endpoint: write host and port, such as 198.51.100.9:51820 or [2001:db8::9]:51820"
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		p.refuse(path, s, want)
		return ""
	}
	host, message := parseHost(s[:i])
	port, err := strconv.ParseUint(s[i+1:], 10, 16)
	if message != "" || err != nil || port == 0 || (strings.Contains(host, ":") && s[0] != '[') {
		p.refuse(path, s, want)
		return ""
	}
	return JoinHostPort(host, int(port))
}
