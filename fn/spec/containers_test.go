package spec

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// What the API server takes of the node's ports is taken.
func TestHostPorts(t *testing.T) {
	for reason, spec := range map[string]string{
		"a node may have many addresses":             `{extraContainers: [{name: a, image: i, ports: [{containerPort: 1, hostPort: 80, hostIP: 10.0.0.1}]}, {name: b, image: i, ports: [{containerPort: 2, hostPort: 80, hostIP: 10.0.0.2}]}]}`,
		"init containers run one after the other":    `{initContainers: [{name: a, image: i, ports: [{containerPort: 1, hostPort: 80}]}], extraContainers: [{name: b, image: i, ports: [{containerPort: 2, hostPort: 80}]}]}`,
		"those of init containers may differ":        `{pod: {hostNetwork: true}, initContainers: [{name: a, image: i, ports: [{containerPort: 1, hostPort: 80}]}]}`,
		"with hostNetwork both may be said":          `{pod: {hostNetwork: true}, extraContainers: [{name: a, image: i, ports: [{containerPort: 80, hostPort: 80}]}]}`,
		"a port is one of each protocol of the node": `{extraContainers: [{name: a, image: i, ports: [{containerPort: 1, hostPort: 80}, {containerPort: 1, hostPort: 80, protocol: UDP}]}]}`,
	} {
		t.Run(reason, func(t *testing.T) { accepted(t, spec) })
	}
}

func TestExtensionPoints(t *testing.T) {
	g := accepted(t, `
volumes:
  - {name: cache, emptyDir: {}}
  - {name: certs, secret: {secretName: certs}}
  - {name: all, projected: {sources: [{secret: {name: certs}}, {configMap: {name: settings}}]}}
initContainers:
  - {name: fetch, image: i, volumeMounts: [{name: cache, mountPath: /cache}]}
  - {name: proxy, image: i, restartPolicy: Always, ports: [{name: proxy, containerPort: 3128}]}
extraContainers:
  - name: dashboard
    image: i
    ports: [{name: web, containerPort: 8080}, {containerPort: 51820, protocol: TCP}]
    env: [{name: A, value: "1"}, {name: B, valueFrom: {secretKeyRef: {name: certs, key: b}}}]
    envFrom: [{secretRef: {name: certs}}, {configMapRef: {name: settings}}]
    volumeMounts: [{name: cache, mountPath: /cache}, {name: cache, mountPath: /other}, {name: certs, mountPath: /certs}]
`)
	var got []string
	for _, c := range g.Pod.InitContainers {
		got = append(got, c.Name)
	}
	for _, c := range g.Pod.ExtraContainers {
		got = append(got, c.Name)
	}
	for _, v := range g.Pod.Volumes {
		got = append(got, v.Name)
	}
	if diff := cmp.Diff([]string{"fetch", "proxy", "dashboard", "cache", "certs", "all"}, got); diff != "" {
		t.Errorf("what is taken, in its order: -want, +got:\n%s", diff)
	}
}

func TestReservedNames(t *testing.T) {
	for _, name := range []string{"agent", "wstunnel", "gluetun", "sysctl", "client"} {
		for _, list := range []string{"initContainers", "extraContainers"} {
			_, errs := parse(t, fmt.Sprintf(`{%s: [{name: %s, image: i}]}`, list, name))
			checkErrors(t, "A container of the gateway's own has this name, now or with another feature.",
				[]string{fmt.Sprintf(`spec.%s[0].name: Invalid value: "%s": is the name of a container of the gateway's own`, list, name)}, errs)
		}
	}
	for _, name := range []string{"config", "state", "dev-net-tun", "var-run-wireguard", "api-access"} {
		_, errs := parse(t, fmt.Sprintf(`{volumes: [{name: %s, emptyDir: {}}]}`, name))
		checkErrors(t, "A volume of the gateway's own has this name.",
			[]string{fmt.Sprintf(`spec.volumes[0].name: Invalid value: "%s": is the name of a volume of the gateway's own`, name)}, errs)
		_, errs = parse(t, fmt.Sprintf(`{extraContainers: [{name: a, image: i, volumeMounts: [{name: %s, mountPath: /a}]}]}`, name))
		checkErrors(t, "The gateway's own volumes are not for others to mount.",
			[]string{fmt.Sprintf(`spec.extraContainers[0].volumeMounts[0].name: Invalid value: "%s": is no volume in spec.volumes`, name)}, errs)
	}
}

