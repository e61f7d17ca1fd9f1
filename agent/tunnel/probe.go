package tunnel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// probeTimeout is for one connection. A lost handshake of WireGuard's takes five
// seconds, which the next probe sees.
const probeTimeout = 3 * time.Second

// targets are asked in turn. Each is one operator's, in both families, since a
// tunnel may have one of them only. They are those that gluetun itself looks
// for, so that no provider sees anything new.
var targets = [][]string{
	{"1.1.1.1:443", "[2606:4700:4700::1111]:443"},
	{"8.8.8.8:443", "[2001:4860:4860::8888]:443"},
}

// probe tells whether one of the addresses accepts a connection through the
// device, and through nothing else.
func probe(ctx context.Context, device string, addresses []string) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	d := &net.Dialer{Control: func(_, _ string, c syscall.RawConn) error { return bind(c, device) }}
	errs := make(chan error, len(addresses))
	for _, a := range addresses {
		go func() {
			c, err := d.DialContext(ctx, "tcp", a)
			if err == nil {
				err = c.Close()
			}
			errs <- err
		}()
	}
	var all []error
	for range addresses {
		err := <-errs
		if err == nil {
			return nil
		}
		all = append(all, err)
	}
	return errors.Join(all...)
}

// bind keeps a socket to the device. Routing rules do not change that.
func bind(c syscall.RawConn, device string) error {
	var err error
	if controlErr := c.Control(func(fd uintptr) { err = unix.BindToDevice(int(fd), device) }); controlErr != nil {
		return fmt.Errorf("cannot bind to %s: %w", device, controlErr)
	}
	if err != nil {
		return fmt.Errorf("cannot bind to %s: %w", device, err)
	}
	return nil
}
