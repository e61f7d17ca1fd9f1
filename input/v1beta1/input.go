// Package v1beta1 holds the input of the function: the platform's defaults,
// set once in the Composition.
//
// +kubebuilder:object:generate=true
// +groupName=wireguard.fn.crossplane.io
package v1beta1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Input sets the platform's defaults. Every field is optional, and so is the
// whole input.
//
// +kubebuilder:object:root=true
// +kubebuilder:storageversion
// +kubebuilder:resource:categories=crossplane
type Input struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec are the platform's defaults.
	// +optional
	Spec InputSpec `json:"spec,omitzero"`
}

// InputSpec are the platform's defaults.
type InputSpec struct {
	// Images of the gateway's pod. The shipped Composition pins them by digest.
	// +optional
	Images Images `json:"images,omitzero"`

	// ImagePullPolicy of all images.
	// +optional
	// +kubebuilder:default=IfNotPresent
	// +kubebuilder:validation:Enum=Always;IfNotPresent;Never
	ImagePullPolicy string `json:"imagePullPolicy,omitempty"`

	// ClusterDomain is the domain of the cluster's DNS names.
	// +optional
	// +kubebuilder:default=cluster.local
	ClusterDomain string `json:"clusterDomain,omitempty"`

	// PodCIDRs are the networks of the cluster's pods.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	PodCIDRs []string `json:"podCIDRs,omitempty"`

	// ServiceCIDRs are the networks of the cluster's Services.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	ServiceCIDRs []string `json:"serviceCIDRs,omitempty"`

	// NodeCIDRs are the networks of the cluster's nodes.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	NodeCIDRs []string `json:"nodeCIDRs,omitempty"`

	// ClusterDNS is the address of the cluster's DNS service. Peers resolve
	// names with it where their gateway names no servers and their tunnel leads
	// to it.
	// +optional
	ClusterDNS string `json:"clusterDNS,omitempty"`

	// Cilium tells that the cluster's network is Cilium's.
	// +optional
	Cilium bool `json:"cilium,omitempty"`

	// TTL is how long a response is valid where nothing expires sooner.
	// +optional
	// +kubebuilder:default="1m"
	TTL *metav1.Duration `json:"ttl,omitempty"`
}

// Images of the gateway's pod.
type Images struct {
	// Agent is the gateway itself.
	// +optional
	Agent string `json:"agent,omitempty"`

	// Gluetun is the egress through a commercial VPN.
	// +optional
	Gluetun string `json:"gluetun,omitempty"`

	// Wstunnel is the tunnel over a WebSocket.
	// +optional
	Wstunnel string `json:"wstunnel,omitempty"`
}

// Defaults. The schema has them too, and a test holds both together.
const (
	DefaultImagePullPolicy = "IfNotPresent"
	DefaultClusterDomain   = "cluster.local"
	DefaultTTL             = time.Minute
)