func TestContainersRefused(t *testing.T) {
	const gateway = `gateway: {hostname: ws.example.com, parentRefs: [{name: public}]}`
	testRefusals(t, map[string]refusal{
		"NoImage":       {"It could not start.", `{extraContainers: [{name: a}]}`, []string{`spec.extraContainers[0].image: Required value`}},
		"Name":          {"The API server would refuse it.", `{extraContainers: [{name: A_b, image: i}]}`, []string{`spec.extraContainers[0].name: Invalid value: "A_b": is no DNS label`}},
		"NameTwice":     {"Names are unique in a pod.", `{extraContainers: [{name: a, image: i}, {name: a, image: i}]}`, []string{`spec.extraContainers[1].name: Duplicate value: "a"`}},
		"NameInBoth":    {"Init containers share the pod's names.", `{initContainers: [{name: a, image: i}], extraContainers: [{name: a, image: i}]}`, []string{`spec.extraContainers[0].name: Duplicate value: "a"`}},
		"Unknown":       {"The API server would drop it silently.", `{extraContainers: [{name: a, image: i, livenessProb: {}}]}`, []string{`spec.extraContainers[0]: Invalid value: unknown field "livenessProb": check its spelling and place`}},
		"UnknownDeep":   {"The path leads to it.", `{initContainers: [{name: a, image: i, securityContext: {capabilities: {ad: [NET_RAW]}}}]}`, []string{`spec.initContainers[0]: Invalid value: unknown field "securityContext.capabilities.ad"`}},
		"UnknownInList": {"The path counts.", `{extraContainers: [{name: a, image: i, ports: [{containerPort: 1}, {containerPort: 2, port: 3}]}]}`, []string{`spec.extraContainers[0]: Invalid value: unknown field "ports[1].port"`}},
		"Case":          {"Kubernetes minds it.", `{extraContainers: [{name: a, image: i, imagepullpolicy: Never}]}`, []string{`spec.extraContainers[0]: Invalid value: unknown field "imagepullpolicy"`}},
		"Type":          {"A number is no list.", `{extraContainers: [{name: a, image: i, args: 1}]}`, []string{`spec.extraContainers[0]: Invalid value: cannot be read: `}},
		"Quantity":      {"A quantity has a form.", `{extraContainers: [{name: a, image: i, resources: {limits: {memory: much}}}]}`, []string{`spec.extraContainers[0]: Invalid value: cannot be read: `}},
		"EnvTwice":      {"Server-side apply refuses it.", `{extraContainers: [{name: a, image: i, env: [{name: A, value: b}, {name: A, value: c}]}]}`, []string{`spec.extraContainers[0].env[1].name: Duplicate value: "A"`}},

		"PortListen":    {"WireGuard has it.", `{extraContainers: [{name: a, image: i, ports: [{containerPort: 51820, protocol: UDP}]}]}`, []string{`spec.extraContainers[0].ports[0].containerPort: Invalid value: 51820: is taken by spec.listenPort`}},
		"PortMoved":     {"WireGuard has it wherever it listens.", `{listenPort: 443, extraContainers: [{name: a, image: i, ports: [{containerPort: 443, protocol: UDP}]}]}`, []string{`spec.extraContainers[0].ports[0].containerPort: Invalid value: 443: is taken by spec.listenPort`}},
		"PortAgent":     {"The agent has it.", `{extraContainers: [{name: a, image: i, ports: [{containerPort: 9586}]}]}`, []string{`spec.extraContainers[0].ports[0].containerPort: Invalid value: 9586: is taken by the agent's health and metrics`}},
		"PortTunnel":    {"wstunnel has it, where there is one.", `{tunnel: {}, ` + gateway + `, extraContainers: [{name: a, image: i, ports: [{containerPort: 8080}]}]}`, []string{`spec.extraContainers[0].ports[0].containerPort: Invalid value: 8080: is taken by the tunnel`}},
		"PortTwice":     {"All containers share one network.", `{extraContainers: [{name: a, image: i, ports: [{containerPort: 80}]}, {name: b, image: i, ports: [{containerPort: 80, protocol: TCP}]}]}`, []string{`spec.extraContainers[1].ports[0].containerPort: Invalid value: 80: is taken by spec.extraContainers[0].ports[0]`}},
		"PortRange":     {"A port has 16 bits.", `{extraContainers: [{name: a, image: i, ports: [{containerPort: 70000}]}]}`, []string{`spec.extraContainers[0].ports[0].containerPort: Invalid value: 70000: is out of range`}},
		"HostPort":      {"On the node's network both are one.", `{pod: {hostNetwork: true}, extraContainers: [{name: a, image: i, ports: [{containerPort: 8081, hostPort: 80}]}]}`, []string{`spec.extraContainers[0].ports[0].hostPort: Invalid value: 80: must be containerPort 8081 with hostNetwork: leave it out`}},
		"HostPortTwice": {"The node has each once.", `{extraContainers: [{name: a, image: i, ports: [{containerPort: 1, hostPort: 80}, {containerPort: 2, hostPort: 80}]}]}`, []string{`spec.extraContainers[0].ports[1].hostPort: Invalid value: 80: is taken by spec.extraContainers[0].ports[0]`}},
		"HostPortRange": {"A port has 16 bits.", `{extraContainers: [{name: a, image: i, ports: [{containerPort: 1, hostPort: 70000}]}]}`, []string{`spec.extraContainers[0].ports[0].hostPort: Invalid value: 70000: is out of range`}},
		"PortNone":      {"A port has a number.", `{extraContainers: [{name: a, image: i, ports: [{name: web}]}]}`, []string{`spec.extraContainers[0].ports[0].containerPort: Invalid value: 0: is out of range`}},
		"PortName":      {"Services find ports by name.", `{extraContainers: [{name: a, image: i, ports: [{name: wireguard, containerPort: 80}]}]}`, []string{`spec.extraContainers[0].ports[0].name: Invalid value: "wireguard": is the name of another port`}},
		"PortNameTwo":   {"Services find ports by name.", `{initContainers: [{name: a, image: i, ports: [{name: web, containerPort: 80}]}], extraContainers: [{name: b, image: i, ports: [{name: web, containerPort: 81}]}]}`, []string{`spec.extraContainers[0].ports[0].name: Invalid value: "web": is the name of another port`}},
		"PortNameWs":    {"Services find ports by name.", `{tunnel: {}, ` + gateway + `, extraContainers: [{name: a, image: i, ports: [{name: tunnel, containerPort: 80}]}]}`, []string{`spec.extraContainers[0].ports[0].name: Invalid value: "tunnel": is the name of another port`}},

		"MountNothing":  {"The pod could not start.", `{extraContainers: [{name: a, image: i, volumeMounts: [{name: cache, mountPath: /a}]}]}`, []string{`spec.extraContainers[0].volumeMounts[0].name: Invalid value: "cache": is no volume in spec.volumes`}},
		"DeviceNothing": {"The pod could not start.", `{extraContainers: [{name: a, image: i, volumeDevices: [{name: disk, devicePath: /dev/a}]}]}`, []string{`spec.extraContainers[0].volumeDevices[0].name: Invalid value: "disk": is no volume in spec.volumes`}},
		"MountTwice":    {"One would hide the other.", `{volumes: [{name: v, emptyDir: {}}], extraContainers: [{name: a, image: i, volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /a}]}]}`, []string{`spec.extraContainers[0].volumeMounts[1].mountPath: Duplicate value: "/a"`}},
		"VolumeTwice":   {"Names are unique in a pod.", `{volumes: [{name: v, emptyDir: {}}, {name: v, emptyDir: {}}]}`, []string{`spec.volumes[1].name: Duplicate value: "v"`}},
		"VolumeName":    {"The API server would refuse it.", `{volumes: [{name: a.b, emptyDir: {}}]}`, []string{`spec.volumes[0].name: Invalid value: "a.b": is no DNS label`}},
		"VolumeUnknown": {"The API server would drop it, and mount an empty folder.", `{volumes: [{name: v, configmap: {name: a}}]}`, []string{`spec.volumes[0]: Invalid value: unknown field "configmap"`}},
	})
}

