package main

import (
	"encoding/json"

	"github.com/crossplane/function-sdk-go/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kjson "sigs.k8s.io/json"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
)

// machinery are fields of a spec that Crossplane adds to ours.
var machinery = []string{
	"claimRef", "compositeDeletePolicy", "compositionRef", "compositionRevisionRef", "compositionRevisionSelector",
	"compositionSelector", "compositionUpdatePolicy", "crossplane", "resourceRef", "resourceRefs", "writeConnectionSecretToRef",
}

// checkFields refuses fields that no gateway has. An API server would refuse or
// drop them, and the function never sees them there, so a typing error must not
// pass here as if it meant something.
func checkFields(composite *unstructured.Unstructured) error {
	switch composite.GetKind() {
	case v1alpha1.GatewayKind, v1alpha1.CompositeGatewayKind:
	default:
		return nil
	}
	spec, _, err := unstructured.NestedMap(composite.Object, "spec")
	if err != nil {
		return errors.Wrap(err, "cannot read spec")
	}
	for _, field := range machinery {
		delete(spec, field)
	}
	b, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return errors.Wrap(err, "cannot encode spec")
	}
	into := struct {
		Spec v1alpha1.WireguardGatewaySpec `json:"spec"`
	}{}
	// What else is wrong with it the function says better.
	unknown, _ := kjson.UnmarshalStrict(b, &into)
	return errors.Join(unknown...)
}
