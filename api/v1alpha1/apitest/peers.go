package apitest

import "github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"

func peer(c Case) Case {
	c.Kind = v1alpha1.PeerKind
	return c
}

// ValidPeers are specs of WireguardPeers that must be accepted.
func ValidPeers() []Case {
	return []Case{
		peer(Case{
			Reason: "a peer need say nothing but its gateway",
			Spec:   "gatewayRef: {name: home}",
		}),
		peer(Case{
			Reason: "a name may begin with a digit, since no Service has it",
			Name:   "1st",
			Spec:   "gatewayRef: {name: home, namespace: vpn}",
		}),
		peer(Case{
			Reason: "everything that a client can say",
			Spec: `
gatewayRef: {name: home, namespace: vpn}
client:
  publicKey: hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=
  presharedKey: {generate: true}
  addresses: [10.8.0.50, "fd00:8::50"]
  allowedIPs: [0.0.0.0/0, "::/0"]
  routes: [192.168.50.0/24]
  endpoint: 198.51.100.9:51820
  persistentKeepalive: 15
  dns: {servers: [9.9.9.9], searchDomains: [example.com]}
  mtu: 1280
  advertisedEndpoint: {host: site-b.example.com, port: 443}
  disabled: false
  expiresAt: "2027-01-01T00:00:00Z"
  access: [{action: Accept, to: {cidr: 10.43.0.20/32, ports: ["443"]}, protocol: TCP}]
  keyRotation: 1
  qrCode: true
`,
		}),
		peer(Case{
			Reason: "a private key of the peer's own namespace",
			Spec:   "{gatewayRef: {name: home}, client: {privateKeySecretRef: {name: media}}}",
		}),
		peer(Case{
			Reason: "everything that pods can say",
			Spec: `
gatewayRef: {name: home, namespace: vpn}
pods:
  bypassCIDRs: [10.42.0.0/16, 10.43.0.0/16]
  implementation: Userspace
  image: ghcr.io/wireguardgateway/agent:v0.1.0
  resources: {limits: {memory: 32Mi}}
  networkPolicy: {type: Cilium}
  allowEgress: [{to: [{ipBlock: {cidr: 192.0.2.0/24}}], ports: [{port: 53, protocol: UDP}]}]
`,
		}),
	}
}

