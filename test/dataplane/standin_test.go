package dataplane

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
)

const (
	provider4, provider6 = "198.51.100.10", "2001:db8:3::10"
	tunnel4, tunnel6     = "10.64.0.2", "fd64::2"
)

// gluetun stands in for the gluetun container, whose program cannot be had
// here. It does to the pod's network what versions 3.41.1 and master were seen
// to do, in their order, and answers as their control servers do.
type gluetun struct {
	*host
	env   map[string]string // as the function gives it to the container
	rules string            // post-rules.txt

	// local are the networks of eth0, which gluetun takes from its routes.
	local4, local6     []string
	gateway4, gateway6 string // of the default routes

	tunnel *netns.Process

	mu       sync.Mutex
	publicIP string
	ports    []int
	next     bool // answers as master does, not as 3.41.1
}

// newGluetun is gluetun in the gateway's pod, with nothing of it started.
func (w *world) newGluetun(env map[string]string, rules string) *gluetun {
	return &gluetun{
		host: w.gateway, env: env, rules: rules,
		local4: []string{"10.244.0.0/24"}, local6: []string{"2001:db8:2::/64", "fe80::/64"},
		gateway4: "10.244.0.1", gateway6: "2001:db8:2::1",
	}
}

// script runs lines one by one, up to the first that fails.
func (g *gluetun) script(lines []string) {
	g.T.Helper()
	g.Exec("sh", "-ec", strings.Join(lines, "\n"))
}

// start is what happens at each start of the container, up to the tunnel.
func (g *gluetun) start() error {
	g.T.Helper()
	g.firewall()
	g.routing()
	return g.up()
}

// firewall appends its rules again at each start: it never looks whether they
// are there. The user's come ahead of those that follow from the settings.
func (g *gluetun) firewall() {
	g.T.Helper()
	var lines []string
	both := func(format string, args ...any) {
		for _, ip := range []string{"iptables", "ip6tables"} {
			lines = append(lines, ip+" "+fmt.Sprintf(format, args...))
		}
	}
	four := func(format string, args ...any) { lines = append(lines, "iptables "+fmt.Sprintf(format, args...)) }
	six := func(format string, args ...any) { lines = append(lines, "ip6tables "+fmt.Sprintf(format, args...)) }
	for _, chain := range []string{"INPUT", "OUTPUT", "FORWARD"} {
		both("-P %s DROP", chain)
	}
	both("-A INPUT -i lo -j ACCEPT")
	both("-A OUTPUT -o lo -j ACCEPT")
	both("-A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT")
	both("-A OUTPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT")
	for _, n := range g.local4 {
		four("-A OUTPUT -s %s -d %s -o eth0 -j ACCEPT", gateway4, n)
		four("-A INPUT -d %s -i eth0 -j ACCEPT", n)
	}
	six("-A OUTPUT -d ff02::1:ff00:0/104 -o eth0 -j ACCEPT")
	for _, n := range g.local6 {
		six("-A OUTPUT -s %s -d %s -o eth0 -j ACCEPT", gateway6, n)
		six("-A INPUT -d %s -i eth0 -j ACCEPT", n)
	}
	for l := range strings.Lines(g.rules) {
		// Other lines are left out in silence.
		if strings.HasPrefix(l, "iptables ") || strings.HasPrefix(l, "ip6tables ") {
			lines = append(lines, strings.TrimSpace(l))
		}
	}
	// Once for each default route.
	for range 2 {
		four("-A OUTPUT -d %s -o eth0 -p udp --dport %s -j ACCEPT", g.env["WIREGUARD_ENDPOINT_IP"], g.env["WIREGUARD_ENDPOINT_PORT"])
	}
	both("-A OUTPUT -o tun0 -j ACCEPT")
	for _, n := range list(g.env["FIREWALL_OUTBOUND_SUBNETS"]) {
		if strings.Contains(n, ":") {
			six("-A OUTPUT -s %s -d %s -o eth0 -j ACCEPT", gateway6, n)
		} else {
			four("-A OUTPUT -s %s -d %s -o eth0 -j ACCEPT", gateway4, n)
		}
	}
	for _, p := range list(g.env["FIREWALL_INPUT_PORTS"]) {
		both("-A INPUT -i eth0 -p tcp --dport %s -j ACCEPT", p)
		both("-A INPUT -i eth0 -p udp --dport %s -j ACCEPT", p)
	}
	g.script(lines)
}

