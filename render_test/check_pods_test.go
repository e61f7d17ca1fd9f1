package render_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/object"
)

func deployment(tb testing.TB, rsp *fnv1.RunFunctionResponse) *appsv1.Deployment {
	tb.Helper()
	d := &appsv1.Deployment{}
	if err := object.Decode(rsp.GetDesired().GetResources()["deployment"].GetResource(), d); err != nil {
		tb.Fatal(err)
	}
	return d
}

// goodPods: what the API server or the kubelet would refuse, or a server-side
// apply would trip over.
func goodPods(tb testing.TB, o outcome) (bad []string) {
	tb.Helper()
	if ours(o)["deployment"] == nil {
		return nil
	}
	d := deployment(tb, o.rsp)
	pod := d.Spec.Template.Spec
	volumes := distinct(&bad, "volume", pod.Volumes, func(v corev1.Volume) string { return v.Name })
	all := slices.Concat(pod.InitContainers, pod.Containers)
	distinct(&bad, "container", all, func(c corev1.Container) string { return c.Name })

	var ports []corev1.ContainerPort
	for _, c := range all {
		ports = append(ports, c.Ports...)
	}
	numbers := distinct(&bad, "port", ports, func(p corev1.ContainerPort) string { return fmt.Sprintf("%d/%s", p.ContainerPort, p.Protocol) })
	names := distinct(&bad, "port name", ports, func(p corev1.ContainerPort) string { return p.Name })

	for _, c := range all {
		distinct(&bad, c.Name+": env", c.Env, func(e corev1.EnvVar) string { return e.Name })
		distinct(&bad, c.Name+": mount path", c.VolumeMounts, func(m corev1.VolumeMount) string { return m.MountPath })
		for _, m := range c.VolumeMounts {
			if !volumes[m.Name] {
				bad = append(bad, fmt.Sprintf("%s mounts %s, which is no volume", c.Name, m.Name))
			}
		}
		for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
			if port := probed(p); port != "" && !ofSpec(o, c.Name) && !names[port] && !numbers[port+"/TCP"] && !numbers[port+"/"] {
				bad = append(bad, fmt.Sprintf("%s probes the port %s, which is none", c.Name, port))
			}
		}
		if s := c.SecurityContext; s != nil && s.Privileged != nil && *s.Privileged && c.Name != "sysctl" && !ofSpec(o, c.Name) {
			bad = append(bad, c.Name+" is privileged")
		}
	}
	bad = append(bad, agentIsFirst(pod)...)
	bad = append(bad, kubeletGetsIn(all)...)
	for _, v := range pod.Volumes {
		if v.Secret != nil && strings.HasSuffix(v.Secret.SecretName, ".seed") {
			bad = append(bad, "the seed is mounted")
		}
	}
	for k, v := range d.Spec.Selector.MatchLabels {
		if d.Spec.Template.Labels[k] != v {
			bad = append(bad, "the Deployment does not select its own pods by "+k)
		}
	}
	if len(d.Spec.Selector.MatchLabels) != 2 {
		bad = append(bad, "the selector is not the one for ever")
	}
	if d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
		bad = append(bad, "two pods with one key may run at once")
	}
	return bad
}

// agentIsFirst: what users and tests rely on, and the least that it needs.
func agentIsFirst(pod corev1.PodSpec) (bad []string) {
	if len(pod.Containers) == 0 || pod.Containers[0].Name != "agent" {
		return []string{"the agent is not the first container"}
	}
	s, needs := pod.Containers[0].SecurityContext, []corev1.Capability{"NET_ADMIN"}
	if pod.Containers[0].Ports[0].ContainerPort < 1024 {
		needs = append(needs, "NET_BIND_SERVICE")
	}
	if s == nil || s.Capabilities == nil || !slices.Equal(s.Capabilities.Add, needs) || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) {
		bad = append(bad, fmt.Sprintf("the agent has other capabilities than %v", needs))
	}
	if s == nil || s.RunAsUser == nil || *s.RunAsUser != 0 || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
		s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		bad = append(bad, "the agent has more rights than it needs")
	}
	return bad
}

// kubeletGetsIn: gluetun's firewall drops what it is not told to let in, so it
// is told of every port that the kubelet probes, or runs a hook on.
func kubeletGetsIn(containers []corev1.Container) (bad []string) {
	var in []string
	for _, c := range containers {
		for _, e := range c.Env {
			if e.Name == "FIREWALL_INPUT_PORTS" {
				in = strings.Split(e.Value, ",")
			}
		}
	}
	if in == nil {
		return nil
	}
	for _, c := range containers {
		ports := []string{probed(c.LivenessProbe), probed(c.ReadinessProbe), probed(c.StartupProbe)}
		if c.Lifecycle != nil {
			ports = append(ports, hooked(c.Lifecycle.PostStart), hooked(c.Lifecycle.PreStop))
		}
		for _, port := range ports {
			for _, named := range c.Ports {
				if named.Name == port {
					port = strconv.Itoa(int(named.ContainerPort))
				}
			}
			// A port of 0 is none: the API server refuses it.
			if port != "" && port != "0" && !slices.Contains(in, port) {
				bad = append(bad, fmt.Sprintf("the kubelet on port %s of %s does not get past gluetun", port, c.Name))
			}
		}
	}
	return bad
}

// ofSpec tells whether the user wrote the container.
func ofSpec(o outcome, name string) bool {
	spec := o.req.GetObserved().GetComposite().GetResource().GetFields()["spec"].GetStructValue().GetFields()
	for _, list := range []string{"initContainers", "extraContainers"} {
		for _, v := range spec[list].GetListValue().GetValues() {
			if v.GetStructValue().GetFields()["name"].GetStringValue() == name {
				return true
			}
		}
	}
	return false
}

func probed(p *corev1.Probe) string {
	var port intstr.IntOrString
	switch {
	case p == nil:
		return ""
	case p.HTTPGet != nil:
		port = p.HTTPGet.Port
	case p.TCPSocket != nil:
		port = p.TCPSocket.Port
	case p.GRPC != nil:
		port = intstr.FromInt32(p.GRPC.Port)
	default:
		return ""
	}
	return port.String()
}

func hooked(h *corev1.LifecycleHandler) string {
	if h == nil || h.HTTPGet == nil {
		return ""
	}
	return h.HTTPGet.Port.String()
}

// distinct reports what is there twice, and returns all that is there.
func distinct[T any](bad *[]string, what string, list []T, id func(T) string) map[string]bool {
	seen := map[string]bool{}
	for _, v := range list {
		k := id(v)
		if k == "" {
			continue
		}
		if seen[k] {
			*bad = append(*bad, fmt.Sprintf("%s %s is there twice", what, k))
		}
		seen[k] = true
	}
	return seen
}
