package dataplane

import (
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
)

// around counts what leaves the gateway's pod outside of its tunnels and must
// not, as the router sees it.
type around struct {
	w *world
}

// podPort is the port of the server to which the pod's own traffic goes. It
// leaves with the pod's address where gluetun has opened its firewall, which is
// not ours to forbid.
const podPort = 444

// watchAround counts from now on, by whose packets they are and by family:
//
//	peers        those with a peer's own address
//	tcp udp icmp those to the server with the pod's address, which are peers' after a NAT
//	tunnel       those with the tunnel's address
//	sessions     those of sessions, with any address
//	probes       those to whoever the agent looks for through the tunnel
func (w *world) watchAround() around {
	w.t.Helper()
	var counters, rules string
	count := func(name, match string) {
		counters += "counter " + name + " {}\n"
		rules += match + " counter name " + name + "\n"
	}
	for _, f := range []struct{ n, ip, icmp, pool, gateway, tunnel, server, probes string }{
		{"4", "ip", "icmp", pool4, gateway4, tunnel4, server4, "1.1.1.1, 8.8.8.8"},
		{"6", "ip6", "ipv6-icmp", pool6, gateway6, tunnel6, server6, "2606:4700:4700::1111, 2001:4860:4860::8888"},
	} {
		source, to := f.ip+" saddr ", " "+f.ip+" daddr "+f.server
		count("peers"+f.n, source+f.pool)
		count("tcp"+f.n, fmt.Sprintf("%s tcp dport != %d", source+f.gateway+to, podPort))
		count("udp"+f.n, source+f.gateway+to+" meta l4proto udp")
		count("icmp"+f.n, source+f.gateway+to+" meta l4proto "+f.icmp)
		count("tunnel"+f.n, source+f.tunnel)
		count("sessions"+f.n, fmt.Sprintf("%s tcp dport %d", to, sessionPort))
		count("probes"+f.n, fmt.Sprintf("%s daddr { %s }", f.ip, f.probes))
	}
	w.router.NFT("table netdev around {\n" + counters + `chain ingress { type filter hook ingress device "r-gateway" priority -500;` + "\n" + rules + "}\n}")
	return around{w}
}

// masqueraded are the kinds of peers' packets after a NAT.
var masqueraded = []string{"tcp4", "tcp6", "udp4", "udp6", "icmp4", "icmp6"}

var namedCounter = regexp.MustCompile(`counter (\w+) {\s+packets (\d+)`)

// packets returns how many there were, by whose they are.
func (c around) packets() map[string]int {
	c.w.t.Helper()
	out := map[string]int{}
	for _, m := range namedCounter.FindAllStringSubmatch(c.w.router.Run("nft list counters table netdev around"), -1) {
		n, err := strconv.Atoi(m[2])
		if err != nil {
			c.w.t.Fatal(err)
		}
		if n > 0 {
			out[m[1]] = n
		}
	}
	return out
}

// none fails the test where there was any.
func (c around) none(t *testing.T, step string) {
	t.Helper()
	if p := c.packets(); len(p) > 0 {
		t.Errorf("%s: packets went around the tunnel: %v", step, p)
	}
}

// leaked returns how many were not the pod's own. Those of sessions come on top.
func (c around) leaked() int {
	n := 0
	for kind, packets := range c.packets() {
		if !contains(kind, "tunnel") && !contains(kind, "probes") {
			n += packets
		}
	}
	return n
}

// leak fails the test where something does not let packets of each of these
// kinds around the tunnel.
func (c around) leak(t *testing.T, step string, do func(), kinds ...string) {
	t.Helper()
	before := c.packets()
	do()
	netns.WaitFor(t, limit, step, func() error {
		after := c.packets()
		for _, kind := range kinds {
			if after[kind] == before[kind] {
				return fmt.Errorf("no %s among what leaked: %v, before %v", kind, after, before)
			}
		}
		return nil
	})
	leaked := c.packets()
	for kind, packets := range before {
		if leaked[kind] -= packets; leaked[kind] == 0 {
			delete(leaked, kind)
		}
	}
	t.Logf("%s: leaked %v", step, leaked)
}

// callers records who sends to the server, and by which protocol: a line each.
// A router that cannot pass on an answer calls nobody.
func (w *world) callers() func() string {
	w.t.Helper()
	w.server.NFT(`table inet callers {
		set four { type ipv4_addr . inet_proto; flags dynamic; size 1024; }
		set six { type ipv6_addr . inet_proto; flags dynamic; size 1024; }
		chain input { type filter hook input priority -300;
			iifname "lo" accept
			icmp type destination-unreachable accept
			icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, destination-unreachable } accept
			update @four { ip saddr . meta l4proto }
			update @six { ip6 saddr . meta l4proto }
		}
	}`)
	return func() string {
		w.t.Helper()
		var out []string
		for _, m := range element.FindAllStringSubmatch(w.server.Run("nft list table inet callers"), -1) {
			out = append(out, m[2]+" "+m[1])
		}
		slices.Sort(out)
		return strings.Join(out, "\n")
	}
}

var element = regexp.MustCompile(`([0-9a-f.:]+) \. ([a-z0-9-]+)`)

// load is traffic that goes on whatever happens.
type load struct {
	beacons []*netns.Beacon
	stop    chan struct{}
	// bytes came back on TCP connections.
	bytes atomic.Int64
}

// load sends from a peer by UDP, TCP and ICMP, by both families.
func (c *client) load() *load {
	c.T.Helper()
	l := &load{stop: make(chan struct{})}
	for _, a := range []string{server4, server6} {
		l.beacons = append(l.beacons, c.Beacon(a, 443))
		c.stream(l, net.JoinHostPort(a, "443"))
		c.Start("ping", "-n", "-q", "-i", "0.1", a)
	}
	c.T.Cleanup(func() { close(l.stop) })
	return l
}

// stream keeps a TCP connection busy. It makes another only where the one
// before has failed.
func (h *host) stream(l *load, address string) {
	h.T.Helper()
	go func() {
		for {
			select {
			case <-l.stop:
				return
			default:
			}
			c, err := h.dialQuietly(address)
			if err != nil {
				time.Sleep(50 * time.Millisecond)
				continue
			}
			go func() {
				b := make([]byte, 4096)
				for {
					n, err := c.Read(b)
					if err != nil {
						return
					}
					l.bytes.Add(int64(n))
				}
			}()
			for err == nil {
				_ = c.SetWriteDeadline(time.Now().Add(time.Minute))
				_, err = c.Write(make([]byte, 1200))
				select {
				case <-l.stop:
					err = net.ErrClosed
				case <-time.After(5 * time.Millisecond):
				}
			}
			_ = c.Close()
		}
	}()
}

// recovered waits until both families answer, after a moment, and says how long
// it took.
func (l *load) recovered(t *testing.T, after time.Time, what string) {
	t.Helper()
	for _, b := range l.beacons {
		b.Answered(t, time.Now())
	}
	t.Logf("%s: peers served again after %s", what, time.Since(after).Round(10*time.Millisecond))
}

// flows waits until something comes back by TCP.
func (l *load) flows(t *testing.T) {
	t.Helper()
	netns.WaitFor(t, limit, "load", func() error {
		if l.bytes.Load() < 10_000 {
			return fmt.Errorf("%d bytes came back", l.bytes.Load())
		}
		return nil
	})
}
