package sidecar

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// pod is what the sidecar knows of its pod, by the downward API.
type pod struct {
	uid       string
	node      string
	addresses []netip.Addr // at most one of each family
}

func readPod(environment func(string) string) (pod, error) {
	p := pod{uid: environment("POD_UID"), node: environment("NODE_NAME")}
	if p.uid == "" {
		return pod{}, errors.New("cannot find the pod's UID: POD_UID has to be metadata.uid")
	}
	ips := environment("POD_IPS")
	if ips == "" {
		return pod{}, errors.New("cannot find the pod's addresses: POD_IPS has to be status.podIPs")
	}
	for s := range strings.SplitSeq(ips, ",") {
		a, err := netip.ParseAddr(strings.TrimSpace(s))
		if err != nil {
			return pod{}, fmt.Errorf("cannot use POD_IPS %q: %q is no address", ips, s)
		}
		a = a.Unmap()
		if slices.ContainsFunc(p.addresses, func(b netip.Addr) bool { return a.Is4() == b.Is4() }) {
			return pod{}, fmt.Errorf("cannot use POD_IPS %q: it has two addresses of one family", ips)
		}
		p.addresses = append(p.addresses, a)
	}
	return p, nil
}

// has tells whether the pod has an address of the family of this one.
func (p pod) has(a netip.Addr) bool {
	return slices.ContainsFunc(p.addresses, func(b netip.Addr) bool { return a.Is4() == b.Is4() })
}

// hasIPv6 tells whether the pod has an IPv6 address.
func (p pod) hasIPv6() bool {
	return p.has(netip.IPv6Unspecified())
}

// all returns the networks of everything, of the families that the pod has.
func (p pod) all() []netip.Prefix {
	var out []netip.Prefix
	for _, a := range []netip.Addr{netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		if p.has(a) {
			out = append(out, netip.PrefixFrom(a, 0))
		}
	}
	return out
}
