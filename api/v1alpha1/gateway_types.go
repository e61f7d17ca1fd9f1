package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime"
)

// WireguardGatewaySpec is what a gateway should be.
type WireguardGatewaySpec struct {
	// PeerCIDR is the IPv4 pool that tunnel addresses come from, /30 or larger.
	// The gateway takes the first host address. Host bits must be zero. Where
	// neither pool is given it is 10.8.0.0/24.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=18
	PeerCIDR string `json:"peerCIDR,omitempty"`

	// PeerCIDRv6 is the IPv6 pool that tunnel addresses come from, /126 or
	// larger. The gateway takes the first host address. Host bits must be zero.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=43
	PeerCIDRv6 string `json:"peerCIDRv6,omitempty"`

	// ReservedAddresses are never given to a peer: single addresses, or ranges
	// such as 10.8.0.2-10.8.0.9, of either family.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=91
	ReservedAddresses []string `json:"reservedAddresses,omitempty"`

	// ListenPort is the UDP port of the WireGuard server, in the pod and on the
	// Service.
	// +optional
	// +kubebuilder:default=51820
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	ListenPort int32 `json:"listenPort,omitempty"`

	// PersistentKeepalive is the interval in seconds that every client
	// configuration asks for. 0 leaves it out.
	// +optional
	// +kubebuilder:default=25
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=65535
	PersistentKeepalive *int32 `json:"persistentKeepalive,omitempty"`

	// MTU is the size of the largest packet in the tunnel, in bytes.
	// +optional
	MTU *MTU `json:"mtu,omitempty"`

	// DNS is what peers are told to resolve names with. Where it names no
	// servers, peers behind gluetun use its resolver, and others the cluster's
	// if the platform has set it.
	// +optional
	DNS *DNS `json:"dns,omitempty"`

	// PeerToPeer lets peers of this gateway reach each other through it.
	// +optional
	PeerToPeer bool `json:"peerToPeer,omitempty"`

	// IPForwarding is how the pod comes to forward packets. Auto needs nothing
	// for IPv4, and one privileged init container where there is an IPv6 pool.
	// PodSysctl asks the kubelet, which must allow the sysctls. InitContainer
	// always uses the init container. None leaves it to you.
	// +optional
	// +kubebuilder:default=Auto
	// +kubebuilder:validation:Enum=Auto;PodSysctl;InitContainer;None
	IPForwarding string `json:"ipForwarding,omitempty"`

	// Implementation is the kernel's WireGuard, or one in userspace. Auto takes
	// the kernel's where the node has it.
	// +optional
	// +kubebuilder:default=Auto
	// +kubebuilder:validation:Enum=Auto;Kernel;Userspace
	Implementation string `json:"implementation,omitempty"`

	// Endpoint is what the direct configurations advertise, apart from the
	// Service's own address.
	// +optional
	Endpoint *Endpoint `json:"endpoint,omitempty"`

	// Service exposes the WireGuard port.
	// +optional
	Service *Service `json:"service,omitempty"`

	// Gateway attaches the gateway to a Gateway of the Gateway API.
	// +optional
	Gateway *Gateway `json:"gateway,omitempty"`

	// Tunnel carries WireGuard over a WebSocket, for networks that block UDP.
	// +optional
	Tunnel *Tunnel `json:"tunnel,omitempty"`

	// Gluetun sends peers' traffic out through a commercial VPN, or not at all.
	// Where it is absent, peers leave through the pod's own network.
	// +optional
	Gluetun *Gluetun `json:"gluetun,omitempty"`

	// Peers are the clients that are declared inline.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=2000
	Peers []Peer `json:"peers,omitempty"`

	// AllowedPeerNamespaces are the namespaces whose WireguardPeers may attach.
	// +optional
	AllowedPeerNamespaces *AllowedPeerNamespaces `json:"allowedPeerNamespaces,omitempty"`

	// Keys are where the gateway's keys come from.
	// +optional
	Keys *Keys `json:"keys,omitempty"`

	// InitContainers run in the gateway's pod before everything of ours but the
	// container that sets sysctls. Each is a Kubernetes Container.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	InitContainers []NamedObject `json:"initContainers,omitempty"`

	// ExtraContainers run beside the agent in the gateway's pod. Each is a
	// Kubernetes Container.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	ExtraContainers []NamedObject `json:"extraContainers,omitempty"`

	// Volumes are there for the init and extra containers to mount. Each is a
	// Kubernetes Volume.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Volumes []NamedObject `json:"volumes,omitempty"`

	// Pod is where and how the gateway's pod runs.
	// +optional
	Pod *Pod `json:"pod,omitempty"`

	// Resources of the agent's container, as Kubernetes ResourceRequirements.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Resources *runtime.RawExtension `json:"resources,omitempty"`

	// NetworkPolicy lets in what the gateway serves, and nothing else.
	// +optional
	NetworkPolicy *Toggle `json:"networkPolicy,omitempty"`

	// PodDisruptionBudget allows one pod of the gateway to be away.
	// +optional
	PodDisruptionBudget *Toggle `json:"podDisruptionBudget,omitempty"`

	// Monitoring is how metrics are collected.
	// +optional
	Monitoring *Monitoring `json:"monitoring,omitempty"`
}

