// Package apitest holds specs of WireguardGateways and WireguardPeers that must
// be accepted, and such that must be refused. The schema, the function and a control plane are
// tested with the same ones.
package apitest

import (
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
)

// Names that gateways have where a case does not say otherwise.
const (
	Name      = "home"
	Namespace = "vpn"
)

// Case is a spec of a WireguardGateway, or of another kind.
type Case struct {
	// Reason why it is accepted or refused.
	Reason string
	// Kind where it is not a WireguardGateway.
	Kind string
	// Name of the gateway, where it is not the usual one.
	Name string
	// Old is the spec that it replaces, in YAML. Where it is empty, the gateway
	// is created.
	Old string
	// Spec in YAML.
	Spec string

	// Field that the schema's message names. Empty where the spec is accepted.
	Field string
	// Value that every message quotes. Empty where something is missing.
	Value string
	// Says is what else the schema's message says.
	Says string
	// SchemaOnly cases look to the function as if the field was left out.
	SchemaOnly bool
}

// Object returns the gateway of the case.
func (c Case) Object() map[string]any { return c.object(c.Spec) }

// OldObject returns the gateway that is there before, or nil.
func (c Case) OldObject() map[string]any {
	if c.Old == "" {
		return nil
	}
	return c.object(c.Old)
}

func (c Case) object(spec string) map[string]any {
	name := c.Name
	if name == "" {
		name = Name
	}
	kind := c.Kind
	if kind == "" {
		kind = v1alpha1.GatewayKind
	}
	var s map[string]any
	if err := yaml.Unmarshal([]byte(spec), &s); err != nil {
		panic(fmt.Sprintf("%s: %v", c.Reason, err))
	}
	if s == nil {
		s = map[string]any{}
	}
	return map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(),
		"kind":       kind,
		"metadata":   map[string]any{"name": name, "namespace": Namespace},
		"spec":       s,
	}
}
