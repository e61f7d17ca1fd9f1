package dataplane

import (
	"fmt"
	"strings"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
)

// vpn is the provider at the other end of gluetun's tunnel.
type vpn struct {
	*host
	server *netns.Process
}

// provider makes the provider, with a NAT of its own.
func (w *world) provider() *vpn {
	w.t.Helper()
	p := &vpn{host: w.attach("provider", provider4+"/24", "198.51.100.1/24", provider6+"/64", "2001:db8:3::1/64")}
	p.Sysctl("net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	p.NFT(`table inet provider { chain p { type nat hook postrouting priority 100; oifname "eth0" masquerade; }; }`)
	// The server is also whoever the agent looks for through the tunnel.
	for _, a := range []string{"1.1.1.1", "8.8.8.8", "2606:4700:4700::1111", "2001:4860:4860::8888"} {
		ip, via, bits := "ip", server4, "/32"
		if strings.Contains(a, ":") {
			ip, via, bits = "ip -6", server6, "/128"
		}
		w.server.Run("ip addr add " + a + bits + " dev lo")
		w.router.Run(ip + " route add " + a + bits + " via " + via)
	}
	p.serve()
	return p
}

// serve starts the provider's server.
func (p *vpn) serve() {
	p.T.Helper()
	p.Write("wgp0.conf", fmt.Sprintf("[Interface]\nPrivateKey = %s\nListenPort = 51821\n[Peer]\nPublicKey = %s\nAllowedIPs = %s/32, %s/128\n",
		testKey("provider", 0), testKey("tunnel", 0).Public(), tunnel4, tunnel6))
	p.server = p.wireguardGo("wgp0")
	for _, l := range []string{"ip addr add 10.64.0.1/24 dev wgp0", "ip addr add fd64::1/64 dev wgp0 nodad", "ip link set wgp0 up"} {
		p.Run(l)
	}
}

// wireguardGo starts plain wireguard-go with the configuration of that name.
func (h *host) wireguardGo(device string) *netns.Process {
	h.T.Helper()
	// wg(8) removes a socket that nobody answers on, and may hit the new one. So
	// the old one goes first, and wg(8) comes when the new one answers.
	h.Run("rm -f /run/wireguard/" + device + ".sock")
	run := func() *netns.Process { return h.Start("env", "LOG_LEVEL=error", wireguardGoBinary, "-f", device) }
	p := run()
	netns.WaitFor(h.T, limit, "wireguard-go", func() error {
		switch {
		case p.Running():
		case contains(p.Out.String(), "too many open files"):
			// inotify instances are shared by all that runs on the machine.
			p = run()
		default:
			h.T.Fatalf("wireguard-go has ended:\n%s", p.Out)
		}
		_, err := h.uapi(device)
		return err
	})
	h.Run("wg setconf " + device + " /run/" + device + ".conf")
	return p
}
