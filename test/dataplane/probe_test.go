package dataplane

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// echo answers on TCP and UDP ports of the host, at both families, with what
// it is sent.
func (h *host) echo(ports ...int) {
	h.T.Helper()
	for _, p := range ports {
		address := ":" + strconv.Itoa(p)
		l := h.listen(address)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					_, _ = io.Copy(c, c)
					_ = c.Close()
				}()
			}
		}()
		var u net.PacketConn
		var err error
		h.Within(func() { u, err = net.ListenPacket("udp", address) })
		if err != nil {
			h.T.Fatal(err)
		}
		h.T.Cleanup(func() { _ = u.Close() })
		go func() {
			b := make([]byte, 2048)
			for {
				n, from, err := u.ReadFrom(b)
				if err != nil {
					return
				}
				_, _ = u.WriteTo(b[:n], from)
			}
		}()
	}
}

// probeTime is how long an answer may take. What is dropped, and not rejected,
// takes this long.
const probeTime = 700 * time.Millisecond

// probe tells whether something gets through: "tcp 203.0.113.10 443", "udp
// 2001:db8:4::10 53", "http 10.244.0.10 9586" or "icmp 203.0.113.10".
func (h *host) probe(what string) error {
	f := strings.Fields(what)
	if f[0] == "icmp" {
		out, err := h.Try("ping", "-n", "-c1", "-W1", f[1])
		if err != nil {
			return fmt.Errorf("no answer: %s", out)
		}
		return nil
	}
	var c net.Conn
	var err error
	network := strings.Replace(f[0], "http", "tcp", 1)
	h.Within(func() { c, err = net.DialTimeout(network, net.JoinHostPort(f[1], f[2]), probeTime) })
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(probeTime))
	if f[0] == "http" {
		// Who answers at all is there.
		_, err := io.WriteString(c, "GET /healthz HTTP/1.0\r\n\r\n")
		if err == nil {
			_, err = c.Read(make([]byte, 1))
		}
		return err
	}
	return exchange(c)
}

// exchange sends something and reads it back.
func exchange(c net.Conn) error {
	if _, err := c.Write([]byte("hello")); err != nil {
		return err
	}
	b := make([]byte, 5)
	if _, err := io.ReadFull(c, b); err != nil {
		return err
	}
	if string(b) != "hello" {
		return errors.New("another answer than was sent")
	}
	return nil
}

// expect probes everything at once, and fails the test where an outcome is not
// the one that is wanted.
func (h *host) expect(t *testing.T, reason string, want map[string]bool) {
	t.Helper()
	type outcome struct {
		what string
		err  error
	}
	outcomes := make(chan outcome)
	for what := range want {
		go func() { outcomes <- outcome{what, h.probe(what)} }()
	}
	for range want {
		o := <-outcomes
		if got := o.err == nil; got != want[o.what] {
			t.Errorf("%s: %s from %s: passes is %t, want %t (%v)", reason, o.what, h.Name, got, want[o.what], o.err)
		}
	}
}

// count counts packets that come in by a device of the host and match, from
// now on.
func (h *host) count(device, match string) func() int {
	h.T.Helper()
	h.counters++
	table := fmt.Sprintf("count%d", h.counters)
	h.NFT(fmt.Sprintf("table netdev %s { chain ingress { type filter hook ingress device %q priority -%d; %s counter; }; }", table, device, h.counters, match))
	return func() int {
		h.T.Helper()
		out := h.Run("nft list table netdev " + table)
		_, rest, found := strings.Cut(out, "counter packets ")
		n, err := strconv.Atoi(strings.Fields(rest + " x")[0])
		if !found || err != nil {
			h.T.Fatalf("no counter in %s", out)
		}
		return n
	}
}

// peersInClear counts packets that leave the gateway's pod with a peer's own
// address: there must never be one.
func (w *world) peersInClear() func() int {
	w.t.Helper()
	four := w.router.count("r-gateway", "ip saddr "+pool4)
	six := w.router.count("r-gateway", "ip6 saddr "+pool6)
	return func() int { return four() + six() }
}
