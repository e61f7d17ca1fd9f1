// Package dataplane tests the agent with real packets: network namespaces are
// hosts and pods, and nothing but the Kubernetes API is missing. It needs root
// and, beside util-linux, the Debian packages of TestMain.
package dataplane

import (
	"os"
	"testing"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
)

// Programs that were built for the tests.
var agentBinary, wireguardGoBinary string

func TestMain(m *testing.M) {
	os.Exit(netns.Package{
		Tests: "the data plane",
		Tools: map[string]string{
			"ip": "iproute2", "wg": "wireguard-tools", "wg-quick": "wireguard-tools", "nft": "nftables", "iptables": "iptables",
			"iperf3": "iperf3", "tcpdump": "tcpdump", "conntrack": "conntrack", "ping": "iputils-ping", "sysctl": "procps",
			"nsenter": "util-linux", "unshare": "util-linux",
		},
		Programs: map[*string]string{
			&agentBinary:       "../../cmd/agent",
			&wireguardGoBinary: "golang.zx2c4.com/wireguard",
		},
	}.Main(m))
}
