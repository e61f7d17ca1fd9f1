package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// maxMTU leaves room in the largest packet there is.
const maxMTU = 65535 - wireguard.Overhead

func validate(g wireguard.GatewayConfig) error {
	if g.PrivateKey.IsZero() {
		return errors.New("privateKey is missing")
	}
	if g.ListenPort < 1 || g.ListenPort > 65535 {
		return fmt.Errorf("listenPort %d is not between 1 and 65535", g.ListenPort)
	}
	if err := validateAddresses(g); err != nil {
		return err
	}
	switch g.Implementation {
	case wireguard.ImplementationAuto, wireguard.ImplementationKernel, wireguard.ImplementationUserspace:
	default:
		return fmt.Errorf("implementation %q is not known", g.Implementation)
	}
	// An unknown mode might forbid what Direct allows, so it is never guessed.
	switch g.Egress.Mode {
	case wireguard.EgressDirect, wireguard.EgressGluetun:
	default:
		return fmt.Errorf("egress.mode %q is not known", g.Egress.Mode)
	}
	for _, p := range g.Egress.ClusterCIDRs {
		if err := validatePrefix(p); err != nil {
			return fmt.Errorf("egress.clusterCIDRs: %w", err)
		}
	}
	for _, c := range g.Egress.Credentials {
		if c == "" || c != filepath.Base(c) || c == "." || c == ".." || c == "/" {
			return fmt.Errorf("egress.credentials: %q is not the name of a file", c)
		}
	}
	if err := validatePeers(g); err != nil {
		return err
	}
	return validatePods(g)
}

func validatePods(g wireguard.GatewayConfig) error {
	names := map[string]bool{}
	for _, c := range g.PodClasses {
		name := c.Namespace + "/" + c.Name
		switch {
		case c.Namespace == "" || c.Name == "":
			return fmt.Errorf("pod class %q has no namespace or no name", name)
		case names[name]:
			return fmt.Errorf("pod class %s is there twice", name)
		case c.Key.IsZero():
			return fmt.Errorf("pod class %s: key is missing", name)
		}
		names[name] = true
		for i, r := range c.Access {
			if err := validateAccess(r); err != nil {
				return fmt.Errorf("pod class %s: access[%d]: %w", name, i, err)
			}
		}
	}
	for _, p := range g.PodCIDRs {
		if err := validatePrefix(p); err != nil {
			return fmt.Errorf("podCIDRs: %w", err)
		}
	}
	return nil
}

func validateAddresses(g wireguard.GatewayConfig) error {
	if len(g.Addresses) == 0 {
		return errors.New("addresses are missing")
	}
	least := wireguard.MinMTU
	families := map[bool]bool{}
	for _, a := range g.Addresses {
		if err := validateAddr(a.Addr()); err != nil || !a.IsValid() {
			return fmt.Errorf("address %q is not an IPv4 or IPv6 address with a prefix length", a)
		}
		if families[a.Addr().Is4()] {
			return fmt.Errorf("address %s is the second of its family", a)
		}
		families[a.Addr().Is4()] = true
		if a.Addr().Is6() {
			least = wireguard.MinMTUv6
		}
	}
	if g.MTU < least || g.MTU > maxMTU {
		return fmt.Errorf("mtu %d is not between %d and %d", g.MTU, least, maxMTU)
	}
	return nil
}

func validatePeers(g wireguard.GatewayConfig) error {
	keys := make(map[wireguard.Key]int, len(g.Peers))
	networks := make(map[netip.Prefix]int, 2*len(g.Peers))
	for _, a := range g.Addresses {
		networks[netip.PrefixFrom(a.Addr(), a.Addr().BitLen())] = -1
	}
	keys[g.PrivateKey.Public()] = -1

	// owner names who has a key or a network already.
	owner := func(i int) string {
		if i < 0 {
			return "the gateway"
		}
		return "peer " + PeerName(g.Peers[i])
	}
	for i, p := range g.Peers {
		if err := validatePeer(p); err != nil {
			return fmt.Errorf("peer %s: %w", PeerName(p), err)
		}
		if j, taken := keys[p.PublicKey]; taken {
			return fmt.Errorf("peer %s has the public key of %s", PeerName(p), owner(j))
		}
		keys[p.PublicKey] = i
		for _, n := range p.AllowedIPs() {
			if j, taken := networks[n]; taken {
				return fmt.Errorf("peer %s has %s, which %s has too", PeerName(p), n, owner(j))
			}
			networks[n] = i
		}
	}
	return nil
}

func validatePeer(p wireguard.Peer) error {
	if p.Name == "" {
		return errors.New("name is missing")
	}
	if p.PublicKey.IsZero() {
		return errors.New("publicKey is missing")
	}
	for _, a := range p.Addresses {
		if err := validateAddr(a); err != nil {
			return fmt.Errorf("addresses: %w", err)
		}
	}
	for _, r := range p.Routes {
		if err := validatePrefix(r); err != nil {
			return fmt.Errorf("routes: %w", err)
		}
		// A default route to one peer would take the gateway's own egress.
		if r.Bits() == 0 {
			return fmt.Errorf("routes: %s covers everything", r)
		}
	}
	if p.Endpoint != "" {
		if err := validateEndpoint(p.Endpoint); err != nil {
			return fmt.Errorf("endpoint: %w", err)
		}
	}
	if p.PersistentKeepalive < 0 || p.PersistentKeepalive > wireguard.MaxKeepalive {
		return fmt.Errorf("persistentKeepalive %d is not between 0 and %d", p.PersistentKeepalive, wireguard.MaxKeepalive)
	}
	for i, r := range p.Access {
		if err := validateAccess(r); err != nil {
			return fmt.Errorf("access[%d]: %w", i, err)
		}
	}
	return nil
}

func validateAccess(r wireguard.AccessRule) error {
	switch r.Action {
	case wireguard.Accept, wireguard.Reject:
	default:
		return fmt.Errorf("action %q is not known", r.Action)
	}
	switch r.Protocol {
	case "", wireguard.ProtocolAny, wireguard.ProtocolTCP, wireguard.ProtocolUDP:
	case wireguard.ProtocolICMP:
		if len(r.To.Ports) > 0 {
			return errors.New("ICMP has no ports")
		}
	default:
		return fmt.Errorf("protocol %q is not known", r.Protocol)
	}
	if r.To.CIDR != (netip.Prefix{}) {
		return validatePrefix(r.To.CIDR)
	}
	return nil
}

func validateAddr(a netip.Addr) error {
	if !a.IsValid() || a.Is4In6() || a.Zone() != "" {
		return fmt.Errorf("%q is not a plain IPv4 or IPv6 address", a)
	}
	return nil
}

func validatePrefix(p netip.Prefix) error {
	if err := validateAddr(p.Addr()); err != nil || !p.IsValid() {
		return fmt.Errorf("%q is not an IPv4 or IPv6 network", p)
	}
	if p != p.Masked() {
		return fmt.Errorf("%s has host bits set: write %s", p, p.Masked())
	}
	return nil
}

func validateEndpoint(s string) error {
	host, port, err := net.SplitHostPort(s)
	if err != nil || host == "" {
		return fmt.Errorf("%q is not a host and a port", s)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("%q has no port between 1 and 65535", s)
	}
	return nil
}
