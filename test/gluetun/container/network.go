package main

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/wireguardgateway/function-wireguard-gateway/test/gluetun"
)

// findNetwork finds the device of the default routes, and what is around it.
func findNetwork() (gluetun.Network, error) {
	n := gluetun.Network{}
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		routes, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return n, fmt.Errorf("cannot list routes: %w", err)
		}
		gateway, local, index := "", []string{}, 0
		for _, r := range routes {
			if isDefault(r) && r.Gw != nil {
				gateway, index = r.Gw.String(), r.LinkIndex
			}
		}
		if gateway == "" {
			continue
		}
		for _, r := range routes {
			if !isDefault(r) && r.LinkIndex == index && r.Gw == nil {
				local = append(local, r.Dst.String())
			}
		}
		link, err := netlink.LinkByIndex(index)
		if err != nil {
			return n, fmt.Errorf("cannot find the device of the default route: %w", err)
		}
		address, err := globalAddress(link, family)
		if err != nil {
			return n, err
		}
		n.Device = link.Attrs().Name
		if family == unix.AF_INET {
			n.Address4, n.Gateway4, n.Local4 = address, gateway, local
		} else {
			n.Address6, n.Gateway6, n.Local6 = address, gateway, local
		}
	}
	if n.Device == "" {
		return n, errors.New("there is no default route")
	}
	return n, nil
}

func isDefault(r netlink.Route) bool {
	if r.Dst == nil {
		return true
	}
	ones, _ := r.Dst.Mask.Size()
	return ones == 0
}

// globalAddress returns the one by which others know the pod.
func globalAddress(link netlink.Link, family int) (string, error) {
	addresses, err := netlink.AddrList(link, family)
	if err != nil {
		return "", fmt.Errorf("cannot list addresses: %w", err)
	}
	for _, a := range addresses {
		if a.IP.IsGlobalUnicast() {
			return a.IP.String(), nil
		}
	}
	return "", fmt.Errorf("%s has no address", link.Attrs().Name)
}
