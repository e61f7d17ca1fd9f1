package dataplane

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/crossplane/function-sdk-go/logging"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wireguardgateway/function-wireguard-gateway/fn"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/offline"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
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

	tunnel *process

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
	g.t.Helper()
	g.exec("sh", "-ec", strings.Join(lines, "\n"))
}

// start is what happens at each start of the container, up to the tunnel.
func (g *gluetun) start() error {
	g.t.Helper()
	g.firewall()
	g.routing()
	return g.up()
}

// firewall appends its rules again at each start: it never looks whether they
// are there. The user's come ahead of those that follow from the settings.
func (g *gluetun) firewall() {
	g.t.Helper()
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
	g.t.Helper()
	var lines []string
	rule := func(ip, pref, what string) {
		if !contains(g.run(ip+" rule show pref "+pref), strings.Replace(what, "table", "lookup", 1)) {
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
	g.t.Helper()
	g.write("tun0.conf", fmt.Sprintf("[Interface]\nPrivateKey = %s\nFwMark = 51820\n[Peer]\nPublicKey = %s\nEndpoint = %s:%s\nAllowedIPs = 0.0.0.0/0, ::/0\n",
		testKey("tunnel", 0), g.env["WIREGUARD_PUBLIC_KEY"], g.env["WIREGUARD_ENDPOINT_IP"], g.env["WIREGUARD_ENDPOINT_PORT"]))
	g.tunnel = g.wireguardGo("tun0")
	g.script([]string{
		"ip addr add " + tunnel4 + "/32 dev tun0", "ip addr add " + tunnel6 + "/128 dev tun0 nodad", "ip link set tun0 mtu " + g.env["WIREGUARD_MTU"] + " up",
		"ip route add default dev tun0 table 51820", "ip -6 route add default dev tun0 table 51820",
	})
	for _, l := range []string{"ip -6 rule add not fwmark 51820 lookup 51820 pref 101", "ip rule add not fwmark 51820 lookup 51820 pref 101"} {
		if _, err := g.try(strings.Fields(l)...); err != nil {
			g.tunnel.kill()
			return err
		}
	}
	g.exit(provider4)
	return nil
}

// stop ends the tunnel as gluetun does on its own restart: the rules first, and
// the device a moment later.
func (g *gluetun) stop() {
	g.t.Helper()
	g.script([]string{"ip rule del pref 101", "ip -6 rule del pref 101", "sleep 0.2"})
	g.tunnel.kill()
	g.exit("")
}

// terminate is a SIGTERM. The firewall stays, and so does rule 98.
func (g *gluetun) terminate() {
	g.t.Helper()
	g.stop()
	g.script([]string{"ip rule del pref 100", "ip -6 rule del pref 100"})
}

// crash is a SIGKILL. All rules stay, and the tunnel is gone with its process.
func (g *gluetun) crash() {
	g.tunnel.kill()
	g.exit("")
}

// open is what 3.41.1 does when its firewall cannot be set up.
func (g *gluetun) open() {
	g.t.Helper()
	var lines []string
	for _, ip := range []string{"iptables", "ip6tables"} {
		for _, l := range []string{"--flush", "--delete-chain", "-P INPUT ACCEPT", "-P OUTPUT ACCEPT", "-P FORWARD ACCEPT"} {
			lines = append(lines, ip+" "+l)
		}
	}
	g.script(lines)
}

// exit is what the control server tells of the tunnel from now on.
func (g *gluetun) exit(publicIP string, ports ...int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.publicIP, g.ports = publicIP, ports
}

// serve answers as gluetun's control server, with the role that the function
// gives it, and where its resolver and its health server are.
func (g *gluetun) serve(role string) {
	g.t.Helper()
	auth := struct {
		Auth   string `json:"auth"`
		APIKey string `json:"apikey"`
	}{}
	if err := json.Unmarshal([]byte(role), &auth); err != nil || auth.Auth != "apikey" || auth.APIKey == "" {
		g.t.Fatalf("no role that gluetun knows: %v", err)
	}
	l := g.listen(g.env["HTTP_CONTROL_SERVER_ADDRESS"])
	go func() { _ = http.Serve(l, g.control(auth.APIKey)) }()
	g.echo(53)
	g.listen("127.0.0.1:9999")
}

func (g *gluetun) control(key string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		defer g.mu.Unlock()
		answer := map[string]any{}
		switch {
		case r.Header.Get("X-Api-Key") != key:
			w.WriteHeader(http.StatusUnauthorized)
			return
		case r.RequestURI == "/v1/publicip/ip":
			answer["public_ip"] = g.publicIP
			if g.publicIP != "" {
				answer["country"], answer["city"] = "CH", "Testville"
			}
		case r.RequestURI == "/v1/portforward":
			if port := append(g.ports, 0)[0]; g.next || len(g.ports) < 2 {
				answer["port"] = port
			}
			if g.next || len(g.ports) > 1 {
				answer["ports"] = append([]int{}, g.ports...)
			}
		case r.RequestURI == "/v1/vpn/status":
			// A tunnel that does not pass anything is running all the same.
			answer["status"] = map[bool]string{true: "running", false: "stopped"}[g.publicIP != ""]
		case r.RequestURI == "/v1/openvpn/portforwarded":
			http.Redirect(w, r, "/v1/portforward", http.StatusMovedPermanently)
			return
		case g.next:
			w.WriteHeader(http.StatusNotFound)
			return
		default:
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_ = json.NewEncoder(w).Encode(answer)
	})
}

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
	// wg(8) removes a socket that nobody answers on, and may hit the new one.
	h.run("rm -f /run/wireguard/" + device + ".sock")
	p := h.start("env", "LOG_LEVEL=error", wireguardGoBinary, "-f", device)
	waitFor(h.t, limit, "wireguard-go", func() error {
		_, err := h.try("wg", "setconf", device, "/run/"+device+".conf")
		return err
	})
	return p
}

