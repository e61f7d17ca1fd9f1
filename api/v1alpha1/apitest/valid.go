package apitest

// Valid are specs that must be accepted, by the schema and by the function.
func Valid() []Case {
	return []Case{
		{Reason: "nothing is required", Spec: "{}"},
		{Reason: "never is the last of all times to some", Spec: `peers: [{name: laptop, expiresAt: "9999-12-31T23:59:59Z"}]`},
		{Reason: "a name may have 40 characters", Name: "a123456789-123456789-123456789-123456789", Spec: "{}"},
		{
			Reason: "everything at once, but gluetun",
			Spec: `
peerCIDR: 10.8.0.0/24
peerCIDRv6: fd00:8::/64
reservedAddresses: ["10.8.0.2-10.8.0.9", "10.8.0.20", "fd00:8::100-fd00:8::1ff", "10.8.0.100-10.8.0.100"]
listenPort: 51820
persistentKeepalive: 0
mtu: {direct: 1420, tunnel: 1360}
dns: {servers: [10.43.0.10, "fd00:43::10"], searchDomains: [vpn.svc.cluster.local, example.com., lan]}
peerToPeer: true
ipForwarding: PodSysctl
implementation: Userspace
endpoint: {host: vpn.example.com, port: 443}
service:
  type: NodePort
  annotations: {example.com/probe: "true"}
  labels: {team: network}
  loadBalancerIP: 203.0.113.9
  loadBalancerClass: example.com/class
  loadBalancerSourceRanges: [0.0.0.0/0, 192.0.2.1/24, "2001:db8::/32"]
  externalTrafficPolicy: Local
  nodePort: 31820
  ipFamilyPolicy: PreferDualStack
  ipFamilies: [IPv6, IPv4]
  healthCheckPort: 9586
gateway:
  parentRefs: [{group: gateway.networking.k8s.io, kind: Gateway, name: public, namespace: ingress, sectionName: https, port: 443}]
  hostname: vpn.example.com
  annotations: {example.com/waf: "off"}
  udpRoute: {enabled: true, parentRefs: [{group: "", kind: Service, name: public}], port: 51820}
tunnel: {type: wstunnel, pathPrefix: v1.2_~-A, image: "", resources: {limits: {memory: 64Mi}}}
peers:
- name: laptop
  publicKey: hLkY5xO+1mFhPYYVIoSEEGuTjEXHQJmlLuDo2UDW2yE=
  presharedKey: {generate: true}
  addresses: [10.8.0.50, "fd00:8::50"]
  allowedIPs: [0.0.0.0/0, "::/0"]
  routes: [192.168.50.0/24, "2001:db8:50::/48"]
  endpoint: 198.51.100.9:51820
  persistentKeepalive: 15
  dns: {servers: [9.9.9.9]}
  mtu: 1280
  advertisedEndpoint: {host: site-b.example.com, port: 443}
  disabled: true
  expiresAt: "2027-01-01T00:00:00Z"
  access:
  - {action: Accept, to: {cidr: 10.43.0.20/32, ports: ["443", "8000-8100"]}, protocol: TCP}
  - {action: Accept, to: {ports: ["53"]}}
  - {action: Accept, protocol: ICMP}
  - {action: Reject}
  keyRotation: 3
  qrCode: true
- name: phone
  privateKeySecretRef: {name: phone-key, key: private.key}
  presharedKey: {secretRef: {name: phone-psk}}
  endpoint: "[2001:db8::9]:51820"
- name: "0"
  endpoint: site-b.example.com:51820
allowedPeerNamespaces:
  from: Names
  names: [apps, media]
  limits: {access: [{action: Reject, to: {cidr: "fd00:43::/64"}}], routes: [192.168.0.0/16]}
keys: {seedSecretRef: {name: home-seed}, acceptSeed: 0123456789abcdef, rotation: 1}
initContainers: [{name: first, image: busybox, command: ["true"]}]
extraContainers: [{name: beside, image: busybox, volumeMounts: [{name: scratch, mountPath: /scratch}]}]
volumes: [{name: scratch, emptyDir: {}}]
pod:
  labels: {team: network}
  annotations: {example.com/note: "one: two"}
  nodeSelector: {kubernetes.io/os: linux}
  tolerations: [{operator: Exists}]
  affinity: {nodeAffinity: {}}
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
  priorityClassName: high
  imagePullSecrets: [{name: pull}]
  terminationGracePeriodSeconds: 0
resources: {requests: {cpu: 10m}}
networkPolicy: {enabled: true}
podDisruptionBudget: {enabled: true}
monitoring: {podMonitor: {enabled: true, labels: {release: prometheus}, interval: 1m30s}}
`,
		},
		{
			Reason: "everything may be there and empty",
			Spec: `
reservedAddresses: []
mtu: {}
dns: {servers: [], searchDomains: []}
endpoint: {}
service: {annotations: {}, labels: {}, loadBalancerSourceRanges: [], ipFamilies: []}
gateway: {parentRefs: [], annotations: {}, udpRoute: {enabled: false}}
peers: [{name: laptop, addresses: [], allowedIPs: [], routes: [], dns: {}, access: []}]
allowedPeerNamespaces: {from: Same, names: [], selector: {matchLabels: {}}, limits: {access: [], routes: []}}
keys: {acceptSeed: ""}
initContainers: []
extraContainers: []
volumes: []
pod: {labels: {}, annotations: {}, nodeSelector: {}, tolerations: [], affinity: {}, topologySpreadConstraints: [], priorityClassName: "", imagePullSecrets: []}
resources: {}
monitoring: {podMonitor: {labels: {}}}
`,
		},
		{Reason: "the smallest pools", Spec: `{peerCIDR: 10.8.0.4/30, peerCIDRv6: "fd00:8::4/126", peers: [{name: laptop, addresses: [10.8.0.6, "fd00:8::7"]}]}`},
		{Reason: "an IPv6 pool alone", Spec: `{peerCIDRv6: "fd00:8::/64", peers: [{name: laptop, addresses: ["fd00:8::50"], routes: [10.8.0.0/24]}]}`},
		{Reason: "addresses of IPv6 may be written in long", Spec: `{peerCIDRv6: "FD00:8:0::/64", peers: [{name: laptop, addresses: ["fd00:8:0:0:0:0:0:50"]}]}`},
		{Reason: "a route beside the pool", Spec: `{peerCIDR: 10.8.1.0/24, peers: [{name: laptop, routes: [10.8.0.0/24, 10.8.2.0/23]}]}`},
		{Reason: "the last address of a wider network may be had", Spec: `{peerCIDR: 10.8.0.0/23, peers: [{name: laptop, addresses: [10.8.0.255]}]}`},
		{Reason: "the last address of an IPv6 pool may be had", Spec: `{peerCIDRv6: "fd00:8::/126", peers: [{name: laptop, addresses: ["fd00:8::3"]}]}`},
		{Reason: "an IPv4 gateway carries small packets", Spec: `{mtu: {direct: 576}, peers: [{name: laptop, mtu: 576}]}`},
		{Reason: "an IPv4 host", Spec: `endpoint: {host: 203.0.113.9}`},
		{Reason: "an IPv6 host", Spec: `endpoint: {host: "2001:db8::9"}`},
		{Reason: "an IPv6 host in brackets", Spec: `endpoint: {host: "[2001:db8::9]"}`},
		{Reason: "a host without a domain", Spec: `endpoint: {host: router}`},
		{Reason: "UDP and TCP have ports of their own", Spec: `{listenPort: 443, service: {healthCheckPort: 443}}`},
		{Reason: "port 53 without gluetun", Spec: `listenPort: 53`},
		{Reason: "a label selects namespaces", Spec: `allowedPeerNamespaces: {from: Selector, selector: {matchLabels: {team: network}}}`},
		{Reason: "IPv6 may be gained", Old: `peerCIDR: 10.8.0.0/24`, Spec: `{peerCIDR: 10.8.0.0/24, peerCIDRv6: "fd00:8::/64"}`},
		{Reason: "the IPv4 pool may be replaced", Old: `peerCIDR: 10.8.0.0/24`, Spec: `peerCIDR: 10.9.0.0/24`},
		{Reason: "an IPv6 gateway may stay one", Old: `peerCIDRv6: "fd00:8::/64"`, Spec: `peerCIDRv6: "fd00:9::/64"`},
		{Reason: "IPv4 may be gained", Old: `peerCIDRv6: "fd00:8::/64"`, Spec: `{peerCIDR: 10.8.0.0/24, peerCIDRv6: "fd00:8::/64"}`},
		{
			Reason: "a commercial provider",
			Spec: `
gluetun:
  provider: private internet access
  type: openvpn
  credentials: {secretRef: {name: pia}}
  servers: {countries: [], regions: ["DE Berlin"], cities: [], hostnames: [], names: []}
  portForwarding: {enabled: true}
  outboundSubnets: [192.168.1.0/24]
  env: [{name: LOG_LEVEL, value: debug}]
  image: ""
  resources: {}
`,
		},
		{
			Reason: "a server of one's own",
			Spec: `
gluetun:
  provider: custom
  credentials: {secretRef: {name: vpn}}
  endpoint: {ip: "2001:db8::7", port: 51820, publicKey: hLkY5xO+1mFhPYYVIoSEEGuTjEXHQJmlLuDo2UDW2yE=}
  portForwarding: {enabled: true}
  env: [{name: VPN_PORT_FORWARDING_PROVIDER, value: protonvpn}]
`,
		},
		{
			Reason: "an OpenVPN server of one's own",
			Spec: `
gluetun:
  provider: custom
  type: openvpn
  credentials: {secretRef: {name: vpn}}
  endpoint: {ip: 198.51.100.7, port: 1194}
  env: [{name: OPENVPN_CUSTOM_CONFIG, value: /run/secrets/gluetun/custom.ovpn}]
`,
		},
		{Reason: "a newer gluetun may have WireGuard of more providers", Spec: `gluetun: {provider: privatevpn, credentials: {secretRef: {name: vpn}}, image: example.com/gluetun:v4}`},
	}
}

