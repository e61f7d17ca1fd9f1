package render

import (
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
)

// serviceAccount is the agent's. Its token is mounted into the agent's
// container only, not into every container of the pod.
func serviceAccount(g *plan.Gateway) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{
		ObjectMeta:                   meta(g, names.Workload(g.Name)),
		AutomountServiceAccountToken: new(false),
	}
}

// role lets the agent read its own configuration, and write its own report.
func role(g *plan.Gateway) *rbacv1.Role {
	return &rbacv1.Role{
		ObjectMeta: meta(g, names.Workload(g.Name)),
		Rules: []rbacv1.PolicyRule{
			{
				APIGroups:     []string{corev1.GroupName},
				Resources:     []string{"secrets"},
				ResourceNames: []string{names.Config(g.Name)},
				Verbs:         []string{"get", "list", "watch"},
			},
			{
				APIGroups:     []string{corev1.GroupName},
				Resources:     []string{"configmaps"},
				ResourceNames: []string{names.Status(g.Name)},
				Verbs:         []string{"get", "watch", "patch"},
			},
		},
	}
}

// roleBinding gives the agent its role.
func roleBinding(g *plan.Gateway) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: meta(g, names.Workload(g.Name)),
		RoleRef: rbacv1.RoleRef{
			APIGroup: rbacv1.GroupName,
			Kind:     roleKind.Kind,
			Name:     names.Workload(g.Name),
		},
		Subjects: []rbacv1.Subject{{
			Kind:      rbacv1.ServiceAccountKind,
			Name:      names.Workload(g.Name),
			Namespace: g.Namespace,
		}},
	}
}
