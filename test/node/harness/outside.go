package harness

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"sync"
)

const (
	// Outside4 is the address of a host on the internet that answers those only who
	// come through a provider.
	Outside4 = "192.0.2.10"
	// Outside6 is its other one.
	Outside6 = "2001:db8:ffff::10"

	outsideVia4, outsideVia6 = "192.0.2.1", "2001:db8:ffff::1"
)

// known are addresses that everybody on the internet knows: through the tunnel
// the agent and gluetun look for them. The outside has them.
var known = []string{"1.1.1.1", "8.8.8.8", "2606:4700:4700::1111", "2001:4860:4860::8888"}

// Outside is a host on the internet that commercial VPNs lead to. It echoes as
// the site does, and tells over HTTP what it sees of who asks.
type Outside struct {
	*Host

	mu    sync.Mutex
	ports map[string]int // that providers have forwarded, by the exit's address
}

// NewOutside makes the host. There is one in the world.
func (n *Node) NewOutside(ctx context.Context) (*Outside, error) {
	h, err := n.newHost(ctx, "the outside")
	if err != nil {
		return nil, err
	}
	o := &Outside{Host: h, ports: map[string]int{}}
	if err := errors.Join(
		link(ctx, n.Internet.Space, "outside", outsideVia4+"/24", outsideVia6+"/64", h.Space, "internet", Outside4+"/24", Outside6+"/64"),
		h.Run(ctx, "ip route add default via "+outsideVia4, "ip route add default via "+outsideVia6),
	); err != nil {
		return nil, err
	}
	for _, address := range known {
		via, bits := Outside4, "/32"
		if strings.Contains(address, ":") {
			via, bits = Outside6, "/128"
		}
		if err := errors.Join(
			h.Run(ctx, "ip address add "+address+bits+" dev lo"),
			n.Internet.Run(ctx, "ip route add "+address+bits+" via "+via),
		); err != nil {
			return nil, err
		}
	}
	// Everybody who calls is counted, and those only who come from a provider get
	// an answer.
	if err := h.nft(ctx, `table inet outside {
	set exits4 { type ipv4_addr; }
	set exits6 { type ipv6_addr; }
	set callers4 { type ipv4_addr; flags dynamic; counter; }
	set callers6 { type ipv6_addr; flags dynamic; counter; }
	chain input {
		type filter hook input priority 0;
		iifname "lo" accept
		icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit, nd-router-advert, mld-listener-query } accept
		# What routers say of answers that did not arrive.
		icmp type { destination-unreachable, time-exceeded } accept
		icmpv6 type { destination-unreachable, time-exceeded } accept
		ip saddr != @exits4 update @callers4 { ip saddr }
		ip6 saddr != @exits6 update @callers6 { ip6 saddr }
		ip saddr != @exits4 drop
		ip6 saddr != @exits6 drop
	}
}`); err != nil {
		return nil, err
	}
	return o, errors.Join(h.echo(), o.serve(), o.resolve()) //nolint:contextcheck // It goes on for as long as the node does.
}

// serve answers where the agent and gluetun ask.
func (o *Outside) serve() error {
	secure, err := o.Listen(":443")
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := secure.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	plain, err := o.Listen(":80")
	if err != nil {
		return err
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ip, _, _ := net.SplitHostPort(r.RemoteAddr)
		o.mu.Lock()
		port := o.ports[ip]
		o.mu.Unlock()
		switch {
		case r.URL.Path == "/ip":
			_, _ = fmt.Fprint(w, ip)
		case r.URL.Path == "/port" && port != 0:
			_, _ = fmt.Fprint(w, port)
		default:
			http.NotFound(w, r)
		}
	})}
	go func() { _ = s.Serve(plain) }()
	return nil
}

// Strangers returns who has called from elsewhere than a provider, and how often.
func (o *Outside) Strangers(ctx context.Context) ([]string, error) {
	var out []string
	for _, set := range []string{"callers4", "callers6"} {
		listed, err := o.Output(exec.CommandContext(ctx, "nft", "list", "set", "inet", "outside", set))
		if err != nil {
			return nil, err
		}
		_, elements, _ := strings.Cut(listed, "elements = {")
		elements, _, _ = strings.Cut(elements, "}")
		for element := range strings.SplitSeq(elements, ",") {
			if element = strings.Join(strings.Fields(element), " "); element != "" {
				out = append(out, element)
			}
		}
	}
	return out, nil
}

// Forget begins anew to look for strangers.
func (o *Outside) Forget(ctx context.Context) error {
	return o.Run(ctx, "nft flush set inet outside callers4", "nft flush set inet outside callers6")
}

// resolve answers questions for names over UDP, at the first of the addresses that
// everybody knows: each name is the outside's.
func (o *Outside) resolve() error {
	p, err := o.ListenPacket(known[0] + ":53")
	if err != nil {
		return err
	}
	go func() {
		b := make([]byte, 512)
		for {
			n, from, err := p.ReadFrom(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = p.WriteTo(answer(b[:n]), from)
			}
		}
	}()
	return nil
}

// answer answers the one question of a message.
func answer(question []byte) []byte {
	const header, flags, record = 12, 0x8180, 1
	end := header
	for end < len(question) && question[end] != 0 {
		end += int(question[end]) + 1
	}
	if end += 5; end > len(question) {
		return nil
	}
	out := append([]byte{}, question[:end]...)
	binary.BigEndian.PutUint16(out[2:], flags)
	clear(out[6:header])
	if binary.BigEndian.Uint16(out[end-4:]) == record {
		out[7] = 1
		out = append(out, 0xc0, header, 0, record, 0, 1, 0, 0, 0, 60, 0, 4)
		out = append(out, netip.MustParseAddr(Outside4).AsSlice()...)
	}
	return out
}

// nft loads rules.
func (h *Host) nft(ctx context.Context, rules string) error {
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	_, err := h.Output(cmd)
	return err
}
