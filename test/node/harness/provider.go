package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// ProviderPort is that of each provider's server.
const ProviderPort = 51821

// tunnel4 and tunnel6 are the customer's addresses.
const tunnel4, tunnel6 = "10.64.0.2/32", "fd64::2/128"

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
