package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// PeerInputs are all that the plan of a WireguardPeer depends on, once its
// gateway lets it in.
type PeerInputs struct {
	Peer     *spec.WireguardPeer
	Settings v1alpha1.Client
	Status   *v1alpha1.WireguardPeerStatus
	// UID is that of the composite resource, which will own the attachment.
	UID string

	Gateway       *spec.Gateway
	GatewayStatus *v1alpha1.WireguardGatewayStatus
	// Inline are the names of the gateway's inline peers.
	Inline []string
	// Seed is the data of the Secret that has the gateway's seed, nil where
	// there is none.
	Seed map[string][]byte

	// ObservedConfig is the data of the composed Secret with the configurations
	// for this gateway, nil where there is none.
	ObservedConfig map[string][]byte

	// Secrets are the data of those that the peer refers to, by name, in its own
	// namespace. One that does not exist is not in it.
	Secrets map[string]map[string][]byte
	Now     time.Time
}

// Client is what a WireguardPeer's client will be. It is rejected where the
// gateway rejects it, and has no addresses but those that the gateway has given
// it.
type Client struct {
	*Peer

	// Gateway is the client's view of its gateway, whose only peer it is.
	Gateway *Gateway
	// Attachment is nil where the client has no key that the gateway could know.
	Attachment *wireguard.Attachment
	// Settled tells that the gateway knows the client as it is now.
	Settled bool
	// Kept is the data of its Secret, which stays as it is until the gateway has
	// given the client an address of every pool. It is nil where it has, and where
	// there is no Secret yet.
	Kept map[string][]byte
}

// NewClient makes the plan of a WireguardPeer's client. The error is a
// *ConditionError.
func NewClient(in PeerInputs) (*Client, error) {
	keys, err := in.keys()
	if err != nil {
		return nil, err
	}
	settings, errs := spec.ParseClient(in.Peer.Name, in.Peer.Namespace, &in.Settings, in.Gateway)
	g := &Gateway{Gateway: in.Gateway, Keys: keys, Peers: []Peer{{Peer: &settings, Attached: true}}}
	for _, pool := range in.Gateway.Pools {
		g.Addresses = append(g.Addresses, netip.PrefixFrom(pool.Server(), pool.Prefix.Bits()))
	}
	c := &Client{Peer: &g.Peers[0], Gateway: g}

	g.peerStates(in.Now)
	if in.Gateway.Namespace == in.Peer.Namespace && slices.Contains(in.Inline, in.Peer.Name) {
		c.reject(v1alpha1.ReasonDuplicateName, duplicateName(c.Name))
	}
	if len(errs) > 0 {
		c.reject(v1alpha1.ReasonInvalid, explain(errs))
	}
	g.peerKeys(in.Secrets)
	c.Attachment = in.attachment(c.PublicKey)

	entry := in.entry()
	if entry != nil && entry.State == v1alpha1.PeerRejected {
		c.reject(entry.Reason, entry.Message)
	}
	c.Settled = entry != nil && entry.PublicKey == c.PublicKey.String()
	if c.State != v1alpha1.PeerRejected {
		if c.Addresses = in.addresses(entry); len(c.Addresses) == 0 && in.ObservedConfig != nil {
			c.Kept, c.Addresses = in.ObservedConfig, parseAddresses(in.Status.Addresses)
		}
	}

	g.Endpoints = in.endpoints(g)
	g.configure(c.Peer, in.sites())
	return c, nil
}

