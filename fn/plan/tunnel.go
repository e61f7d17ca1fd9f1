package plan

import (
	"fmt"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// TunnelPathPrefix is the path segment under which the tunnel is served.
func (g *Gateway) TunnelPathPrefix() string {
	if g.Tunnel.PathPrefix != "" {
		return g.Tunnel.PathPrefix
	}
	return g.Keys.Seed.TunnelPathPrefix()
}

// tunnelLocal is where wstunnel listens on the client, and what WireGuard on
// the client takes for the gateway.
const tunnelLocal = "127.0.0.1:51821"

// TunnelConfig returns the configuration of a peer that connects over the
// WebSocket. Its hooks start and stop wstunnel, so it is for wg-quick on Linux.
func (g *Gateway) TunnelConfig(p *Peer) wireguard.ClientConfig {
	c := g.ClientConfig(p, tunnelLocal)
	c.MTU = capped(g.TunnelMTU, p.Peer.MTU)
	// The mark keeps the WebSocket, and wstunnel's look-ups of its server's
	// name, out of the tunnel that they carry.
	c.FwMark = wireguard.FirewallMark

	const pidFile = "/run/wstunnel-%i.pid"
	listen := "udp://" + tunnelLocal + ":" + spec.JoinHostPort("127.0.0.1", g.ListenPort) + "?timeout_sec=0"
	// A process is stopped only if it is the one that was started here: numbers
	// of processes are used again.
	stop := fmt.Sprintf("grep -qs 'udp://%s' /proc/$(cat %s 2>/dev/null)/cmdline && kill $(cat %s); rm -f %s", tunnelLocal, pidFile, pidFile, pidFile)
	start := fmt.Sprintf("nohup wstunnel --log-lvl WARN client --http-upgrade-path-prefix '%s' --local-to-remote '%s' --tls-verify-certificate --websocket-ping-frequency 30s --socket-so-mark %d '%s:443' >/dev/null 2>&1 & echo $! >%s",
		g.TunnelPathPrefix(), listen, wireguard.FirewallMark, g.Endpoints.Tunnel, pidFile)
	c.PreUp = []string{stop, start}
	c.PostDown = []string{stop}
	return c
}
