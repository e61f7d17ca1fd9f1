package route

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/ipnet"
)

// EnsureAddresses gives the device exactly these addresses, link-local ones
// aside. New ones come before old ones go, so that a change of the prefix
// length leaves no gap.
func EnsureAddresses(device string, want []netip.Prefix) error {
	link, err := netlink.LinkByName(device)
	if err != nil {
		return fmt.Errorf("cannot find %s: %w", device, err)
	}
	// Deleting an address may take others of its network along: those that the
	// kernel calls secondary. So the list is made again after a deletion.
	for range 2 {
		have, err := addresses(link)
		if err != nil {
			return err
		}
		if err := addAddresses(link, have, want); err != nil {
			return err
		}
		deleted, err := deleteAddresses(link, have, want)
		if err != nil {
			return err
		}
		if !deleted {
			return nil
		}
	}
	return nil
}

func addresses(link netlink.Link) ([]netlink.Addr, error) {
	all, err := listAddresses(link)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(a netlink.Addr) bool { return ipnet.Prefix(a.IPNet).Addr().IsLinkLocalUnicast() }), nil
}

func addAddresses(link netlink.Link, have []netlink.Addr, want []netip.Prefix) error {
	for _, p := range want {
		if slices.ContainsFunc(have, func(a netlink.Addr) bool { return ipnet.Prefix(a.IPNet) == p }) {
			continue
		}
		// There is nobody on a tunnel to ask whether an address is taken.
		a := &netlink.Addr{IPNet: ipnet.From(p), Flags: unix.IFA_F_NODAD}
		if err := netlink.AddrReplace(link, a); err != nil {
			return fmt.Errorf("cannot add %s to %s: %w", p, link.Attrs().Name, err)
		}
	}
	return nil
}

func deleteAddresses(link netlink.Link, have []netlink.Addr, want []netip.Prefix) (bool, error) {
	deleted := false
	for _, a := range have {
		p := ipnet.Prefix(a.IPNet)
		if slices.Contains(want, p) {
			continue
		}
		if err := netlink.AddrDel(link, &a); err != nil {
			return deleted, fmt.Errorf("cannot delete %s from %s: %w", p, link.Attrs().Name, err)
		}
		deleted = true
	}
	return deleted, nil
}
