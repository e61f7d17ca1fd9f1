package fn

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/crossplane/function-sdk-go/errors"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/render"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
)

// composePeer composes one WireguardPeer. Each step asks for what the one before
// it has shown to be needed and allowed: a gateway's Secrets are not even read
// for a namespace that it does not let in.
func (f *Function) composePeer(req *fnv1.RunFunctionRequest, rsp *fnv1.RunFunctionResponse, c *conditions) error {
	xr, err := decodePeer(req)
	if err != nil {
		return err
	}
	f.log.Debug("Composing peer", "namespace", xr.namespace, "name", xr.name)
	peer, err := parsePeer(req, xr)
	if err != nil {
		return err
	}
	c.specValid()
	c.notRequested(peer)
	now := f.now()
	setTTL(rsp, peer.Platform.TTL, time.Time{}, now)

	ask := newQuestions(req, rsp)
	around := ask.surroundings(peer)
	gateway, err := ask.gateway(peer)
	switch {
	case err != nil:
		return err
	case !ask.answered():
		return nil
	case gateway == nil:
		c.gatewayNotFound(peer)
		return encodePeer(ask, xr, around.podsPolicy(peer, 0), v1alpha1.WireguardPeerStatus{}, false)
	}
	c.true(conditionGatewayFound, reasonAvailable, "")

	consent, errs := spec.ParseConsent(peer.GatewayNamespace, gateway.spec.AllowedPeerNamespaces)
	if len(errs) > 0 {
		return gatewayInvalid(peer)
	}
	labels := ask.labels(peer, consent)
	if !ask.answered() {
		return nil
	}
	if !consent.Allows(peer.Namespace, labels) {
		c.refuse(peer)
		return encodePeer(ask, xr, around.podsPolicy(peer, 0), v1alpha1.WireguardPeerStatus{}, false)
	}
	c.true(conditionPermitted, reasonAvailable, "")
	if peer.Pods != nil {
		return composePods(ask, c, xr, peer, around, gateway)
	}

	in, err := peerInputs(ask, xr, peer, gateway)
	if err != nil || !ask.answered() {
		return err
	}
	in.Now = now
	if c.awaitsSeed(&in, req.GetObserved().GetResources()) {
		return encodePeer(ask, xr, nil, v1alpha1.WireguardPeerStatus{}, false)
	}
	client, err := plan.NewClient(in)
	if err != nil {
		return err
	}
	ready := c.config(client)

	objects, err := render.Client(peer, client)
	if err != nil {
		return errors.Wrap(err, "cannot render peer")
	}
	if err := checkSecrets(clientField, objects, 1); err != nil {
		return err
	}
	if err := encodePeer(ask, xr, objects, peerStatusOf(client), ready); err != nil {
		return err
	}
	setTTL(rsp, peer.Platform.TTL, client.Gateway.NextExpiry, now)
	return nil
}

// parsePeer reads what the peer's user and the platform wrote.
func parsePeer(req *fnv1.RunFunctionRequest, xr *compositePeer) (*spec.WireguardPeer, error) {
	platform, err := parsePlatform(req)
	if err != nil {
		return nil, err
	}
	p, errs := spec.ParsePeer(xr.name, xr.namespace, &xr.spec, platform)
	if len(errs) > 0 {
		return nil, specErrors(errs)
	}
	p.ClusterScoped = xr.clusterScoped
	return p, nil
}

