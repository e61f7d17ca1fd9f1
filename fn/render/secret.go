package render

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// SeedSecret holds the seed that every key derives from. The API server refuses
// to change it.
func SeedSecret(g *plan.Gateway) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: meta(g, names.Seed(g.Name)),
		Immutable:  new(true),
		Data:       map[string][]byte{names.DataSeed: g.Keys.ComposedSeed},
	}
}

// ConfigSecret holds what the agent keeps true.
func ConfigSecret(g *plan.Gateway) (*corev1.Secret, error) {
	config, err := g.Config().Encode()
	if err != nil {
		return nil, err
	}
	return &corev1.Secret{
		ObjectMeta: meta(g, names.Config(g.Name)),
		Data:       map[string][]byte{wireguard.ConfigKey: config},
	}, nil
}

// PeerSecret holds a peer's configurations, as far as their endpoints are
// known.
func PeerSecret(g *plan.Gateway, p *plan.Peer) (*corev1.Secret, error) {
	s := &corev1.Secret{
		ObjectMeta: meta(g, names.Peer(g.Name, p.Name)),
		Data: map[string][]byte{
			names.DataInternal: []byte(g.ClientConfig(p, g.Endpoints.Internal.String()).String()),
		},
	}
	s.Labels[names.LabelPeer] = p.Name
	// Without the private key it would start a tunnel that leads nowhere.
	if g.Tunnel != nil && p.PrivateKey != nil {
		s.Data[names.DataTunnel] = []byte(g.TunnelConfig(p).String())
	}
	if p.Direct == "" {
		return s, nil
	}
	direct := g.ClientConfig(p, p.Direct).String()
	s.Data[names.DataDirect] = []byte(direct)
	if p.QRCode {
		if err := addQRCode(s.Data, direct); err != nil {
			return nil, err
		}
	}
	return s, nil
}