// egressGateway is a gateway with gluetun, and everything that the function
// composes for it.
type egressGateway struct {
	t        *testing.T
	spec     *unstructured.Unstructured
	composed []*unstructured.Unstructured
}

// egressSpec sends all that peers send to the internet through the provider.
// The phone may reach one port of it only.
var egressSpec = `
apiVersion: wireguardgateway.io/v1alpha1
kind: WireguardGateway
metadata: {name: home, namespace: vpn, uid: gateway}
spec:
  endpoint: {host: ` + gateway4 + `}
  peerCIDR: ` + pool4 + `
  peerCIDRv6: ` + pool6 + `
  peerToPeer: true
  gluetun:
    provider: custom
    credentials: {secretRef: {name: provider}}
    endpoint: {ip: ` + provider4 + `, port: 51821, publicKey: "` + testKey("provider", 0).Public().String() + `"}
  extraContainers:
    - name: dashboard
      image: registry.example.com/dashboard:v1
      ports: [{name: web, containerPort: 8088}]
  peers:
    - name: laptop
    - name: phone
      access: [{action: Accept, to: {cidr: ` + server4 + `/32, ports: ["443"]}}]
    - name: site
      publicKey: "` + testKey("client", 3).Public().String() + `"
      endpoint: 192.0.2.14:51000
      persistentKeepalive: 1
`

const egressInput = `
apiVersion: wireguard.fn.crossplane.io/v1beta1
kind: Input
spec:
  podCIDRs: [10.244.0.0/16]
  serviceCIDRs: [10.43.0.0/16, "fd43::/64", 10.96.0.0/24]
`

func newEgressGateway(t *testing.T) *egressGateway {
	t.Helper()
	e := &egressGateway{t: t, spec: manifest(t, egressSpec)}
	for range 3 {
		e.render("")
	}
	return e
}

// render runs the function once, with this report of the agent's.
func (e *egressGateway) render(report string) {
	e.t.Helper()
	for _, o := range e.composed {
		if o.GetKind() == "ConfigMap" && report != "" {
			o.Object["data"] = map[string]any{wireguard.ReportKey: report}
		}
	}
	rsp, err := offline.Run(e.t.Context(), fn.New(logging.NewNopLogger()),
		offline.Request{Composite: e.spec, Observed: e.composed, Required: e.composed, Input: manifest(e.t, egressInput)})
	if err != nil {
		e.t.Fatal(err)
	}
	if len(rsp.GetResults()) > 0 {
		e.t.Fatal(rsp.GetResults())
	}
	e.composed = offline.Composed(e.spec, rsp)
	e.spec.Object["status"] = rsp.GetDesired().GetComposite().GetResource().AsMap()["status"]
	conditions := map[string]any{}
	for _, c := range rsp.GetConditions() {
		conditions[c.GetType()] = c.GetReason()
	}
	e.spec.Object["conditions"] = conditions
}

// data returns a value of a composed Secret.
func (e *egressGateway) data(secret, key string) string {
	e.t.Helper()
	for _, o := range e.composed {
		if o.GetKind() != "Secret" || o.GetName() != secret {
			continue
		}
		v, _, _ := unstructured.NestedString(o.Object, "data", key)
		b, err := base64.StdEncoding.DecodeString(v)
		if err != nil {
			e.t.Fatal(err)
		}
		return string(b)
	}
	e.t.Fatalf("nothing composes %s with %s", secret, key)
	return ""
}

func (e *egressGateway) file(key string) string { return e.data("home-wireguard.config", key) }

func (e *egressGateway) config() wireguard.GatewayConfig {
	e.t.Helper()
	c, err := wireguard.DecodeGatewayConfig([]byte(e.file(wireguard.ConfigKey)))
	if err != nil {
		e.t.Fatal(err)
	}
	return c
}

// env is what gluetun's container gets.
func (e *egressGateway) env() map[string]string {
	e.t.Helper()
	out := map[string]string{}
	for _, o := range e.composed {
		if o.GetKind() != "Deployment" {
			continue
		}
		containers, _, _ := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "initContainers")
		for _, c := range containers {
			if container := c.(map[string]any); container["name"] == "gluetun" {
				for _, v := range container["env"].([]any) {
					value, _ := v.(map[string]any)["value"].(string)
					out[v.(map[string]any)["name"].(string)] = value
				}
			}
		}
	}
	return out
}

