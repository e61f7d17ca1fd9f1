package v1alpha1

// Defaults. The schema has them too, and a test holds both together: these
// serve where an object did not pass an API server.
const (
	// DefaultPeerCIDR is the pool of a gateway that names none.
	DefaultPeerCIDR = "10.8.0.0/24"

	DefaultListenPort                    = 51820
	DefaultPersistentKeepalive           = 25
	DefaultIPForwarding                  = IPForwardingAuto
	DefaultImplementation                = "Auto"
	DefaultServiceType                   = ServiceLoadBalancer
	DefaultUDPRoutePort                  = 51820
	DefaultTunnelType                    = "wstunnel"
	DefaultPodMonitorInterval            = "30s"
	DefaultSeedKey                       = "seed"
	DefaultPrivateKeyKey                 = "privateKey"
	DefaultPresharedKeyKey               = "presharedKey"
	DefaultTerminationGracePeriodSeconds = 10
	DefaultAllowedPeersFrom              = AllowedPeersSame
	DefaultPodsNetworkPolicy             = PodsNetworkPolicyAuto

	// DefaultMTU leaves room for WireGuard over IPv6 in 1500 bytes.
	DefaultMTU = 1420
	// DefaultMTUGluetun is that of gluetun's own tunnel.
	DefaultMTUGluetun = 1320
	// DefaultMTUTunnel fits one packet into one TCP segment over IPv6.
	DefaultMTUTunnel = 1360
)

// How the pod comes to forward packets.
const (
	IPForwardingAuto          = "Auto"
	IPForwardingPodSysctl     = "PodSysctl"
	IPForwardingInitContainer = "InitContainer"
	IPForwardingNone          = "None"
)

// Types of the Service.
const (
	ServiceLoadBalancer = "LoadBalancer"
	ServiceNodePort     = "NodePort"
	ServiceClusterIP    = "ClusterIP"
)

// Whose WireguardPeers may attach to a gateway.
const (
	AllowedPeersSame     = "Same"
	AllowedPeersAll      = "All"
	AllowedPeersSelector = "Selector"
	AllowedPeersNames    = "Names"
)

// MaxNameLength is that of the names of gateways and peers. Object names are
// made of them, and labels hold at most 63 characters.
const MaxNameLength = 40