// MTU is the size of the largest packet in the tunnel, in bytes. With an IPv6
// pool it is at least 1280 (RFC 8200, section 5).
type MTU struct {
	// Direct is for the direct and internal configurations, and for the device.
	// It is 1420, or 1320 behind gluetun, whose own tunnel that is.
	// +optional
	// +kubebuilder:validation:Minimum=576
	// +kubebuilder:validation:Maximum=9000
	Direct int32 `json:"direct,omitempty"`

	// Tunnel is for the tunnel configuration. It is the smaller of 1360 and
	// direct.
	// +optional
	// +kubebuilder:validation:Minimum=576
	// +kubebuilder:validation:Maximum=9000
	Tunnel int32 `json:"tunnel,omitempty"`
}

// DNS is what peers are told to resolve names with.
type DNS struct {
	// Servers are addresses, used as they stand and in this order.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=8
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=45
	Servers []string `json:"servers,omitempty"`

	// SearchDomains are appended to short names. None is implied.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	SearchDomains []string `json:"searchDomains,omitempty"`
}

// AllowedPeerNamespaces are the namespaces whose WireguardPeers may attach to a
// gateway.
type AllowedPeerNamespaces struct {
	// From is the gateway's own namespace, all of them, those that the selector
	// matches, or those that are named.
	// +optional
	// +kubebuilder:default=Same
	// +kubebuilder:validation:Enum=Same;All;Selector;Names
	From string `json:"from,omitempty"`

	// Names of the namespaces, for from: Names.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=63
	Names []string `json:"names,omitempty"`

	// Selector matches the namespaces' labels, for from: Selector.
	// +optional
	Selector *LabelSelector `json:"selector,omitempty"`

	// Limits are what every WireguardPeer must stay within.
	// +optional
	Limits *PeerLimits `json:"limits,omitempty"`
}

// LabelSelector matches labels.
type LabelSelector struct {
	// MatchLabels must all be there.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	MatchLabels map[string]string `json:"matchLabels,omitempty"`
}

// PeerLimits are what the owner of a gateway imposes on every WireguardPeer.
type PeerLimits struct {
	// Access rules that are tried before the peer's own.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Access []AccessRule `json:"access,omitempty"`

	// Routes are the networks within which a WireguardPeer may announce its
	// own. None is allowed where this is empty.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=43
	Routes []string `json:"routes,omitempty"`
}

// Keys are where the gateway's keys come from.
type Keys struct {
	// SeedSecretRef names a Secret with a seed of your own: 32 raw bytes, or
	// their base64 as `wg genkey` prints it. Every key is derived from it.
	// +optional
	SeedSecretRef *SeedReference `json:"seedSecretRef,omitempty"`

	// AcceptSeed is the status.seedID of another seed than the gateway had,
	// which is meant to replace it. Every derived key changes with it.
	// +optional
	// +kubebuilder:validation:MaxLength=16
	AcceptSeed string `json:"acceptSeed,omitempty"`

	// Rotation is a number. Raise it to rotate the gateway's own key: every
	// client needs its new configuration then.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	Rotation int64 `json:"rotation,omitempty"`
}

// SeedReference names a seed in a Secret of the gateway's namespace.
type SeedReference struct {
	// Name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Key of the seed in the Secret's data.
	// +optional
	// +kubebuilder:default=seed
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key,omitempty"`
}

// Toggle switches something on.
type Toggle struct {
	// Enabled switches it on.
	// +optional
	Enabled bool `json:"enabled,omitempty"`
}

// Monitoring is how metrics are collected.
type Monitoring struct {
	// PodMonitor is an object for the Prometheus operator.
	// +optional
	PodMonitor *PodMonitor `json:"podMonitor,omitempty"`
}

// PodMonitor tells the Prometheus operator to collect the gateway's metrics.
type PodMonitor struct {
	// Enabled switches it on.
	// +optional
	Enabled bool `json:"enabled,omitempty"`

	// Labels by which your Prometheus selects it.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	Labels map[string]string `json:"labels,omitempty"`

	// Interval between two collections, such as 30s.
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:Pattern=`^([0-9]+(ms|s|m|h))+$`
	Interval string `json:"interval,omitempty"`
}
