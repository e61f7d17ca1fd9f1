package harness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Addresses around the node.
const (
	// Site4 is that of the host behind the cluster.
	Site4 = "192.168.77.10"
	// Site6 is its other one.
	Site6                = "fd00:77::10"
	siteNode4, siteNode6 = "192.168.77.1", "fd00:77::1"

	// EchoPort is where the site answers over TCP and UDP with what it is sent.
	EchoPort = "7"

	balancers4 = "203.0.113.0/24"
)

// Host is a host outside of the cluster: a network of its own, and its own
// /run.
type Host struct{ *Space }

// newHost makes a host, without any interface but loopback. It ends with the
// node.
func (n *Node) newHost(ctx context.Context, name string) (*Host, error) {
	s, err := newSpace(name, func() error {
		if err := n.cgroups.join(); err != nil {
			return err
		}
		if err := enterNamespaces(n.pid, unix.CLONE_NEWPID); err != nil {
			return err
		}
		return unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWNS)
	})
	if err != nil {
		return nil, err
	}
	h := &Host{s}
	n.hosts = append(n.hosts, h)
	return h, h.Run(ctx, "mount --make-rprivate /", "mount -t tmpfs none /run", "mkdir /run/wireguard", "ip link set lo up",
		"sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.default.accept_dad=0")
}

// link connects two spaces, of which the first one sees all processes.
func link(ctx context.Context, a *Space, deviceA, addressA4, addressA6 string, b *Space, deviceB, addressB4, addressB6 string) error {
	return errors.Join(
		a.Run(ctx,
			"ip link add "+deviceA+" type veth peer name "+deviceB+" netns "+b.network,
			"ip address add "+addressA4+" dev "+deviceA, "ip address add "+addressA6+" nodad dev "+deviceA,
			"ip link set "+deviceA+" up"),
		b.Run(ctx,
			"ip address add "+addressB4+" dev "+deviceB, "ip address add "+addressB6+" nodad dev "+deviceB,
			"ip link set "+deviceB+" up"),
	)
}

// connect makes the internet and a site, and puts the node in between.
func (n *Node) connect(ctx context.Context) error {
	var err error
	if n.Internet, err = n.newHost(ctx, "the internet"); err != nil {
		return err
	}
	if n.Site, err = n.newHost(ctx, "the site"); err != nil {
		return err
	}
	if err := errors.Join(
		link(ctx, n.Internet.Space, "node", router4+"/24", router6+"/64", n.Space, "uplink", node4+"/24", node6+"/64"),
		link(ctx, n.Site.Space, "node", Site4+"/24", Site6+"/64", n.Space, "site", siteNode4+"/24", siteNode6+"/64"),
		n.Run(ctx, "ip route add default via "+router4, "ip route add default via "+router6),
		n.Site.Run(ctx, "ip route add default via "+siteNode4, "ip route add default via "+siteNode6),
		n.Internet.Run(ctx, "sysctl -qw net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1", "ip route add "+balancers4+" via "+node4),
	); err != nil {
		return err
	}
	return n.Site.echo() //nolint:contextcheck // It goes on for as long as the node does.
}

// echo answers over TCP and UDP with what comes.
func (h *Host) echo() error {
	l, err := h.Listen(":" + EchoPort)
	if err != nil {
		return err
	}
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
	p, err := h.ListenPacket(":" + EchoPort)
	if err != nil {
		return err
	}
	go func() {
		b := make([]byte, 2048)
		for {
			size, from, err := p.ReadFrom(b)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_, _ = p.WriteTo(b[:size], from)
			}
		}
	}()
	return nil
}

// Client is a host on the internet that may dial a gateway.
type Client struct {
	*Host

	env []string
}

// configuration is the file, after which the interface is named.
const configuration = "/run/wg0.conf"

// NewClient makes one that is up to nothing yet.
func (n *Node) NewClient(ctx context.Context) (*Client, error) {
	number := len(n.hosts)
	name := fmt.Sprintf("client%d", number)
	h, err := n.newHost(ctx, name)
	if err != nil {
		return nil, err
	}
	first := netip.AddrFrom4([4]byte{198, 51, 100, byte(4 * number)}).Next()
	v6 := fmt.Sprintf("2001:db8:%x::", number)
	c := &Client{Host: h, env: append(os.Environ(), "WG_QUICK_USERSPACE_IMPLEMENTATION="+n.wireguardGo)}
	return c, errors.Join(
		link(ctx, n.Internet.Space, name, first.String()+"/30", v6+"1/64", h.Space, "internet", first.Next().String()+"/30", v6+"2/64"),
		h.Run(ctx, "ip route add default via "+first.String(), "ip route add default via "+v6+"1"),
	)
}

// Up brings up a configuration as it is.
func (c *Client) Up(ctx context.Context, conf string) error {
	var err error
	c.Do(func() { err = os.WriteFile(configuration, []byte(conf), 0o600) })
	if err != nil {
		return err
	}
	// A machine has few inotify instances for all that runs on it, and wireguard-go
	// ends where it gets none.
	for range 10 {
		if err = c.quick(ctx, "up"); err == nil {
			return nil
		}
		time.Sleep(500 * time.Millisecond)
	}
	return err
}

// Setenv sets a variable of what a configuration calls.
func (c *Client) Setenv(name, value string) { c.env = append(c.env, name+"="+value) }

// Down takes it down again.
func (c *Client) Down(ctx context.Context) error { return c.quick(ctx, "down") }

func (c *Client) quick(ctx context.Context, what string) error {
	cmd := exec.CommandContext(ctx, "wg-quick", what, configuration)
	cmd.Env = c.env
	_, err := c.Output(cmd)
	return err
}

// balance plays a load balancer: each Service that asks for one gets an address,
// which leads to the node.
func (n *Node) balance() error {
	var ctx context.Context
	ctx, n.stop = context.WithCancel(context.Background())
	w, err := client.NewWithWatch(n.Config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return err
	}
	next := netip.MustParsePrefix(balancers4).Addr()
	go func() {
		for ctx.Err() == nil {
			events, err := w.Watch(ctx, &corev1.ServiceList{})
			if err != nil {
				continue
			}
			for e := range events.ResultChan() {
				s, ok := e.Object.(*corev1.Service)
				if !ok || s.Spec.Type != corev1.ServiceTypeLoadBalancer || len(s.Status.LoadBalancer.Ingress) > 0 || s.DeletionTimestamp != nil {
					continue
				}
				next = next.Next()
				s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: next.String()}}
				// On a conflict there is a further event.
				_ = w.Status().Update(ctx, s)
			}
		}
	}()
	return nil
}
