// Package gluetun is what the stand-ins for gluetun have in common, whose program
// cannot be had for tests: what versions 3.41.1 and master were seen to do to a
// pod's network, in their order, and what their control servers answer.
package gluetun

import (
	"fmt"
	"strings"
)

// Device is gluetun's tunnel.
const Device = "tun0"

// Mark is that of the tunnel's own packets, and the number of its table.
const Mark = 51820

// Settings are what gluetun is started with.
type Settings struct {
	// Env is the container's environment.
	Env map[string]string
	// Rules is post-rules.txt.
	Rules string
	// Server is the address of the server, and Port its UDP port, that gluetun
	// has from its own list. For provider custom they are in Env.
	Server, Port string
}

// OpenVPN tells that the tunnel is of that type, and not WireGuard's.
func (s Settings) OpenVPN() bool { return s.Env["VPN_TYPE"] == "openvpn" }

// Endpoint returns where the server is.
func (s Settings) Endpoint() (address, port string) {
	if s.Server != "" {
		return s.Server, s.Port
	}
	return s.Env["WIREGUARD_ENDPOINT_IP"], s.Env["WIREGUARD_ENDPOINT_PORT"]
}

// Network is what gluetun finds of a pod's network.
type Network struct {
	// Device leads out of the pod.
	Device string
	// Address4 and Address6 are those of the device. One of them may be empty.
	Address4, Address6 string
	// Local4 and Local6 are the networks of the device.
	Local4, Local6 []string
	// Gateway4 and Gateway6 are those of the default routes.
	Gateway4, Gateway6 string
}

// List returns the values of a variable.
func List(s string) []string {
	return strings.FieldsFunc(s, func(r rune) bool { return r == ',' })
}

// Firewall returns the commands that append gluetun's rules again at each start:
// it never looks whether they are there. The user's come ahead of those that
// follow from the settings.
func Firewall(s Settings, n Network) []string {
	var lines []string
	four := func(format string, args ...any) { lines = append(lines, "iptables "+fmt.Sprintf(format, args...)) }
	six := func(format string, args ...any) { lines = append(lines, "ip6tables "+fmt.Sprintf(format, args...)) }
	both := func(format string, args ...any) {
		four(format, args...)
		six(format, args...)
	}
	for _, chain := range []string{"INPUT", "OUTPUT", "FORWARD"} {
		both("-P %s DROP", chain)
	}
	both("-A INPUT -i lo -j ACCEPT")
	both("-A OUTPUT -o lo -j ACCEPT")
	both("-A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT")
	both("-A OUTPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT")
	for _, local := range n.Local4 {
		four("-A OUTPUT -s %s -d %s -o %s -j ACCEPT", n.Address4, local, n.Device)
		four("-A INPUT -d %s -i %s -j ACCEPT", local, n.Device)
	}
	six("-A OUTPUT -d ff02::1:ff00:0/104 -o %s -j ACCEPT", n.Device)
	for _, local := range n.Local6 {
		six("-A OUTPUT -s %s -d %s -o %s -j ACCEPT", n.Address6, local, n.Device)
		six("-A INPUT -d %s -i %s -j ACCEPT", local, n.Device)
	}
	for l := range strings.Lines(s.Rules) {
		// Other lines are left out in silence.
		if strings.HasPrefix(l, "iptables ") || strings.HasPrefix(l, "ip6tables ") {
			lines = append(lines, strings.TrimSpace(l))
		}
	}
	server, port := s.Endpoint()
	for _, gateway := range []string{n.Gateway4, n.Gateway6} {
		if gateway == "" {
			continue
		}
		// Once for each default route, whatever its family.
		endpoint := four
		if strings.Contains(server, ":") {
			endpoint = six
		}
		endpoint("-A OUTPUT -d %s -o %s -p udp --dport %s -j ACCEPT", server, n.Device, port)
	}
	both("-A OUTPUT -o " + Device + " -j ACCEPT")
	for _, subnet := range List(s.Env["FIREWALL_OUTBOUND_SUBNETS"]) {
		switch {
		case !strings.Contains(subnet, ":"):
			four("-A OUTPUT -s %s -d %s -o %s -j ACCEPT", n.Address4, subnet, n.Device)
		case n.Address6 != "":
			six("-A OUTPUT -s %s -d %s -o %s -j ACCEPT", n.Address6, subnet, n.Device)
		}
	}
	for _, port := range List(s.Env["FIREWALL_INPUT_PORTS"]) {
		both("-A INPUT -i %s -p tcp --dport %s -j ACCEPT", n.Device, port)
		both("-A INPUT -i %s -p udp --dport %s -j ACCEPT", n.Device, port)
	}
	return lines
}

