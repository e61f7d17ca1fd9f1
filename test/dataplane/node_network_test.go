package dataplane

import (
	"fmt"
	"strings"
	"testing"
)

// On a node's own network pods are behind other interfaces than the default
// route. Peers reach them, and are seen there as the node, while what is behind
// such an interface but not the cluster's stays out of reach.
func TestNodeNetwork(t *testing.T) {
	w := newWorld(t)
	w.gateway.Sysctl("net.ipv4.ip_forward=1") // as every node
	pod := newHost(t, "pod")
	w.gateway.Run(fmt.Sprintf("ip link add cni0 type veth peer name eth0 netns %d", pod.PID))
	for _, a := range []string{"10.42.0.1/24", "fd42::1/64", "192.168.77.1/24"} {
		w.gateway.Run("ip addr add " + a + " dev cni0" + nodad(a))
	}
	w.gateway.Run("ip link set cni0 up")
	for _, a := range []string{"10.42.0.5/24", "fd42::5/64", "192.168.77.5/24"} {
		pod.Run("ip addr add " + a + " dev eth0" + nodad(a))
	}
	pod.Run("ip link set eth0 up")
	// It knows no way to peers, as pods of other nodes do not.

	c := w.client(1)
	g := configWith(c.peer)
	g.Egress.ClusterCIDRs = prefixes("10.42.0.0/16", "fd42::/48")
	w.startAgent(g)
	c.up()
	for address, want := range map[string]int{"10.42.0.5": 3, "fd42::5": 3, server4: 3, server6: 3, "192.168.77.5": 0} {
		if got := c.pings(address); got != want {
			t.Errorf("%d of %d pings to %s were answered", got, want, address)
		}
	}
}

// nodad is for addresses of IPv6, which are usable at once with it.
func nodad(address string) string {
	if strings.Contains(address, ":") {
		return " nodad"
	}
	return ""
}
