package sidecar

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

const resolveTimeout = 10 * time.Second

// resolver asks the pod's nameservers. What it sends has our mark, so that it
// skips the tunnel, and the lockdown lets it out.
var resolver = &net.Resolver{
	PreferGo: true,
	Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
			return control(c, func(fd int) error {
				return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, wireguard.FirewallMark)
			})
		}}
		return d.DialContext(ctx, network, address)
	},
}

// control calls f with a socket's descriptor.
func control(c syscall.RawConn, f func(fd int) error) error {
	var failure error
	if err := c.Control(func(fd uintptr) { failure = f(int(fd)) }); err != nil {
		return err
	}
	return failure
}

// resolve returns the addresses of a host, IPv4 first, of the families that the
// pod has. The name is whole: the search domains of the pod, which would come
// first, may know any name.
func (p pod) resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	found, err := resolver.LookupNetIP(ctx, "ip", strings.TrimSuffix(host, ".")+".")
	if err != nil {
		return nil, fmt.Errorf("cannot resolve the gateway's name: %w", err)
	}
	var four, six []netip.Addr
	for _, a := range found {
		a = a.Unmap()
		switch {
		case !p.has(a):
		case a.Is4():
			four = append(four, a)
		default:
			six = append(six, a)
		}
	}
	if len(four)+len(six) == 0 {
		return nil, fmt.Errorf("cannot resolve the gateway's name: %s has no address of a family that the pod has", host)
	}
	return append(four, six...), nil
}

// nameservers returns those of resolv.conf(5), and none where there is no such
// file.
func nameservers(path string) ([]netip.Addr, error) {
	f, err := os.Open(path) //nolint:gosec // It is a constant, but for tests.
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read nameservers: %w", err)
	}
	defer func() { _ = f.Close() }()
	var out []netip.Addr
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 2 || fields[0] != "nameserver" {
			continue
		}
		if a, err := netip.ParseAddr(fields[1]); err == nil {
			out = append(out, a.Unmap().WithZone(""))
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("cannot read nameservers: %w", err)
	}
	return out, nil
}
