package fn

import (
	"github.com/crossplane/function-sdk-go/errors"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"github.com/crossplane/function-sdk-go/request"
	"google.golang.org/protobuf/types/known/structpb"
	corev1 "k8s.io/api/core/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/object"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/render"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
)

// Names of what the function requires to know for a gateway, beside the Secrets
// that its user refers to.
const (
	requireSeed        = "seed"
	requireNodes       = "nodes"
	requireAttachments = "attachments"
	requireNamespaces  = "namespaces"
)

// nodeLabels are on every node that can run the gateway. A selector without
// labels would match none.
var nodeLabels = map[string]string{corev1.LabelOSStable: "linux"}

// required is what a gateway depends on beside what is observed.
type required struct {
	seed map[string][]byte
	// seedController is the UID of what controls the seed's Secret, and seedDeleted
	// tells whether that is being deleted.
	seedController string
	seedDeleted    bool
	secrets        map[string]map[string][]byte
	lacks          missingKinds

	nodes       []corev1.Node
	attachments []corev1.ConfigMap
	namespaces  []corev1.Namespace
}

// forGateway asks for all that a gateway depends on: kinds, the seed, the
// Secrets that the user refers to, nodes where a node's address is advertised,
// and what WireguardPeers attach by.
func (q *questions) forGateway(g *spec.Gateway) (r required, answered bool, err error) {
	r.lacks = q.kindsFor(g)
	for _, item := range q.many(requireSeed, secretSelector(g.Namespace, names.Seed(g.Name))) {
		r.seed, r.seedController = secretData(item.GetResource()), controllerOf(item.GetResource())
		r.seedDeleted = isDeleted(item.GetResource())
	}
	r.secrets = q.secretsFor(g)
	attachments := q.many(requireAttachments, attachmentSelector(g))
	var nodes, namespaces []*fnv1.Resource
	if g.Service.Type == v1alpha1.ServiceNodePort && g.Endpoint.Host == "" && g.GatewayAPI.UDPRoute == nil {
		nodes = q.many(requireNodes, labelled("Node", nodeLabels))
	}
	if labels := g.Consent.ByLabels(); labels != nil {
		namespaces = q.many(requireNamespaces, labelled("Namespace", labels))
	}
	if !q.answered() {
		return required{}, false, nil
	}
	for _, item := range attachments {
		m := corev1.ConfigMap{}
		if err := object.Decode(item.GetResource(), &m); err != nil {
			// Anybody may have written it: it must not stop the gateway.
			m = corev1.ConfigMap{}
		}
		r.attachments = append(r.attachments, m)
	}
	if r.nodes, err = decodeAll[corev1.Node](nodes); err != nil {
		return required{}, false, errors.Wrap(err, "cannot read a Node")
	}
	if r.namespaces, err = decodeAll[corev1.Namespace](namespaces); err != nil {
		return required{}, false, errors.Wrap(err, "cannot read a Namespace")
	}
	return r, true, nil
}

// kindsFor asks which kinds the cluster lacks of those that the gateway asks
// for. Crossplane before 2.2 cannot tell: there none is taken for missing.
func (q *questions) kindsFor(g *spec.Gateway) missingKinds {
	lacks := missingKinds{}
	if !request.HasCapability(q.req, fnv1.Capability_CAPABILITY_REQUIRED_SCHEMAS) {
		return lacks
	}
	if g.Tunnel != nil {
		q.kind(names.KeyHTTPRoute, render.HTTPRouteKind, lacks)
	}
	if g.GatewayAPI.UDPRoute != nil {
		q.kind(names.KeyUDPRoute, render.UDPRouteKind, lacks)
	}
	if g.PodMonitor != nil {
		q.kind(names.KeyPodMonitor, render.PodMonitorKind, lacks)
	}
	return lacks
}

// secretsFor asks for the Secrets that the user refers to, and returns by their
// names the data of those that exist. Peers may share one.
func (q *questions) secretsFor(g *spec.Gateway) map[string]map[string][]byte {
	referred := map[string]bool{g.Keys.SeedSecret.Name: true}
	for i := range g.Peers {
		referred[g.Peers[i].PrivateKey.Name] = true
		referred[g.Peers[i].PresharedKey.Name] = true
	}
	delete(referred, "")
	secrets := map[string]map[string][]byte{}
	for name := range referred {
		if data := q.secret(requireSecretPrefix+name, g.Namespace, name); data != nil {
			secrets[name] = data
		}
	}
	return secrets
}

// attachmentSelector selects what WireguardPeers of all namespaces attach by.
// Where the owner lets in no other namespace than the gateway's own, nothing
// that others write even reaches it.
func attachmentSelector(g *spec.Gateway) *fnv1.ResourceSelector {
	s := labelled("ConfigMap", names.AttachmentLabels(g.Namespace, g.Name))
	if g.Consent.From == v1alpha1.AllowedPeersSame {
		s.Namespace = &g.Namespace
	}
	return s
}

// labelled selects objects of a kind of the core API by their labels.
func labelled(kind string, labels map[string]string) *fnv1.ResourceSelector {
	return &fnv1.ResourceSelector{
		ApiVersion: "v1",
		Kind:       kind,
		Match:      &fnv1.ResourceSelector_MatchLabels{MatchLabels: &fnv1.MatchLabels{Labels: labels}},
	}
}

// controllerOf returns the UID of the object that controls another, empty where
// none does.
func controllerOf(o *structpb.Struct) string {
	for _, owner := range o.GetFields()["metadata"].GetStructValue().GetFields()["ownerReferences"].GetListValue().GetValues() {
		if f := owner.GetStructValue().GetFields(); f["controller"].GetBoolValue() {
			return f["uid"].GetStringValue()
		}
	}
	return ""
}

// isDeleted tells whether an object is being deleted.
func isDeleted(o *structpb.Struct) bool {
	return o.GetFields()["metadata"].GetStructValue().GetFields()["deletionTimestamp"] != nil
}

// decodeAll reads objects of one type.
func decodeAll[T any](items []*fnv1.Resource) ([]T, error) {
	var out []T
	for _, item := range items {
		var o T
		if err := object.Decode(item.GetResource(), &o); err != nil {
			return nil, err
		}
		out = append(out, o)
	}
	return out, nil
}
