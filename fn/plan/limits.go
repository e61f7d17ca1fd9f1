package plan

// How large a gateway may be, in bytes. Where its owner's own peers make it
// larger, it is refused.
const (
	// MaxResponse is what Crossplane's gRPC client accepts, less some room for the
	// conditions.
	MaxResponse = 4<<20 - 64<<10
	// MaxObject is what etcd takes in one request, less some room for what others
	// write into the gateway.
	MaxObject = 3<<19 - 64<<10
)

// MaxQRCode is how many bytes the largest QR code holds at the lowest level of
// error correction (ISO/IEC 18004). A longer configuration gets none.
const MaxQRCode = 2953

// What WireguardPeers may take of a gateway, as long as its owner's peers leave
// it. Without bounds, those of one namespace could stop it for everybody.
const (
	// maxAttached is how many WireguardPeers a gateway looks at.
	maxAttached = 1000
	// maxAttachedRoutes is how many routes they may announce together. Those of
	// disabled ones count, too: they are in the status, and in the configurations of
	// peers with allowedIPs.
	maxAttachedRoutes = 1000
	// Reserve is what newcomers leave, for the gateway's owner, and for the entries
	// in the status of those that find no room, so that they are told, in bytes.
	Reserve = 128 << 10
	// maxPeerSize is how much of the configuration one of them may take, in bytes.
	maxPeerSize = 32 << 10
	// maxPeersSize is how much of the configuration all peers may take together
	// before WireguardPeers find no room any more, in bytes.
	maxPeersSize = 768 << 10
	// servedSize is added for WireguardPeers that are served and ask for no more
	// routes. Estimates err on the high side, and these fitted when they came.
	servedSize = 160 << 10
)
