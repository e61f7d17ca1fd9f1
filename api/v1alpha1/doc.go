// Package v1alpha1 holds the API types of wireguardgateway.io/v1alpha1. The
// XRDs of both flavours are generated from them, doc comments included: what
// stands here is what `kubectl explain` says.
//
// +kubebuilder:object:generate=true
// +groupName=wireguardgateway.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Names of the API.
const (
	Group   = "wireguardgateway.io"
	Version = "v1alpha1"

	// GatewayKind is the kind of the namespaced flavour's composite resource,
	// and of the claim flavour's claim.
	GatewayKind = "WireguardGateway"
	// CompositeGatewayKind is the kind of the claim flavour's composite resource.
	CompositeGatewayKind = "XWireguardGateway"
)

// GroupVersion is the group and version of all kinds in this package.
var GroupVersion = schema.GroupVersion{Group: Group, Version: Version}

// WireguardGateway is a WireGuard VPN server. Its peers get ready-made
// configurations as Secrets.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=wgw
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Endpoint",type=string,JSONPath=`.status.endpoints.direct`
// +kubebuilder:printcolumn:name="Peers",type=integer,JSONPath=`.status.activePeers`
// +kubebuilder:printcolumn:name="Public Key",type=string,JSONPath=`.status.publicKey`,priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must be a DNS label that begins with a letter: choose one of lowercase letters, digits and dashes, without dots",messageExpression="'\"%s\" is not a DNS label that begins with a letter, which names of Services must be: choose one of lowercase letters, digits and dashes, without dots'.format([self.metadata.name])",fieldPath=".metadata.name"
type WireguardGateway struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the gateway should be.
	Spec WireguardGatewaySpec `json:"spec"`
	// Status is what the gateway is.
	Status WireguardGatewayStatus `json:"status,omitempty"`
}
