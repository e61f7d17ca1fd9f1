package sidecar

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// probeTargets are of networks for documentation (RFC 5737, RFC 3849). Nobody
// has them, and what is sent to them gets as far as the gateway only.
var probeTargets = []netip.AddrPort{
	netip.MustParseAddrPort("192.0.2.1:33434"),
	netip.MustParseAddrPort("[2001:db8::1]:33434"),
}

const probeTimeout = time.Second

// probe makes the gateway say something: its kernel answers a datagram whose
// hop limit is 1 with an ICMP error, through the tunnel. The answer shows in
// what the device has received. It needs no address of the gateway, and no
// capability.
func (p pod) probe(ctx context.Context) error {
	for _, target := range probeTargets {
		if !p.has(target.Addr()) {
			continue
		}
		return probe(ctx, target)
	}
	return nil
}

func probe(ctx context.Context, target netip.AddrPort) error {
	d := net.Dialer{Timeout: probeTimeout, Control: func(_, _ string, c syscall.RawConn) error {
		return control(c, func(fd int) error {
			if err := unix.SetsockoptString(fd, unix.SOL_SOCKET, unix.SO_BINDTODEVICE, wireguard.ClientDevice); err != nil {
				return err
			}
			if target.Addr().Is4() {
				return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TTL, 1)
			}
			return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_UNICAST_HOPS, 1)
		})
	}}
	conn, err := d.DialContext(ctx, "udp", target.String())
	if err != nil {
		return fmt.Errorf("cannot probe the tunnel: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := conn.Write(make([]byte, 1)); err != nil {
		return fmt.Errorf("cannot probe the tunnel: %w", err)
	}
	return nil
}
