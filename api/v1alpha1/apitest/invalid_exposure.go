package apitest

// invalidExposure are wrong about how a gateway is reached.
func invalidExposure() []Case {
	return []Case{
		// The endpoint.
		{
			Reason: "a host has no port",
			Spec:   `endpoint: {host: "vpn.example.com:51820"}`,
			Field:  "spec.endpoint.host",
			Value:  "vpn.example.com:51820",
			Says:   "The port has a field of its own",
		},
		{
			Reason: "a host has no scheme",
			Spec:   `endpoint: {host: "https://vpn.example.com"}`,
			Field:  "spec.endpoint.host",
			Value:  "https://vpn.example.com",
			Says:   "neither an IP address nor a DNS name",
		},
		{
			Reason: "numbers with dots are an address or nothing",
			Spec:   "endpoint: {host: 203.0.113.999}",
			Field:  "spec.endpoint.host",
			Value:  "203.0.113.999",
			Says:   "neither",
		},
		{
			Reason: "IPv4 addresses have no brackets",
			Spec:   `endpoint: {host: "[203.0.113.9]"}`,
			Field:  "spec.endpoint.host",
			Value:  "[203.0.113.9]",
			Says:   "neither",
		},
		{
			Reason: "brackets are closed",
			Spec:   `endpoint: {host: "[2001:db8::9"}`,
			Field:  "spec.endpoint.host",
			Value:  "[2001:db8::9",
			Says:   "neither",
		},
		{
			Reason: "line breaks would add lines to client configurations",
			Spec:   `endpoint: {host: "vpn.example.com\nPostUp = reboot"}`,
			Field:  "spec.endpoint.host",
			Value:  "PostUp",
			Says:   "must be an IP address or a DNS name",
		},
		{
			Reason: "ports end at 65535",
			Spec:   "endpoint: {host: vpn.example.com, port: 70000}",
			Field:  "spec.endpoint.port",
			Value:  "70000",
			Says:   "65535",
		},

		// The Service.
		{
			Reason: "there are three types",
			Spec:   "service: {type: ExternalName}",
			Field:  "spec.service.type",
			Value:  "ExternalName",
			Says:   "LoadBalancer",
		},
		{
			Reason: "a load balancer's address is one",
			Spec:   "service: {loadBalancerIP: lb.example.com}",
			Field:  "spec.service.loadBalancerIP",
			Value:  "lb.example.com",
			Says:   "is not an IP address",
		},
		{
			Reason: "source ranges are networks",
			Spec:   "service: {loadBalancerSourceRanges: [192.0.2.1]}",
			Field:  "spec.service.loadBalancerSourceRanges[0]",
			Value:  "192.0.2.1",
			Says:   "/32",
		},
		{
			Reason: "a load balancer class is a label",
			Spec:   `service: {loadBalancerClass: "example.com/a class"}`,
			Field:  "spec.service.loadBalancerClass",
			Value:  "example.com/a class",
			Says:   "should match",
		},
		{
			Reason: "there are two traffic policies",
			Spec:   "service: {externalTrafficPolicy: Node}",
			Field:  "spec.service.externalTrafficPolicy",
			Value:  "Node",
			Says:   "Local",
		},
		{
			Reason: "ports end at 65535",
			Spec:   "service: {nodePort: 65536}",
			Field:  "spec.service.nodePort",
			Value:  "65536",
			Says:   "65535",
		},
		{
			Reason: "ports end at 65535",
			Spec:   "service: {healthCheckPort: 65536}",
			Field:  "spec.service.healthCheckPort",
			Value:  "65536",
			Says:   "65535",
		},
		{
			Reason: "a family is named once",
			Spec:   "service: {ipFamilies: [IPv4, IPv4]}",
			Field:  "spec.service.ipFamilies[1]",
			Value:  "IPv4",
			Says:   "Duplicate",
		},
		{
			Reason: "a single stack has one family",
			Spec:   "service: {ipFamilyPolicy: SingleStack, ipFamilies: [IPv4, IPv6]}",
			Field:  "spec.service.ipFamilyPolicy",
			Says:   "PreferDualStack",
		},

		// Gateway API.
		{
			Reason: "clients connect to one host, not to all",
			Spec:   `gateway: {hostname: "*.example.com"}`,
			Field:  "spec.gateway.hostname",
			Value:  "*.example.com",
			Says:   "should match",
		},
		{
			Reason: "hostnames of routes are in lower case",
			Spec:   "gateway: {hostname: VPN.example.com}",
			Field:  "spec.gateway.hostname",
			Value:  "VPN.example.com",
			Says:   "should match",
		},
		{
			Reason: "hostnames of routes are no addresses",
			Spec:   "gateway: {hostname: 203.0.113.9}",
			Field:  "spec.gateway.hostname",
			Value:  "203.0.113.9",
			Says:   "should match",
		},
		{
			Reason: "a parent has a name",
			Spec:   "gateway: {parentRefs: [{namespace: ingress}]}",
			Field:  "spec.gateway.parentRefs[0].name",
			Says:   "Required",
		},
		{
			Reason: "names of objects have no blanks",
			Spec:   "gateway: {parentRefs: [{name: my gateway}]}",
			Field:  "spec.gateway.parentRefs[0].name",
			Value:  "my gateway",
			Says:   "should match",
		},
		{
			Reason: "names of namespaces have no dots",
			Spec:   "gateway: {parentRefs: [{name: public, namespace: in.gress}]}",
			Field:  "spec.gateway.parentRefs[0].namespace",
			Value:  "in.gress",
			Says:   "should match",
		},
		{
			Reason: "names of listeners have no capitals",
			Spec:   "gateway: {parentRefs: [{name: public, sectionName: HTTPS}]}",
			Field:  "spec.gateway.parentRefs[0].sectionName",
			Value:  "HTTPS",
			Says:   "should match",
		},
		{
			Reason: "a UDPRoute has a listener of its own",
			Spec:   "gateway: {hostname: vpn.example.com, parentRefs: [{name: public}], udpRoute: {enabled: true}}",
			Field:  "spec.gateway.udpRoute",
			Says:   "udpRoute.parentRefs",
		},
		{
			Reason: "a UDPRoute needs the name that clients connect to",
			Spec:   "gateway: {udpRoute: {enabled: true, parentRefs: [{name: public}]}}",
			Field:  "spec.gateway.udpRoute",
			Says:   "hostname",
		},
		{
			Reason: "the tunnel needs a Gateway",
			Spec:   "tunnel: {}",
			Field:  "spec.tunnel",
			Says:   "gateway.parentRefs",
		},
		{
			Reason: "the tunnel needs the name that clients connect to",
			Spec:   "{tunnel: {}, gateway: {parentRefs: [{name: public}]}}",
			Field:  "spec.tunnel",
			Says:   "gateway.hostname",
		},
		{
			Reason: "the tunnel needs a Gateway, beside a name",
			Spec:   "{tunnel: {}, gateway: {hostname: vpn.example.com}}",
			Field:  "spec.tunnel",
			Says:   "gateway.parentRefs",
		},
		{
			Reason: "there is one kind of tunnel",
			Spec:   "{tunnel: {type: udp2raw}, gateway: {hostname: vpn.example.com, parentRefs: [{name: public}]}}",
			Field:  "spec.tunnel.type",
			Value:  "udp2raw",
			Says:   "wstunnel",
		},
		{
			Reason: "the path prefix is one segment",
			Spec:   "{tunnel: {pathPrefix: a/b}, gateway: {hostname: vpn.example.com, parentRefs: [{name: public}]}}",
			Field:  "spec.tunnel.pathPrefix",
			Value:  "a/b",
			Says:   "should match",
		},
		{
			Reason: "the path prefix needs no escapes",
			Spec:   `{tunnel: {pathPrefix: "a b"}, gateway: {hostname: vpn.example.com, parentRefs: [{name: public}]}}`,
			Field:  "spec.tunnel.pathPrefix",
			Value:  "a b",
			Says:   "should match",
		},
		{
			Reason: "clients resolve two dots away",
			Spec:   "{tunnel: {pathPrefix: ..}, gateway: {hostname: vpn.example.com, parentRefs: [{name: public}]}}",
			Field:  "spec.tunnel.pathPrefix",
			Value:  "..",
			Says:   "resolved away",
		},
		{
			Reason: "an image has no blanks",
			Spec:   `{tunnel: {image: "wstunnel latest"}, gateway: {hostname: vpn.example.com, parentRefs: [{name: public}]}}`,
			Field:  "spec.tunnel.image",
			Value:  "wstunnel latest",
			Says:   "should match",
		},

		// gluetun.
	}
}
