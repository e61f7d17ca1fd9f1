package v1alpha1

import "k8s.io/apimachinery/pkg/runtime"

// Endpoint is what the direct configurations advertise.
type Endpoint struct {
	// Host is an IPv4 address, an IPv6 address with or without brackets, or a
	// DNS name.
	// +optional
	Host Host `json:"host,omitempty"`

	// Port is a UDP port. It is the node port of a NodePort Service, else
	// listenPort.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
}

// Service exposes the WireGuard port.
//
// +kubebuilder:validation:XValidation:rule="!has(self.ipFamilies) || size(self.ipFamilies) < 2 || !has(self.ipFamilyPolicy) || self.ipFamilyPolicy != 'SingleStack'",message="ipFamilyPolicy SingleStack allows one of the ipFamilies: name one, or set ipFamilyPolicy to PreferDualStack",fieldPath=".ipFamilyPolicy"
type Service struct {
	// Type of the Service.
	// +optional
	// +kubebuilder:default=LoadBalancer
	// +kubebuilder:validation:Enum=LoadBalancer;NodePort;ClusterIP
	Type string `json:"type,omitempty"`

	// Annotations of the Service, for what load balancers want to know.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`

	// Labels of the Service, beside our own.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`

	// LoadBalancerIP asks for an address, of a LoadBalancer.
	// +optional
	LoadBalancerIP Address `json:"loadBalancerIP,omitempty"`

	// LoadBalancerClass names the implementation, of a LoadBalancer. Kubernetes
	// lets nobody change it on one that exists: delete the Service, and it is made
	// anew.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$`
	LoadBalancerClass string `json:"loadBalancerClass,omitempty"`

	// LoadBalancerSourceRanges are the networks that may connect, of a
	// LoadBalancer.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	LoadBalancerSourceRanges []SourceRange `json:"loadBalancerSourceRanges,omitempty"`

	// ExternalTrafficPolicy Local keeps clients' addresses, of a LoadBalancer or
	// NodePort.
	// +optional
	// +kubebuilder:validation:Enum=Cluster;Local
	ExternalTrafficPolicy string `json:"externalTrafficPolicy,omitempty"`

	// NodePort asks for a port, of a LoadBalancer or NodePort.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	NodePort int32 `json:"nodePort,omitempty"`

	// IPFamilyPolicy of the Service.
	// +optional
	// +kubebuilder:validation:Enum=SingleStack;PreferDualStack;RequireDualStack
	IPFamilyPolicy string `json:"ipFamilyPolicy,omitempty"`

	// IPFamilies of the Service. Kubernetes lets nobody change the first on one
	// that exists: delete the Service, and it is made anew.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=2
	// +kubebuilder:validation:items:Enum=IPv4;IPv6
	IPFamilies []string `json:"ipFamilies,omitempty"`

	// HealthCheckPort is a TCP port of a LoadBalancer that leads to the agent's
	// health endpoint, for clouds that cannot probe UDP.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	HealthCheckPort int32 `json:"healthCheckPort,omitempty"`
}

// Gateway attaches the gateway to a Gateway of the Gateway API.
//
// +kubebuilder:validation:XValidation:rule="!has(self.udpRoute) || !has(self.udpRoute.enabled) || !self.udpRoute.enabled || (has(self.hostname) && has(self.udpRoute.parentRefs) && size(self.udpRoute.parentRefs) > 0)",message="udpRoute.enabled needs udpRoute.parentRefs and hostname, by which clients reach the gateway: set both, or leave it off",fieldPath=".udpRoute"
type Gateway struct {
	// ParentRefs are the Gateways that the HTTPRoute of the tunnel attaches to.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	ParentRefs []ParentReference `json:"parentRefs,omitempty"`

	// Hostname of the routes, and of the tunnel and UDPRoute endpoints.
	// +optional
	Hostname Hostname `json:"hostname,omitempty"`

	// Annotations of the routes.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`

	// UDPRoute leads the direct configuration through the Gateway.
	// +optional
	UDPRoute *UDPRoute `json:"udpRoute,omitempty"`
}

// ParentReference names a Gateway of the Gateway API, or one of its listeners.
type ParentReference struct {
	// Group of the parent, gateway.networking.k8s.io where it is absent.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	Group *string `json:"group,omitempty"`

	// Kind of the parent, Gateway where it is absent.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$`
	Kind string `json:"kind,omitempty"`

	// Name of the parent.
	Name ObjectName `json:"name"`

	// Namespace of the parent, the gateway's own where it is absent.
	// +optional
	Namespace NamespaceName `json:"namespace,omitempty"`

	// SectionName is the listener.
	// +optional
	SectionName ObjectName `json:"sectionName,omitempty"`

	// Port of the listener.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
}

// UDPRoute leads the direct configuration through a Gateway. Datagrams are then
// proxied, and idle ones forgotten: keep persistentKeepalive below that time.
type UDPRoute struct {
	// Enabled switches it on.
	// +optional
	Enabled bool `json:"enabled,omitempty"`

	// ParentRefs are the UDP listeners that the route attaches to.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=8
	ParentRefs []ParentReference `json:"parentRefs,omitempty"`

	// Port is the listener's, advertised to peers.
	// +optional
	// +kubebuilder:default=51820
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port,omitempty"`
}

// Tunnel carries WireGuard over a WebSocket. It needs gateway.parentRefs and
// gateway.hostname, and clients with wg-quick.
type Tunnel struct {
	// Type of the tunnel.
	// +optional
	// +kubebuilder:default=wstunnel
	// +kubebuilder:validation:Enum=wstunnel
	Type string `json:"type,omitempty"`

	// PathPrefix is the one path segment under which it is served. It is derived
	// from the seed where none is given. It is no secret.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9._~-]*$`
	// +kubebuilder:validation:XValidation:rule="self != '.' && self != '..'",message="pathPrefix must not be . or .., which every client would resolve away: choose another, or leave it out",messageExpression="'pathPrefix \"%s\" would be resolved away by every client: choose another, or leave it out'.format([self])"
	PathPrefix string `json:"pathPrefix,omitempty"`

	// Image of wstunnel.
	// +optional
	Image Image `json:"image,omitempty"`

	// Resources of its container, as Kubernetes ResourceRequirements.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Resources *runtime.RawExtension `json:"resources,omitempty"`
}
