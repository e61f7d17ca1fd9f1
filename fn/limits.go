package fn

import (
	"fmt"

	"github.com/crossplane/function-sdk-go/errors"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/render"
)

// Fields of the spec that errors are about: the inline peers of a gateway, and the
// client of a WireguardPeer.
const (
	peersField  = "spec.peers"
	clientField = "spec.client"
)

// checkSecrets refuses Secrets that hold more than the API server accepts: every
// peer would wait for them in vain. The error is about the given field, which they
// are made of.
func checkSecrets(field string, objects []render.Composed, peers int) error {
	for _, o := range objects {
		s, ok := o.Object.(*corev1.Secret)
		if !ok {
			continue
		}
		size := 0
		for _, v := range s.Data {
			size += len(v)
		}
		switch {
		case size <= corev1.MaxSecretSize:
		case field == peersField && o.Key == names.KeyConfig:
			return tooLarge(field, "the configuration of %d peers is %d bytes, and a Secret holds %d: move some peers to another gateway, or shorten their access rules and routes",
				peers, size, corev1.MaxSecretSize)
		default:
			return tooLarge(field, "the configurations in the Secret %q are %d bytes, and a Secret holds %d: let its peer have no allowedIPs, or shorten the routes of others",
				s.Name, size, corev1.MaxSecretSize)
		}
	}
	return nil
}

// checkSize refuses a gateway that is with its status larger than etcd accepts, and
// a response that is larger than Crossplane accepts. The gateway's size is given
// without its status.
func checkSize(rsp *fnv1.RunFunctionResponse, gateway, objects int) error {
	if size := gateway + proto.Size(rsp.GetDesired().GetComposite()); size > plan.MaxObject {
		return tooLarge(peersField, "the gateway with its status is %d bytes, and etcd accepts %d: move some peers to another gateway, or shorten their access rules and routes",
			size, plan.MaxObject)
	}
	if size := proto.Size(rsp); size > plan.MaxResponse {
		return tooLarge(peersField, "the response with %d objects is %d bytes, and Crossplane accepts %d: move some peers to another gateway, turn off their qrCode, or let them refer to fewer Secrets",
			objects, size, plan.MaxResponse)
	}
	return nil
}

func isTooLarge(err error) bool {
	failure := &plan.ConditionError{}
	return errors.As(err, &failure) && failure.Reason == reasonTooLarge
}

func tooLarge(field, format string, args ...any) error {
	return &plan.ConditionError{Condition: conditionSpecValid, Reason: reasonTooLarge, Message: field + ": Too many: " + fmt.Sprintf(format, args...)}
}