// Routing returns the commands for the rules and tables that stay while the
// container lives, as far as they are not there from the one before. The
// function runs a command and returns what it prints.
func Routing(s Settings, n Network, run func(command string) string) []string {
	var lines []string
	rule := func(ip, pref, what string) {
		if !strings.Contains(run(ip+" rule show pref "+pref), strings.Replace(what, "table", "lookup", 1)) {
			lines = append(lines, ip+" rule add "+what+" pref "+pref)
		}
	}
	for _, local := range n.Local4 {
		rule("ip", "98", "to "+strings.TrimSuffix(local, "/32")+" lookup main")
	}
	for _, local := range n.Local6 {
		rule("ip -6", "98", "to "+strings.TrimSuffix(local, "/128")+" lookup main")
	}
	for _, subnet := range List(s.Env["FIREWALL_OUTBOUND_SUBNETS"]) {
		ip, via := "ip", n.Gateway4
		if strings.Contains(subnet, ":") {
			ip, via = "ip -6", n.Gateway6
		}
		if via == "" {
			continue
		}
		rule(ip, "99", "to "+subnet+" lookup 199")
		lines = append(lines, ip+" route replace "+subnet+" via "+via+" dev "+n.Device+" table 199")
	}
	for _, family := range [][3]string{{"ip", n.Address4, n.Gateway4}, {"ip -6", n.Address6, n.Gateway6}} {
		if ip, address, via := family[0], family[1], family[2]; via != "" {
			rule(ip, "100", "from "+address+" lookup 200")
			lines = append(lines, ip+" route replace default via "+via+" dev "+n.Device+" table 200")
		}
	}
	return lines
}

// Address returns the commands that give the tunnel's device its addresses and
// its routes.
func Address(s Settings, addresses ...string) []string {
	var lines []string
	six := false
	for _, a := range addresses {
		nodad := ""
		if strings.Contains(a, ":") {
			six, nodad = true, " nodad"
		}
		lines = append(lines, "ip addr add "+a+" dev "+Device+nodad)
	}
	lines = append(lines, "ip link set "+Device+" mtu "+s.Env["WIREGUARD_MTU"]+" up", fmt.Sprintf("ip route add default dev %s table %d", Device, Mark))
	if six {
		lines = append(lines, fmt.Sprintf("ip -6 route add default dev %s table %d", Device, Mark))
	}
	return lines
}

// halves are the routes that OpenVPN's "redirect-gateway def1 ipv6" stands for.
// They are more specific than the default routes, which stay.
var (
	halves4 = []string{"0.0.0.0/1", "128.0.0.0/1"}
	halves6 = []string{"::/3", "2000::/4", "3000::/4", "fc00::/7"}
)

// Lead returns the commands by which OpenVPN leads into its tunnel, once the
// device is there: gluetun's own table stays empty, and it has no rule. The
// addresses have their network's length. The gateway is the server's address
// inside the tunnel; OpenVPN leaves to the kernel which device it is behind. A
// route to the server that is there already does no harm.
func Lead(s Settings, n Network, gateway string, addresses ...string) []string {
	var lines []string
	for _, a := range addresses {
		nodad := ""
		if strings.Contains(a, ":") {
			nodad = " nodad"
		}
		lines = append(lines, "ip addr add "+a+" dev "+Device+nodad)
	}
	server, _ := s.Endpoint()
	lines = append(lines, "ip link set "+Device+" mtu 1500 up", "ip route replace "+server+"/32 via "+n.Gateway4+" dev "+n.Device)
	for _, half := range halves4 {
		lines = append(lines, "ip route add "+half+" via "+gateway)
	}
	if n.Gateway6 != "" {
		for _, half := range halves6 {
			lines = append(lines, "ip -6 route add "+half+" dev "+Device)
		}
	}
	return lines
}

// Unlead returns the commands by which OpenVPN takes away what Lead made, when
// it connects anew. The device goes next. Where gluetun kills it, the route to
// the server stays.
func Unlead(s Settings, n Network) []string {
	server, _ := s.Endpoint()
	lines := []string{"ip route del " + server + "/32"}
	for _, half := range halves4 {
		lines = append(lines, "ip route del "+half)
	}
	if n.Gateway6 != "" {
		for _, half := range halves6 {
			lines = append(lines, "ip -6 route del "+half+" dev "+Device)
		}
	}
	return lines
}

// Divert returns the commands that send all into the tunnel. They come last, and
// each fails where its rule is there already.
func Divert(six bool) []string {
	lines := []string{fmt.Sprintf("ip rule add not fwmark %d lookup %[1]d pref 101", Mark)}
	if six {
		lines = append([]string{fmt.Sprintf("ip -6 rule add not fwmark %d lookup %[1]d pref 101", Mark)}, lines...)
	}
	return lines
}

// Undivert returns the commands that take the rules of Divert away again.
func Undivert() []string { return deletions("101") }

// Leave returns the commands that take away what Routing made, when gluetun is
// told to end. The firewall stays, and so does rule 98.
func Leave() []string { return deletions("100") }

func deletions(pref string) []string {
	return []string{"ip rule del pref " + pref, "ip -6 rule del pref " + pref}
}

// Open returns the commands by which 3.41.1 gives up its firewall where that
// cannot be set up.
func Open() []string {
	var lines []string
	for _, ip := range []string{"iptables", "ip6tables"} {
		for _, l := range []string{"--flush", "--delete-chain", "-P INPUT ACCEPT", "-P OUTPUT ACCEPT", "-P FORWARD ACCEPT"} {
			lines = append(lines, ip+" "+l)
		}
	}
	return lines
}
