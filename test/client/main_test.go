// Package client tests the sidecar with real packets: network namespaces are
// the pod, the node, the gateway and the internet. What counts is who is seen
// there, since a packet that went around the tunnel works just as well. It
// needs root and, beside util-linux, the Debian packages of TestMain.
package client

import (
	"os"
	"testing"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
)

// Programs that were built for the tests.
var agentBinary, wireguardGoBinary string

func TestMain(m *testing.M) {
	os.Exit(netns.Package{
		Tests: "the sidecar",
		Tools: map[string]string{
			"ip": "iproute2", "wg": "wireguard-tools", "nft": "nftables", "ping": "iputils-ping", "sysctl": "procps",
			"nsenter": "util-linux", "unshare": "util-linux", "setpriv": "util-linux",
		},
		Programs: map[*string]string{
			&agentBinary:       "../../cmd/agent",
			&wireguardGoBinary: "golang.zx2c4.com/wireguard",
		},
	}.Main(m))
}
