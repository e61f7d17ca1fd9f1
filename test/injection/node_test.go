package injection

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Addresses of the world. A pod has one of either family from the pods'
// networks; nothing translates them on their way to the internet, so that
// everybody sees who calls.
const (
	node4, node6         = "192.168.50.10", "2001:db8:50::10" // in no network that pods bypass the tunnel to
	internet4, internet6 = "203.0.113.10", "2001:db8:4::10"
	podCIDR4, podCIDR6   = "10.244.0.0/16", "2001:db8:244::/64"
	serviceCIDR4         = "10.96.0.0/16"
	serviceCIDR6         = "fd00:96::/112"
	apiServer            = "10.96.0.1"
	clusterDNS           = "10.96.0.10"
	web4, web6           = "10.96.0.20", "fd00:96::20"
	router4, router6     = "169.254.1.1", "fe80::1" // of the pods: the node's end of their interfaces

	// resolver is what every pod resolves names with.
	resolver = "nameserver " + clusterDNS + "\nsearch svc.cluster.local\n"
)

// node is a node of the cluster: the router between pods, Services and the
// internet.
type node struct {
	*namespace

	mu       sync.Mutex
	next     int
	services map[service]netip.Addr
	names    map[string]netip.Addr
}

// service is a port of a Service's address.
type service struct {
	address  netip.Addr
	protocol string
	port     int
	target   int
}

func newNode() (*node, error) {
	n, err := newNamespace("node")
	if err != nil {
		return nil, err
	}
	node := &node{namespace: n, next: 20, services: map[service]netip.Addr{}, names: map[string]netip.Addr{}}
	if err := n.sysctl(map[string]string{"net/ipv4/ip_forward": "1", "net/ipv6/conf/all/forwarding": "1"}); err != nil {
		return nil, err
	}
	for _, a := range []string{node4 + "/32", node6 + "/128", apiServer + "/32"} {
		if err := n.address("lo", a); err != nil {
			return nil, err
		}
	}
	return node, nil
}

func (n *namespace) address(device, prefix string) error {
	l, err := n.LinkByName(device)
	if err != nil {
		return err
	}
	a, err := netlink.ParseAddr(prefix)
	if err != nil {
		return err
	}
	a.Flags = unix.IFA_F_NODAD
	if err := n.AddrAdd(l, a); err != nil {
		return fmt.Errorf("address %s: %w", prefix, err)
	}
	return nil
}

// attach connects a namespace to the node by a link that has no network of its
// own, as Calico does. The node's end has the name port.
func (n *node) attach(to *namespace, port string, addresses ...netip.Addr) error {
	// Made in the namespace, so that a name does not collide on the node.
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: port, PeerNamespace: netlink.NsFd(int(n.file.Fd()))}
	if err := to.LinkAdd(link); err != nil {
		return fmt.Errorf("link %s: %w", port, err)
	}
	eth0, err := to.LinkByName("eth0")
	if err != nil {
		return err
	}
	end, err := n.LinkByName(port)
	if err != nil {
		return err
	}
	for _, a := range addresses {
		if err := to.address("eth0", netip.PrefixFrom(a, a.BitLen()).String()); err != nil {
			return err
		}
	}
	for _, a := range []string{router4 + "/32", router6 + "/64"} {
		if err := n.address(port, a); err != nil {
			return err
		}
	}
	if err := to.LinkSetUp(eth0); err != nil {
		return err
	}
	if err := n.LinkSetUp(end); err != nil {
		return err
	}
	for _, via := range []string{router4, router6} {
		ip := net.ParseIP(via)
		bits := 128
		if ip.To4() != nil {
			bits = 32
			if err := to.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: &net.IPNet{IP: ip, Mask: net.CIDRMask(bits, bits)}}); err != nil {
				return fmt.Errorf("route to %s: %w", via, err)
			}
		}
		if err := to.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: ip, Dst: &net.IPNet{IP: make(net.IP, bits/8), Mask: net.CIDRMask(0, bits)}}); err != nil {
			return fmt.Errorf("default route by %s: %w", via, err)
		}
	}
	for _, a := range addresses {
		own := net.ParseIP(node4)
		if a.Is6() {
			own = net.ParseIP(node6)
		}
		if err := n.RouteReplace(&netlink.Route{LinkIndex: end.Attrs().Index, Src: own, Dst: &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}}); err != nil {
			return fmt.Errorf("route of %s: %w", a, err)
		}
	}
	return nil
}

// detach is what becomes of a link when its pod is gone.
func (n *node) detach(port string) error {
	l, err := n.LinkByName(port)
	if err != nil {
		return err
	}
	return n.LinkDel(l)
}

// addresses returns those of the next pod.
func (n *node) addresses() []netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.next++
	return []netip.Addr{
		netip.AddrFrom4([4]byte{10, 244, byte(n.next >> 8), byte(n.next)}),
		netip.AddrFrom16([16]byte{0: 0x20, 1: 0x01, 2: 0x0d, 3: 0xb8, 5: 0x44, 4: 0x02, 14: byte(n.next >> 8), 15: byte(n.next)}),
	}
}

