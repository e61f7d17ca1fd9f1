package fn

import (
	"encoding/base64"

	"google.golang.org/protobuf/types/known/structpb"
	corev1 "k8s.io/api/core/v1"

	"github.com/crossplane/function-sdk-go/errors"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/object"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
)

// Names of what the function requires to know.
const (
	requireSeed         = "seed"
	requireNodes        = "nodes"
	requireSecretPrefix = "secret."
)

// nodeSelector matches every node that can run the gateway. A selector without
// labels would match none.
var nodeSelector = map[string]string{corev1.LabelOSStable: "linux"}

// requirements are the objects beside the observed ones that the plan depends
// on: the seed, the Secrets that the user refers to, and nodes where a node's
// address is advertised.
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
	if g.Service.Type == v1alpha1.ServiceNodePort && g.Endpoint.Host == "" {
		rs[requireNodes] = &fnv1.ResourceSelector{
			ApiVersion: "v1",
			Kind:       "Node",
			Match:      &fnv1.ResourceSelector_MatchLabels{MatchLabels: &fnv1.MatchLabels{Labels: nodeSelector}},
		}
	}
	return &fnv1.Requirements{Resources: rs}
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
	seed    map[string][]byte
	secrets map[string]map[string][]byte
	nodes   []corev1.Node
}

// decodeRequired reads the answer. It is complete where every requirement has
// one: an object that does not exist is answered too, with nothing.
func decodeRequired(req *fnv1.RunFunctionRequest, asked *fnv1.Requirements) (r required, answered bool, err error) {
	r.secrets = map[string]map[string][]byte{}
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
			case requireSeed:
				r.seed = secretData(item.GetResource())
			default:
				r.secrets[selector.GetMatchName()] = secretData(item.GetResource())
			}
		}
	}
	return r, true, nil
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