// peerInputs asks for the Secrets that the peer depends on: the gateway's seed,
// and what it refers to in its own namespace. Where they are not answered yet, it
// returns the inputs without them.
func peerInputs(ask *questions, xr *compositePeer, peer *spec.WireguardPeer, gateway *gatewayObject) (plan.PeerInputs, error) {
	g, errs := spec.ParseForPeers(peer.GatewayName, peer.GatewayNamespace, &gateway.spec, &gateway.status, peer.Platform)
	if len(errs) > 0 {
		return plan.PeerInputs{}, gatewayInvalid(peer)
	}
	in := plan.PeerInputs{
		Peer:          peer,
		Status:        &xr.status,
		UID:           xr.uid,
		Gateway:       g,
		GatewayStatus: &gateway.status,
		Secrets:       map[string]map[string][]byte{},

		ObservedConfig: observedPeerConfig(ask.req, peer),
	}
	if xr.spec.Client != nil {
		in.Settings = *xr.spec.Client
	}
	for i := range gateway.spec.Peers {
		in.Inline = append(in.Inline, gateway.spec.Peers[i].Name)
	}
	seedSecret := names.Seed(peer.GatewayName)
	if ref := g.Keys.SeedSecret; ref.Name != "" {
		seedSecret = ref.Name
	}
	in.Seed = ask.secret(requireSeedPrefix+peer.GatewayNamespace+"."+seedSecret, peer.GatewayNamespace, seedSecret)
	if name := peer.PrivateKey.Name; name != "" {
		if data := ask.secret(requireSecretPrefix+name, peer.Namespace, name); data != nil {
			in.Secrets[name] = data
		}
	}
	return in, nil
}

// observedPeerConfig returns what the peer's Secret holds under our data keys, nil
// where that is nothing. A Secret that was made for another gateway, which its
// labels tell, counts as none.
func observedPeerConfig(req *fnv1.RunFunctionRequest, peer *spec.WireguardPeer) map[string][]byte {
	secret := req.GetObserved().GetResources()[names.KeyPeerConfig].GetResource()
	labels := secret.GetFields()["metadata"].GetStructValue().GetFields()["labels"].GetStructValue().GetFields()
	for label, value := range names.AttachmentLabels(peer.GatewayNamespace, peer.GatewayName) {
		if labels[label].GetStringValue() != value {
			return nil
		}
	}
	data := secretData(secret)
	maps.DeleteFunc(data, func(key string, _ []byte) bool { return !slices.Contains(names.PeerData(), key) })
	if len(data) == 0 {
		return nil
	}
	return data
}

// encodePeer adds the peer's objects and status to the response. A peer without
// a configuration is not ready, however ready its objects are.
func encodePeer(ask *questions, xr *compositePeer, objects []render.Composed, st v1alpha1.WireguardPeerStatus, ready bool) error {
	exists := func(key string) bool { _, ok := ask.req.GetObserved().GetResources()[key]; return ok }
	if err := encode(ask.req, ask.rsp, xr.identity, objects, &st, exists); err != nil {
		return err
	}
	if !ready {
		ask.rsp.Desired.Composite.Ready = fnv1.Ready_READY_FALSE
	}
	return nil
}

// peerStatusOf returns all of the peer's status.
func peerStatusOf(c *plan.Client) v1alpha1.WireguardPeerStatus {
	s := v1alpha1.WireguardPeerStatus{Gateway: &v1alpha1.PeerGateway{
		PublicKey: c.Gateway.Keys.Public.String(),
		Endpoint:  c.Direct,
	}}
	if c.State != v1alpha1.PeerRejected && (len(c.Addresses) > 0 || c.Kept != nil) {
		s.Addresses = addressStrings(c.Addresses)
		s.SecretName = names.PeerConfig(c.Name)
	}
	return s
}

// gatewayObject is a gateway as its peers see it.
type gatewayObject struct {
	spec   v1alpha1.WireguardGatewaySpec
	status v1alpha1.WireguardGatewayStatus
}

func decodeGateway(fields map[string]any) (*gatewayObject, error) {
	b, err := json.Marshal(fields)
	if err != nil {
		return nil, errors.Wrap(err, "cannot encode gateway")
	}
	raw := struct {
		Spec   v1alpha1.WireguardGatewaySpec   `json:"spec"`
		Status v1alpha1.WireguardGatewayStatus `json:"status"`
	}{}
	if err := json.Unmarshal(b, &raw); err != nil {
		return nil, errors.Wrap(err, "cannot read gateway")
	}
	return &gatewayObject{spec: raw.Spec, status: raw.Status}, nil
}
