package render

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// gluetunRules are the lines by which gluetun's own firewall lets our traffic
// through. It drops what is forwarded, and what it does not know.
//
// gluetun runs every line as a command, at each start of its container, and
// gives up its firewall where one fails. So a line makes no chain, and stands
// without quotes and comments. What peers may do is not decided here: our own
// table does, and its drop wins over any accept.
func gluetunRules(g *plan.Gateway) string {
	b := &strings.Builder{}
	for _, pool := range g.Pools {
		iptables, icmp := "iptables", "icmp"
		if pool.Prefix.Addr().Is6() {
			iptables, icmp = "ip6tables", "ipv6-icmp"
		}
		rule := func(format string, args ...any) {
			fmt.Fprintf(b, iptables+" -A "+format+"\n", args...)
		}
		const device, tunnel = wireguard.Device, wireguard.GluetunDevice
		rule("FORWARD -i %s -o %s -j ACCEPT", device, tunnel)
		rule("FORWARD -i %s -o %s -j ACCEPT", device, device)
		for _, n := range g.Gluetun.OutboundSubnets {
			if n.Addr().BitLen() == pool.Prefix.Addr().BitLen() {
				rule("FORWARD -i %s ! -o %s -d %s -j ACCEPT", device, tunnel, n)
			}
		}
		rule("FORWARD -o %s -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT", device)
		rule("INPUT -i %s -p %s -j ACCEPT", device, icmp)
		rule("INPUT -i %s -p udp --dport 53 -j ACCEPT", device)
		rule("INPUT -i %s -p tcp --dport 53 -j ACCEPT", device)
		rule("OUTPUT -o %s -j ACCEPT", device)
	}
	// Handshakes that the gateway starts belong to no known connection. The
	// outer packets may be of either family, whatever the pools are. Nobody here
	// knows which the pod has: the platform need not name all its networks. So
	// the node needs ip6tables, which gluetun by itself misses only where the pod
	// has an IPv6 address.
	for _, iptables := range []string{"iptables", "ip6tables"} {
		fmt.Fprintf(b, "%s -A OUTPUT ! -o %s -p udp --sport %d -j ACCEPT\n", iptables, wireguard.GluetunDevice, g.ListenPort)
	}
	// gluetun lets the pod look for its neighbours, and not be found by them. Who
	// is not found gets no handshake and no probe by IPv6.
	fmt.Fprintf(b, "ip6tables -A INPUT ! -i %s -p ipv6-icmp --icmpv6-type neighbour-solicitation -j ACCEPT\n", wireguard.GluetunDevice)
	fmt.Fprintf(b, "ip6tables -A OUTPUT ! -o %s -p ipv6-icmp --icmpv6-type neighbour-advertisement -j ACCEPT\n", wireguard.GluetunDevice)
	return b.String()
}

// gluetunAuth is the role by which the agent reads gluetun's control server.
func gluetunAuth(g *plan.Gateway) ([]byte, error) {
	return json.Marshal(struct { //nolint:gosec // It goes into the config Secret, which is for keys.
		Auth   string `json:"auth"`
		APIKey string `json:"apikey"`
	}{"apikey", g.Keys.Seed.GluetunControlKey()})
}
