package render

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// Where gluetun finds its other files.
const (
	pathGluetunRules  = "/iptables"
	pathGluetunData   = "/gluetun"
	pathGluetunStatus = "/tmp/gluetun"
)

// gluetun is the tunnel to the commercial VPN. It is a sidecar without startup
// probe, so that the agent starts and reports even if the tunnel does not come up.
//
// Its root is not read-only: it rewrites /etc/resolv.conf, which a container
// runtime mounts read-only together with the root, and has OpenVPN's settings in
// /etc/openvpn.
func gluetun(g *plan.Gateway) corev1.Container {
	return corev1.Container{
		Name:            names.ContainerGluetun,
		Image:           g.Gluetun.Image,
		ImagePullPolicy: corev1.PullPolicy(g.Platform.PullPolicy),
		RestartPolicy:   ptr.To(corev1.ContainerRestartPolicyAlways),
		Env:             gluetunEnv(g),
		// gluetun reconnects by itself. Its own judgement is minutes late, so it
		// serves to restart what is stuck and for nothing else.
		LivenessProbe: &corev1.Probe{
			ProbeHandler:        corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"/gluetun-entrypoint", "healthcheck"}}},
			InitialDelaySeconds: 60,
			PeriodSeconds:       30,
			TimeoutSeconds:      5,
			FailureThreshold:    20,
		},
		Resources: resources(g.Gluetun.Resources, "64Mi"),
		SecurityContext: &corev1.SecurityContext{
			RunAsUser:                ptr.To[int64](0),
			AllowPrivilegeEscalation: new(false),
			Capabilities: &corev1.Capabilities{
				Drop: []corev1.Capability{"ALL"},
				Add:  []corev1.Capability{"NET_ADMIN", "NET_BIND_SERVICE", "NET_RAW"},
			},
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: spec.VolumeTunDevice, MountPath: pathTunDevice},
			{Name: spec.VolumeGluetunCredentials, MountPath: wireguard.GluetunCredentials, ReadOnly: true},
			{Name: spec.VolumeGluetunRules, MountPath: pathGluetunRules, ReadOnly: true},
			{Name: spec.VolumeGluetunData, MountPath: pathGluetunData},
			{Name: spec.VolumeGluetunStatus, MountPath: pathGluetunStatus},
		},
	}
}

// gluetunEnv is one environment that is right for the version that is pinned
// and for the next one: each ignores what only the other knows.
func gluetunEnv(g *plan.Gateway) []corev1.EnvVar {
	t := g.Gluetun
	var env []corev1.EnvVar
	set := func(name, value string) { env = append(env, corev1.EnvVar{Name: name, Value: value}) }
	list := func(name string, values []string) {
		if len(values) > 0 {
			set(name, strings.Join(values, ","))
		}
	}
	file := func(name, file string) { set(name+"_SECRETFILE", wireguard.GluetunCredentials+"/"+file) }

	set("VPN_SERVICE_PROVIDER", t.Provider)
	set("VPN_TYPE", t.Type)
	list("SERVER_COUNTRIES", t.Servers.Countries)
	list("SERVER_REGIONS", t.Servers.Regions)
	list("SERVER_CITIES", t.Servers.Cities)
	list("SERVER_HOSTNAMES", t.Servers.Hostnames)
	list("SERVER_NAMES", t.Servers.Names)

	prefix := "WIREGUARD"
	if t.Type == spec.VPNTypeOpenVPN {
		prefix = "OPENVPN"
		file("OPENVPN_USER", spec.FileOpenVPNUser)
		file("OPENVPN_PASSWORD", spec.FileOpenVPNPassword)
	} else {
		file("WIREGUARD_PRIVATE_KEY", spec.FileWireGuardPrivateKey)
		file("WIREGUARD_PRESHARED_KEY", spec.FileWireGuardPresharedKey)
		file("WIREGUARD_ADDRESSES", spec.FileWireGuardAddresses)
		// Found out by probing the internet otherwise, which takes long and
		// fails where that is blocked.
		set("WIREGUARD_MTU", strconv.Itoa(g.MTU))
		set("WIREGUARD_IMPLEMENTATION", "userspace")
	}
	if e := t.Endpoint; e != nil {
		set(prefix+"_ENDPOINT_IP", e.IP)
		set(prefix+"_ENDPOINT_PORT", strconv.Itoa(int(e.Port)))
		if e.PublicKey != "" {
			set("WIREGUARD_PUBLIC_KEY", e.PublicKey)
		}
	}
	if t.PortForwarding {
		set("VPN_PORT_FORWARDING", "on")
	}

	set("FIREWALL_INPUT_PORTS", strings.Join(inputPorts(g), ","))
	if len(t.OutboundSubnets) > 0 {
		set("FIREWALL_OUTBOUND_SUBNETS", strings.Join(prefixStrings(t.OutboundSubnets), ","))
	}
	set("HTTP_CONTROL_SERVER_ADDRESS", "127.0.0.1:"+strconv.Itoa(wireguard.GluetunControlPort))
	env = append(env, corev1.EnvVar{
		Name: "HTTP_CONTROL_SERVER_AUTH_DEFAULT_ROLE",
		ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: names.Config(g.Name)},
			Key:                  wireguard.GluetunAuthKey,
		}},
	})
	// Without the first three, its start depends on downloads through a tunnel
	// that is not up yet. The last keeps out of its log what the agent asks.
	defaults := []corev1.EnvVar{
		{Name: "BLOCK_MALICIOUS", Value: "off"},
		{Name: "DNS_UPDATE_PERIOD", Value: "0"},
		{Name: "VERSION_INFORMATION", Value: "off"},
		{Name: "HTTP_CONTROL_SERVER_LOG", Value: "off"},
	}
	for _, d := range defaults {
		if !slices.ContainsFunc(t.Env, func(e v1alpha1.EnvVar) bool { return e.Name == d.Name }) {
			env = append(env, d)
		}
	}
	// Files of its own belong to the one user that it has.
	set("PUID", "0")
	set("PGID", "0")
	for _, e := range t.Env {
		set(e.Name, e.Value)
	}
	return env
}