// keys derives the gateway's keys as the gateway does, from the seed that it
// last used. Without it nothing is changed: what the client has stays valid.
func (in *PeerInputs) keys() (Keys, error) {
	ref := in.Gateway.Keys.SeedSecret
	key := cmp.Or(ref.Key, names.DataSeed)
	condition := ConditionOf(in.Peer)
	of := fmt.Sprintf("the gateway %q in namespace %q", in.Gateway.Name, in.Gateway.Namespace)
	if in.Seed == nil {
		return Keys{}, &ConditionError{condition, reasonSeedMissing, of +
			" has no seed, which every key derives from; nothing was changed. Its owner finds what to do in its condition KeysReady"}
	}
	seed, err := wireguard.ParseSeed(in.Seed[key])
	if err != nil {
		return Keys{}, &ConditionError{condition, reasonSeedMalformed, of +
			" has a seed that cannot be read; nothing was changed. Its owner finds what to do in its condition KeysReady"}
	}
	if was := in.GatewayStatus.SeedID; was != "" && was != seed.ID() {
		return Keys{}, &ConditionError{condition, reasonSeedMismatch, of +
			" has another seed than the one that it runs with; nothing was changed. Its owner finds what to do in its condition KeysReady"}
	}
	k := Keys{Seed: seed, Private: seed.ServerKey(in.Gateway.Keys.Rotation)}
	k.Public = k.Private.Public()
	return k, nil
}

// attachment tells the gateway of the client: what its user wrote, and the
// public key instead of any private one.
func (in *PeerInputs) attachment(public wireguard.Key) *wireguard.Attachment {
	if public.IsZero() {
		return nil
	}
	settings := in.Settings
	settings.PublicKey, settings.PrivateKeySecretRef = public.String(), nil
	b, err := json.Marshal(settings)
	if err != nil {
		// Strings, numbers and times always encode.
		panic(err)
	}
	return in.attachmentOf(b)
}

// attachmentOf tells the gateway of the peer, with the given settings.
func (in *PeerInputs) attachmentOf(settings []byte) *wireguard.Attachment {
	return &wireguard.Attachment{
		Gateway:   id(in.Gateway.Namespace, in.Gateway.Name),
		Namespace: in.Peer.Namespace,
		Name:      in.Peer.Name,
		UID:       in.UID,
		Client:    settings,
	}
}

// entry is what the gateway says of the client, nil where it says nothing yet.
// An inline peer that had the same namespace and name has another Secret.
func (in *PeerInputs) entry() *v1alpha1.PeerStatus {
	for i := range in.GatewayStatus.Peers {
		e := &in.GatewayStatus.Peers[i]
		if e.Namespace == in.Peer.Namespace && e.Name == in.Peer.Name && !e.Pods &&
			(e.State == v1alpha1.PeerRejected || e.SecretName == names.PeerConfig(e.Name)) {
			return e
		}
	}
	return nil
}

// addresses are those that the gateway has given the client, one of every pool.
// Where one is missing there are none: half of them make no configuration.
func (in *PeerInputs) addresses(entry *v1alpha1.PeerStatus) []netip.Addr {
	if entry == nil {
		return nil
	}
	given := parseAddresses(entry.Addresses)
	var out []netip.Addr
	for _, pool := range in.Gateway.Pools {
		i := slices.IndexFunc(given, pool.Assignable)
		if i < 0 {
			return nil
		}
		out = append(out, given[i])
	}
	return out
}

// endpoints are those of the gateway's status. Only the gateway sees its own
// Service.
func (in *PeerInputs) endpoints(g *Gateway) Endpoints {
	e := g.endpoints(Inputs{})
	e.Direct = HostPort{}
	e.Awaited = ""
	if st := in.GatewayStatus.Endpoints; st != nil {
		host, port, err := net.SplitHostPort(st.Direct)
		if n, errPort := strconv.Atoi(port); err == nil && errPort == nil {
			e.Direct = HostPort{Host: host, Port: n}
			e.directPort = n
		}
	}
	return e
}

// sites are the networks behind the gateway's other peers.
func (in *PeerInputs) sites() []site {
	var ss []site
	for i := range in.GatewayStatus.Peers {
		e := &in.GatewayStatus.Peers[i]
		if e.Namespace == in.Peer.Namespace && e.Name == in.Peer.Name {
			continue
		}
		for _, n := range parsePrefixes(e.Routes) {
			ss = append(ss, site{net: n})
		}
	}
	return ss
}
