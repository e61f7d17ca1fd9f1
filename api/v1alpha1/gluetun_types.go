package v1alpha1

import "k8s.io/apimachinery/pkg/runtime"

// Gluetun sends peers' traffic out through a commercial VPN, or not at all.
//
// +kubebuilder:validation:XValidation:rule="has(self.endpoint) == (self.provider == 'custom')",message="provider custom and endpoint need each other: give both, or name your provider and leave out endpoint",messageExpression="self.provider == 'custom' ? 'provider custom needs endpoint, the server to connect to: give it, or name your provider' : 'endpoint is for provider custom, not for \"%s\": leave it out, or set provider to custom'.format([self.provider])",fieldPath=".endpoint"
// +kubebuilder:validation:XValidation:rule="self.type != 'openvpn' || !has(self.endpoint) || !has(self.endpoint.publicKey)",message="endpoint.publicKey is for type wireguard: leave it out, or set type to wireguard",fieldPath=".endpoint.publicKey"
// +kubebuilder:validation:XValidation:rule="self.type != 'wireguard' || !has(self.endpoint) || has(self.endpoint.publicKey)",message="endpoint.publicKey is what a WireGuard server is known by: give it, or set type to openvpn",fieldPath=".endpoint.publicKey"
// +kubebuilder:validation:XValidation:rule="self.provider != 'custom' || self.type != 'openvpn' || (has(self.env) && self.env.exists(e, e.name == 'OPENVPN_CUSTOM_CONFIG' && has(e.value) && size(e.value) > 0))",message="provider custom of type openvpn needs OPENVPN_CUSTOM_CONFIG in env, the path of its configuration: put that into the Secret of credentials and name it /run/secrets/gluetun/KEY, or set type to wireguard",fieldPath=".env"
// +kubebuilder:validation:XValidation:rule="!has(self.portForwarding) || !has(self.portForwarding.enabled) || !self.portForwarding.enabled || self.provider in ['private internet access', 'perfect privacy', 'privatevpn', 'protonvpn'] || (self.provider == 'custom' && has(self.env) && self.env.exists(e, e.name == 'VPN_PORT_FORWARDING_PROVIDER'))",message="portForwarding works with protonvpn, with perfect privacy, private internet access and privatevpn of type openvpn, and with custom where env names one of them as VPN_PORT_FORWARDING_PROVIDER: choose one of these, or leave it out",messageExpression="'portForwarding does not work with provider \"%s\": choose protonvpn, or perfect privacy, private internet access or privatevpn with type openvpn, or custom with one of these as VPN_PORT_FORWARDING_PROVIDER in env, or leave it out'.format([self.provider])",fieldPath=".portForwarding"
type Gluetun struct {
	// Provider is gluetun's VPN_SERVICE_PROVIDER, such as protonvpn, or custom.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9 ._-]*[a-z0-9])?$`
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
	// +kubebuilder:validation:items:XValidation:rule="!self.endsWith('/0')",message="must not be everything: name the networks that the pod reaches beside the tunnel",messageExpression="'\"%s\" is everything, so that nothing would go through the tunnel: name the networks that the pod reaches beside it'.format([self])"
	OutboundSubnets []CIDR `json:"outboundSubnets,omitempty"`

	// Env are further settings of gluetun.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	Env []EnvVar `json:"env,omitempty"`

	// Image of gluetun.
	// +optional
	Image Image `json:"image,omitempty"`

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
	Name ObjectName `json:"name"`
}

// GluetunServers narrow down which of the provider's servers are used. The
// values are the provider's own, as gluetun lists them.
type GluetunServers struct {
	// Countries to choose from.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Countries []ServerFilter `json:"countries,omitempty"`

	// Regions to choose from.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Regions []ServerFilter `json:"regions,omitempty"`

	// Cities to choose from.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Cities []ServerFilter `json:"cities,omitempty"`

	// Hostnames to choose from.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Hostnames []ServerFilter `json:"hostnames,omitempty"`

	// Names to choose from.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	Names []ServerFilter `json:"names,omitempty"`
}

// GluetunEndpoint is the server of provider custom.
type GluetunEndpoint struct {
	// IP is an address: gluetun resolves no names before its tunnel is up.
	IP Address `json:"ip"`

	// Port of the server.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`

	// PublicKey of the server, for type wireguard.
	// +optional
	PublicKey PublicKey `json:"publicKey,omitempty"`
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
