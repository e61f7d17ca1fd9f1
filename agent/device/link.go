package device

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

const (
	// kindWireGuard is the kind of link that the kernel's own devices have.
	kindWireGuard = "wireguard"

	// alias marks our links. On the host's network there may be others of the
	// same name.
	alias = "wireguardgateway.io"
)

// ours tells whether a device of the kernel was made by an agent.
func ours(link netlink.Link) bool {
	return link.Type() == kindWireGuard && link.Attrs().Alias == alias
}

// unmarked tells whether a device of the kernel is what is left of an agent that
// was killed between making and marking it, which the kernel does not do in one
// step. Nobody has given it anything yet.
func (d *Device) unmarked(link netlink.Link) bool {
	if link.Type() != kindWireGuard || link.Attrs().Alias != "" || isUp(link) {
		return false
	}
	read, err := d.client.Device(d.name)
	return err == nil && read.PrivateKey == wgtypes.Key{} && len(read.Peers) == 0
}

// ensureLink returns the device's link, and makes it where there is none. A
// device of the kernel that an earlier agent made is adopted as it is.
func (d *Device) ensureLink(implementation string, mtu int) (netlink.Link, error) {
	if d.user != nil && (d.user.gone() || implementation == wireguard.ImplementationKernel) {
		d.user.close()
		d.user, d.known = nil, false
	}
	link, err := netlink.LinkByName(d.name)
	if err == nil && d.unmarked(link) {
		if link, err = d.mark(); err != nil {
			return nil, err
		}
	}
	switch {
	case err == nil && d.user != nil:
		return link, nil
	case err == nil && ours(link) && implementation != wireguard.ImplementationUserspace:
		return link, nil
	case err == nil && ours(link):
		if err := netlink.LinkDel(link); err != nil {
			return nil, fmt.Errorf("cannot delete %s of the kernel: %w", d.name, err)
		}
	case err == nil:
		return nil, fmt.Errorf("cannot make %s: an interface of this name and kind %q belongs to somebody else", d.name, link.Type())
	case !errors.As(err, &netlink.LinkNotFoundError{}):
		return nil, fmt.Errorf("cannot look for %s: %w", d.name, err)
	}
	return d.makeLink(implementation, mtu)
}

func (d *Device) makeLink(implementation string, mtu int) (netlink.Link, error) {
	d.known, d.complete = false, false
	clear(d.waking)
	if d.user != nil {
		// It is about to end: its interface is gone already. Its socket has to be
		// gone too.
		d.user.close()
		d.user = nil
	}
	if implementation != wireguard.ImplementationUserspace {
		attributes := netlink.NewLinkAttrs()
		attributes.Name, attributes.MTU = d.name, mtu
		err := netlink.LinkAdd(&netlink.Wireguard{LinkAttrs: attributes})
		switch {
		case err == nil:
			d.log.Info("made device", "device", d.name, "implementation", wireguard.ImplementationKernel)
			return d.mark()
		case implementation == wireguard.ImplementationKernel && errors.Is(err, unix.EOPNOTSUPP):
			return nil, fmt.Errorf("cannot make %s: this kernel has no WireGuard", d.name)
		case !errors.Is(err, unix.EOPNOTSUPP):
			return nil, fmt.Errorf("cannot make %s: %w", d.name, err)
		}
	}
	u, err := newUserspace(d.name, mtu, d.log)
	if err != nil {
		return nil, err
	}
	d.user = u
	d.log.Info("made device", "device", d.name, "implementation", wireguard.ImplementationUserspace)
	return netlink.LinkByName(d.name)
}

// mark makes the link known as ours.
func (d *Device) mark() (netlink.Link, error) {
	link, err := netlink.LinkByName(d.name)
	if err != nil {
		return nil, fmt.Errorf("cannot find %s: %w", d.name, err)
	}
	if err := netlink.LinkSetAlias(link, alias); err != nil {
		// Without the mark no later agent would dare to touch it.
		_ = netlink.LinkDel(link)
		return nil, fmt.Errorf("cannot mark %s: %w", d.name, err)
	}
	link.Attrs().Alias = alias
	return link, nil
}

func isUp(link netlink.Link) bool {
	return link.Attrs().Flags&net.FlagUp != 0
}

// Remove deletes the kernel's device of the given name that an agent has made.
// It is no error if there is none.
func Remove(name string) error {
	link, err := netlink.LinkByName(name)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot look for %s: %w", name, err)
	}
	if !ours(link) {
		return nil
	}
	if err := netlink.LinkDel(link); err != nil {
		return fmt.Errorf("cannot delete %s: %w", name, err)
	}
	return nil
}
