package dataplane

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/kube/kubetest"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// podNetworks4 and podNetworks6 hold the pods of the tests.
const podNetworks4, podNetworks6 = "10.244.0.0/16", "2001:db8:5::/48"

// clusterNetworks are what pods reach directly, where they do.
var clusterNetworks = []string{podNetworks4, podNetworks6, "2001:db8:2::/64"}

// media is the class of pods of the tests.
var media = wireguard.PodClass{Namespace: "apps", Name: "media", Key: seed.PodClassKey("apps", "media")}

// podConfig is a gateway's configuration with that class.
func podConfig(peers ...wireguard.Peer) wireguard.GatewayConfig {
	c := configWith(peers...)
	c.PodClasses = []wireguard.PodClass{media}
	c.PodCIDRs = prefixes(podNetworks4, podNetworks6)
	return c
}

// pod is a pod of the class, and the host that is its network.
type pod struct {
	*host
	w         *world
	name, uid string
	four, six string
	object    kubetest.Object
	port      string        // of the router
	gateway   wireguard.Key // its public key
}

// pod makes the n-th pod, from 1. It is attached to the network, and nothing
// else.
func (w *world) pod(n int) *pod { return w.podNamed(fmt.Sprintf("media-%d", n), n) }

// podNamed makes a pod with the n-th address, whatever pod had it before.
func (w *world) podNamed(name string, n int) *pod {
	w.t.Helper()
	h := w.attach(name,
		fmt.Sprintf("10.244.1.%d/30", 4*n+2), fmt.Sprintf("10.244.1.%d/30", 4*n+1),
		fmt.Sprintf("2001:db8:5:%d::2/64", n), fmt.Sprintf("2001:db8:5:%d::1/64", n))
	p := &pod{host: h, w: w, name: name, uid: "uid-" + name, four: fmt.Sprintf("10.244.1.%d", 4*n+2), six: fmt.Sprintf("2001:db8:5:%d::2", n), port: "r-" + name, gateway: serverKey.Public()}
	p.object = podObject(name, p.uid, p.four, p.six)
	return p
}

// podObject is a pod as admission writes it and the kubelet reports it, in part.
func podObject(name, uid string, addresses ...string) kubetest.Object {
	ips := make([]any, len(addresses))
	for i, a := range addresses {
		ips[i] = map[string]any{"ip": a}
	}
	return kubetest.Object{
		"kind": "Pod", "apiVersion": "v1",
		"metadata": map[string]any{
			"namespace": media.Namespace, "name": name, "uid": uid, "creationTimestamp": time.Now().UTC().Format(time.RFC3339),
			"labels": map[string]any{wireguard.PeerLabel: media.Name},
		},
		"spec": map[string]any{
			"initContainers": []any{map[string]any{
				"name": wireguard.Sidecar, "volumeMounts": []any{map[string]any{"name": "wireguard-enrolment", "mountPath": "/etc/wireguard"}},
			}},
			"volumes": []any{map[string]any{"name": "wireguard-enrolment", "secret": map[string]any{"secretName": names.Enrolment(media.Name)}}},
		},
		"status": map[string]any{"phase": "Pending", "podIPs": ips, "startTime": time.Now().UTC().Format(time.RFC3339)},
	}
}

// set changes a field of the pod's status.
func (p *pod) set(field string, value any) {
	p.object["status"].(map[string]any)[field] = value
}

func (p *pod) key() wireguard.Key { return wireguard.PodKey(media.Key, p.uid) }

// join brings up the pod's tunnel with the rules that were measured to hold, and
// standard tools. The networks given it reaches directly.
func (p *pod) join(bypass ...string) {
	p.T.Helper()
	p.Write("wgc0.conf", fmt.Sprintf("[Interface]\nPrivateKey = %s\nListenPort = %d\nFwMark = %d\n[Peer]\nPublicKey = %s\nEndpoint = %s:51820\nAllowedIPs = 0.0.0.0/0, ::/0\nPersistentKeepalive = 25\n",
		p.key(), wireguard.ClientPort, wireguard.FirewallMark, p.gateway, gateway4))
	var rules, four, six []string
	for _, b := range bypass {
		if strings.Contains(b, ":") {
			six = append(six, "ip6 daddr "+b+" accept")
			rules = append(rules, "ip -6 rule add prio 101 to "+b+" lookup main")
		} else {
			four = append(four, "ip daddr "+b+" accept")
			rules = append(rules, "ip rule add prio 101 to "+b+" lookup main")
		}
	}
	p.NFT(fmt.Sprintf(`table inet %s
		delete table inet %s
		table inet %s {
		chain prerouting { type filter hook prerouting priority mangle;
			iifname "eth0" ct direction original ct mark set 0xca6c
			iifname "wgc0" ct direction original ct mark set 0xca6d
			iifname "eth0" meta mark set 0xca6c
			iifname "wgc0" meta mark set 0xca6d
		}
		chain reroute { type route hook output priority mangle;
			ct mark 0xca6c ct direction reply meta mark set 0xca6c
			ct mark 0xca6d ct direction reply meta mark set 0xca6d
		}
		chain postrouting { type filter hook postrouting priority 0; policy drop;
			oifname { "lo", "wgc0" } accept
			meta mark 0xca6c udp sport 51821 udp dport 51820 accept
			ct direction reply ct mark 0xca6c accept
			icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit, mld-listener-report, mld2-listener-report } accept
			ct direction reply counter drop
			%s
			counter drop
		}
		chain forward { type filter hook forward priority 0; policy drop; }
	}`, wireguard.LockdownTable, wireguard.LockdownTable, wireguard.LockdownTable, strings.Join(slices.Concat(four, six), "\n")))
	for _, ip := range []string{"ip", "ip -6"} {
		rules = append(rules, ip+" rule add prio 99 fwmark 0xca6d lookup 51820", ip+" rule add prio 102 not fwmark 0xca6c lookup 51820")
	}
	for _, r := range rules {
		p.Run(r)
	}
	p.device()
}