// TestOwnSecretsRefused holds that no container but the agent gets the
// gateway's keys, by whatever way.
func TestOwnSecretsRefused(t *testing.T) {
	for _, secret := range []string{"home-wireguard.seed", "home-wireguard.config", "home-wireguard.peer.laptop", "backup"} {
		for way, tc := range map[string][2]string{
			"Volume":    {`volumes: [{name: v, secret: {secretName: %s}}]`, `spec.volumes[0].secret.secretName`},
			"Projected": {`volumes: [{name: v, projected: {sources: [{configMap: {name: a}}, {secret: {name: %s}}]}}]`, `spec.volumes[0].projected.sources[1].secret.name`},
			"CSI":       {`volumes: [{name: v, csi: {driver: d, nodePublishSecretRef: {name: %s}}}]`, `spec.volumes[0].csi.nodePublishSecretRef.name`},
			"Flex":      {`volumes: [{name: v, flexVolume: {driver: d, secretRef: {name: %s}}}]`, `spec.volumes[0].flexVolume.secretRef.name`},
			"Env":       {`extraContainers: [{name: a, image: i, env: [{name: A, valueFrom: {secretKeyRef: {name: %s, key: b}}}]}]`, `spec.extraContainers[0].env[0].valueFrom.secretKeyRef.name`},
			"EnvFrom":   {`extraContainers: [{name: a, image: i, envFrom: [{secretRef: {name: %s}}]}]`, `spec.extraContainers[0].envFrom[0].secretRef.name`},
			"Gluetun":   {`gluetun: {provider: protonvpn, credentials: {secretRef: {name: %s}}}`, `spec.gluetun.credentials.secretRef.name`},
			"Init":      {`initContainers: [{name: a, image: i, envFrom: [{secretRef: {name: %s}}]}]`, `spec.initContainers[0].envFrom[0].secretRef.name`},
		} {
			t.Run(way+"/"+secret, func(t *testing.T) {
				_, errs := parse(t, `{keys: {seedSecretRef: {name: backup}}, `+fmt.Sprintf(tc[0], secret)+`}`)
				checkErrors(t, "Whoever has the keys is the gateway.",
					[]string{fmt.Sprintf(`%s: Invalid value: "%s": is a Secret of the gateway's own`, tc[1], secret)}, errs)
			})
		}
	}
	accepted(t, `{volumes: [{name: v, secret: {secretName: backup}}, {name: w, secret: {secretName: home-wireguard-certs}}]}`)
	testRefusals(t, map[string]refusal{
		"Token": {"It reads the gateway's configuration from the API server.", `{volumes: [{name: v, projected: {sources: [{serviceAccountToken: {path: t}}]}}]}`, []string{`spec.volumes[0].projected.sources[0].serviceAccountToken: Forbidden: the pod's service account may read the gateway's keys`}},
	})
}
