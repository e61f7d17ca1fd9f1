package v1alpha1

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/runtime"
)

// Pod is where and how the gateway's pod runs.
type Pod struct {
	// Labels of the pod, beside our own.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`

	// Annotations of the pod.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`

	// NodeSelector of the pod.
	// +optional
	// +kubebuilder:validation:MaxProperties=32
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`

	// Tolerations of the pod. Each is a Kubernetes Toleration.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Tolerations []Object `json:"tolerations,omitempty"`

	// Affinity of the pod, a Kubernetes Affinity.
	// +optional
	// +kubebuilder:pruning:PreserveUnknownFields
	Affinity *runtime.RawExtension `json:"affinity,omitempty"`

	// TopologySpreadConstraints of the pod. Each is a Kubernetes
	// TopologySpreadConstraint.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	TopologySpreadConstraints []Object `json:"topologySpreadConstraints,omitempty"`

	// PriorityClassName of the pod.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*)?$`
	PriorityClassName string `json:"priorityClassName,omitempty"`

	// ImagePullSecrets for all images of the pod.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	ImagePullSecrets []SecretReference `json:"imagePullSecrets,omitempty"`

	// HostNetwork runs the gateway in the node's own network. It cannot go
	// together with gluetun.
	// +optional
	HostNetwork bool `json:"hostNetwork,omitempty"`

	// TerminationGracePeriodSeconds is how long the pod may take to stop.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=3600
	TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds,omitempty"`
}

// Object is a Kubernetes object whose schema is not repeated here. The function
// decodes it strictly: a field that Kubernetes does not know is refused.
//
// +kubebuilder:validation:Type=object
// +kubebuilder:pruning:PreserveUnknownFields
type Object struct {
	// Raw is the object in JSON.
	Raw []byte `json:"-"`
}

// UnmarshalJSON keeps the object as it is.
func (o *Object) UnmarshalJSON(b []byte) error {
	o.Raw = append([]byte(nil), b...)
	return nil
}

// MarshalJSON returns the object as it was.
func (o Object) MarshalJSON() ([]byte, error) {
	if o.Raw == nil {
		return []byte("null"), nil
	}
	return o.Raw, nil
}

// NamedObject is a Kubernetes object with a name whose schema is not repeated
// here. The function decodes it strictly: a field that Kubernetes does not know
// is refused.
//
// +kubebuilder:pruning:PreserveUnknownFields
type NamedObject struct {
	// Name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// Raw is the object in JSON, its name included.
	Raw []byte `json:"-"`
}

// UnmarshalJSON keeps the object as it is, and reads its name.
func (o *NamedObject) UnmarshalJSON(b []byte) error {
	n := struct {
		Name string `json:"name"`
	}{}
	if err := json.Unmarshal(b, &n); err != nil {
		return err
	}
	o.Name = n.Name
	o.Raw = append([]byte(nil), b...)
	return nil
}

// MarshalJSON returns the object as it was.
func (o NamedObject) MarshalJSON() ([]byte, error) {
	if o.Raw == nil {
		return []byte("null"), nil
	}
	return o.Raw, nil
}
