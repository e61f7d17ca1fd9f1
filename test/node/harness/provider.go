package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"strings"
	"sync"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// Addresses behind a commercial VPN.
const (
	// Outside4 is that of a host on the internet that answers those only who come
	// through a provider.
	Outside4 = "192.0.2.10"
	// Outside6 is its other one.
	Outside6                 = "2001:db8:ffff::10"
	outsideVia4, outsideVia6 = "192.0.2.1", "2001:db8:ffff::1"

	// ProviderPort is that of each provider's server.
	ProviderPort = 51821

	tunnel4, tunnel6 = "10.64.0.2/32", "fd64::2/128"
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
		ip saddr != @exits4 update @callers4 { ip saddr }
		ip6 saddr != @exits6 update @callers6 { ip6 saddr }
		ip saddr != @exits4 drop
		ip6 saddr != @exits6 drop
	}
}`); err != nil {
		return nil, err
	}
	return o, errors.Join(h.echo(), o.serve()) //nolint:contextcheck // It goes on for as long as the node does.
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

// Provider is a commercial VPN with one server and one customer, whose traffic
// leaves from the provider's own address.
type Provider struct {
	*Client

	// Exit4 and Exit6 are the addresses that the outside sees. The server is at
	// Exit4.
	Exit4, Exit6 string
	// PublicKey is the server's.
	PublicKey string

	key, account wgtypes.Key
}

// NewProvider makes a provider that serves.
func (n *Node) NewProvider(ctx context.Context, o *Outside) (*Provider, error) {
	c, err := n.NewClient(ctx)
	if err != nil {
		return nil, err
	}
	p := &Provider{Client: c}
	if p.Exit4, p.Exit6, err = c.addresses(); err != nil {
		return nil, err
	}
	if p.key, err = wgtypes.GeneratePrivateKey(); err != nil {
		return nil, err
	}
	p.PublicKey = p.key.PublicKey().String()
	if p.account, err = wgtypes.GeneratePrivateKey(); err != nil {
		return nil, err
	}
	return p, errors.Join(
		c.Run(ctx, "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1"),
		c.nft(ctx, `table inet provider { chain nat { type nat hook postrouting priority 100; oifname "internet" masquerade; }; }`),
		o.Run(ctx, "nft add element inet outside exits4 { "+p.Exit4+" }", "nft add element inet outside exits6 { "+p.Exit6+" }"),
		p.Serve(ctx),
	)
}

// addresses returns the two of a client.
func (c *Client) addresses() (four, six string, err error) {
	var all []net.Addr
	c.Do(func() {
		var i *net.Interface
		if i, err = net.InterfaceByName("internet"); err == nil {
			all, err = i.Addrs()
		}
	})
	for _, a := range all {
		p, err := netip.ParsePrefix(a.String())
		switch {
		case err != nil:
			return "", "", err
		case p.Addr().Is4():
			four = p.Addr().String()
		case !p.Addr().IsLinkLocalUnicast():
			six = p.Addr().String()
		}
	}
	return four, six, err
}

// Credentials are what a customer gets of the provider, as the keys of a Secret.
func (p *Provider) Credentials() map[string]string {
	return map[string]string{"wireguard-private-key": p.account.String() + "\n", "wireguard-addresses": tunnel4 + "," + tunnel6}
}

// Rotate gives the customer another key, and knows the old one no more.
func (p *Provider) Rotate(ctx context.Context) (err error) {
	old := p.account.PublicKey().String()
	if p.account, err = wgtypes.GeneratePrivateKey(); err != nil {
		return err
	}
	return p.Run(ctx, "wg set "+serverDevice+" peer "+old+" remove", "wg set "+serverDevice+" peer "+p.account.PublicKey().String()+" allowed-ips "+tunnel4+","+tunnel6)
}

// Forward forwards a port to the customer, as the provider tells it.
func (p *Provider) Forward(o *Outside, port int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ports[p.Exit4] = port
}

// serverDevice is what wg-quick names after the configuration's file.
const serverDevice = "wg0"

// Serve starts the server.
func (p *Provider) Serve(ctx context.Context) error {
	return p.Up(ctx, fmt.Sprintf("[Interface]\nPrivateKey = %s\nListenPort = %d\nAddress = 10.64.0.1/24, fd64::1/64\n[Peer]\nPublicKey = %s\nAllowedIPs = %s, %s\n",
		p.key, ProviderPort, p.account.PublicKey(), tunnel4, tunnel6))
}

// Fail ends the server. The host is still there.
func (p *Provider) Fail(ctx context.Context) error { return p.Down(ctx) }

// nft loads rules.
func (h *Host) nft(ctx context.Context, rules string) error {
	cmd := exec.CommandContext(ctx, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	_, err := h.Output(cmd)
	return err
}