// write mounts what the pod's containers find.
func (e *egressGateway) write(h *host) {
	e.t.Helper()
	h.write("config/"+wireguard.ConfigKey, e.file(wireguard.ConfigKey))
	h.write("config/"+wireguard.GluetunAuthKey, e.file(wireguard.GluetunAuthKey))
	e.credentials(h)
}

// credentials mounts the user's Secret.
func (e *egressGateway) credentials(h *host) {
	e.t.Helper()
	for _, name := range e.config().Egress.Credentials {
		h.write("secrets/gluetun/"+name, "x")
	}
}

// connect brings up a peer's tunnel from its Secret.
func (e *egressGateway) connect(c *client, peer string) {
	e.t.Helper()
	// wg-quick hands resolvers to resolvconf(8), which is not there.
	conf := regexp.MustCompile(`(?m)^DNS = .*\n`).ReplaceAllString(e.data("home-wireguard.peer."+peer, "direct.conf"), "")
	c.upConf(conf)
}

// address returns a peer's IPv4 address.
func (e *egressGateway) address(peer string) string {
	e.t.Helper()
	for _, p := range e.config().Peers {
		if p.Name == peer {
			return p.Addresses[0].String()
		}
	}
	e.t.Fatalf("no peer %s", peer)
	return ""
}

// TestGluetunStandIn holds that the stand-in leaves in the pod's network what
// gluetun was seen to leave there, also when its container starts again.
func TestGluetunStandIn(t *testing.T) {
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
		for l := range strings.Lines(g.run(command)) {
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
	if out := g.run("ip rule show"); contains(out, "100:") || contains(out, "101:") || !contains(out, "98:") {
		t.Errorf("terminated: rules %s", out)
	}
	lines := strings.Count(g.run("iptables -S"), "\n")
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(g.run("iptables -S"), "\n"); n != 2*lines-3 {
		t.Errorf("started again: %d lines, want each rule twice: %d", n, 2*lines-3)
	}
	g.crash()
	if err := g.start(); err == nil || !strings.Contains(err.Error(), "File exists") {
		t.Errorf("started again after a kill: want a failure on the stale rule, got %v", err)
	}
}

// TestGluetunStandInAPI holds that the stand-in's control server answers as
// gluetun's did, in both versions.
func TestGluetunStandInAPI(t *testing.T) {
	g := &gluetun{publicIP: provider4}
	const full = `{"city":"Testville","country":"CH","public_ip":"198.51.100.10"}`
	cases := map[string]struct {
		path, key string
		next      bool
		publicIP  string
		ports     []int
		code      int
		body      string
	}{
		"NoKey":       {"/v1/publicip/ip", "", false, provider4, nil, 401, ""},
		"OtherKey":    {"/v1/publicip/ip", "other", true, provider4, nil, 401, ""},
		"IP":          {"/v1/publicip/ip", "k", false, provider4, nil, 200, full},
		"NextIP":      {"/v1/publicip/ip", "k", true, provider4, nil, 200, full},
		"NoIP":        {"/v1/publicip/ip", "k", false, "", nil, 200, `{"public_ip":""}`},
		"Query":       {"/v1/publicip/ip?api_key=k", "k", true, provider4, nil, 404, ""},
		"NoPort":      {"/v1/portforward", "k", false, provider4, nil, 200, `{"port":0}`},
		"NextNoPort":  {"/v1/portforward", "k", true, provider4, nil, 200, `{"port":0,"ports":[]}`},
		"Port":        {"/v1/portforward", "k", false, provider4, []int{8}, 200, `{"port":8}`},
		"Ports":       {"/v1/portforward", "k", false, provider4, []int{8, 9}, 200, `{"ports":[8,9]}`},
		"NextPorts":   {"/v1/portforward", "k", true, provider4, []int{8, 9}, 200, `{"port":8,"ports":[8,9]}`},
		"Old":         {"/v1/openvpn/portforwarded", "k", false, provider4, nil, 301, ""},
		"Running":     {"/v1/vpn/status", "k", false, provider4, nil, 200, `{"status":"running"}`},
		"Stopped":     {"/v1/vpn/status", "k", true, "", nil, 200, `{"status":"stopped"}`},
		"Unknown":     {"/v1/other", "k", false, provider4, nil, 401, ""},
		"NextUnknown": {"/v1/other", "k", true, provider4, nil, 404, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g.next = tc.next
			g.exit(tc.publicIP, tc.ports...)
			r := httptest.NewRequest(http.MethodGet, tc.path, http.NoBody)
			r.Header.Set("X-Api-Key", tc.key)
			w := httptest.NewRecorder()
			g.control("k").ServeHTTP(w, r)
			body := strings.TrimSpace(w.Body.String())
			if w.Code != tc.code || tc.body != body && tc.code == http.StatusOK {
				t.Errorf("want %d %s, got %d %s", tc.code, tc.body, w.Code, body)
			}
		})
	}
}
