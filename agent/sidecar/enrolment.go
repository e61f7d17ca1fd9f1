package sidecar

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// maxMTU is the largest packet there is, in bytes.
const maxMTU = 65535

// enrolment is an enrolment that was found good.
type enrolment struct {
	wireguard.Enrolment
	host string
	port uint16
	hash string
}

func (e *enrolment) keepalive() time.Duration {
	return time.Duration(e.PersistentKeepalive) * time.Second
}

// parseEnrolment reads and checks enrolment.json. Its errors never quote a key.
func parseEnrolment(b []byte) (*enrolment, error) {
	d, err := wireguard.DecodeEnrolment(b)
	if err != nil {
		return nil, err
	}
	e := &enrolment{Enrolment: d, hash: wireguard.ConfigHash(b)}
	if e.Implementation == "" {
		e.Implementation = wireguard.ImplementationAuto
	}
	if err := e.check(); err != nil {
		return nil, fmt.Errorf("cannot use enrolment: %w", err)
	}
	return e, nil
}

func (e *enrolment) check() error {
	host, port, err := net.SplitHostPort(e.Endpoint)
	if err != nil || host == "" {
		return fmt.Errorf("endpoint %q is no name and port", e.Endpoint)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 {
		return fmt.Errorf("endpoint %q has no port from 1 to 65535", e.Endpoint)
	}
	e.host, e.port = host, uint16(n)
	switch {
	case e.GatewayPublicKey == wireguard.Key{}:
		return errors.New("gatewayPublicKey is missing")
	case e.ClassKey == wireguard.Key{}:
		return errors.New("classKey is missing")
	case e.MTU < wireguard.MinMTU || e.MTU > maxMTU:
		return fmt.Errorf("mtu %d is not within %d and %d", e.MTU, wireguard.MinMTU, maxMTU)
	case e.PersistentKeepalive < 0 || e.PersistentKeepalive > wireguard.MaxKeepalive:
		return fmt.Errorf("persistentKeepalive %d is not within 0 and %d", e.PersistentKeepalive, wireguard.MaxKeepalive)
	}
	switch e.Implementation {
	case wireguard.ImplementationAuto, wireguard.ImplementationKernel, wireguard.ImplementationUserspace:
	default:
		return fmt.Errorf("implementation %q is not known", e.Implementation)
	}
	// Functions before this one did not look for doubles.
	var bypass []netip.Prefix
	for i, p := range e.BypassCIDRs {
		switch {
		case !p.IsValid():
			return fmt.Errorf("bypassCIDRs[%d] is no network", i)
		case p.Bits() == 0:
			// With it nothing would be left to the tunnel.
			return fmt.Errorf("bypassCIDRs has %s, which is everything", p)
		}
		if p = p.Masked(); !slices.Contains(bypass, p) {
			bypass = append(bypass, p)
		}
	}
	e.BypassCIDRs = bypass
	return nil
}