// inputPorts are exactly the ports on which the pod listens for others than
// itself, and for the kubelet. Sidecars are among the init containers, too.
func inputPorts(g *plan.Gateway) []string {
	ports := []string{strconv.Itoa(g.ListenPort), strconv.Itoa(wireguard.HTTPPort)}
	add := func(port int32) {
		if s := strconv.Itoa(int(port)); port != 0 && !slices.Contains(ports, s) {
			ports = append(ports, s)
		}
	}
	if g.Tunnel != nil {
		add(spec.TunnelPort)
	}
	for _, c := range slices.Concat(g.Pod.InitContainers, g.Pod.ExtraContainers) {
		for _, p := range c.Ports {
			add(p.ContainerPort)
		}
		for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
			add(probedPort(p))
		}
		if c.Lifecycle != nil {
			add(hookPort(c.Lifecycle.PostStart))
			add(hookPort(c.Lifecycle.PreStop))
		}
	}
	return ports
}

// probedPort is the port that the kubelet probes by its number, 0 for none. One
// that it probes by its name is among the container's ports.
func probedPort(p *corev1.Probe) int32 {
	switch {
	case p == nil:
		return 0
	case p.HTTPGet != nil:
		return p.HTTPGet.Port.IntVal
	case p.TCPSocket != nil:
		return p.TCPSocket.Port.IntVal
	case p.GRPC != nil:
		return p.GRPC.Port
	default:
		return 0
	}
}

// hookPort is the port of a hook that the kubelet runs from the node, 0 for
// none. It runs none by TCP alone.
func hookPort(h *corev1.LifecycleHandler) int32 {
	if h == nil || h.HTTPGet == nil {
		return 0
	}
	return h.HTTPGet.Port.IntVal
}

func prefixStrings(ns []netip.Prefix) []string {
	ss := make([]string, len(ns))
	for i, n := range ns {
		ss[i] = n.String()
	}
	return ss
}

// gluetunVolumes are gluetun's own. Its credentials are optional: where they
// are missing the agent says so, instead of a pod that does not start.
func gluetunVolumes(g *plan.Gateway) []corev1.Volume {
	empty := corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
	return []corev1.Volume{
		{Name: spec.VolumeGluetunCredentials, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName:  g.Gluetun.CredentialsSecret,
			DefaultMode: ptr.To[int32](0o400),
			Optional:    new(true),
		}}},
		{Name: spec.VolumeGluetunRules, VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName:  names.Config(g.Name),
			Items:       []corev1.KeyToPath{{Key: wireguard.PostRulesKey, Path: wireguard.PostRulesKey}},
			DefaultMode: ptr.To[int32](0o400),
		}}},
		{Name: spec.VolumeGluetunData, VolumeSource: empty},
		{Name: spec.VolumeGluetunStatus, VolumeSource: empty},
	}
}
