package render

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/crossplane/function-sdk-go/errors"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// Pods returns all objects of a WireguardPeer whose pods join by a label, but for
// PodsPolicy, which does not depend on the gateway. Where the gateway rejects the
// pods, admission refuses them, since it finds no parameters.
func Pods(peer *spec.WireguardPeer, p *plan.Pods) ([]Composed, error) {
	out := []Composed{{names.KeyAttachment, configMapKind, attachment(peer, p.Attachment, p.Gateway.Keys.Seed)}}
	if p.State == v1alpha1.PeerRejected {
		return out, nil
	}
	enrolment, err := enrolmentSecret(peer, p)
	if err != nil {
		return nil, err
	}
	return append(out,
		Composed{names.KeyEnrolment, secretKind, enrolment},
		Composed{names.KeyInjection, configMapKind, injectionConfigMap(peer)},
		Composed{names.KeyRole, roleKind, podsRole(peer)},
		Composed{names.KeyRoleBinding, roleBindingKind, podsRoleBinding(peer)},
	), nil
}

// PodsPolicy returns the network policy around the pods of a WireguardPeer, none
// where its user wants none. It stands whatever becomes of the gateway: without a
// gateway the port is 0, and no rule leads to one.
func PodsPolicy(peer *spec.WireguardPeer, gatewayPort int) []Composed {
	switch peer.Pods.NetworkPolicy {
	case v1alpha1.PodsNetworkPolicyNone:
		return nil
	case v1alpha1.PodsNetworkPolicyCilium:
		return []Composed{{names.KeyCiliumNetworkPolicy, CiliumNetworkPolicyKind, ciliumNetworkPolicy(peer, gatewayPort)}}
	default:
		return []Composed{{names.KeyNetworkPolicy, networkPolicyKind, podsNetworkPolicy(peer, gatewayPort)}}
	}
}

// enrolmentSecret holds what the sidecars need to join. Admission mounts it into
// them, and into nothing else.
func enrolmentSecret(peer *spec.WireguardPeer, p *plan.Pods) (*corev1.Secret, error) {
	document, err := p.Enrolment.Encode()
	if err != nil {
		return nil, errors.Wrap(err, "cannot encode enrolment")
	}
	return &corev1.Secret{
		ObjectMeta: peerMeta(peer, names.Enrolment(peer.Name)),
		Data:       map[string][]byte{wireguard.EnrolmentKey: document},
	}, nil
}

// injectionConfigMap is what admission needs to know of the sidecar.
func injectionConfigMap(peer *spec.WireguardPeer) *corev1.ConfigMap {
	m := &corev1.ConfigMap{
		ObjectMeta: peerMeta(peer, names.Injection(peer.Name)),
		Data: map[string]string{
			names.InjectionImage:      cmp.Or(peer.Pods.Image, peer.Platform.Images.Agent),
			names.InjectionPullPolicy: peer.Platform.PullPolicy,
			names.InjectionSecret:     names.Enrolment(peer.Name),
			names.InjectionTun:        strconv.FormatBool(peer.Pods.Implementation != wireguard.ImplementationKernel),
		},
	}
	m.Labels[names.LabelInjection] = "true"
	// The gateway would take it for an attachment.
	delete(m.Labels, names.LabelGatewayNamespace)
	r := resources(peer.Pods.Resources, "32Mi")
	for key, list := range map[string]corev1.ResourceList{names.InjectionRequests: r.Requests, names.InjectionLimits: r.Limits} {
		if len(list) > 0 {
			m.Data[key] = lines(list)
		}
	}
	return m
}

// lines has one resource a line, which admission can take apart.
func lines(list corev1.ResourceList) string {
	b := strings.Builder{}
	for _, name := range slices.Sorted(maps.Keys(list)) {
		quantity := list[name]
		fmt.Fprintf(&b, "%s=%s\n", name, quantity.String())
	}
	return b.String()
}

// podsRole lets the gateway's agent watch the pods of the namespace, which tells
// it whom to serve.
func podsRole(peer *spec.WireguardPeer) *rbacv1.Role {
	return &rbacv1.Role{
		ObjectMeta: peerMeta(peer, names.Pods(peer.Name)),
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{corev1.GroupName},
			Resources: []string{"pods"},
			Verbs:     []string{"get", "list", "watch"},
		}},
	}
}

// podsRoleBinding gives that role to the agent of this one gateway.
func podsRoleBinding(peer *spec.WireguardPeer) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: peerMeta(peer, names.Pods(peer.Name)),
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: roleKind.Kind, Name: names.Pods(peer.Name)},
		Subjects: []rbacv1.Subject{{
			Kind:      rbacv1.ServiceAccountKind,
			Name:      names.Workload(peer.GatewayName),
			Namespace: peer.GatewayNamespace,
		}},
	}
}
