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

	Client `json:",inline"`
}

// Client is what a client of a gateway has beside its name.
//
// +kubebuilder:validation:XValidation:rule="!has(self.publicKey) || !has(self.privateKeySecretRef)",message="publicKey and privateKeySecretRef exclude each other: give publicKey where the private key stays on the device, privateKeySecretRef where the gateway may know it",fieldPath=".publicKey"
// +kubebuilder:validation:XValidation:rule="!has(self.addresses) || size(self.addresses) < 2 || !self.addresses.all(a, isIP(a)) || ip(self.addresses[0]).family() != ip(self.addresses[1]).family()",message="addresses may hold one IPv4 and one IPv6 address: leave out one of two of the same family",messageExpression="'addresses are \"%s\", which are of the same family: leave out one of them'.format([self.addresses.join(', ')])",fieldPath=".addresses"
type Client struct {
	// PublicKey of a peer whose private key stays on its device. The
	// configurations in its Secret are then without that line.
	// +optional
	PublicKey PublicKey `json:"publicKey,omitempty"`

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
	Addresses []Address `json:"addresses,omitempty"`

	// AllowedIPs are the networks that the client routes into the tunnel. It is
	// everything, of the families that the gateway has pools of. Narrower lists
	// gain the pools, and the routes of other peers, where peerToPeer is on.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	AllowedIPs []CIDR `json:"allowedIPs,omitempty"`

	// Routes are networks behind this peer. Other peers reach them with
	// peerToPeer only.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:XValidation:rule="!self.endsWith('/0')",message="must not be everything: name the networks behind the peer",messageExpression="'\"%s\" is everything: name the networks behind the peer'.format([self])"
	Routes []CIDR `json:"routes,omitempty"`

	// Endpoint is where the gateway dials out to this peer, host and port.
	// +optional
	Endpoint HostPort `json:"endpoint,omitempty"`

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
	// +kubebuilder:validation:XValidation:rule="self >= timestamp('0001-01-01T00:00:00Z') && self <= timestamp('9999-12-31T23:59:59Z')",message="expiresAt must be in the years 1 to 9999 of UTC: leave it out, and the peer never expires"
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
	Name ObjectName `json:"name"`

	// Key in the Secret's data.
	// +optional
	// +kubebuilder:default=privateKey
	Key DataKey `json:"key,omitempty"`
}

// PresharedKey is a symmetric key between gateway and peer: derived, or yours.
//
// +kubebuilder:validation:XValidation:rule="(has(self.generate) && self.generate) != has(self.secretRef)",message="presharedKey is either generate: true or a secretRef: give exactly one of them"
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
	Name ObjectName `json:"name"`

	// Key in the Secret's data.
	// +optional
	// +kubebuilder:default=presharedKey
	Key DataKey `json:"key,omitempty"`
}

// AdvertisedEndpoint is where one peer reaches the gateway.
type AdvertisedEndpoint struct {
	// Host is an IPv4 or IPv6 address or a DNS name.
	Host Host `json:"host"`

	// Port is a UDP port. It is the gateway's direct one where none is given.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
}

// AccessRule decides on traffic of a peer.
//
// +kubebuilder:validation:XValidation:rule="self.protocol != 'ICMP' || !has(self.to) || !has(self.to.ports) || size(self.to.ports) == 0",message="to.ports cannot go together with protocol ICMP, which has none: leave out the ports, or choose TCP, UDP or Any",fieldPath=".to.ports"
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
	CIDR CIDR `json:"cidr,omitempty"`

	// Ports are single ports, or ranges such as 8000-8100, of TCP or UDP.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	Ports []PortOrRange `json:"ports,omitempty"`
}
