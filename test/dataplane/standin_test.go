package dataplane

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wireguardgateway/function-wireguard-gateway/test/gluetun"
	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
)

const (
	provider4, provider6 = "198.51.100.10", "2001:db8:3::10"
	tunnel4, tunnel6     = "10.64.0.2", "fd64::2"
)

// standIn stands in for the gluetun container: step by step, as a test tells it.
type standIn struct {
	*host
	settings gluetun.Settings // as the function gives them to the container
	network  gluetun.Network
	control  *gluetun.Control

	tunnel *netns.Process
}

// newGluetun is gluetun in the gateway's pod, with nothing of it started.
func (w *world) newGluetun(env map[string]string, rules string) *standIn {
	settings := gluetun.Settings{Env: env, Rules: rules}
	if settings.OpenVPN() {
		settings.Server, settings.Port = provider4, "51821"
	}
	return &standIn{
		host: w.gateway, settings: settings, control: &gluetun.Control{},
		network: gluetun.Network{
			Device: "eth0", Address4: gateway4, Address6: gateway6, Gateway4: "10.244.0.1", Gateway6: "2001:db8:2::1",
			Local4: []string{"10.244.0.0/24"}, Local6: []string{"2001:db8:2::/64", "fe80::/64"},
		},
	}
}

// script runs lines one by one, up to the first that fails.
func (g *standIn) script(lines []string) {
	g.T.Helper()
	g.Exec("sh", "-ec", strings.Join(lines, "\n"))
}

// start is what happens at each start of the container, up to the tunnel.
func (g *standIn) start() error {
	g.T.Helper()
	g.firewall()
	g.routing()
	return g.up()
}

// firewall appends its rules again at each start.
func (g *standIn) firewall() {
	g.T.Helper()
	g.script(gluetun.Firewall(g.settings, g.network))
}

// routing makes the rules and tables that stay while the container lives.
func (g *standIn) routing() {
	g.T.Helper()
	g.script(gluetun.Routing(g.settings, g.network, g.Run))
}

// up brings up the tunnel: the device first, and the rule to it last. It fails
// where that rule is there already.
func (g *standIn) up() error {
	g.T.Helper()
	env := g.settings.Env
	if g.settings.OpenVPN() {
		g.upOpenVPN("10.64.0.1", tunnel4+"/24", tunnel6+"/64")
		return nil
	}
	g.Write("tun0.conf", fmt.Sprintf("[Interface]\nPrivateKey = %s\nFwMark = %d\n[Peer]\nPublicKey = %s\nEndpoint = %s:%s\nAllowedIPs = 0.0.0.0/0, ::/0\n",
		testKey("tunnel", 0), gluetun.Mark, env["WIREGUARD_PUBLIC_KEY"], env["WIREGUARD_ENDPOINT_IP"], env["WIREGUARD_ENDPOINT_PORT"]))
	g.tunnel = g.wireguardGo(gluetun.Device)
	g.script(gluetun.Address(g.settings, tunnel4+"/32", tunnel6+"/128"))
	for _, l := range gluetun.Divert(true) {
		if _, err := g.Try(strings.Fields(l)...); err != nil {
			g.tunnel.Kill()
			return err
		}
	}
	g.exit(provider4)
	return nil
}

// upOpenVPN brings up a tunnel that leads where OpenVPN's does. What it is made
// of is WireGuard, without mark: OpenVPN's packets have none. The gateway and the
// addresses are what the server gives it.
func (g *standIn) upOpenVPN(gateway string, addresses ...string) {
	g.T.Helper()
	server, port := g.settings.Endpoint()
	g.Write("tun0.conf", fmt.Sprintf("[Interface]\nPrivateKey = %s\n[Peer]\nPublicKey = %s\nEndpoint = %s:%s\nAllowedIPs = 0.0.0.0/0, ::/0\n",
		testKey("tunnel", 0), testKey("provider", 0).Public(), server, port))
	g.tunnel = g.wireguardGo(gluetun.Device)
	g.script(gluetun.Lead(g.settings, g.network, gateway, addresses...))
	g.exit(provider4)
}

