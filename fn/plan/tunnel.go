package plan

import (
	"fmt"
	"strings"

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
	// The mark keeps the WebSocket out of the tunnel that it carries.
	c.FwMark = wireguard.FirewallMark

	local := "udp://" + tunnelLocal + ":" + spec.JoinHostPort("127.0.0.1", g.ListenPort) + "?timeout_sec=0"
	// A prefix that begins with a dash would be taken for an option, so it follows an
	// equals sign. Other prefixes stay as they are: their configurations need not
	// change.
	prefix := " '" + g.TunnelPathPrefix() + "'"
	if strings.HasPrefix(g.TunnelPathPrefix(), "-") {
		prefix = "=" + prefix[1:]
	}
	start := fmt.Sprintf("nohup wstunnel --log-lvl WARN client --http-upgrade-path-prefix%[1]s --local-to-remote '%[2]s' --tls-verify-certificate"+
		" --tls-sni-override '%[4]s' --http-headers 'Host: %[4]s' --websocket-ping-frequency 30s --socket-so-mark %[3]d \"wss://${a:-%[4]s}:443\" >/dev/null 2>&1 & ",
		prefix, local, wireguard.FirewallMark, g.GatewayAPI.Hostname)

	c.PreUp = []string{hookInstalled, hookStop, hookUnmark, hookMark, fmt.Sprintf(hookResolve, g.GatewayAPI.Hostname) + start + hookRemember}
	c.PostDown = []string{hookStop, hookUnmark}
	return c
}

// Commands that wg-quick runs. It puts the interface's name for %i, and gives
// up where one of PreUp fails.
var (
	hookInstalled = "type wstunnel >/dev/null"

	// The name is looked up once, as WireGuard does with its endpoint. The name
	// server may be behind the tunnel, and then nobody could bring it back. Where
	// only a proxy knows the name, it stays.
	hookResolve = `a=$(getent ahosts '%s' | head -n1 | cut -d' ' -f1) || true; case $a in *:*) a="[$a]";; esac; `

	// A process is stopped only if it is the one that was started here: numbers
	// of processes are used again, but not together with the time of the start.
	// The next one needs its port, so this waits until it is gone.
	hookRemember = "echo $! $(cut -d' ' -f22 /proc/$!/stat) >/run/wstunnel-%i.pid"
	hookStop     = `if read -r p t </run/wstunnel-%i.pid && [ "$t" = "$(cut -d' ' -f22 /proc/$p/stat)" ]; ` +
		"then for i in {1..20}; do kill $p && sleep .1 || break; done; fi 2>/dev/null; rm -f /run/wstunnel-%i.pid"

	// What comes back to the WebSocket has no mark, so a kernel that filters by
	// reverse path takes it for what should have come through the tunnel, and
	// drops it. wg-quick restores the mark for UDP, and this for TCP. Without
	// nftables the filter is loosened instead.
	hookMark = fmt.Sprintf("nft 'table inet wstunnel-%%i {"+
		" chain in { type filter hook prerouting priority -150; meta l4proto tcp ct mark %[1]d meta mark set ct mark; };"+
		" chain out { type filter hook postrouting priority -150; meta l4proto tcp meta mark %[1]d ct mark set meta mark; };"+
		" }' || sysctl -q net.ipv4.conf.all.rp_filter=2 || true", wireguard.FirewallMark)
	hookUnmark = "nft delete table inet wstunnel-%i 2>/dev/null || true"
)
