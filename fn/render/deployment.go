package render

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// deployment runs the gateway's one pod. Two pods with the same key would take
// each other's clients, so a pod is gone before the next one starts.
func deployment(g *plan.Gateway) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: meta(g, names.Workload(g.Name)),
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1),
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
			Selector: &metav1.LabelSelector{MatchLabels: names.Selector(g.Name)},
			Template: podTemplate(g),
		},
	}
}

// podTemplate changes only with what a running pod cannot take up: a change
// restarts the gateway.
func podTemplate(g *plan.Gateway) corev1.PodTemplateSpec {
	in := g.Pod
	labels := maps.Clone(in.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	maps.Copy(labels, names.Labels(g.Name))

	t := corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: in.Annotations},
		Spec: corev1.PodSpec{
			ServiceAccountName:            names.Workload(g.Name),
			AutomountServiceAccountToken:  new(false),
			EnableServiceLinks:            new(false),
			TerminationGracePeriodSeconds: new(in.TerminationGracePeriodSeconds),
			NodeSelector:                  in.NodeSelector,
			Tolerations:                   in.Tolerations,
			Affinity:                      in.Affinity,
			TopologySpreadConstraints:     in.TopologySpreadConstraints,
			PriorityClassName:             in.PriorityClassName,
			ImagePullSecrets:              in.ImagePullSecrets,
			Containers:                    append(containers(g), in.ExtraContainers...),
			Volumes:                       append(volumes(g), in.Volumes...),
		},
	}
	if in.HostNetwork {
		t.Spec.HostNetwork = true
		// Without it, a pod on the host network resolves no cluster names.
		t.Spec.DNSPolicy = corev1.DNSClusterFirstWithHostNet
	}
	forwarding(g, &t.Spec)
	if g.Gluetun != nil {
		t.Spec.InitContainers = append(t.Spec.InitContainers, gluetun(g))
	}
	t.Spec.InitContainers = append(t.Spec.InitContainers, in.InitContainers...)
	return t
}

// containers are the gateway's own. The agent is the first, for ever.
func containers(g *plan.Gateway) []corev1.Container {
	cs := []corev1.Container{agent(g)}
	if g.Tunnel != nil {
		cs = append(cs, wstunnel(g))
	}
	return cs
}

// sysctlForwardIPv4 makes the kernel forward IPv4, as wireguard.IPv6Forwarding
// does IPv6.
const sysctlForwardIPv4 = "net.ipv4.ip_forward"

// forwarding adds what lets the pod forward packets. For IPv4 the agent does so
// by itself, with NET_ADMIN alone; for IPv6 the kernel offers no such way.
func forwarding(g *plan.Gateway, pod *corev1.PodSpec) {
	ipv6 := g.HasIPv6()
	switch g.IPForwarding {
	case v1alpha1.IPForwardingAuto:
		if ipv6 {
			pod.InitContainers = append(pod.InitContainers, sysctl(g, wireguard.IPv6Forwarding))
		}
	case v1alpha1.IPForwardingInitContainer:
		s := []string{sysctlForwardIPv4}
		if ipv6 {
			s = append(s, wireguard.IPv6Forwarding)
		}
		pod.InitContainers = append(pod.InitContainers, sysctl(g, s...))
	case v1alpha1.IPForwardingPodSysctl:
		pod.SecurityContext = &corev1.PodSecurityContext{Sysctls: []corev1.Sysctl{{Name: sysctlForwardIPv4, Value: "1"}}}
		if ipv6 {
			pod.SecurityContext.Sysctls = append(pod.SecurityContext.Sysctls, corev1.Sysctl{Name: wireguard.IPv6Forwarding, Value: "1"})
		}
	}
}

// sysctl is the one privileged container, which ends before traffic flows: the
// pod's own /proc/sys is writable to no other.
func sysctl(g *plan.Gateway, settings ...string) corev1.Container {
	args := []string{"sysctl"}
	for _, n := range settings {
		args = append(args, n+"=1")
	}
	return corev1.Container{
		Name:            names.ContainerSysctl,
		Image:           g.Platform.Images.Agent,
		ImagePullPolicy: corev1.PullPolicy(g.Platform.PullPolicy),
		Args:            args,
		SecurityContext: &corev1.SecurityContext{
			Privileged:             new(true),
			RunAsUser:              ptr.To[int64](0),
			ReadOnlyRootFilesystem: new(true),
		},
	}
}

// usesUserspace tells whether the device may be one in userspace.
func usesUserspace(g *plan.Gateway) bool {
	return g.Implementation != wireguard.ImplementationKernel
}
