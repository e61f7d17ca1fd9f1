// Package names holds the names that users and running objects depend on: the
// keys of the desired set, the names of composed objects, and their labels.
// All are frozen. Another key or name would delete the object and make a new
// one.
package names

import "github.com/wireguardgateway/function-wireguard-gateway/wireguard"

// Keys of the desired set.
const (
	KeySeed           = "seed"
	KeyConfig         = "config"
	KeyServiceAccount = "service-account"
	KeyRole           = "role"
	KeyRoleBinding    = "role-binding"
	KeyStatus         = "status"
	KeyDeployment     = "deployment"
	KeyService        = "service"
	KeyTunnelService  = "tunnel-service"
	KeyHTTPRoute      = "http-route"
	KeyUDPRoute       = "udp-route"
	KeyNetworkPolicy  = "network-policy"
	KeyPDB            = "pod-disruption-budget"
	KeyPodMonitor     = "pod-monitor"

	keyPeerPrefix = "peer-"
)

// Keys of the desired set of a WireguardPeer.
const (
	KeyAttachment = "attachment"
	KeyPeerConfig = "config"
	KeyEnrolment  = "enrolment"
	KeyInjection  = "injection"
	// Its role, role binding and NetworkPolicy have the keys of the gateway's.

	// KeyCiliumNetworkPolicy is not the NetworkPolicy's: of two kinds under one key
	// Crossplane would leave the former behind.
	KeyCiliumNetworkPolicy = "cilium-network-policy"
)

// KeyPeer is the key of a peer's Secret.
func KeyPeer(peer string) string { return keyPeerPrefix + peer }

// Names of composed objects. Names of gateways and peers hold no dots, so the
// dots keep names from colliding.

// Workload names everything that there is one of: "home-wireguard".
func Workload(gateway string) string { return gateway + "-wireguard" }

// Seed names the Secret with the gateway's seed.
func Seed(gateway string) string { return Workload(gateway) + ".seed" }

// Config names the Secret with the agent's configuration.
func Config(gateway string) string { return Workload(gateway) + ".config" }

// Status names the ConfigMap with the agent's report.
func Status(gateway string) string { return Workload(gateway) + ".status" }

// Tunnel names the Service of the tunnel: "home-wireguard-tunnel".
func Tunnel(gateway string) string { return Workload(gateway) + "-tunnel" }

// Peer names the Secret with a peer's configurations.
func Peer(gateway, peer string) string { return Workload(gateway) + ".peer." + peer }

// Attachment names the ConfigMap by which a WireguardPeer attaches to its
// gateway.
func Attachment(peer string) string { return Workload(peer) + ".attachment" }

// PeerConfig names the Secret with a WireguardPeer's configurations.
func PeerConfig(peer string) string { return Workload(peer) + ".peer" }

// Enrolment names the Secret by which a WireguardPeer's pods join its gateway.
func Enrolment(peer string) string { return wireguard.EnrolmentSecret(peer) }

// Injection names the ConfigMap with what admission needs to know of the pods'
// sidecar.
func Injection(peer string) string { return Workload(peer) + ".injection" }

// Pods names what there is one of for a WireguardPeer's pods: role, role
// binding and network policy. A gateway of the same name has its own.
func Pods(peer string) string { return Workload(peer) + ".pods" }

// Data keys of a peer's Secret. Clients use the file's name as the name of the
// interface, which holds at most 15 characters.
const (
	DataDirect      = "direct.conf"
	DataInternal    = "internal.conf"
	DataTunnel      = "tunnel.conf"
	DataDirectQR    = "direct.png"
	DataDirectQRTxt = "direct.txt"

	// DataSeed is the data key of the seed.
	DataSeed = "seed"
)

// PeerData returns all data keys of a peer's Secret.
func PeerData() []string {
	return []string{DataDirect, DataInternal, DataTunnel, DataDirectQR, DataDirectQRTxt}
}

// Labels of composed objects.
const (
	LabelName     = "app.kubernetes.io/name"
	LabelInstance = "app.kubernetes.io/instance"
	LabelGateway  = "wireguardgateway.io/gateway"
	LabelPeer     = wireguard.PeerLabel

	// LabelGatewayNamespace is on attachments: a gateway selects them by it and
	// by LabelGateway.
	LabelGatewayNamespace = "wireguardgateway.io/gateway-namespace"

	// LabelInjection is on the parameters of injection, with the value "true":
	// admission selects them by it.
	LabelInjection = "wireguardgateway.io/injection"

	// Application is the value of LabelName.
	Application = "wireguard-gateway"
)

// Labels returns those that every composed object of a gateway bears.
func Labels(gateway string) map[string]string {
	return map[string]string{
		LabelName:     Application,
		LabelInstance: gateway,
		LabelGateway:  gateway,
	}
}

// AttachmentLabels returns those by which a gateway finds its attachments.
func AttachmentLabels(namespace, gateway string) map[string]string {
	return map[string]string{
		LabelGateway:          gateway,
		LabelGatewayNamespace: namespace,
	}
}

// Selector returns the labels that select a gateway's pod. A Deployment's
// selector is immutable, so these are for ever.
func Selector(gateway string) map[string]string {
	return map[string]string{
		LabelName:     Application,
		LabelInstance: gateway,
	}
}

// Admission names the objects of package/cluster/injection.yaml that let pods
// join. They are the same for all.
const Admission = "wireguard-gateway-injection"

// Data keys of the parameters of injection. Each has a plain value, since admission
// cannot parse documents.
const (
	InjectionImage      = "image"
	InjectionPullPolicy = "pullPolicy"
	InjectionSecret     = "secretName"
	// InjectionTun is "true" where the sidecar may need /dev/net/tun, and "false".
	InjectionTun = "tun"
	// InjectionRequests and InjectionLimits are resources, one "name=quantity" a
	// line.
	InjectionRequests = "requests"
	InjectionLimits   = "limits"
)

// Containers of the gateway's pod. Users' containers cannot have these names.
const (
	ContainerAgent    = "agent"
	ContainerSysctl   = "sysctl"
	ContainerWstunnel = "wstunnel"
	ContainerGluetun  = "gluetun"
	ContainerClient   = "client"
)
