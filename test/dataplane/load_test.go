package dataplane

import (
	"fmt"
	"net"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"
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

// watchAround counts from now on.
func (w *world) watchAround() around {
	w.t.Helper()
	w.router.nft(fmt.Sprintf(`table netdev around {
		counter peers {}
		counter masqueraded {}
		counter tunnel {}
		counter probes {}
		chain ingress { type filter hook ingress device "r-gateway" priority -500;
			ip saddr %s counter name peers
			ip6 saddr %s counter name peers
			ip saddr %s ip daddr %s ip protocol { icmp, udp } counter name masqueraded
			ip6 saddr %s ip6 daddr %s ip6 nexthdr { ipv6-icmp, udp } counter name masqueraded
			ip saddr %s ip daddr %s tcp dport != %d counter name masqueraded
			ip6 saddr %s ip6 daddr %s tcp dport != %d counter name masqueraded
			ip saddr %s counter name tunnel
			ip6 saddr %s counter name tunnel
			ip daddr { 1.1.1.1, 8.8.8.8 } counter name probes
			ip6 daddr { 2606:4700:4700::1111, 2001:4860:4860::8888 } counter name probes
		}
	}`, pool4, pool6, gateway4, server4, gateway6, server6, gateway4, server4, podPort, gateway6, server6, podPort, tunnel4, tunnel6))
	return around{w}
}

var namedCounter = regexp.MustCompile(`counter (\w+) {\s+packets (\d+)`)

// packets returns how many there were, by whose they are.
func (c around) packets() map[string]int {
	c.w.t.Helper()
	out := map[string]int{}
	for _, m := range namedCounter.FindAllStringSubmatch(c.w.router.run("nft list counters table netdev around"), -1) {
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

// leaked returns how many of the peers' there were so far.
func (c around) leaked() int {
	p := c.packets()
	return p["peers"] + p["masqueraded"]
}

// callers records who sent anything to the server, by both families.
func (w *world) callers() func() string {
	w.t.Helper()
	w.server.nft(`table inet callers {
		set four { type ipv4_addr; flags dynamic; size 1024; }
		set six { type ipv6_addr; flags dynamic; size 1024; }
		chain input { type filter hook input priority -300;
			iifname "lo" accept
			update @four { ip saddr }
			ip6 saddr != fe80::/10 ip6 saddr != 2001:db8:4::1 update @six { ip6 saddr }
		}
	}`)
	return func() string { return w.server.run("nft list table inet callers") }
}

// load is traffic that goes on whatever happens.
type load struct {
	beacons []*beacon
	stop    chan struct{}
	// bytes came back on TCP connections.
	bytes atomic.Int64
}

// load sends from a peer by UDP, TCP and ICMP, by both families.
func (c *client) load() *load {
	c.t.Helper()
	l := &load{stop: make(chan struct{})}
	for _, a := range []string{server4, server6} {
		l.beacons = append(l.beacons, c.beacon(a, 443))
		c.stream(l, net.JoinHostPort(a, "443"))
		c.start("ping", "-n", "-q", "-i", "0.1", a)
	}
	c.t.Cleanup(func() { close(l.stop) })
	return l
}

// stream keeps a TCP connection busy. It makes another only where the one
// before has failed.
func (h *host) stream(l *load, address string) {
	h.t.Helper()
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
		b.answered(t, time.Now())
	}
	t.Logf("%s: peers served again after %s", what, time.Since(after).Round(10*time.Millisecond))
}

// flows waits until something comes back by TCP.
func (l *load) flows(t *testing.T) {
	t.Helper()
	waitFor(t, limit, "load", func() error {
		if l.bytes.Load() < 10_000 {
			return fmt.Errorf("%d bytes came back", l.bytes.Load())
		}
		return nil
	})
}
