package render

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
)

// wstunnelUser is the user that owns the program in its image.
const wstunnelUser = 1000

// wstunnel carries WebSockets to the WireGuard port on loopback. Without its
// restrictions it would be an open relay into the cluster.
func wstunnel(g *plan.Gateway) corev1.Container {
	return corev1.Container{
		Name:            names.ContainerWstunnel,
		Image:           g.Tunnel.Image,
		ImagePullPolicy: corev1.PullPolicy(g.Platform.PullPolicy),
		Command:         []string{"/home/app/wstunnel"},
		Args: []string{
			"--log-lvl=WARN",
			"server",
			fmt.Sprintf("--restrict-to=127.0.0.1:%d", g.ListenPort),
			"--restrict-http-upgrade-path-prefix=" + g.TunnelPathPrefix(),
			"--websocket-ping-frequency=30s",
			fmt.Sprintf("ws://[::]:%d", spec.TunnelPort),
		},
		Ports: []corev1.ContainerPort{{Name: spec.PortNameTunnel, ContainerPort: spec.TunnelPort, Protocol: corev1.ProtocolTCP}},
		ReadinessProbe: &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString(spec.PortNameTunnel)}},
			PeriodSeconds: 5,
		},
		Resources: resources(g.Tunnel.Resources, "32Mi"),
		SecurityContext: &corev1.SecurityContext{
			RunAsUser:                ptr.To[int64](wstunnelUser),
			RunAsNonRoot:             new(true),
			AllowPrivilegeEscalation: new(false),
			ReadOnlyRootFilesystem:   new(true),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
	}
}