// disconnect is what OpenVPN does by itself when its server does not answer: it
// takes its routes away, and then the device.
func (g *standIn) disconnect() {
	g.T.Helper()
	g.script(append(gluetun.Unlead(g.settings, g.network), "sleep 0.2"))
	g.tunnel.Kill()
}

// exit is what the control server tells of the tunnel from now on.
func (g *standIn) exit(publicIP string, ports ...int) {
	g.control.Exit(publicIP, ports...)
	g.control.Running(publicIP != "")
}

// stop ends the tunnel as gluetun does on its own restart: the rules first, and
// the device a moment later. It kills OpenVPN, whose device goes with it.
func (g *standIn) stop() {
	g.T.Helper()
	if !g.settings.OpenVPN() {
		g.script(append(gluetun.Undivert(), "sleep 0.2"))
	}
	g.tunnel.Kill()
	g.exit("")
}

// terminate is a SIGTERM. The firewall stays, and so does rule 98.
func (g *standIn) terminate() {
	g.T.Helper()
	g.stop()
	g.script(gluetun.Leave())
}

// crash is a SIGKILL. All rules stay, and the tunnel is gone with its process.
func (g *standIn) crash() {
	g.tunnel.Kill()
	g.exit("")
}

// cleanUp removes the rule that crash leaves, as the agent does.
func (g *standIn) cleanUp() {
	for _, l := range gluetun.Undivert() {
		_, _ = g.Try(strings.Fields(l)...)
	}
}

// open is what 3.41.1 does when its firewall cannot be set up.
func (g *standIn) open() {
	g.T.Helper()
	g.script(gluetun.Open())
}

// TestGluetunStandIn holds that the stand-in leaves in the pod's network what
// gluetun was seen to leave there, also when its container starts again.
func TestGluetunStandIn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.provider()
	g := w.newGluetun(map[string]string{
		"FIREWALL_INPUT_PORTS": "51820", "FIREWALL_OUTBOUND_SUBNETS": "192.168.50.0/24", "WIREGUARD_MTU": "1320",
		"WIREGUARD_ENDPOINT_IP": provider4, "WIREGUARD_ENDPOINT_PORT": "51821", "WIREGUARD_PUBLIC_KEY": testKey("provider", 0).Public().String(),
	}, "# a comment\n\niptables-save\n nft list ruleset\n")
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile("testdata/gluetun.txt")
	if err != nil {
		t.Fatal(err)
	}
	_, want, _ := strings.Cut(string(b), "\n\n")
	got := ""
	for section := range strings.SplitSeq(want, "\n\n") {
		command, _, _ := strings.Cut(section, "\n")
		got += command + "\n"
		for l := range strings.Lines(g.Run(command)) {
			// Tools differ in what they say of routes beside where they lead.
			l, _, _ = strings.Cut(strings.Replace(l, " scope link", "", 1), " metric ")
			got += strings.Join(strings.Fields(l), " ") + "\n"
		}
		got += "\n"
	}
	if diff := cmp.Diff(strings.Split(strings.TrimSpace(want), "\n"), strings.Split(strings.TrimSpace(got), "\n")); diff != "" {
		t.Errorf("-gluetun, +stand-in:\n%s", diff)
	}

	g.terminate()
	if out := g.Run("ip rule show"); contains(out, "100:") || contains(out, "101:") || !contains(out, "98:") {
		t.Errorf("terminated: rules %s", out)
	}
	lines := strings.Count(g.Run("iptables -S"), "\n")
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(g.Run("iptables -S"), "\n"); n != 2*lines-3 {
		t.Errorf("started again: %d lines, want each rule twice: %d", n, 2*lines-3)
	}
	g.crash()
	if err := g.start(); err == nil || !strings.Contains(err.Error(), "File exists") {
		t.Errorf("started again after a kill: want a failure on the stale rule, got %v", err)
	}
}