// InvalidPeers are specs of WireguardPeers that must be refused, by the schema
// and by the function.
func InvalidPeers() []Case {
	return []Case{
		peer(Case{
			Reason: "names of composed objects have dots between their parts",
			Name:   "media.apps",
			Spec:   "gatewayRef: {name: home}",
			Field:  "metadata.name",
			Value:  "media.apps",
			Says:   "without dots",
		}),
		peer(Case{
			Reason: "names of composed objects would get too long",
			Name:   "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
			Spec:   "gatewayRef: {name: home}",
			Field:  "metadata.name",
			Says:   "Too long",
		}),
		peer(Case{
			Reason: "JSON has no times after the year 9999, of which there is one in UTC",
			Spec:   `{gatewayRef: {name: home}, client: {expiresAt: "9999-12-31T23:59:59-14:00"}}`,
			Field:  "spec.client.expiresAt",
			Value:  "9999",
			Says:   "leave it out",
		}),
		peer(Case{
			Reason: "there is no gateway that everybody means",
			Spec:   "client: {}",
			Field:  "spec.gatewayRef",
			Says:   "Required",
		}),
		peer(Case{
			Reason: "no gateway has such a name",
			Spec:   "gatewayRef: {name: home.vpn}",
			Field:  "spec.gatewayRef.name",
			Value:  "home.vpn",
		}),
		peer(Case{
			Reason: "no namespace has such a name",
			Spec:   "gatewayRef: {name: home, namespace: VPN}",
			Field:  "spec.gatewayRef.namespace",
			Value:  "VPN",
		}),
		peer(Case{
			Reason: "a peer is a client or a class of pods",
			Spec:   "{gatewayRef: {name: home}, client: {}, pods: {}}",
			Field:  "spec.pods",
			Says:   "make a WireguardPeer for each",
		}),
		peer(Case{
			Reason: "a gateway reads no Secrets of other namespaces",
			Spec:   "{gatewayRef: {name: home}, client: {presharedKey: {secretRef: {name: psk}}}}",
			Field:  "spec.client.presharedKey",
			Says:   "use generate",
		}),
		peer(Case{
			Reason: "a preshared key is one thing or the other",
			Spec:   "{gatewayRef: {name: home}, client: {presharedKey: {}}}",
			Field:  "spec.client.presharedKey",
			Says:   "exactly one",
		}),
		peer(Case{
			Reason: "a private key is not of use beside a public one",
			Spec:   "{gatewayRef: {name: home}, client: {publicKey: hSDwCYkwp1R0i33ctD73Wg2/Og0mOBr066SpjqqbTmo=, privateKeySecretRef: {name: media}}}",
			Field:  "spec.client.publicKey",
			Says:   "exclude each other",
		}),
		peer(Case{
			Reason: "a peer has one address of each family",
			Spec:   "{gatewayRef: {name: home}, client: {addresses: [10.8.0.4, 10.8.0.5]}}",
			Field:  "spec.client.addresses",
			Says:   "same family",
		}),
		peer(Case{
			Reason: "an address is one address",
			Spec:   "{gatewayRef: {name: home}, client: {addresses: [10.8.0.4/32]}}",
			Field:  "spec.client.addresses[0]",
			Value:  "10.8.0.4/32",
			Says:   "is not an IP address",
		}),
		peer(Case{
			Reason: "a route is not everything",
			Spec:   "{gatewayRef: {name: home}, client: {routes: [0.0.0.0/0]}}",
			Field:  "spec.client.routes[0]",
			Value:  "0.0.0.0/0",
			Says:   "is everything",
		}),
		peer(Case{
			Reason: "host bits of a route are a mistake",
			Spec:   "{gatewayRef: {name: home}, client: {routes: [192.168.50.1/24]}}",
			Field:  "spec.client.routes[0]",
			Value:  "192.168.50.1/24",
			Says:   `write "192.168.50.0/24"`,
		}),
		peer(Case{
			Reason: "host bits of what is routed are a mistake",
			Spec:   "{gatewayRef: {name: home}, client: {allowedIPs: [192.168.50.1/24]}}",
			Field:  "spec.client.allowedIPs[0]",
			Value:  "192.168.50.1/24",
			Says:   `write "192.168.50.0/24"`,
		}),
		peer(Case{
			Reason: "an endpoint has a port",
			Spec:   "{gatewayRef: {name: home}, client: {endpoint: 198.51.100.9}}",
			Field:  "spec.client.endpoint",
			Value:  "198.51.100.9",
			Says:   "is not host:port",
		}),
		peer(Case{
			Reason: "a port has a field of its own",
			Spec:   "{gatewayRef: {name: home}, client: {advertisedEndpoint: {host: \"site.example.com:443\"}}}",
			Field:  "spec.client.advertisedEndpoint.host",
			Value:  "site.example.com:443",
			Says:   "The port has a field of its own",
		}),
		peer(Case{
			Reason: "a DNS server is an address",
			Spec:   "{gatewayRef: {name: home}, client: {dns: {servers: [dns.example.com]}}}",
			Field:  "spec.client.dns.servers[0]",
			Value:  "dns.example.com",
			Says:   "is not an IP address",
		}),
		peer(Case{
			Reason: "an access rule names a network",
			Spec:   "{gatewayRef: {name: home}, client: {access: [{action: Accept, to: {cidr: 10.43.0.1/16}}]}}",
			Field:  "spec.client.access[0].to.cidr",
			Value:  "10.43.0.1/16",
			Says:   `write "10.43.0.0/16"`,
		}),
		peer(Case{
			Reason: "ICMP has no ports",
			Spec:   "{gatewayRef: {name: home}, client: {access: [{action: Accept, to: {ports: [\"443\"]}, protocol: ICMP}]}}",
			Field:  "spec.client.access[0].to.ports",
			Says:   "leave out the ports",
		}),
		peer(Case{
			Reason: "a network that stays direct has no host bits",
			Spec:   "{gatewayRef: {name: home}, pods: {bypassCIDRs: [10.42.0.1/16]}}",
			Field:  "spec.pods.bypassCIDRs[0]",
			Value:  "10.42.0.1/16",
			Says:   `write "10.42.0.0/16"`,
		}),
		peer(Case{
			Reason: "something is left for the tunnel",
			Spec:   "{gatewayRef: {name: home}, pods: {bypassCIDRs: [10.42.0.0/16, \"::/0\"]}}",
			Field:  "spec.pods.bypassCIDRs[1]",
			Value:  "::/0",
			Says:   "name the networks of the cluster",
		}),
		peer(Case{
			Reason: "there are four kinds of walls",
			Spec:   "{gatewayRef: {name: home}, pods: {networkPolicy: {type: Calico}}}",
			Field:  "spec.pods.networkPolicy.type",
			Value:  "Calico",
			Says:   "Kubernetes",
		}),
	}
}
