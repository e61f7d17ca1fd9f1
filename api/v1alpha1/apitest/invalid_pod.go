package apitest

// invalidPod are wrong about who may attach, keys and the pod.
func invalidPod() []Case {
	return []Case{
		// Peers of other namespaces.
		{
			Reason: "there are four ways to allow namespaces",
			Spec:   "allowedPeerNamespaces: {from: Any}",
			Field:  "spec.allowedPeerNamespaces.from",
			Value:  "Any",
			Says:   "All",
		},
		{
			Reason: "names need to be used",
			Spec:   "allowedPeerNamespaces: {names: [apps]}",
			Field:  "spec.allowedPeerNamespaces.names",
			Says:   "set from to Names",
		},
		{
			Reason: "names are needed",
			Spec:   "allowedPeerNamespaces: {from: Names}",
			Field:  "spec.allowedPeerNamespaces.names",
			Says:   "list the namespaces",
		},
		{
			Reason: "a selector needs to be used",
			Spec:   "allowedPeerNamespaces: {from: All, selector: {matchLabels: {team: a}}}",
			Field:  "spec.allowedPeerNamespaces.selector",
			Says:   "set from to Selector",
		},
		{
			Reason: "a selector is needed",
			Spec:   "allowedPeerNamespaces: {from: Selector, selector: {}}",
			Field:  "spec.allowedPeerNamespaces.selector",
			Says:   "name a label",
		},
		{
			Reason: "names of namespaces are in lower case",
			Spec:   "allowedPeerNamespaces: {from: Names, names: [Apps]}",
			Field:  "spec.allowedPeerNamespaces.names[0]",
			Value:  "Apps",
			Says:   "should match",
		},
		{
			Reason: "host bits of allowed routes are zero",
			Spec:   "allowedPeerNamespaces: {limits: {routes: [192.168.0.1/16]}}",
			Field:  "spec.allowedPeerNamespaces.limits.routes[0]",
			Value:  "192.168.0.1/16",
			Says:   `write "192.168.0.0/16"`,
		},
		{
			Reason: "a rule's destination is a network",
			Spec:   "allowedPeerNamespaces: {limits: {access: [{action: Reject, to: {cidr: intranet}}]}}",
			Field:  "spec.allowedPeerNamespaces.limits.access[0].to.cidr",
			Value:  "intranet",
			Says:   "is not a network",
		},
		{
			Reason: "ICMP has no ports",
			Spec:   `allowedPeerNamespaces: {limits: {access: [{action: Reject, protocol: ICMP, to: {ports: ["443"]}}]}}`,
			Field:  "spec.allowedPeerNamespaces.limits.access[0].to.ports",
			Says:   "ICMP",
		},

		// Keys.
		{
			Reason: "a seed has a name",
			Spec:   "keys: {seedSecretRef: {key: seed}}",
			Field:  "spec.keys.seedSecretRef.name",
			Says:   "Required",
		},
		{
			Reason: "the id of a seed has 16 digits",
			Spec:   `keys: {acceptSeed: "0123"}`,
			Field:  "spec.keys.acceptSeed",
			Value:  "0123",
			Says:   "should match",
		},
		{
			Reason: "the id of a seed is hexadecimal",
			Spec:   "keys: {acceptSeed: 0123456789abcdeg}",
			Field:  "spec.keys.acceptSeed",
			Value:  "0123456789abcdeg",
			Says:   "should match",
		},
		{
			Reason: "rotations are counted from 0",
			Spec:   "keys: {rotation: -1}",
			Field:  "spec.keys.rotation",
			Value:  "-1",
			Says:   "0",
		},

		// The pod.
		{
			Reason: "a container has a name",
			Spec:   "extraContainers: [{image: busybox}]",
			Field:  "spec.extraContainers[0].name",
			Says:   "Required",
		},
		{
			Reason: "the agent is ours",
			Spec:   "extraContainers: [{name: agent, image: busybox}]",
			Field:  "spec.extraContainers",
			Value:  "agent",
			Says:   "choose another",
		},
		{
			Reason: "the container that sets sysctls is ours",
			Spec:   "initContainers: [{name: first, image: busybox}, {name: sysctl, image: busybox}]",
			Field:  "spec.initContainers",
			Value:  "sysctl",
			Says:   "choose another",
		},
		{
			Reason: "names of containers are unique",
			Spec:   "extraContainers: [{name: a, image: busybox}, {name: a, image: busybox}]",
			Field:  "spec.extraContainers[1]",
			Value:  "a",
			Says:   "Duplicate",
		},
		{
			Reason: "volumes have a name",
			Spec:   "volumes: [{emptyDir: {}}]",
			Field:  "spec.volumes[0].name",
			Says:   "Required",
		},
		{
			Reason: "names of priority classes are in lower case",
			Spec:   "pod: {priorityClassName: High}",
			Field:  "spec.pod.priorityClassName",
			Value:  "High",
			Says:   "should match",
		},
		{
			Reason: "names of Secrets are in lower case",
			Spec:   "pod: {imagePullSecrets: [{name: Pull}]}",
			Field:  "spec.pod.imagePullSecrets[0].name",
			Value:  "Pull",
			Says:   "should match",
		},
		{
			Reason: "a pod stops within an hour",
			Spec:   "pod: {terminationGracePeriodSeconds: 3601}",
			Field:  "spec.pod.terminationGracePeriodSeconds",
			Value:  "3601",
			Says:   "3600",
		},
		{
			Reason: "intervals have units",
			Spec:   `monitoring: {podMonitor: {interval: "30"}}`,
			Field:  "spec.monitoring.podMonitor.interval",
			Value:  "30",
			Says:   "should match",
		},
	}
}