// device makes the device, and what goes with it.
func (p *pod) device() {
	p.T.Helper()
	p.Exec("sh", "-c", "LOG_LEVEL=error "+wireguardGoBinary+" wgc0 >/run/wireguard-go.log 2>&1")
	p.T.Cleanup(func() { _, _ = p.Try("ip", "link", "del", "wgc0") })
	p.Sysctl("net.ipv4.conf.eth0.rp_filter=2", "net.ipv4.conf.eth0.src_valid_mark=1", "net.ipv4.conf.wgc0.rp_filter=2", "net.ipv4.conf.wgc0.src_valid_mark=1")
	for _, l := range []string{
		"wg setconf wgc0 /run/wgc0.conf", "ip link set wgc0 mtu 1420 up",
		"ip route add default dev wgc0 src " + p.four + " table 51820", "ip -6 route add default dev wgc0 src " + p.six + " table 51820",
	} {
		p.Run(l)
	}
}

// gone takes the pod's network away, as its node does.
func (p *pod) gone() {
	p.T.Helper()
	_, _ = p.Try("ip", "link", "del", "wgc0")
	p.w.router.Run("ip link del " + p.port)
}

// podAPI is the API as far as a gateway with pods needs it.
type podAPI struct {
	*kubetest.Server
	w *world
}

// podAPI starts it, and tells the gateway's pod where it is.
func (w *world) podAPI() *podAPI {
	w.t.Helper()
	h := w.attach("api", apiserver4+"/24", "10.96.0.1/24", "2001:db8:96::2/64", "2001:db8:96::1/64")
	cert, key := (&cluster{t: w.t, host: h}).certificate()
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		w.t.Fatal(err)
	}
	api := &podAPI{Server: &kubetest.Server{}, w: w}
	server := &http.Server{Handler: api, ReadHeaderTimeout: limit}
	listener := tls.NewListener(h.listen(":6443"), &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12})
	go func() { _ = server.Serve(listener) }()
	w.t.Cleanup(func() { _ = server.Close() })
	w.gateway.Write("secrets/kubernetes.io/serviceaccount/ca.crt", cert)
	w.gateway.Write("secrets/kubernetes.io/serviceaccount/token", agentToken)
	api.Set("configmaps", kubetest.Object{"kind": "ConfigMap", "apiVersion": "v1", "metadata": map[string]any{"namespace": "vpn", "name": "home-wireguard.status"}})
	return api
}

// put writes the pod as it is.
func (api *podAPI) put(ps ...*pod) {
	for _, p := range ps {
		api.Set("pods", p.object)
	}
}

// startPodAgent starts the agent in its container, with the API.
func (w *world) startPodAgent(c wireguard.GatewayConfig) *agent {
	w.t.Helper()
	w.gateway.Write("config/config.json", encode(w.t, c))
	a := w.runPodAgent()
	a.waitReady(c)
	return a
}

func (w *world) runPodAgent() *agent {
	w.t.Helper()
	return newAgent(w.gateway, w.gateway.Start(append(container("-all,+net_admin"), "env", "KUBERNETES_SERVICE_HOST="+apiserver4, "KUBERNETES_SERVICE_PORT=6443",
		agentBinary, "gateway", "--config=/run/config/config.json", "--status=vpn/home-wireguard.status")...))
}

// serves waits until the gateway has exactly these pods as peers, beside those
// of its configuration.
func (w *world) serves(t *testing.T, configured int, want ...*pod) {
	t.Helper()
	netns.WaitFor(t, limit, "the pods on the device", func() error {
		out := w.gateway.Run("wg show wg0 allowed-ips")
		if n := strings.Count(out, "\n"); n != configured+len(want) {
			return fmt.Errorf("%d peers:\n%s", n, out)
		}
		for _, p := range want {
			if !contains(out, p.key().Public().String()) {
				return fmt.Errorf("no %s in\n%s", p.name, out)
			}
		}
		return nil
	})
}

// podsInClear counts packets that leave the gateway's pod with a pod's address
// as source, or go to a pod and are none of WireGuard's. Answers of what the
// gateway serves on TCP ports 53 and 9586 may.
func (w *world) podsInClear() func() int {
	w.t.Helper()
	var counters []func() int
	for _, m := range []string{
		"ip saddr 10.244.1.0/24", "ip6 saddr 2001:db8:5::/48",
		"ip daddr 10.244.1.0/24 udp sport != 51820", "ip daddr 10.244.1.0/24 tcp sport != { 53, 9586 }", "ip daddr 10.244.1.0/24 icmp type echo-request",
		"ip6 daddr 2001:db8:5::/48 meta l4proto udp", "ip6 daddr 2001:db8:5::/48 tcp sport != { 53, 9586 }",
	} {
		counters = append(counters, w.router.count("r-gateway", m))
	}
	return func() int {
		n := 0
		for _, c := range counters {
			n += c()
		}
		return n
	}
}
