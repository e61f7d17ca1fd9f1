package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Kinds of the peer's composite resource: in the namespaced flavour, where it
// is the claim's kind in the other, and in the claim flavour.
const (
	PeerKind          = "WireguardPeer"
	CompositePeerKind = "XWireguardPeer"
)

// WireguardPeer is a client of a WireguardGateway, or a class of pods, that
// belongs to the namespace it lives in. The gateway must allow that namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Namespaced,shortName=wgp
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Gateway",type=string,JSONPath=`.spec.gatewayRef.name`
// +kubebuilder:printcolumn:name="Secret",type=string,JSONPath=`.status.secretName`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="metadata.name must be a DNS label: choose one of lowercase letters, digits and dashes, without dots",messageExpression="'\"%s\" is not a DNS label: choose a name of lowercase letters, digits and dashes, without dots'.format([self.metadata.name])",fieldPath=".metadata.name"
type WireguardPeer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the peer should be.
	Spec WireguardPeerSpec `json:"spec"`
	// Status is what the peer is.
	Status WireguardPeerStatus `json:"status,omitempty"`
}

// WireguardPeerSpec is what a peer should be: a client, or a class of pods.
// Without either it is a client with nothing said.
//
// +kubebuilder:validation:XValidation:rule="!has(self.client) || !has(self.pods)",message="client and pods exclude each other: make a WireguardPeer for each",fieldPath=".pods"
type WireguardPeerSpec struct {
	// GatewayRef names the gateway.
	GatewayRef GatewayReference `json:"gatewayRef"`

	// Client is what the client has beside its name. It may be left out.
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.presharedKey) || !has(self.presharedKey.secretRef)",message="a WireguardPeer has no presharedKey.secretRef, since its gateway does not read Secrets of other namespaces: use generate",fieldPath=".presharedKey"
	Client *Client `json:"client,omitempty"`

	// Pods lets every pod of this namespace join that has the label
	// wireguardgateway.io/peer with this peer's name.
	// +optional
	Pods *Pods `json:"pods,omitempty"`
}

// GatewayReference names a WireguardGateway.
type GatewayReference struct {
	// Name of the gateway.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=40
	// +kubebuilder:validation:Pattern=`^[a-z]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// Namespace of the gateway, the peer's own where it is absent.
	// +optional
	Namespace NamespaceName `json:"namespace,omitempty"`
}

// Pods is a class of pods that join a gateway by a label.
type Pods struct {
	// BypassCIDRs are networks that pods reach directly. Where none are given, they
	// are the networks of pods and Services that the platform has named.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:XValidation:rule="!self.endsWith('/0')",message="must not be everything: name the networks of the cluster",messageExpression="'\"%s\" is everything, which would leave nothing for the tunnel: name the networks of the cluster'.format([self])"
	BypassCIDRs []CIDR `json:"bypassCIDRs,omitempty"`

	// Implementation is the kernel's WireGuard, or one in userspace. Auto takes
	// the kernel's where the node has it.
	// +optional
	// +kubebuilder:default=Auto
	// +kubebuilder:validation:Enum=Auto;Kernel;Userspace
	Implementation string `json:"implementation,omitempty"`

	// Image of the sidecar, the platform's image of the agent where it is absent.
	// +optional
	Image Image `json:"image,omitempty"`

	// Resources of the sidecar, as Kubernetes ResourceRequirements.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Resources *runtime.RawExtension `json:"resources,omitempty"`

	// NetworkPolicy is the wall outside the pod.
	// +optional
	NetworkPolicy *PodsNetworkPolicy `json:"networkPolicy,omitempty"`

	// AllowEgress are further egress rules of that policy. Each is a Kubernetes
	// NetworkPolicyEgressRule. The gateway, DNS and bypassCIDRs need none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	AllowEgress []Object `json:"allowEgress,omitempty"`
}

// PodsNetworkPolicy is the wall outside of pods that joined a gateway.
type PodsNetworkPolicy struct {
	// Type of the policy. Auto is Cilium's where the platform says so.
	// +optional
	// +kubebuilder:default=Auto
	// +kubebuilder:validation:Enum=Auto;Kubernetes;Cilium;None
	Type string `json:"type,omitempty"`
}

// Types of the wall outside of pods.
const (
	PodsNetworkPolicyAuto       = "Auto"
	PodsNetworkPolicyKubernetes = "Kubernetes"
	PodsNetworkPolicyCilium     = "Cilium"
	PodsNetworkPolicyNone       = "None"
)

// WireguardPeerStatus is what a peer is. Its conditions are SpecValid,
// GatewayFound, Permitted, ConfigReady and PodsReady, beside those that
// Crossplane adds.
type WireguardPeerStatus struct {
	// Gateway is what the peer connects to.
	// +optional
	Gateway *PeerGateway `json:"gateway,omitempty"`

	// Addresses of the peer in the tunnel.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=2
	Addresses []string `json:"addresses,omitempty"`

	// SecretName names the Secret with the peer's configurations.
	// +optional
	SecretName string `json:"secretName,omitempty"`
}

// PeerGateway is what a peer connects to.
type PeerGateway struct {
	// PublicKey of the gateway.
	// +optional
	PublicKey string `json:"publicKey,omitempty"`

	// Endpoint of the gateway, over UDP: from anywhere, where it is known; for
	// pods, from within the cluster.
	// +optional
	Endpoint string `json:"endpoint,omitempty"`
}
