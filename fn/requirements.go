package fn

import (
	"encoding/base64"

	"github.com/crossplane/function-sdk-go/errors"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"github.com/crossplane/function-sdk-go/request"
	"google.golang.org/protobuf/types/known/structpb"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/object"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/render"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
)

// Names of what the function requires to know.
const (
	requireSeed         = "seed"
	requireNodes        = "nodes"
	requireAttachments  = "attachments"
	requireNamespaces   = "namespaces"
	requireSecretPrefix = "secret."
)

// nodeSelector matches every node that can run the gateway. A selector without
// labels would match none.
var nodeSelector = map[string]string{corev1.LabelOSStable: "linux"}

// kinds is a set of kinds.
type kinds map[schema.GroupVersionKind]bool

// requireKinds asks for the schemas of kinds that a cluster may lack. Crossplane
// from 2.2 on can tell.
func requireKinds(req *fnv1.RunFunctionRequest, g *spec.Gateway, into *fnv1.Requirements) {
	if !request.HasCapability(req, fnv1.Capability_CAPABILITY_REQUIRED_SCHEMAS) {
		return
	}
	for key, gvk := range mayLack(g) {
		if into.Schemas == nil {
			into.Schemas = map[string]*fnv1.SchemaSelector{}
		}
		into.Schemas[key] = &fnv1.SchemaSelector{ApiVersion: gvk.GroupVersion().String(), Kind: gvk.Kind}
	}
}

// mayLack are the kinds that the gateway asks for and a cluster may lack.
func mayLack(g *spec.Gateway) map[string]schema.GroupVersionKind {
	m := map[string]schema.GroupVersionKind{}
	if g.Tunnel != nil {
		m[names.KeyHTTPRoute] = render.HTTPRouteKind
	}
	if g.GatewayAPI.UDPRoute != nil {
		m[names.KeyUDPRoute] = render.UDPRouteKind
	}
	if g.PodMonitor != nil {
		m[names.KeyPodMonitor] = render.PodMonitorKind
	}
	return m
}

// requirements are the objects beside the observed ones that the plan depends
// on: the seed, the Secrets that the user refers to, nodes where a node's address
// is advertised, and what WireguardPeers attach by.
func requirements(g *spec.Gateway) *fnv1.Requirements {
	rs := map[string]*fnv1.ResourceSelector{
		requireSeed: secretSelector(g.Namespace, names.Seed(g.Name)),
	}
	add := func(k spec.SecretKey) {
		if k.Name != "" {
			rs[requireSecretPrefix+k.Name] = secretSelector(g.Namespace, k.Name)
		}
	}
	add(g.Keys.SeedSecret)
	for i := range g.Peers {
		add(g.Peers[i].PrivateKey)
		add(g.Peers[i].PresharedKey)
	}
	if g.Service.Type == v1alpha1.ServiceNodePort && g.Endpoint.Host == "" && g.GatewayAPI.UDPRoute == nil {
		rs[requireNodes] = &fnv1.ResourceSelector{
			ApiVersion: "v1",
			Kind:       "Node",
			Match:      &fnv1.ResourceSelector_MatchLabels{MatchLabels: &fnv1.MatchLabels{Labels: nodeSelector}},
		}
	}
	rs[requireAttachments] = attachmentSelector(g)
	if labels := g.Consent.ByLabels(); labels != nil {
		rs[requireNamespaces] = &fnv1.ResourceSelector{
			ApiVersion: "v1",
			Kind:       "Namespace",
			Match:      &fnv1.ResourceSelector_MatchLabels{MatchLabels: &fnv1.MatchLabels{Labels: labels}},
		}
	}
	return &fnv1.Requirements{Resources: rs}
}

// attachmentSelector selects what WireguardPeers of all namespaces attach by.
// Where the owner lets in no other namespace than the gateway's own, nothing
// that others write even reaches it.
func attachmentSelector(g *spec.Gateway) *fnv1.ResourceSelector {
	s := &fnv1.ResourceSelector{
		ApiVersion: "v1",
		Kind:       "ConfigMap",
		Match:      &fnv1.ResourceSelector_MatchLabels{MatchLabels: &fnv1.MatchLabels{Labels: names.AttachmentLabels(g.Namespace, g.Name)}},
	}
	if g.Consent.From == v1alpha1.AllowedPeersSame {
		s.Namespace = &g.Namespace
	}
	return s
}

func secretSelector(namespace, name string) *fnv1.ResourceSelector {
	return &fnv1.ResourceSelector{
		ApiVersion: "v1",
		Kind:       "Secret",
		Namespace:  &namespace,
		Match:      &fnv1.ResourceSelector_MatchName{MatchName: name},
	}
}

// required is the answer to the requirements.
type required struct {
	seed map[string][]byte
	// seedController is the UID of what controls the seed's Secret, and seedDeleted
	// tells whether that is being deleted.
	seedController string
	seedDeleted    bool
	secrets        map[string]map[string][]byte
	nodes          []corev1.Node
	lacks          kinds

	attachments []corev1.ConfigMap
	namespaces  []corev1.Namespace
}

// decodeRequired reads the answer. It is complete where every requirement has
// one: an object that does not exist is answered too, with nothing.
func decodeRequired(req *fnv1.RunFunctionRequest, asked *fnv1.Requirements) (r required, answered bool, err error) {
	r.secrets, r.lacks = map[string]map[string][]byte{}, kinds{}
	for name, selector := range asked.GetSchemas() {
		answer, ok := req.GetRequiredSchemas()[name]
		if !ok {
			return required{}, false, nil
		}
		if answer.GetOpenapiV3() == nil {
			r.lacks[schema.FromAPIVersionAndKind(selector.GetApiVersion(), selector.GetKind())] = true
		}
	}
	for name, selector := range asked.GetResources() {
		answer, ok := req.GetRequiredResources()[name]
		if !ok {
			return required{}, false, nil
		}
		for _, item := range answer.GetItems() {
			switch name {
			case requireNodes:
				n := corev1.Node{}
				if err := object.Decode(item.GetResource(), &n); err != nil {
					return required{}, false, errors.Wrap(err, "cannot read a Node")
				}
				r.nodes = append(r.nodes, n)
			case requireAttachments:
				m := corev1.ConfigMap{}
				if err := object.Decode(item.GetResource(), &m); err != nil {
					// Anybody may have written it: it must not stop the gateway.
					m = corev1.ConfigMap{}
				}
				r.attachments = append(r.attachments, m)
			case requireNamespaces:
				n := corev1.Namespace{}
				if err := object.Decode(item.GetResource(), &n); err != nil {
					return required{}, false, errors.Wrap(err, "cannot read a Namespace")
				}
				r.namespaces = append(r.namespaces, n)
			case requireSeed:
				r.seed, r.seedController = secretData(item.GetResource()), controllerOf(item.GetResource())
				r.seedDeleted = isDeleted(item.GetResource())
			default:
				r.secrets[selector.GetMatchName()] = secretData(item.GetResource())
			}
		}
	}
	return r, true, nil
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

// secretData reads the data of a Secret. It is never nil. What is no base64
// cannot come from an API server, and is left as empty.
func secretData(s *structpb.Struct) map[string][]byte {
	fields := s.GetFields()["data"].GetStructValue().GetFields()
	data := make(map[string][]byte, len(fields))
	for k, v := range fields {
		b, err := base64.StdEncoding.DecodeString(v.GetStringValue())
		if err != nil {
			b = nil
		}
		data[k] = b
	}
	return data
}
