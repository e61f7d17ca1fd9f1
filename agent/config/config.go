// Package config turns the bytes of config.json into a configuration that is
// safe to apply as a whole.
package config

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// Config is a validated gateway configuration.
type Config struct {
	wireguard.GatewayConfig
	// Hash is wireguard.ConfigHash of the bytes it was parsed from.
	Hash string
	// Pods are the peers that have joined by themselves. They are not in the
	// document: the agent finds them.
	Pods []wireguard.Peer
	// LeftOut are networks of peers that cannot be routed to them. They are not in
	// the document: it depends on the addresses that the pod has.
	LeftOut []netip.Prefix
}

// All returns the peers of the document, and the pods.
func (c *Config) All() []wireguard.Peer {
	if len(c.Pods) == 0 {
		return c.Peers
	}
	return slices.Concat(c.Peers, c.Pods)
}

// Parse reads and validates config.json. Its errors name the field or the peer
// at fault and never quote a private value. A configuration is taken as a
// whole or not at all: a part that cannot be applied would leave some peers
// with rules that nobody asked for.
func Parse(b []byte) (*Config, error) {
	g, err := wireguard.DecodeGatewayConfig(b)
	if err != nil {
		return nil, err
	}
	if g.Implementation == "" {
		g.Implementation = wireguard.ImplementationAuto
	}
	if err := validate(g); err != nil {
		return nil, fmt.Errorf("cannot use gateway config: %w", err)
	}
	return &Config{GatewayConfig: g, Hash: wireguard.ConfigHash(b)}, nil
}

// Active returns the configuration without the peers that have expired at the
// given time, and when the next of the others expires. The second value is
// zero where none does.
func (c *Config) Active(now time.Time) (*Config, time.Time) {
	next := time.Time{}
	expired := false
	for _, p := range c.Peers {
		switch {
		case p.ExpiresAt == nil:
		case !now.Before(*p.ExpiresAt):
			expired = true
		case next.IsZero() || p.ExpiresAt.Before(next):
			next = *p.ExpiresAt
		}
	}
	if !expired {
		return c, next
	}
	active := *c
	active.Peers = slices.DeleteFunc(slices.Clone(c.Peers), func(p wireguard.Peer) bool {
		return p.ExpiresAt != nil && !now.Before(*p.ExpiresAt)
	})
	return &active, next
}

// HasIPv4 tells whether the gateway has an IPv4 pool.
func (c *Config) HasIPv4() bool {
	return c.hasFamily(true)
}

// HasIPv6 tells whether the gateway has an IPv6 pool.
func (c *Config) HasIPv6() bool {
	return c.hasFamily(false)
}

// InPools tells whether a network is within one of the gateway's pools.
func (c *Config) InPools(n netip.Prefix) bool {
	return slices.ContainsFunc(c.Addresses, func(pool netip.Prefix) bool {
		return pool.Bits() <= n.Bits() && pool.Contains(n.Addr())
	})
}

func (c *Config) hasFamily(v4 bool) bool {
	for _, a := range c.Addresses {
		if a.Addr().Is4() == v4 {
			return true
		}
	}
	return false
}

// PeerName is how logs and metrics name a peer: its namespace and name, joined
// by a slash.
func PeerName(p wireguard.Peer) string {
	return p.Namespace + "/" + p.Name
}
