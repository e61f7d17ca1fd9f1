package v1alpha1

import "k8s.io/apimachinery/pkg/runtime"

// Gluetun sends peers' traffic out through a commercial VPN, or not at all.
type Gluetun struct {
	// Provider is gluetun's VPN_SERVICE_PROVIDER, such as protonvpn, or custom.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Provider string `json:"provider"`

	// Type of the VPN.
	// +optional
	// +kubebuilder:default=wireguard
	// +kubebuilder:validation:Enum=wireguard;openvpn
	Type string `json:"type,omitempty"`

	// Credentials of your account with the provider.
	Credentials GluetunCredentials `json:"credentials"`

	// Servers narrow down which of the provider's servers are used.
	// +optional
	Servers *GluetunServers `json:"servers,omitempty"`

	// Endpoint is the server of provider custom.
	// +optional
	Endpoint *GluetunEndpoint `json:"endpoint,omitempty"`

	// PortForwarding asks the provider for a port.
	// +optional
	PortForwarding *Toggle `json:"portForwarding,omitempty"`

	// OutboundSubnets are networks that the pod reaches beside the tunnel. They
	// are added to the cluster's own.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=43
	OutboundSubnets []string `json:"outboundSubnets,omitempty"`

	// Env are further settings of gluetun.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Env []EnvVar `json:"env,omitempty"`

	// Image of gluetun.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	Image string `json:"image,omitempty"`

	// Resources of its container, as Kubernetes ResourceRequirements.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Resources *runtime.RawExtension `json:"resources,omitempty"`
}

// GluetunCredentials are of your account with the provider.
type GluetunCredentials struct {
	// SecretRef names a Secret of the gateway's namespace with the keys
	// wireguard-private-key, wireguard-preshared-key, wireguard-addresses,
	// openvpn-user and openvpn-password, as far as they apply. It is mounted.
	SecretRef SecretReference `json:"secretRef"`
}

// SecretReference names a Secret of the gateway's namespace.
type SecretReference struct {
	// Name of the Secret.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// GluetunServers narrow down which of the provider's servers are used. The
// values are the provider's own, as gluetun lists them.
type GluetunServers struct {
	// Countries to choose from.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	Countries []string `json:"countries,omitempty"`

	// Regions to choose from.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	Regions []string `json:"regions,omitempty"`

	// Cities to choose from.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	Cities []string `json:"cities,omitempty"`

	// Hostnames to choose from.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	Hostnames []string `json:"hostnames,omitempty"`

	// Names to choose from.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=128
	Names []string `json:"names,omitempty"`
}

// GluetunEndpoint is the server of provider custom.
type GluetunEndpoint struct {
	// IP is an address: gluetun resolves no names before its tunnel is up.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=45
	IP string `json:"ip"`

	// Port of the server.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// PublicKey of the server, for type wireguard.
	// +optional
	// +kubebuilder:validation:MaxLength=44
	PublicKey string `json:"publicKey,omitempty"`
}

// EnvVar is an environment variable.
type EnvVar struct {
	// Name of the variable.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:Pattern=`^[A-Z_][A-Z0-9_]*$`
	Name string `json:"name"`

	// Value of the variable.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Value string `json:"value,omitempty"`
}
