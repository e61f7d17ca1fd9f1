package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Peer is a client of the gateway that is declared inline.
type Peer struct {
	// Name of the peer, a DNS label. Its configuration is the Secret
	// <gateway>-wireguard.peer.<name>.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// PublicKey of a peer whose private key stays on its device. The
	// configurations in its Secret are then without that line.
	// +optional
	// +kubebuilder:validation:MaxLength=44
	PublicKey string `json:"publicKey,omitempty"`

	// PrivateKeySecretRef names a private key of your own, in base64. Where
	// neither it nor publicKey is given, the key is derived.
	// +optional
	PrivateKeySecretRef *PrivateKeyReference `json:"privateKeySecretRef,omitempty"`

	// PresharedKey is a further, symmetric key between gateway and peer.
	// +optional
	PresharedKey *PresharedKey `json:"presharedKey,omitempty"`

	// Addresses pins the peer's tunnel addresses, at most one of each family,
	// without a prefix length. What is not pinned is allocated and then kept.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=45
	Addresses []string `json:"addresses,omitempty"`

	// AllowedIPs are the networks that the client routes into the tunnel. It is
	// everything, of the families that the gateway has pools of. Narrower lists
	// gain the pools, and the routes of other peers, where peerToPeer is on.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=43
	AllowedIPs []string `json:"allowedIPs,omitempty"`

	// Routes are networks behind this peer. Other peers reach them with
	// peerToPeer only.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=43
	Routes []string `json:"routes,omitempty"`

	// Endpoint is where the gateway dials out to this peer, host and port.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=261
	Endpoint string `json:"endpoint,omitempty"`

	// PersistentKeepalive replaces the gateway's, in seconds. 0 leaves it out.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	PersistentKeepalive *int32 `json:"persistentKeepalive,omitempty"`

	// DNS replaces the gateway's as a whole.
	// +optional
	DNS *DNS `json:"dns,omitempty"`

	// MTU caps that of all configurations of this peer, in bytes.
	// +optional
	// +kubebuilder:validation:Minimum=576
	// +kubebuilder:validation:Maximum=9000
	MTU int32 `json:"mtu,omitempty"`

	// AdvertisedEndpoint is this peer's own view of the gateway, in its direct
	// configuration.
	// +optional
	AdvertisedEndpoint *AdvertisedEndpoint `json:"advertisedEndpoint,omitempty"`

	// Disabled takes the peer off the gateway. It keeps its address and keys.
	// +optional
	Disabled bool `json:"disabled,omitempty"`

	// ExpiresAt disables the peer from this time on.
	// +optional
	ExpiresAt *metav1.Time `json:"expiresAt,omitempty"`

	// Access rules, enforced on the gateway in this order. A list that is not
	// empty ends in reject. Where it is empty the peer may go anywhere.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Access []AccessRule `json:"access,omitempty"`

	// KeyRotation is a number. Raise it to rotate this peer's derived keys.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	KeyRotation int64 `json:"keyRotation,omitempty"`

	// QRCode also stores the direct configuration as a QR code, as an image and
	// as text.
	// +optional
	QRCode bool `json:"qrCode,omitempty"`
}

// PrivateKeyReference names a private key in a Secret of the gateway's
// namespace.
type PrivateKeyReference struct {
	// Name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Key in the Secret's data.
	// +optional
	// +kubebuilder:default=privateKey
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// PresharedKey is a symmetric key between gateway and peer: derived, or yours.
type PresharedKey struct {
	// Generate derives the key.
	// +optional
	Generate bool `json:"generate,omitempty"`

	// SecretRef names a key of your own, in base64 as `wg genpsk` prints it.
	// +optional
	SecretRef *PresharedKeyReference `json:"secretRef,omitempty"`
}

// PresharedKeyReference names a preshared key in a Secret of the gateway's
// namespace.
type PresharedKeyReference struct {
	// Name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Key in the Secret's data.
	// +optional
	// +kubebuilder:default=presharedKey
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// AdvertisedEndpoint is where one peer reaches the gateway.
type AdvertisedEndpoint struct {
	// Host is an IPv4 or IPv6 address or a DNS name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Host string `json:"host"`

	// Port is a UDP port. It is the gateway's direct one where none is given.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
}

// AccessRule decides on traffic of a peer.
type AccessRule struct {
	// Action is what happens to traffic that the rule matches.
	// +kubebuilder:validation:Enum=Accept;Reject
	Action string `json:"action"`

	// To is where matched traffic goes. It is anywhere where it is absent.
	// +optional
	To *AccessDestination `json:"to,omitempty"`

	// Protocol that the rule matches. ICMP is ICMPv6 too.
	// +optional
	// +kubebuilder:default=Any
	// +kubebuilder:validation:Enum=Any;TCP;UDP;ICMP
	Protocol string `json:"protocol,omitempty"`
}

// AccessDestination is where traffic goes.
type AccessDestination struct {
	// CIDR is a network, of either family.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=43
	CIDR string `json:"cidr,omitempty"`

	// Ports are single ports, or ranges such as 8000-8100, of TCP or UDP.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=11
	Ports []string `json:"ports,omitempty"`
}
