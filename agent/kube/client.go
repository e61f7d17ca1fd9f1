// Package kube speaks to the Kubernetes API about what the agent may see there:
// single objects, by name, and the pods of some namespaces.
package kube

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"
)

// Name is an object's namespace and name. Its text form joins them by a slash.
type Name struct {
	Namespace, Name string
}

// UnmarshalText parses the text form. An empty text is the zero Name.
func (n *Name) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*n = Name{}
		return nil
	}
	namespace, name, both := strings.Cut(string(b), "/")
	if !both || namespace == "" || name == "" || strings.Contains(name, "/") {
		return fmt.Errorf("%q is not NAMESPACE/NAME", b)
	}
	*n = Name{Namespace: namespace, Name: name}
	return nil
}

// String returns the text form.
func (n Name) String() string {
	return n.Namespace + "/" + n.Name
}

// IsZero tells whether no object is named.
func (n Name) IsZero() bool {
	return n == Name{}
}

// NewClient returns a client for the core API group, with the pod's service
// account.
func NewClient() (rest.Interface, error) {
	c, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("cannot find the Kubernetes API: %w", err)
	}
	return NewClientFor(c)
}

// NewClientFor returns a client for the core API group.
func NewClientFor(c *rest.Config) (rest.Interface, error) {
	c = rest.CopyConfig(c)
	// Only the core group is registered: the full scheme would double the
	// agent's memory.
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("cannot register API types: %w", err)
	}
	metav1.AddToGroupVersion(scheme, corev1.SchemeGroupVersion)
	c.GroupVersion = &corev1.SchemeGroupVersion
	c.APIPath = "/api"
	c.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c.UserAgent = "wireguard-gateway-agent"
	// A gateway may watch the pods of many namespaces, some of which it has no
	// right to yet.
	c.QPS, c.Burst = 20, 40
	client, err := rest.RESTClientFor(c)
	if err != nil {
		return nil, fmt.Errorf("cannot make Kubernetes client: %w", err)
	}
	return client, nil
}
