package dataplane

import (
	"fmt"
	"strings"
)

// vpn is the provider at the other end of gluetun's tunnel.
type vpn struct {
	*host
	server *process
}

// provider makes the provider, with a NAT of its own.
func (w *world) provider() *vpn {
	w.t.Helper()
	p := &vpn{host: w.attach("provider", provider4+"/24", "198.51.100.1/24", provider6+"/64", "2001:db8:3::1/64")}
	p.sysctl("net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	p.nft(`table inet provider { chain p { type nat hook postrouting priority 100; oifname "eth0" masquerade; }; }`)
	// The server is also whoever the agent looks for through the tunnel.
	for _, a := range []string{"1.1.1.1", "8.8.8.8", "2606:4700:4700::1111", "2001:4860:4860::8888"} {
		ip, via, bits := "ip", server4, "/32"
		if strings.Contains(a, ":") {
			ip, via, bits = "ip -6", server6, "/128"
		}
		w.server.run("ip addr add " + a + bits + " dev lo")
		w.router.run(ip + " route add " + a + bits + " via " + via)
	}
	p.serve()
	return p
}

// serve starts the provider's server.
func (p *vpn) serve() {
	p.t.Helper()
	p.write("wgp0.conf", fmt.Sprintf("[Interface]\nPrivateKey = %s\nListenPort = 51821\n[Peer]\nPublicKey = %s\nAllowedIPs = %s/32, %s/128\n",
		testKey("provider", 0), testKey("tunnel", 0).Public(), tunnel4, tunnel6))
	p.server = p.wireguardGo("wgp0")
	for _, l := range []string{"ip addr add 10.64.0.1/24 dev wgp0", "ip addr add fd64::1/64 dev wgp0 nodad", "ip link set wgp0 up"} {
		p.run(l)
	}
}

// wireguardGo starts plain wireguard-go with the configuration of that name.
func (h *host) wireguardGo(device string) *process {
	h.t.Helper()
	// wg(8) removes a socket that nobody answers on, and may hit the new one. So
	// the old one goes first, and wg(8) comes when the new one answers.
	h.run("rm -f /run/wireguard/" + device + ".sock")
	run := func() *process { return h.start("env", "LOG_LEVEL=error", wireguardGoBinary, "-f", device) }
	p := run()
	waitFor(h.t, limit, "wireguard-go", func() error {
		switch {
		case p.running():
		case contains(p.out.String(), "too many open files"):
			// inotify instances are shared by all that runs on the machine.
			p = run()
		default:
			h.t.Fatalf("wireguard-go has ended:\n%s", p.out)
		}
		_, err := h.uapi(device)
		return err
	})
	h.run("wg setconf " + device + " /run/" + device + ".conf")
	return p
}
