package v1alpha1

// WireguardGatewayStatus is what a gateway is. Its conditions are SpecValid,
// KeysReady, PeersReady, EndpointReady, WorkloadReady, RouteReady and
// EgressReady, beside those that Crossplane adds.
type WireguardGatewayStatus struct {
	// PublicKey of the gateway.
	// +optional
	PublicKey string `json:"publicKey,omitempty"`

	// SeedID names the seed that all keys derive from, without revealing it.
	// +optional
	SeedID string `json:"seedID,omitempty"`

	// ActivePeers is the number of peers that may connect.
	// +optional
	ActivePeers int64 `json:"activePeers"`

	// Addresses of the gateway in the tunnel.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	Addresses []string `json:"addresses,omitempty"`

	// Endpoints are where clients reach the gateway, as far as known.
	// +optional
	Endpoints *Endpoints `json:"endpoints,omitempty"`

	// Peers of the gateway, sorted by namespace and name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10000
	Peers []PeerStatus `json:"peers,omitempty"`

	// Egress is how traffic leaves the gateway, as far as the agent knows.
	// +optional
	Egress *EgressStatus `json:"egress,omitempty"`

	// InjectedPods is the number of pods that joined by a label.
	// +optional
	InjectedPods int64 `json:"injectedPods,omitempty"`
}

// Endpoints are where clients reach the gateway.
type Endpoints struct {
	// Direct is over UDP, from anywhere.
	// +optional
	Direct string `json:"direct,omitempty"`

	// Internal is over UDP, from within the cluster.
	// +optional
	Internal string `json:"internal,omitempty"`

	// Tunnel is over a WebSocket.
	// +optional
	Tunnel string `json:"tunnel,omitempty"`
}

// States of a peer.
const (
	PeerActive   = "Active"
	PeerDisabled = "Disabled"
	PeerExpired  = "Expired"
	PeerRejected = "Rejected"
)

// Reasons why a peer is rejected.
const (
	ReasonDuplicateName       = "DuplicateName"
	ReasonDuplicatePublicKey  = "DuplicatePublicKey"
	ReasonDuplicateAddress    = "DuplicateAddress"
	ReasonRouteConflict       = "RouteConflict"
	ReasonRouteNotAllowed     = "RouteNotAllowed"
	ReasonPoolExhausted       = "PoolExhausted"
	ReasonNamespaceNotAllowed = "NamespaceNotAllowed"
	ReasonSecretMissing       = "SecretMissing"
	ReasonInvalidKey          = "InvalidKey"
	ReasonInvalid             = "Invalid"
	ReasonTooLarge            = "TooLarge"
)

// PeerStatus is what a peer is.
type PeerStatus struct {
	// Name of the peer.
	Name string `json:"name"`

	// Namespace of the peer: the gateway's own for one that is declared inline.
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// PublicKey of the peer.
	// +optional
	PublicKey string `json:"publicKey,omitempty"`

	// Addresses of the peer in the tunnel.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	Addresses []string `json:"addresses,omitempty"`

	// Routes are the networks behind the peer.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Routes []string `json:"routes,omitempty"`

	// SecretName names the Secret with the peer's configurations, in the
	// namespace of the peer.
	// +optional
	SecretName string `json:"secretName,omitempty"`

	// Pods tells that it is a class of pods, each with a key and addresses of its
	// own. Its pods are counted in injectedPods, and not in activePeers.
	// +optional
	Pods bool `json:"pods,omitempty"`

	// State is Active, Disabled, Expired or Rejected.
	// +optional
	State string `json:"state,omitempty"`

	// Reason why the peer is rejected, in one word.
	// +optional
	Reason string `json:"reason,omitempty"`

	// Message says why the peer is rejected, and what to do.
	// +optional
	Message string `json:"message,omitempty"`
}

// EgressStatus is how traffic leaves the gateway.
type EgressStatus struct {
	// PublicIP is the address that the internet sees.
	// +optional
	PublicIP string `json:"publicIP,omitempty"`

	// Country of that address.
	// +optional
	Country string `json:"country,omitempty"`

	// ForwardedPort is the port that the provider forwards.
	// +optional
	ForwardedPort int64 `json:"forwardedPort,omitempty"`
}