// FunctionOnly are specs that the schema accepts and the function must refuse:
// rules of a schema may cost only so much, and see nothing but one object.
func FunctionOnly() []Case {
	return []Case{
		// Rules inside lists of lists of lists would cost too much.
		{Reason: "a range of ports is not upside down", Spec: `peers: [{name: laptop, access: [{action: Accept, protocol: TCP, to: {ports: [8100-8000]}}]}]`, Value: "8100-8000"},
		// Addresses of IPv6 cannot be compared by size.
		{Reason: "a range of IPv6 is not upside down", Spec: `reservedAddresses: ["fd00:8::9-fd00:8::2"]`, Value: "fd00:8::9-fd00:8::2"},
		{Reason: "a reserved address cannot be pinned", Spec: `{reservedAddresses: [10.8.0.40-10.8.0.60], peers: [{name: laptop, addresses: [10.8.0.50]}]}`, Value: "10.8.0.50"},
		{Reason: "routes of one peer do not overlap", Spec: `peers: [{name: laptop, routes: [192.168.0.0/16, 192.168.50.0/24]}]`, Value: "192.168.50.0/24"},
		// Keys and values of maps have no bounds that rules could rely on.
		{Reason: "values of labels are short", Spec: `service: {labels: {team: "the network"}}`, Value: "the network"},
		{Reason: "keys of labels have no blanks", Spec: `pod: {labels: {"the team": network}}`, Value: "the team"},
		{Reason: "keys of annotations have no blanks", Spec: `service: {annotations: {"the team": network}}`, Value: "the team"},
		// The schema does not repeat that of Kubernetes.
		{Reason: "Kubernetes knows no such field", Spec: `extraContainers: [{name: beside, image: busybox, comand: ["true"]}]`, Value: "comand"},
		{Reason: "an init container and one beside the agent do not share a name", Spec: `{initContainers: [{name: a, image: busybox}], extraContainers: [{name: a, image: busybox}]}`, Value: "a"},
		{Reason: "a volume that is mounted is there", Spec: `extraContainers: [{name: beside, image: busybox, volumeMounts: [{name: scratch, mountPath: /scratch}]}]`, Value: "scratch"},
		{Reason: "all containers share the ports", Spec: `extraContainers: [{name: beside, image: busybox, ports: [{containerPort: 51820, protocol: UDP}]}]`, Value: "51820"},
		// That depends on the image, which the function's input may name.
		{Reason: "our gluetun has no WireGuard of this provider", Spec: `gluetun: {provider: privatevpn, credentials: {secretRef: {name: vpn}}}`, Value: "privatevpn"},
		{Reason: "volumes of ours have names of ours", Spec: `volumes: [{name: config, emptyDir: {}}]`, Value: "config"},
	}
}
