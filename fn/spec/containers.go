package spec

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// Volumes of the gateway's pod. Users' volumes cannot have these names, and
// their containers cannot mount them.
const (
	VolumeConfig    = "config"
	VolumeState     = "state"
	VolumeTunDevice = "dev-net-tun"
	VolumeUserspace = "var-run-wireguard"
	VolumeAPIAccess = "api-access"

	VolumeGluetunCredentials = "gluetun-credentials"
	VolumeGluetunRules       = "gluetun-rules"
	VolumeGluetunData        = "gluetun-data"
	// VolumeGluetunStatus is the one that users' containers may mount: it has
	// the file forwarded_port.
	VolumeGluetunStatus = "gluetun-status"
)

// Names of the gateway's own ports in its pod.
const (
	PortNameWireGuard = "wireguard"
	PortNameHTTP      = "http"
	PortNameTunnel    = "tunnel"
)

// taken are the names and ports in the gateway's pod, and the ports of its node,
// that are in use: by the gateway, or by what of the user's was read before.
type taken struct {
	containers map[string]bool
	volumes    map[string]bool   // those that users' containers may mount
	ports      map[string]string // what uses each
	portNames  map[string]bool
}

func (p *parser) containers(root *field.Path, g *Gateway) {
	t := taken{
		containers: map[string]bool{},
		volumes:    map[string]bool{},
		portNames:  map[string]bool{PortNameWireGuard: true, PortNameHTTP: true},
		ports: map[string]string{
			portID(corev1.ProtocolUDP, int32(g.ListenPort)):       "spec.listenPort",
			portID(corev1.ProtocolTCP, int32(wireguard.HTTPPort)): "the agent's health and metrics",
		},
	}
	if g.Tunnel != nil {
		t.portNames[PortNameTunnel] = true
		t.ports[portID(corev1.ProtocolTCP, TunnelPort)] = "the tunnel"
	}
	if p.spec.Gluetun != nil {
		t.volumes[VolumeGluetunStatus] = true
		t.ports[portID(corev1.ProtocolTCP, wireguard.GluetunControlPort)] = "gluetun's control server"
		t.ports[portID(corev1.ProtocolTCP, gluetunHealthPort)] = "gluetun's health"
		t.ports[portID(corev1.ProtocolTCP, dnsPort)] = "gluetun's resolver"
		t.ports[portID(corev1.ProtocolUDP, dnsPort)] = "gluetun's resolver"
	}
	for i, o := range p.spec.Volumes {
		g.Pod.Volumes = append(g.Pod.Volumes, p.volume(root.Child("volumes").Index(i), o, g, t))
	}
	for i, o := range p.spec.InitContainers {
		g.Pod.InitContainers = append(g.Pod.InitContainers, p.container(root.Child("initContainers").Index(i), o, g, t))
	}
	for i, o := range p.spec.ExtraContainers {
		g.Pod.ExtraContainers = append(g.Pod.ExtraContainers, p.container(root.Child("extraContainers").Index(i), o, g, t))
	}
	p.hostPorts(root.Child("extraContainers"), g.Pod.ExtraContainers, g.Pod.HostNetwork)
}

func portID(protocol corev1.Protocol, port int32) string {
	return fmt.Sprintf("%d/%s", port, defaulted(protocol, corev1.ProtocolTCP))
}

func (p *parser) volume(path *field.Path, o v1alpha1.NamedObject, g *Gateway, t taken) corev1.Volume {
	v := corev1.Volume{}
	p.strict(path, o.Raw, &v)
	switch v.Name {
	case VolumeConfig, VolumeState, VolumeTunDevice, VolumeUserspace, VolumeAPIAccess,
		VolumeGluetunCredentials, VolumeGluetunRules, VolumeGluetunData, VolumeGluetunStatus:
		p.refuse(path.Child("name"), v.Name, "is the name of a volume of the gateway's own: choose another")
	}
	p.label(path.Child("name"), v.Name)
	if t.volumes[v.Name] {
		p.errs = append(p.errs, field.Duplicate(path.Child("name"), v.Name))
	}
	t.volumes[v.Name] = true
	p.volumeSecrets(path, v.VolumeSource, g)
	return v
}

// volumeSecrets keeps the gateway's keys out of users' volumes, and with them
// the token that could read them from the API server.
func (p *parser) volumeSecrets(path *field.Path, v corev1.VolumeSource, g *Gateway) {
	if v.Secret != nil {
		p.notOwnSecret(path.Child("secret", "secretName"), v.Secret.SecretName, g)
	}
	if v.CSI != nil && v.CSI.NodePublishSecretRef != nil {
		p.notOwnSecret(path.Child("csi", "nodePublishSecretRef", "name"), v.CSI.NodePublishSecretRef.Name, g)
	}
	if v.FlexVolume != nil && v.FlexVolume.SecretRef != nil {
		p.notOwnSecret(path.Child("flexVolume", "secretRef", "name"), v.FlexVolume.SecretRef.Name, g)
	}
	if v.Projected == nil {
		return
	}
	for i, s := range v.Projected.Sources {
		at := path.Child("projected", "sources").Index(i)
		if s.Secret != nil {
			p.notOwnSecret(at.Child("secret", "name"), s.Secret.Name, g)
		}
		if s.ServiceAccountToken != nil {
			p.errs = append(p.errs, field.Forbidden(at.Child("serviceAccountToken"), "the pod's service account may read the gateway's keys, so its token stays with the agent: run what needs a token in a pod of its own"))
		}
	}
}

