// Package wireguard holds what the control plane and the data plane share: the
// derivation of keys, the documents that pass between the two, and the client
// configurations that users get. Every document carries a version. Readers
// accept unknown fields and refuse unknown versions, since a new function meets
// an old agent during each rollout.
package wireguard

// Names and numbers that both wings rely on.
const (
	// DocumentVersion is the version of every document in this package.
	DocumentVersion = 1

	// Device is the name of the WireGuard device in the gateway's pod.
	Device = "wg0"

	// FirewallMark marks the device's own datagrams, and names the routing
	// table that they skip. It is wg-quick's and gluetun's number, so that our
	// datagrams stay out of their tables too.
	FirewallMark = 51820

	// TunnelMark marks, within a pod that joins a gateway, what came in by the
	// tunnel and its answers. FirewallMark marks what came in beside it.
	TunnelMark = FirewallMark + 1

	// FirewallTable is the nftables table, of family inet, that the gateway's
	// agent owns. It touches no other.
	FirewallTable = "wireguard_gateway"

	// HTTPPort is the TCP port on which the agent serves health and metrics.
	HTTPPort = 9586

	// StateDir is a volume of the gateway's pod in which the agent keeps what
	// survives a restart of its container.
	StateDir = "/var/lib/wireguard-gateway"

	// ControlSockets is where WireGuard's tools look for devices in userspace.
	ControlSockets = "/var/run/wireguard"

	// IPv6Forwarding is the sysctl without which the kernel forwards no IPv6.
	IPv6Forwarding = "net.ipv6.conf.all.forwarding"

	// GluetunDevice is the device that gluetun makes. Its setting VPN_INTERFACE
	// has this default, and the function does not let users change it.
	GluetunDevice = "tun0"

	// GluetunCredentials is where the user's credentials are mounted, for gluetun
	// and for the agent, which tells which of them are missing.
	GluetunCredentials = "/run/secrets/gluetun"

	// GluetunControlPort is the TCP port, on loopback, of gluetun's control
	// server.
	GluetunControlPort = 8000

	// PeerLabel is the label by which a pod joins the gateway of the
	// WireguardPeer that its value names.
	PeerLabel = "wireguardgateway.io/peer"

	// Sidecar is the name of the container that joins such a pod to its gateway.
	Sidecar = "wireguard"

	// ClientDevice is the name of the WireGuard device in such a pod, and
	// ClientPort the UDP port that it sends from.
	ClientDevice = "wgc0"
	ClientPort   = 51821

	// LockdownTable is the nftables table, of family inet, that keeps such a
	// pod's traffic in the tunnel. It outlives the sidecar.
	LockdownTable = "wireguard_lockdown"
)

// Limits of the device and its peers.
const (
	// MinMTU is the largest packet, in bytes, that every IPv4 host has to accept
	// (RFC 791, section 3.1), and MinMTUv6 the least that a link may have that
	// carries IPv6 (RFC 8200, section 5).
	MinMTU   = 576
	MinMTUv6 = 1280

	// Overhead is what WireGuard adds to a packet over IPv6, in bytes: 40 of
	// IPv6, 8 of UDP, 32 of its own.
	Overhead = 80

	// MaxKeepalive is what fits WireGuard's 16-bit field, in seconds.
	MaxKeepalive = 65535
)
