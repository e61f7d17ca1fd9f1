package v1alpha1

import (
	"k8s.io/apimachinery/pkg/runtime"
)

// WireguardGatewaySpec is what a gateway should be.
//
// +kubebuilder:validation:XValidation:rule="!has(self.peerCIDRv6) || has(self.peerCIDR) || (has(oldSelf.peerCIDRv6) && !has(oldSelf.peerCIDR))",message="the gateway has IPv4 addresses, and peerCIDRv6 alone would take them from every peer: keep peerCIDR (it is 10.8.0.0/24 where none was given), or create a new gateway",messageExpression="'the gateway has IPv4 addresses, and peerCIDRv6 \"%s\" alone would take them from every peer: set peerCIDR to \"%s\" beside it, or create a new gateway'.format([self.peerCIDRv6, oldSelf.?peerCIDR.orValue('10.8.0.0/24')])",fieldPath=".peerCIDR"
// +kubebuilder:validation:XValidation:rule="!has(self.peers) || [[self.?peerCIDR.orValue(has(self.peerCIDRv6) ? \"\" : '10.8.0.0/24'), self.?peerCIDRv6.orValue(\"\")]].all(pools, self.peers.all(p, !has(p.addresses) || p.addresses.all(a, !isIP(a) || pools.exists(c, isCIDR(c) && cidr(c).containsIP(a)))))",message="addresses of peers must be in peerCIDR or peerCIDRv6: choose others, or leave them out to have them allocated",messageExpression="[[self.?peerCIDR.orValue(has(self.peerCIDRv6) ? \"\" : '10.8.0.0/24'), self.?peerCIDRv6.orValue(\"\")]].map(pools, self.peers.filter(p, has(p.addresses) && !p.addresses.all(a, !isIP(a) || pools.exists(c, isCIDR(c) && cidr(c).containsIP(a))))[0]).map(p, 'peer \"%s\" has addresses %s, not all of which are in peerCIDR or peerCIDRv6: choose others, or leave them out to have them allocated'.format([dyn(p.name), dyn(p.addresses)]))[0]",fieldPath=".peers"
// +kubebuilder:validation:XValidation:rule="!has(self.peers) || [[self.?peerCIDR.orValue(has(self.peerCIDRv6) ? \"\" : '10.8.0.0/24'), self.?peerCIDRv6.orValue(\"\")]].all(pools, self.peers.all(p, !has(p.addresses) || p.addresses.all(a, !isIP(a) || !pools.exists(c, isCIDR(c) && cidr(string(cidr(c).ip()) + (cidr(c).ip().family() == 4 ? '/31' : '/127')).containsIP(a)))))",message="addresses of peers must not be the first of a pool, which is its network, or the second, which is the gateway: choose others",messageExpression="[[self.?peerCIDR.orValue(has(self.peerCIDRv6) ? \"\" : '10.8.0.0/24'), self.?peerCIDRv6.orValue(\"\")]].map(pools, self.peers.filter(p, has(p.addresses) && !p.addresses.all(a, !isIP(a) || !pools.exists(c, isCIDR(c) && cidr(string(cidr(c).ip()) + (cidr(c).ip().family() == 4 ? '/31' : '/127')).containsIP(a))))[0]).map(p, 'peer \"%s\" has addresses %s, but the first address of a pool is its network, and the second the gateway itself: choose others'.format([dyn(p.name), dyn(p.addresses)]))[0]",fieldPath=".peers"
// +kubebuilder:validation:XValidation:rule="!has(self.peers) || [self.?peerCIDR.orValue(has(self.peerCIDRv6) ? \"\" : '10.8.0.0/24')].all(c, !isCIDR(c) || self.peers.all(p, !has(p.addresses) || !p.addresses.exists(a, isIP(a) && ip(a).family() == 4 && cidr(c).containsIP(a) && [8, 16, 24, 32].all(b, (int(a.split('.')[b / 8 - 1]) + 1) % (cidr(c).prefixLength() >= b ? 1 : cidr(c).prefixLength() <= b - 8 ? 256 : [1, 2, 4, 8, 16, 32, 64, 128][b - cidr(c).prefixLength()]) == 0))))",message="addresses of peers must not be the last of peerCIDR, which is its broadcast address: choose another",messageExpression="[self.?peerCIDR.orValue(has(self.peerCIDRv6) ? \"\" : '10.8.0.0/24')].map(c, self.peers.filter(p, has(p.addresses) && p.addresses.exists(a, isIP(a) && ip(a).family() == 4 && cidr(c).containsIP(a) && [8, 16, 24, 32].all(b, (int(a.split('.')[b / 8 - 1]) + 1) % (cidr(c).prefixLength() >= b ? 1 : cidr(c).prefixLength() <= b - 8 ? 256 : [1, 2, 4, 8, 16, 32, 64, 128][b - cidr(c).prefixLength()]) == 0)))[0]).map(p, 'peer \"%s\" has addresses %s, but the last address of peerCIDR is its broadcast address: choose another'.format([dyn(p.name), dyn(p.addresses)]))[0]",fieldPath=".peers"
// +kubebuilder:validation:XValidation:rule="!has(self.peers) || [[self.?peerCIDR.orValue(has(self.peerCIDRv6) ? \"\" : '10.8.0.0/24'), self.?peerCIDRv6.orValue(\"\")]].all(pools, self.peers.all(p, !has(p.routes) || p.routes.all(r, !isCIDR(r) || !pools.exists(c, isCIDR(c) && (cidr(c).containsIP(cidr(r).ip()) || cidr(r).containsIP(cidr(c).ip()))))))",message="routes of peers must not overlap with peerCIDR or peerCIDRv6: name only networks behind the peer",messageExpression="[[self.?peerCIDR.orValue(has(self.peerCIDRv6) ? \"\" : '10.8.0.0/24'), self.?peerCIDRv6.orValue(\"\")]].map(pools, self.peers.filter(p, has(p.routes) && !p.routes.all(r, !isCIDR(r) || !pools.exists(c, isCIDR(c) && (cidr(c).containsIP(cidr(r).ip()) || cidr(r).containsIP(cidr(c).ip())))))[0]).map(p, 'peer \"%s\" has routes %s, which overlap with peerCIDR or peerCIDRv6: name only networks behind the peer'.format([dyn(p.name), dyn(p.routes)]))[0]",fieldPath=".peers"
// +kubebuilder:validation:XValidation:rule="!has(self.peerCIDRv6) || !has(self.mtu) || ((!has(self.mtu.direct) || self.mtu.direct >= 1280) && (!has(self.mtu.tunnel) || self.mtu.tunnel >= 1280))",message="mtu.direct and mtu.tunnel must be 1280 at least, since IPv6 requires it: raise them, or leave out peerCIDRv6",fieldPath=".mtu"
// +kubebuilder:validation:XValidation:rule="!has(self.peerCIDRv6) || !has(self.peers) || self.peers.all(p, !has(p.mtu) || p.mtu >= 1280)",message="mtu of peers must be 1280 at least, since IPv6 requires it: raise it, or leave out peerCIDRv6",messageExpression="self.peers.filter(p, has(p.mtu) && p.mtu < 1280).map(p, 'peer \"%s\" has mtu %s, but IPv6 requires 1280 at least: raise it, or leave out peerCIDRv6'.format([p.name, string(p.mtu)]))[0]",fieldPath=".peers"
// +kubebuilder:validation:XValidation:rule="!has(self.tunnel) || (has(self.gateway) && has(self.gateway.hostname) && has(self.gateway.parentRefs) && size(self.gateway.parentRefs) > 0)",message="tunnel needs gateway.parentRefs and gateway.hostname, by which clients reach it: set both, or leave out tunnel",fieldPath=".tunnel"
// +kubebuilder:validation:XValidation:rule="!has(self.gluetun) || !has(self.pod) || !has(self.pod.hostNetwork) || !self.pod.hostNetwork",message="pod.hostNetwork cannot go together with gluetun, which would take over the node's routes and firewall: leave out one of them",fieldPath=".pod.hostNetwork"
// +kubebuilder:validation:XValidation:rule="!has(self.gluetun) || self.listenPort != 53",message="listenPort 53 is where gluetun resolves names for peers: choose another port",fieldPath=".listenPort"
type WireguardGatewaySpec struct {
	// PeerCIDR is the IPv4 pool that tunnel addresses come from, /30 or larger.
	// The gateway takes the first host address. Host bits must be zero. Where
	// neither pool is given it is 10.8.0.0/24.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=18
	// +kubebuilder:validation:XValidation:rule="isCIDR(self) && cidr(self).ip().family() == 4 && cidr(self).prefixLength() <= 30 && cidr(self) in [cidr(self).masked()] && cidr(self).ip().isGlobalUnicast()",message="peerCIDR must be an IPv4 network of /30 or larger, without host bits, such as 10.8.0.0/24",messageExpression="!isCIDR(self) || cidr(self).ip().family() != 4 ? 'peerCIDR \"%s\" is not an IPv4 network: write one such as 10.8.0.0/24'.format([self]) : !(cidr(self) in [cidr(self).masked()]) ? 'peerCIDR \"%s\" has host bits set: write \"%s\"'.format([self, string(cidr(self).masked())]) : cidr(self).prefixLength() > 30 ? 'peerCIDR \"%s\" is too small: a /30 is the least'.format([self]) : 'peerCIDR \"%s\" cannot be routed: write one such as 10.8.0.0/24'.format([self])"
	PeerCIDR string `json:"peerCIDR,omitempty"`

	// PeerCIDRv6 is the IPv6 pool that tunnel addresses come from, /126 or
	// larger. The gateway takes the first host address. Host bits must be zero.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=43
	// +kubebuilder:validation:XValidation:rule="isCIDR(self) && cidr(self).ip().family() == 6 && cidr(self).prefixLength() <= 126 && cidr(self) in [cidr(self).masked()] && cidr(self).ip().isGlobalUnicast()",message="peerCIDRv6 must be an IPv6 network of /126 or larger, without host bits, such as fd00:8::/64",messageExpression="!isCIDR(self) || cidr(self).ip().family() != 6 ? 'peerCIDRv6 \"%s\" is not an IPv6 network: write one such as fd00:8::/64'.format([self]) : !(cidr(self) in [cidr(self).masked()]) ? 'peerCIDRv6 \"%s\" has host bits set: write \"%s\"'.format([self, string(cidr(self).masked())]) : cidr(self).prefixLength() > 126 ? 'peerCIDRv6 \"%s\" is too small: a /126 is the least'.format([self]) : 'peerCIDRv6 \"%s\" cannot be routed: write one such as fd00:8::/64'.format([self])"
	PeerCIDRv6 string `json:"peerCIDRv6,omitempty"`

	// ReservedAddresses are never given to a peer: single addresses, or ranges
	// such as 10.8.0.2-10.8.0.9, of either family.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	ReservedAddresses []AddressOrRange `json:"reservedAddresses,omitempty"`

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
	// if the platform has set it: those whose allowedIPs lead there.
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

	// InitContainers run in the gateway's pod before the agent, and after gluetun
	// and the container that sets sysctls. Each is a Kubernetes Container.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(c, !(c.name in ['agent', 'wstunnel', 'gluetun', 'sysctl', 'client']))",message="initContainers must not be named agent, wstunnel, gluetun, sysctl or client, which are ours: choose another name",messageExpression="'initContainers has \"%s\", which is a name of ours: choose another'.format([self.filter(c, c.name in ['agent', 'wstunnel', 'gluetun', 'sysctl', 'client'])[0].name])"
	InitContainers []NamedObject `json:"initContainers,omitempty"`

	// ExtraContainers run beside the agent in the gateway's pod. Each is a
	// Kubernetes Container.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(c, !(c.name in ['agent', 'wstunnel', 'gluetun', 'sysctl', 'client']))",message="extraContainers must not be named agent, wstunnel, gluetun, sysctl or client, which are ours: choose another name",messageExpression="'extraContainers has \"%s\", which is a name of ours: choose another'.format([self.filter(c, c.name in ['agent', 'wstunnel', 'gluetun', 'sysctl', 'client'])[0].name])"
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
	Servers []Address `json:"servers,omitempty"`

	// SearchDomains are appended to short names. None is implied.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=16
	SearchDomains []Domain `json:"searchDomains,omitempty"`
}

