package wireguard

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// What an access rule does with the traffic that it matches.
const (
	Accept = "Accept"
	Reject = "Reject"
)

// Protocols of access rules.
const (
	ProtocolAny  = "Any"
	ProtocolTCP  = "TCP"
	ProtocolUDP  = "UDP"
	ProtocolICMP = "ICMP" // ICMP for IPv4, ICMPv6 for IPv6
)

// AccessRule decides on traffic from a peer. Rules are tried in order, the
// first that matches decides, and a list that is not empty ends in Reject.
type AccessRule struct {
	Action   string            `json:"action"`
	To       AccessDestination `json:"to,omitzero"`
	Protocol string            `json:"protocol,omitempty"` // empty: ProtocolAny
}

// AccessDestination is where matched traffic goes. The zero value is anywhere.
type AccessDestination struct {
	CIDR netip.Prefix `json:"cidr,omitzero"`
	// Ports are single ports or ranges. With ProtocolAny they match TCP and UDP.
	Ports []PortRange `json:"ports,omitempty"`
}

// PortRange is a range of TCP or UDP ports, both ends included. Its text form
// is "443" or "8000-8100".
type PortRange struct {
	First, Last uint16
}

// ParsePortRange parses a port or a range of ports, from 1 to 65535.
func ParsePortRange(s string) (PortRange, error) {
	first, last, ranged := strings.Cut(s, "-")
	if !ranged {
		last = first
	}
	f, err := parsePort(first)
	if err != nil {
		return PortRange{}, err
	}
	l, err := parsePort(last)
	if err != nil {
		return PortRange{}, err
	}
	if f > l {
		return PortRange{}, fmt.Errorf("%q is upside down: write \"%d-%d\"", s, l, f)
	}
	return PortRange{First: f, Last: l}, nil
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil || n == 0 || s[0] == '+' {
		return 0, fmt.Errorf("%q is no port: use a number from 1 to 65535", s)
	}
	return uint16(n), nil
}

// String returns the text form.
func (r PortRange) String() string {
	if r.First == r.Last {
		return strconv.Itoa(int(r.First))
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// MarshalText returns the text form.
func (r PortRange) MarshalText() ([]byte, error) {
	return []byte(r.String()), nil
}

// UnmarshalText parses the text form.
func (r *PortRange) UnmarshalText(b []byte) error {
	p, err := ParsePortRange(string(b))
	if err != nil {
		return err
	}
	*r = p
	return nil
}
