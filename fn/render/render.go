// Package render turns the plan of a gateway into the objects that are
// composed: one file per kind, each a plain function from the plan to a typed
// object.
package render

import (
	"github.com/crossplane/function-sdk-go/errors"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
)

// Composed is an object under its key in the desired set.
type Composed struct {
	Key    string
	GVK    schema.GroupVersionKind
	Object runtime.Object
}

// Kinds of the objects that are composed.
var (
	secretKind         = corev1.SchemeGroupVersion.WithKind("Secret")
	configMapKind      = corev1.SchemeGroupVersion.WithKind("ConfigMap")
	serviceKind        = corev1.SchemeGroupVersion.WithKind("Service")
	serviceAccountKind = corev1.SchemeGroupVersion.WithKind("ServiceAccount")
	deploymentKind     = appsv1.SchemeGroupVersion.WithKind("Deployment")
	roleKind           = rbacv1.SchemeGroupVersion.WithKind("Role")
	roleBindingKind    = rbacv1.SchemeGroupVersion.WithKind("RoleBinding")

	networkPolicyKind       = networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy")
	podDisruptionBudgetKind = policyv1.SchemeGroupVersion.WithKind("PodDisruptionBudget")
)

// Kinds that a cluster may lack.
var (
	HTTPRouteKind           = gatewayKind("HTTPRoute")
	UDPRouteKind            = gatewayKind("UDPRoute")
	CiliumNetworkPolicyKind = schema.GroupVersionKind{Group: "cilium.io", Version: "v2", Kind: "CiliumNetworkPolicy"}

	PodMonitorKind = schema.GroupVersionKind{Group: "monitoring.coreos.com", Version: "v1", Kind: "PodMonitor"}
)

func gatewayKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: gatewayv1.GroupName, Version: "v1", Kind: kind}
}

// Gateway returns all objects of a gateway.
func Gateway(g *plan.Gateway) ([]Composed, error) {
	config, err := configSecret(g)
	if err != nil {
		return nil, err
	}
	out := make([]Composed, 0, len(g.Peers)+8)
	if g.Keys.ComposeSeed {
		out = append(out, Composed{names.KeySeed, secretKind, seedSecret(g)})
	}
	out = append(out,
		Composed{names.KeyConfig, secretKind, config},
		Composed{names.KeyServiceAccount, serviceAccountKind, serviceAccount(g)},
		Composed{names.KeyRole, roleKind, role(g)},
		Composed{names.KeyRoleBinding, roleBindingKind, roleBinding(g)},
		Composed{names.KeyStatus, configMapKind, statusConfigMap(g)},
		Composed{names.KeyDeployment, deploymentKind, deployment(g)},
		Composed{names.KeyService, serviceKind, service(g)},
	)
	out = append(out, optional(g)...)
	for i := range g.Peers {
		p := &g.Peers[i]
		// A WireguardPeer composes its own, in its own namespace.
		if p.State == v1alpha1.PeerRejected || p.Attached {
			continue
		}
		s, err := peerSecret(g, p)
		if err != nil {
			return nil, errors.Wrapf(err, "cannot render the configurations of peer %q", p.Name)
		}
		out = append(out, Composed{names.KeyPeer(p.Name), secretKind, s})
	}
	return out, nil
}

// optional returns the objects that a gateway has only where it asks for them.
func optional(g *plan.Gateway) []Composed {
	var out []Composed
	if g.Tunnel != nil {
		out = append(out,
			Composed{names.KeyTunnelService, serviceKind, tunnelService(g)},
			Composed{names.KeyHTTPRoute, HTTPRouteKind, httpRoute(g)},
		)
	}
	if g.GatewayAPI.UDPRoute != nil {
		out = append(out, Composed{names.KeyUDPRoute, UDPRouteKind, udpRoute(g)})
	}
	if g.NetworkPolicy {
		out = append(out, Composed{names.KeyNetworkPolicy, networkPolicyKind, networkPolicy(g)})
	}
	if g.PodDisruptionBudget {
		out = append(out, Composed{names.KeyPDB, podDisruptionBudgetKind, podDisruptionBudget(g)})
	}
	if g.PodMonitor != nil {
		out = append(out, Composed{names.KeyPodMonitor, PodMonitorKind, podMonitor(g)})
	}
	return out
}

// meta returns the metadata of a composed object.
func meta(g *plan.Gateway, name string) metav1.ObjectMeta {
	m := metav1.ObjectMeta{Name: name, Labels: names.Labels(g.Name)}
	if g.ClusterScoped {
		m.Namespace = g.Namespace
	}
	return m
}

// setMeta sets the metadata of an object that is written out without its Go type.
func setMeta(o *unstructured.Unstructured, m metav1.ObjectMeta) {
	o.SetName(m.Name)
	if m.Namespace != "" {
		o.SetNamespace(m.Namespace)
	}
	o.SetLabels(m.Labels)
}

// anyMap returns labels in the form that such an object has them.
func anyMap(m map[string]string) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}