// serve sends what comes for a Service to a pod, or refuses it where there is
// none, as kube-proxy does.
func (n *node) serve(s service, pod netip.Addr) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.services[s] = pod
	rules := &strings.Builder{}
	refused := &strings.Builder{}
	for s, pod := range n.services {
		family := "ip"
		if s.address.Is6() {
			family = "ip6"
		}
		match := fmt.Sprintf("%s daddr %s %s dport %d", family, s.address, s.protocol, s.port)
		if !pod.IsValid() {
			fmt.Fprintf(refused, "%s reject\n", match)
			continue
		}
		fmt.Fprintf(rules, "%s dnat %s to %s\n", match, family, netip.AddrPortFrom(pod, uint16(s.target)))
	}
	_, err := n.runWith(fmt.Sprintf(`table inet services
delete table inet services
table inet services {
chain dstnat { type nat hook prerouting priority dstnat
%[1]s}
chain refuse { type filter hook forward priority filter
%[2]s}
chain output { type nat hook output priority -100
%[1]s}
}`, rules, refused), "nft", "-f", "-")
	if err != nil || s.protocol != "udp" {
		return err
	}
	// Datagrams of a flow go where the first one went, unless this is forgotten.
	filter := &netlink.ConntrackFilter{}
	if err := filter.AddIP(netlink.ConntrackOrigDstIP, s.address.AsSlice()); err != nil {
		return err
	}
	if err := filter.AddProtocol(unix.IPPROTO_UDP); err != nil {
		return err
	}
	if err := filter.AddPort(netlink.ConntrackOrigDstPort, uint16(s.port)); err != nil {
		return err
	}
	family := netlink.InetFamily(unix.AF_INET)
	if s.address.Is6() {
		family = unix.AF_INET6
	}
	_, err = n.ConntrackDeleteFilters(netlink.ConntrackTable, family, filter)
	return err
}

// name makes the cluster's DNS answer to a name.
func (n *node) name(name string, address netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.names[name+"."] = address
}

// resolve answers one query of the cluster's DNS: with the IPv4 address of a
// name, and with nothing to all other questions.
func (n *node) resolve(query []byte) []byte {
	const header = 12
	if len(query) < header {
		return nil
	}
	name, end := "", header
	for end < len(query) && query[end] != 0 && end+1+int(query[end]) < len(query) {
		name += string(query[end+1:end+1+int(query[end])]) + "."
		end += 1 + int(query[end])
	}
	end += 5 // the name's end, type and class
	if end > len(query) {
		return nil
	}
	n.mu.Lock()
	address, known := n.names[strings.ToLower(name)]
	n.mu.Unlock()
	answer := slices.Clone(query[:end])
	answer[2], answer[3] = 0x84|query[2]&1, 0x80 // a response, with authority, by one who recurses
	copy(answer[6:header], make([]byte, 6))
	switch {
	case !known:
		answer[3] |= 3 // NXDOMAIN
	case query[end-3] == 1: // A
		answer[7] = 1
		answer = append(answer, 0xc0, header, 0, 1, 0, 1, 0, 0, 0, 5, 0, 4)
		answer = append(answer, address.AsSlice()...)
	}
	return answer
}

// serveDNS answers on port 53, over UDP and TCP.
func (n *node) serveDNS(at *namespace) error {
	c, err := at.packets("udp", ":53")
	if err != nil {
		return err
	}
	go func() {
		b := make([]byte, 1500)
		for {
			size, from, err := c.ReadFrom(b)
			if err != nil {
				return
			}
			if answer := n.resolve(b[:size]); answer != nil {
				_, _ = c.WriteTo(answer, from)
			}
		}
	}()
	l, err := at.listen(":53")
	if err != nil {
		return err
	}
	go serve(l, func(c net.Conn) {
		length := make([]byte, 2)
		for {
			if _, err := io.ReadFull(c, length); err != nil {
				return
			}
			query := make([]byte, int(length[0])<<8|int(length[1]))
			if _, err := io.ReadFull(c, query); err != nil {
				return
			}
			answer := n.resolve(query)
			_, _ = c.Write(append([]byte{byte(len(answer) >> 8), byte(len(answer))}, answer...))
		}
	})
	return nil
}

// serve handles each connection.
func serve(l net.Listener, handle func(net.Conn)) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = c.Close() }()
			handle(c)
		}()
	}
}

// proxy lets pods reach the API server at its Service's address.
func (n *node) proxy(ctx context.Context, dial func(context.Context, string, string) (net.Conn, error), to string) error {
	l, err := n.listen(net.JoinHostPort(apiServer, "443"))
	if err != nil {
		return err
	}
	go serve(l, func(c net.Conn) {
		s, err := dial(ctx, "tcp", to)
		if err != nil {
			return
		}
		defer func() { _ = s.Close() }()
		go func() {
			_, _ = io.Copy(s, c)
			_ = s.Close()
		}()
		_, _ = io.Copy(c, s)
	})
	return nil
}