func list(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
}

// routing makes the rules and tables that stay while the container lives, as
// far as they are not there from the one before.
func (g *gluetun) routing() {
	g.T.Helper()
	var lines []string
	rule := func(ip, pref, what string) {
		if !contains(g.Run(ip+" rule show pref "+pref), strings.Replace(what, "table", "lookup", 1)) {
			lines = append(lines, ip+" rule add "+what+" pref "+pref)
		}
	}
	for _, n := range g.local4 {
		rule("ip", "98", "to "+strings.TrimSuffix(n, "/32")+" lookup main")
	}
	for _, n := range g.local6 {
		rule("ip -6", "98", "to "+strings.TrimSuffix(n, "/128")+" lookup main")
	}
	for _, n := range list(g.env["FIREWALL_OUTBOUND_SUBNETS"]) {
		ip, via := "ip", g.gateway4
		if strings.Contains(n, ":") {
			ip, via = "ip -6", g.gateway6
		}
		rule(ip, "99", "to "+n+" lookup 199")
		lines = append(lines, ip+" route replace "+n+" via "+via+" dev eth0 table 199")
	}
	rule("ip", "100", "from "+gateway4+" lookup 200")
	rule("ip -6", "100", "from "+gateway6+" lookup 200")
	lines = append(lines,
		"ip route replace default via "+g.gateway4+" dev eth0 table 200",
		"ip -6 route replace default via "+g.gateway6+" dev eth0 table 200")
	g.script(lines)
}

// up brings up the tunnel: the device first, and the rule to it last. It fails
// where that rule is there already.
func (g *gluetun) up() error {
	g.T.Helper()
	g.Write("tun0.conf", fmt.Sprintf("[Interface]\nPrivateKey = %s\nFwMark = 51820\n[Peer]\nPublicKey = %s\nEndpoint = %s:%s\nAllowedIPs = 0.0.0.0/0, ::/0\n",
		testKey("tunnel", 0), g.env["WIREGUARD_PUBLIC_KEY"], g.env["WIREGUARD_ENDPOINT_IP"], g.env["WIREGUARD_ENDPOINT_PORT"]))
	g.tunnel = g.wireguardGo("tun0")
	g.script([]string{
		"ip addr add " + tunnel4 + "/32 dev tun0", "ip addr add " + tunnel6 + "/128 dev tun0 nodad", "ip link set tun0 mtu " + g.env["WIREGUARD_MTU"] + " up",
		"ip route add default dev tun0 table 51820", "ip -6 route add default dev tun0 table 51820",
	})
	for _, l := range []string{"ip -6 rule add not fwmark 51820 lookup 51820 pref 101", "ip rule add not fwmark 51820 lookup 51820 pref 101"} {
		if _, err := g.Try(strings.Fields(l)...); err != nil {
			g.tunnel.Kill()
			return err
		}
	}
	g.exit(provider4)
	return nil
}

// stop ends the tunnel as gluetun does on its own restart: the rules first, and
// the device a moment later.
func (g *gluetun) stop() {
	g.T.Helper()
	g.script([]string{"ip rule del pref 101", "ip -6 rule del pref 101", "sleep 0.2"})
	g.tunnel.Kill()
	g.exit("")
}

// terminate is a SIGTERM. The firewall stays, and so does rule 98.
func (g *gluetun) terminate() {
	g.T.Helper()
	g.stop()
	g.script([]string{"ip rule del pref 100", "ip -6 rule del pref 100"})
}

// crash is a SIGKILL. All rules stay, and the tunnel is gone with its process.
func (g *gluetun) crash() {
	g.tunnel.Kill()
	g.exit("")
}

// cleanUp removes the rule that crash leaves, as the agent does.
func (g *gluetun) cleanUp() {
	for _, ip := range []string{"ip", "ip -6"} {
		_, _ = g.Try(strings.Fields(ip + " rule del pref 101")...)
	}
}

// open is what 3.41.1 does when its firewall cannot be set up.
func (g *gluetun) open() {
	g.T.Helper()
	var lines []string
	for _, ip := range []string{"iptables", "ip6tables"} {
		for _, l := range []string{"--flush", "--delete-chain", "-P INPUT ACCEPT", "-P OUTPUT ACCEPT", "-P FORWARD ACCEPT"} {
			lines = append(lines, ip+" "+l)
		}
	}
	g.script(lines)
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
