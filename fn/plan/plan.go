// Package plan decides what a gateway will be: its keys, and every peer's keys,
// addresses, endpoints and state. It is a pure function of what the user wrote
// and what is there, but for a clock and, once in a gateway's life, a random
// source.
package plan

import (
	"cmp"
	"io"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// Inputs are all that a plan depends on.
type Inputs struct {
	Spec   *spec.Gateway
	Status *v1alpha1.WireguardGatewayStatus

	// ObservedSeed is the data of the composed seed Secret, nil where there is
	// none.
	ObservedSeed map[string][]byte
	// ObservedConfig is the composed configuration of the agent, empty where
	// there is none.
	ObservedConfig []byte
	// ObservedService is the composed Service, nil where there is none.
	ObservedService *corev1.Service

	// RequiredSeed is the data of the Secret with the seed's name, nil where
	// there is none.
	RequiredSeed map[string][]byte
	// SeedFleeting tells whether that Secret is being deleted, or belongs to another
	// object, with which it goes.
	SeedFleeting bool
	// Secrets are the data of those that the user refers to, by name. One that
	// does not exist is not in it.
	Secrets map[string]map[string][]byte
	// Nodes are the cluster's, where a node's address is advertised.
	Nodes []corev1.Node
	// Attachments are the ConfigMaps by which WireguardPeers attach, or anything
	// else with their labels.
	Attachments []corev1.ConfigMap
	// Namespaces are those that the consent selects by their labels.
	Namespaces []corev1.Namespace

	// ObjectSize is how large the gateway's object is without its status, and
	// ResponseSize how large the response is without what the plan adds, in bytes.
	ObjectSize, ResponseSize int
	// Full tells that it all was too much, or nearly. A WireguardPeer that asks for
	// more than it had then has to fit as if it was new.
	Full bool

	Now    time.Time
	Random io.Reader
}

// Gateway is what a gateway will be.
type Gateway struct {
	*spec.Gateway

	Keys      Keys
	Addresses []netip.Prefix // the server's, with the length of its pool
	Peers     []Peer         // sorted by namespace and name
	// PodClasses are the WireguardPeers whose pods join by a label, sorted by
	// namespace and name.
	PodClasses []PodClass
	Endpoints  Endpoints
	// NextExpiry is when the next peer expires, zero where none does.
	NextExpiry time.Time
	// Reservations are the addresses of every peer that has any.
	Reservations map[string][]netip.Addr
	// Refused is the number of attachments that were not accepted.
	Refused int
	// Grown tells whether a WireguardPeer that was served got more than it had.
	Grown bool
}

// Peer is what a peer will be.
type Peer struct {
	*spec.Peer

	// Attached tells that it is a WireguardPeer, whose Secret is its own.
	Attached bool

	PublicKey    wireguard.Key
	PrivateKey   *wireguard.Key // nil: the device keeps it
	PresharedKey *wireguard.Key
	Addresses    []netip.Addr
	AllowedIPs   []netip.Prefix
	DNS          []string
	MTU          int
	Direct       string // empty where not known yet

	State   string
	Reason  string
	Message string
}

// ID names a peer among those of all namespaces.
func (p *Peer) ID() string { return id(p.Namespace, p.Name) }

// title names a peer in messages: those of the gateway itself by their name.
func (p *Peer) title() string {
	if p.Attached {
		return p.ID()
	}
	return p.Name
}

func id(namespace, name string) string { return namespace + "/" + name }

func (p *Peer) reject(reason, message string) {
	if p.State == v1alpha1.PeerRejected {
		return
	}
	p.State, p.Reason, p.Message = v1alpha1.PeerRejected, reason, message
}

// New makes the plan. The error is a *ConditionError.
func New(in Inputs) (*Gateway, error) {
	keys, err := in.keys()
	if err != nil {
		return nil, err
	}
	g := &Gateway{Gateway: in.Spec, Keys: keys}
	for _, pool := range in.Spec.Pools {
		g.Addresses = append(g.Addresses, netip.PrefixFrom(pool.Server(), pool.Prefix.Bits()))
	}
	g.Peers = make([]Peer, len(in.Spec.Peers))
	for i := range in.Spec.Peers {
		g.Peers[i].Peer = &in.Spec.Peers[i]
	}
	before := in.before()
	accepted, refused := in.attached(keys.Seed, before)
	g.Refused = refused
	duplicates := g.attach(accepted)
	g.sortPeers()

	g.peerStates(in.Now)
	g.withinConsent(accepted)
	g.peerKeys(in.Secrets)
	g.Endpoints = g.endpoints(in)
	var apart []Peer
	if len(accepted) > 0 {
		apart = g.withinRoom(&in, before, duplicates)
	}
	g.peerAddresses(before)
	g.distinctKeys(before)
	g.distinctRoutes(before)
	if err := g.peerConfigs(); err != nil {
		return nil, err
	}
	g.Peers = append(g.Peers, apart...)
	g.sortPeers()
	return g, nil
}

// sortPeers sorts by namespace and name, a WireguardPeer after the inline peer
// whose name it has.
func (g *Gateway) sortPeers() {
	slices.SortStableFunc(g.Peers, func(a, b Peer) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
}

// Rejected says why peers and classes of pods cannot be served, one message for
// each.
func (g *Gateway) Rejected() []string {
	var why []string
	for i := range g.Peers {
		if p := &g.Peers[i]; p.State == v1alpha1.PeerRejected {
			why = append(why, p.Message)
		}
	}
	for i := range g.PodClasses {
		if c := &g.PodClasses[i]; c.State == v1alpha1.PeerRejected {
			why = append(why, c.Message)
		}
	}
	return why
}

// Active returns the number of peers that may connect. Pods are not among them:
// the agent counts those.
func (g *Gateway) Active() int {
	n := 0
	for i := range g.Peers {
		if g.Peers[i].State == v1alpha1.PeerActive {
			n++
		}
	}
	return n
}

// peerStates tells who is disabled or expired, and who expires next.
func (g *Gateway) peerStates(now time.Time) {
	for i := range g.Peers {
		p := &g.Peers[i]
		switch {
		case p.Disabled:
			p.State = v1alpha1.PeerDisabled
		case p.ExpiresAt != nil && !now.Before(*p.ExpiresAt):
			p.State = v1alpha1.PeerExpired
		default:
			p.State = v1alpha1.PeerActive
			if p.ExpiresAt != nil && (g.NextExpiry.IsZero() || p.ExpiresAt.Before(g.NextExpiry)) {
				g.NextExpiry = *p.ExpiresAt
			}
		}
	}
}