func (p *parser) container(path *field.Path, o v1alpha1.NamedObject, g *Gateway, t taken) corev1.Container {
	c := corev1.Container{}
	p.strict(path, o.Raw, &c)
	switch c.Name {
	case names.ContainerAgent, names.ContainerSysctl, names.ContainerWstunnel, names.ContainerGluetun, names.ContainerClient:
		p.refuse(path.Child("name"), c.Name, "is the name of a container of the gateway's own: choose another")
	}
	p.label(path.Child("name"), c.Name)
	if t.containers[c.Name] {
		p.errs = append(p.errs, field.Duplicate(path.Child("name"), c.Name))
	}
	t.containers[c.Name] = true
	if c.Image == "" {
		p.errs = append(p.errs, field.Required(path.Child("image"), "name the container's image"))
	}
	p.noClaims(path.Child("resources"), c.Resources)
	p.containerPorts(path.Child("ports"), c.Ports, t)
	p.containerEnv(path, c, g)
	p.containerMounts(path.Child("volumeMounts"), c.VolumeMounts, t)
	for i, d := range c.VolumeDevices {
		p.ownVolume(path.Child("volumeDevices").Index(i).Child("name"), d.Name, t)
	}
	return c
}

func (p *parser) label(path *field.Path, s string) {
	if len(validation.IsDNS1123Label(s)) > 0 {
		p.refuse(path, s, "is no DNS label: use lower case letters, digits and dashes")
	}
}

func (p *parser) containerPorts(path *field.Path, ports []corev1.ContainerPort, t taken) {
	for i, port := range ports {
		at := path.Index(i)
		p.between(at.Child("containerPort"), int(port.ContainerPort), 1, 65535)
		id := portID(port.Protocol, port.ContainerPort)
		if by, ok := t.ports[id]; ok {
			p.refuse(at.Child("containerPort"), port.ContainerPort, fmt.Sprintf("is taken by %s: all containers of the pod share one network", by))
		}
		t.ports[id] = at.String()
		if port.Name == "" {
			continue
		}
		if t.portNames[port.Name] {
			p.refuse(at.Child("name"), port.Name, "is the name of another port of the pod: choose another")
		}
		t.portNames[port.Name] = true
	}
}

// hostPorts refuses ports of the node that the API server would refuse, or no node
// could give. Init containers run one after the other, and may share them.
func (p *parser) hostPorts(path *field.Path, containers []corev1.Container, hostNetwork bool) {
	uses := map[string]string{}
	for i, c := range containers {
		for k, port := range c.Ports {
			if port.HostPort == 0 {
				continue
			}
			of := path.Index(i).Child("ports").Index(k)
			at, id := of.Child("hostPort"), port.HostIP+" "+portID(port.Protocol, port.HostPort)
			p.between(at, int(port.HostPort), 1, 65535)
			by, ok := uses[id]
			switch {
			case hostNetwork && port.HostPort != port.ContainerPort:
				p.refuse(at, port.HostPort, fmt.Sprintf("must be containerPort %d with hostNetwork: leave it out", port.ContainerPort))
			case ok:
				p.refuse(at, port.HostPort, "is taken by "+by+": choose another")
			}
			uses[id] = of.String()
		}
	}
}

func (p *parser) containerEnv(path *field.Path, c corev1.Container, g *Gateway) {
	seen := map[string]bool{}
	for i, e := range c.Env {
		at := path.Child("env").Index(i)
		if seen[e.Name] {
			p.errs = append(p.errs, field.Duplicate(at.Child("name"), e.Name))
		}
		seen[e.Name] = true
		if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
			p.notOwnSecret(at.Child("valueFrom", "secretKeyRef", "name"), e.ValueFrom.SecretKeyRef.Name, g)
		}
	}
	for i, e := range c.EnvFrom {
		if e.SecretRef != nil {
			p.notOwnSecret(path.Child("envFrom").Index(i).Child("secretRef", "name"), e.SecretRef.Name, g)
		}
	}
}

func (p *parser) containerMounts(path *field.Path, mounts []corev1.VolumeMount, t taken) {
	seen := map[string]bool{}
	for i, m := range mounts {
		at := path.Index(i)
		p.ownVolume(at.Child("name"), m.Name, t)
		if seen[m.MountPath] {
			p.errs = append(p.errs, field.Duplicate(at.Child("mountPath"), m.MountPath))
		}
		seen[m.MountPath] = true
	}
}

// ownVolume refuses what is not one of the user's volumes. The gateway's are
// not theirs to mount.
func (p *parser) ownVolume(path *field.Path, name string, t taken) {
	if !t.volumes[name] {
		p.refuse(path, name, "is no volume in spec.volumes: add it there")
	}
}

// notOwnSecret keeps the gateway's keys out of other containers.
func (p *parser) notOwnSecret(path *field.Path, secret string, g *Gateway) {
	if strings.HasPrefix(secret, names.Workload(g.Name)+".") || (secret != "" && secret == g.Keys.SeedSecret.Name) {
		p.refuse(path, secret, "is a Secret of the gateway's own, which stays with the agent: use another")
	}
}
