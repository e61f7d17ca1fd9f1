package plan

import (
	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// Config returns what the agent keeps true. It holds no peer's private key.
func (g *Gateway) Config() wireguard.GatewayConfig {
	c := wireguard.GatewayConfig{
		Gateway:             id(g.Namespace, g.Name),
		PrivateKey:          g.Keys.Private,
		ListenPort:          g.ListenPort,
		MTU:                 g.MTU,
		Addresses:           g.Addresses,
		Implementation:      g.Implementation,
		PeerToPeer:          g.PeerToPeer,
		PersistentKeepalive: g.Keepalive,
		Egress:              g.egress(),
		Reservations:        g.Reservations,
		Limits:              g.limitsID(),
		Peers:               make([]wireguard.Peer, 0, len(g.Peers)),
	}
	for i := range g.Peers {
		p := &g.Peers[i]
		if p.State != v1alpha1.PeerActive {
			continue
		}
		c.Peers = append(c.Peers, p.device())
	}
	for i := range g.PodClasses {
		if g.PodClasses[i].State == v1alpha1.PeerActive {
			c.PodClasses = append(c.PodClasses, g.PodClasses[i].PodClass)
			c.PodCIDRs = g.Platform.PodCIDRs
		}
	}
	return c
}

// device returns what the device has to know of a peer.
func (p *Peer) device() wireguard.Peer {
	peer := wireguard.Peer{
		Namespace:    p.Namespace,
		Name:         p.Name,
		PublicKey:    p.PublicKey,
		PresharedKey: p.PresharedKey,
		Addresses:    p.Addresses,
		Routes:       p.Routes,
		Endpoint:     p.Endpoint,
		Access:       p.Access,
		ExpiresAt:    p.ExpiresAt,
	}
	// Keepalives of the gateway's own start the handshake where it is the one
	// that dials; towards everyone else they would only wake phones.
	if peer.Endpoint != "" {
		peer.PersistentKeepalive = p.Keepalive
	}
	return peer
}

func (g *Gateway) egress() wireguard.Egress {
	if g.Gluetun == nil {
		return wireguard.Egress{Mode: wireguard.EgressDirect, ClusterCIDRs: g.Platform.ClusterCIDRs()}
	}
	return wireguard.Egress{
		Mode:         wireguard.EgressGluetun,
		ClusterCIDRs: g.Gluetun.OutboundSubnets,
		Credentials:  g.Gluetun.NeededCredentials(),
	}
}

// ClientConfig returns a configuration of the peer's own that connects to the
// given endpoint.
func (g *Gateway) ClientConfig(p *Peer, endpoint string) wireguard.ClientConfig {
	c := wireguard.ClientConfig{
		PrivateKey:          p.PrivateKey,
		DNS:                 p.DNS,
		MTU:                 p.MTU,
		PublicKey:           g.Keys.Public,
		PresharedKey:        p.PresharedKey,
		AllowedIPs:          p.AllowedIPs,
		Endpoint:            endpoint,
		PersistentKeepalive: p.Keepalive,
	}
	c.Addresses = wireguard.Peer{Addresses: p.Addresses}.AllowedIPs()
	return c
}
