package wireguard

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"
)

// Data keys of the Secret <gateway>-wireguard.config.
const (
	// ConfigKey is the data key of the agent's configuration.
	ConfigKey = "config.json"
	// PostRulesKey is the data key of gluetun's hook for firewall rules.
	PostRulesKey = "post-rules.txt"
	// GluetunAuthKey is the data key of gluetun's control server role.
	GluetunAuthKey = "gluetun-auth.json"
)

// How the device is made.
const (
	ImplementationAuto      = "Auto" // the kernel's if it has one, else userspace
	ImplementationKernel    = "Kernel"
	ImplementationUserspace = "Userspace"
)

// Where peers' traffic leaves the gateway.
const (
	EgressDirect  = "Direct"  // through the pod's own network
	EgressGluetun = "Gluetun" // through gluetun's tunnel, or not at all
)

// GatewayConfig is what the gateway's agent keeps true.
type GatewayConfig struct {
	Version int `json:"version"`
	// Gateway is the gateway's namespace and name, joined by a slash.
	Gateway    string `json:"gateway"`
	PrivateKey Key    `json:"privateKey"`
	ListenPort int    `json:"listenPort"`
	MTU        int    `json:"mtu"`
	// Addresses are the server's own, each with the prefix length of its pool.
	Addresses      []netip.Prefix `json:"addresses"`
	Implementation string         `json:"implementation"`
	PeerToPeer     bool           `json:"peerToPeer"`
	// PersistentKeepalive is the interval, in seconds, that clients are told to
	// use. 0 is none.
	PersistentKeepalive int    `json:"persistentKeepalive"`
	Egress              Egress `json:"egress"`
	// Reservations are the addresses of every peer that has any, on the device
	// or not, by the peer's namespace and name joined by a slash.
	Reservations map[string][]netip.Addr `json:"reservations,omitempty"`
	// Limits is what the owner allows WireguardPeers, as an identifier: it changes
	// with that. Like Reservations it is for the function alone.
	Limits string `json:"limits,omitempty"`
	// Peers are those on the device, sorted by namespace and name.
	Peers []Peer `json:"peers"`
	// PodClasses are the WireguardPeers whose pods join by themselves.
	PodClasses []PodClass `json:"podClasses,omitempty"`
	// PodCIDRs are the cluster's networks of pods, as far as known. No pod joins
	// with an address outside of them.
	PodCIDRs []netip.Prefix `json:"podCIDRs,omitempty"`
}

// Egress tells where peers' traffic leaves the gateway.
type Egress struct {
	Mode string `json:"mode"`
	// ClusterCIDRs are the pod, service and node networks, which peers reach
	// directly whatever the mode.
	ClusterCIDRs []netip.Prefix `json:"clusterCIDRs,omitempty"`
	// Credentials are the files that gluetun cannot start without.
	Credentials []string `json:"credentials,omitempty"`
}

// Peer is a client of the gateway.
type Peer struct {
	Namespace    string         `json:"namespace"`
	Name         string         `json:"name"`
	PublicKey    Key            `json:"publicKey"`
	PresharedKey *Key           `json:"presharedKey,omitempty"`
	Addresses    []netip.Addr   `json:"addresses"`
	Routes       []netip.Prefix `json:"routes,omitempty"`
	// Endpoint is where the gateway dials out to this peer: host and port.
	Endpoint string `json:"endpoint,omitempty"`
	// PersistentKeepalive is the gateway's own interval towards this peer, in
	// seconds. 0 is none.
	PersistentKeepalive int          `json:"persistentKeepalive,omitempty"`
	Access              []AccessRule `json:"access,omitempty"`
	// ExpiresAt is when the agent drops the peer by itself.
	ExpiresAt *time.Time `json:"expiresAt,omitempty"`
}

// AllowedIPs returns what the gateway routes to the peer and accepts from it:
// its addresses and the networks behind it.
func (p Peer) AllowedIPs() []netip.Prefix {
	ips := make([]netip.Prefix, 0, len(p.Addresses)+len(p.Routes))
	for _, a := range p.Addresses {
		ips = append(ips, netip.PrefixFrom(a, a.BitLen()))
	}
	return append(ips, p.Routes...)
}

// PodClass is a WireguardPeer whose pods join by a label, each with a key of
// its own that derives from the class key.
type PodClass struct {
	Namespace string       `json:"namespace"`
	Name      string       `json:"name"`
	Key       Key          `json:"key"`
	Access    []AccessRule `json:"access,omitempty"`
}

// Encode returns the document as it stands in the Secret.
func (c GatewayConfig) Encode() ([]byte, error) {
	c.Version = DocumentVersion
	if c.Peers == nil {
		c.Peers = []Peer{}
	}
	b, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("cannot encode gateway config: %w", err)
	}
	return b, nil
}

// DecodeGatewayConfig reads the document. It accepts unknown fields, and
// refuses an unknown version.
func DecodeGatewayConfig(b []byte) (GatewayConfig, error) {
	c := GatewayConfig{}
	if err := decode(b, &c); err != nil {
		return GatewayConfig{}, fmt.Errorf("cannot decode gateway config: %w", err)
	}
	return c, nil
}

// decode checks the version before anything else: what else the document says
// may mean something different in another version.
func decode(b []byte, into any) error {
	version, err := versionOf(b)
	if err != nil {
		return redact(err)
	}
	if version != DocumentVersion {
		return fmt.Errorf("version %d is not known, only %d: update this component", version, DocumentVersion)
	}
	return redact(json.Unmarshal(b, into))
}

// versionOf reads the version, which our own documents begin with, so that it
// need not read all of a large one twice.
func versionOf(b []byte) (int, error) {
	v := struct {
		Version int `json:"version"`
	}{}
	d := json.NewDecoder(bytes.NewReader(b))
	if open, err := d.Token(); err == nil && open == json.Delim('{') {
		if key, err := d.Token(); err == nil && key == "version" && d.Decode(&v.Version) == nil {
			return v.Version, nil
		}
	}
	return v.Version, json.Unmarshal(b, &v)
}

// redact keeps the documents' values, which may be private keys, out of
// errors. Those of addresses and times quote what they were given.
func redact(err error) error {
	typeErr, syntaxErr := &json.UnmarshalTypeError{}, &json.SyntaxError{}
	switch {
	case err == nil:
		return nil
	case errors.As(err, &typeErr):
		return fmt.Errorf("field %q cannot hold a JSON %s", typeErr.Field, typeErr.Value)
	case errors.As(err, &syntaxErr):
		return fmt.Errorf("it is no JSON, from byte %d on", syntaxErr.Offset)
	default:
		return errors.New("a key, an address, a network, a port or a time in it is malformed")
	}
}

// ConfigHash names a configuration without revealing it, so that the agent can
// report which one it applied: 16 hexadecimal digits.
func ConfigHash(config []byte) string {
	h := sha256.Sum256(config)
	return hex.EncodeToString(h[:8])
}
