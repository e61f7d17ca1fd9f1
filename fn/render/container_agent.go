package render

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// Where the agent finds its files.
const (
	pathConfig    = "/etc/wireguard-gateway"
	pathAPIAccess = "/var/run/secrets/kubernetes.io/serviceaccount"
	pathTunDevice = "/dev/net/tun"
)

// agentCapabilities are the fewest that the agent can work with. A port below 1024
// takes one more, even with the kernel's device, unless the container runtime has
// opened these ports to everybody, or with hostNetwork the node.
func agentCapabilities(g *plan.Gateway) []corev1.Capability {
	if g.ListenPort < 1024 {
		return []corev1.Capability{"NET_ADMIN", "NET_BIND_SERVICE"}
	}
	return []corev1.Capability{"NET_ADMIN"}
}

// agent is the container that owns the device, routes and firewall. It runs as
// uid 0, because Kubernetes gives capabilities to no other user.
func agent(g *plan.Gateway) corev1.Container {
	c := corev1.Container{
		Name:            names.ContainerAgent,
		Image:           g.Platform.Images.Agent,
		ImagePullPolicy: corev1.PullPolicy(g.Platform.PullPolicy),
		Args: []string{
			"gateway",
			"--config=" + pathConfig + "/" + wireguard.ConfigKey,
			"--secret=" + g.Namespace + "/" + names.Config(g.Name),
			"--status=" + g.Namespace + "/" + names.Status(g.Name),
		},
		Ports: []corev1.ContainerPort{
			{Name: spec.PortNameWireGuard, ContainerPort: int32(g.ListenPort), Protocol: corev1.ProtocolUDP},
			{Name: spec.PortNameHTTP, ContainerPort: wireguard.HTTPPort, Protocol: corev1.ProtocolTCP},
		},
		LivenessProbe:  httpProbe("/healthz"),
		ReadinessProbe: httpProbe("/readyz"),
		Resources:      resources(g.Pod.Resources, "32Mi"),
		SecurityContext: &corev1.SecurityContext{
			RunAsUser:                ptr.To[int64](0),
			AllowPrivilegeEscalation: new(false),
			ReadOnlyRootFilesystem:   new(true),
			Capabilities: &corev1.Capabilities{
				Drop: []corev1.Capability{"ALL"},
				Add:  agentCapabilities(g),
			},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: spec.VolumeConfig, MountPath: pathConfig, ReadOnly: true},
			{Name: spec.VolumeState, MountPath: wireguard.StateDir},
			{Name: spec.VolumeAPIAccess, MountPath: pathAPIAccess, ReadOnly: true},
		},
	}
	if usesUserspace(g) {
		c.VolumeMounts = append(c.VolumeMounts,
			corev1.VolumeMount{Name: spec.VolumeTunDevice, MountPath: pathTunDevice},
			corev1.VolumeMount{Name: spec.VolumeUserspace, MountPath: wireguard.ControlSockets},
		)
	}
	if g.Gluetun != nil {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: spec.VolumeGluetunCredentials, MountPath: wireguard.GluetunCredentials, ReadOnly: true})
	}
	return c
}

func httpProbe(path string) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromString(spec.PortNameHTTP)}},
		PeriodSeconds: 5,
	}
}

// volumes are those of the gateway's own containers.
func volumes(g *plan.Gateway) []corev1.Volume {
	empty := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	vs := []corev1.Volume{
		{Name: spec.VolumeConfig, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: names.Config(g.Name),
			// The agent's user owns the files. It has no capability to read others'.
			DefaultMode: ptr.To[int32](0o400),
		}}},
		{Name: spec.VolumeState, VolumeSource: empty},
		{Name: spec.VolumeAPIAccess, VolumeSource: corev1.VolumeSource{Projected: apiAccess()}},
	}
	if usesUserspace(g) || g.Gluetun != nil {
		vs = append(vs, corev1.Volume{Name: spec.VolumeTunDevice, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{
			Path: pathTunDevice,
			Type: ptr.To(corev1.HostPathCharDev),
		}}})
	}
	if usesUserspace(g) {
		vs = append(vs, corev1.Volume{Name: spec.VolumeUserspace, VolumeSource: empty})
	}
	if g.Gluetun != nil {
		vs = append(vs, gluetunVolumes(g)...)
	}
	return vs
}

// apiAccess is what Kubernetes mounts into every container of a pod by default.
// Here the agent alone gets it.
func apiAccess() *corev1.ProjectedVolumeSource {
	return &corev1.ProjectedVolumeSource{
		DefaultMode: ptr.To[int32](0o400),
		Sources: []corev1.VolumeProjection{
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: ptr.To[int64](3600)}},
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"},
				Items:                []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{
				Path:     "namespace",
				FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"},
			}}}},
		},
	}
}
