package render

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// Client returns all objects of a WireguardPeer that is a client. The gateway
// has to know it before it has an address, and with it a configuration.
func Client(peer *spec.WireguardPeer, c *plan.Client) ([]Composed, error) {
	var out []Composed
	if c.Attachment != nil {
		out = append(out, Composed{names.KeyAttachment, configMapKind, attachment(peer, c.Attachment, c.Gateway.Keys.Seed)})
	}
	if c.State == v1alpha1.PeerRejected || (len(c.Addresses) == 0 && c.Kept == nil) {
		return out, nil
	}
	s, err := clientSecret(peer, c)
	if err != nil {
		return nil, err
	}
	return append(out, Composed{names.KeyPeerConfig, secretKind, s}), nil
}

// attachment is how a WireguardPeer attaches to its gateway.
func attachment(peer *spec.WireguardPeer, a *wireguard.Attachment, seed wireguard.Seed) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: peerMeta(peer, names.Attachment(peer.Name)),
		Data: map[string]string{
			wireguard.AttachmentClientKey: string(a.Client),
			wireguard.AttachmentUIDKey:    a.UID,
			wireguard.AttachmentMACKey:    a.MAC(seed.AttachmentKey()),
		},
	}
}

// clientSecret holds the client's configurations.
func clientSecret(peer *spec.WireguardPeer, c *plan.Client) (*corev1.Secret, error) {
	s := &corev1.Secret{ObjectMeta: peerMeta(peer, names.PeerConfig(peer.Name)), Data: c.Kept}
	if s.Data != nil {
		return s, nil
	}
	var err error
	s.Data, err = peerConfigs(c.Gateway, c.Peer)
	return s, err
}

// peerMeta returns the metadata of what a WireguardPeer composes, in its own
// namespace.
func peerMeta(peer *spec.WireguardPeer, name string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: name, Labels: names.Labels(peer.GatewayName)}
	m.Labels[names.LabelGatewayNamespace] = peer.GatewayNamespace
	m.Labels[names.LabelPeer] = peer.Name
	if peer.ClusterScoped {
		m.Namespace = peer.Namespace
	}
	return m
}
