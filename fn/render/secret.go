package render

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// seedSecret holds the seed that every key derives from. The API server refuses
// to change it.
func seedSecret(g *plan.Gateway) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: meta(g, names.Seed(g.Name)),
		Immutable:  new(true),
		Data:       map[string][]byte{names.DataSeed: g.Keys.ComposedSeed},
	}
}

// configSecret holds what the agent keeps true.
func configSecret(g *plan.Gateway) (*corev1.Secret, error) {
	config, err := g.Config().Encode()
	if err != nil {
		return nil, err
	}
	s := &corev1.Secret{
		ObjectMeta: meta(g, names.Config(g.Name)),
		Data:       map[string][]byte{wireguard.ConfigKey: config},
	}
	if g.Gluetun == nil {
		return s, nil
	}
	if s.Data[wireguard.GluetunAuthKey], err = gluetunAuth(g); err != nil {
		return nil, err
	}
	s.Data[wireguard.PostRulesKey] = []byte(gluetunRules(g))
	return s, nil
}

// peerSecret holds the configurations of an inline peer.
func peerSecret(g *plan.Gateway, p *plan.Peer) (*corev1.Secret, error) {
	s := &corev1.Secret{ObjectMeta: meta(g, names.Peer(g.Name, p.Name))}
	s.Labels[names.LabelPeer] = p.Name
	var err error
	s.Data, err = peerConfigs(g, p)
	return s, err
}

// peerConfigs are a peer's configurations, as far as their endpoints are known.
func peerConfigs(g *plan.Gateway, p *plan.Peer) (map[string][]byte, error) {
	data := map[string][]byte{
		names.DataInternal: []byte(g.ClientConfig(p, g.Endpoints.Internal.String()).String()),
	}
	// Without the private key it would start a tunnel that leads nowhere.
	if g.Tunnel != nil && p.PrivateKey != nil {
		data[names.DataTunnel] = []byte(g.TunnelConfig(p).String())
	}
	if p.Direct == "" {
		return data, nil
	}
	direct := g.ClientConfig(p, p.Direct).String()
	data[names.DataDirect] = []byte(direct)
	if p.QRCode {
		if err := addQRCode(data, direct); err != nil {
			return nil, err
		}
	}
	return data, nil
}