// AllowedPeerNamespaces are the namespaces whose WireguardPeers may attach to a
// gateway.
//
// +kubebuilder:validation:XValidation:rule="(self.from == 'Names') == (has(self.names) && size(self.names) > 0)",message="names and from: Names need each other: give both, or neither",messageExpression="self.from == 'Names' ? 'from: Names needs names: list the namespaces' : 'names are for from: Names, not for \"%s\": set from to Names, or leave out names'.format([self.from])",fieldPath=".names"
// +kubebuilder:validation:XValidation:rule="(self.from == 'Selector') == (has(self.selector) && has(self.selector.matchLabels) && size(self.selector.matchLabels) > 0)",message="selector.matchLabels and from: Selector need each other: give both, or neither",messageExpression="self.from == 'Selector' ? 'from: Selector needs selector.matchLabels: name a label, or set from to All' : 'selector is for from: Selector, not for \"%s\": set from to Selector, or leave out selector'.format([self.from])",fieldPath=".selector"
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
	Names []NamespaceName `json:"names,omitempty"`

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
	Routes []CIDR `json:"routes,omitempty"`
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
	// +kubebuilder:validation:Pattern=`^([0-9a-f]{16})?$`
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
	Name ObjectName `json:"name"`

	// Key of the seed in the Secret's data.
	// +optional
	// +kubebuilder:default=seed
	Key DataKey `json:"key,omitempty"`
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

	// Interval between two collections, such as 30s or 1m30s.
	// +optional
	// +kubebuilder:default="30s"
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:MinLength=2
	// +kubebuilder:validation:Pattern=`^([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$`
	Interval string `json:"interval,omitempty"`
}
