package controlplane

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/test/controlplane/harness"
)

// Gateways from which one field is changed at a time.
const (
	baseRich = `
peerCIDR: 10.8.0.0/24
peerCIDRv6: fd00:8::/64
reservedAddresses: [10.8.0.77]
listenPort: 51820
persistentKeepalive: 25
mtu: {direct: 1420, tunnel: 1360}
dns: {servers: [10.43.0.10], searchDomains: [example.com]}
peerToPeer: true
endpoint: {host: vpn.example.com, port: 443}
service: {type: LoadBalancer, ipFamilyPolicy: SingleStack, ipFamilies: [IPv4], healthCheckPort: 9586}
gateway:
  hostname: ws.example.com
  parentRefs: [{name: public}]
  udpRoute: {enabled: true, parentRefs: [{name: public}]}
tunnel: {}
peers:
  - {name: laptop, access: [{action: Accept, protocol: TCP, to: {cidr: 10.43.0.0/16, ports: ["443"]}}]}
  - {name: site, routes: [192.168.50.0/24], allowedIPs: [10.43.0.0/16]}
pod: {labels: {kept: "1"}}
monitoring: {podMonitor: {enabled: true}}
`
	baseGluetun = `
endpoint: {host: vpn.example.com}
gluetun: {provider: protonvpn, credentials: {secretRef: {name: credentials}}}
peers: [{name: laptop}]
`
	baseCustom = `
endpoint: {host: vpn.example.com}
gluetun:
  provider: custom
  credentials: {secretRef: {name: credentials}}
  endpoint: {ip: 198.51.100.1, port: 51820, publicKey: RwFCRXCVPCjXVYGeyR+xiMDomjxX7oI4VVwzPvY6vWI=}
`
	// Without a host of its own, clients follow the route.
	baseRoute = `
service: {type: ClusterIP}
gateway: {hostname: vpn.example.com, udpRoute: {enabled: true, parentRefs: [{name: public}]}}
peers: [{name: laptop}]
`
	baseShared = `
endpoint: {host: vpn.example.com}
allowedPeerNamespaces:
  from: Selector
  selector: {matchLabels: {team: "a"}}
  limits: {access: [{action: Accept, protocol: TCP, to: {cidr: 10.43.0.0/16, ports: ["443"]}}], routes: [192.168.0.0/16]}
`
	baseOwnKeys = `
endpoint: {host: vpn.example.com}
peers: [{name: laptop}]
keys: {seedSecretRef: {name: seeds, key: first}}
`
)

// change is what is tried of a field.
type change struct {
	// base is the gateway that is changed, baseRich if empty, and before a merge
	// patch to it, for fields that need another.
	base, before string
	// value is what the field is set to, in YAML.
	value string
	// without says why nothing changes. The field is not tried then.
	without string
	// stays says why the gateway is not as before when the change is undone.
	stays string
}

// changes has every field of the schema: a list stands for its first item.
var changes = map[string]change{
	"allowedPeerNamespaces.from":                       {base: baseShared, before: `allowedPeerNamespaces: {from: All, selector: null}`, value: "Same"},
	"allowedPeerNamespaces.limits.access[].action":     {base: baseShared, value: "Reject"},
	"allowedPeerNamespaces.limits.access[].protocol":   {base: baseShared, value: "UDP"},
	"allowedPeerNamespaces.limits.access[].to.cidr":    {base: baseShared, value: "10.44.0.0/16"},
	"allowedPeerNamespaces.limits.access[].to.ports[]": {base: baseShared, value: `"80"`},
	"allowedPeerNamespaces.limits.routes[]":            {base: baseShared, value: "172.16.0.0/16"},
	"allowedPeerNamespaces.names[]":                    {base: baseShared, before: `allowedPeerNamespaces: {from: Names, names: [nobody], selector: null}`, value: sharing},
	"allowedPeerNamespaces.selector.matchLabels{}":     {base: baseShared, value: "b"},
	"dns.searchDomains[]":                              {value: "lan"},
	"dns.servers[]":                                    {value: "10.43.0.11"},
	"endpoint.host":                                    {value: "other.example.com"},
	"endpoint.port":                                    {value: "444"},
	"extraContainers[]":                                {value: "{name: extra, image: example.com/extra}"},
	"gateway.annotations{}":                            {value: "yes-please"},
	"gateway.hostname":                                 {value: "other.example.com"},
	"gateway.parentRefs[].group":                       {value: "example.com"},
	"gateway.parentRefs[].kind":                        {value: "Other"},
	"gateway.parentRefs[].name":                        {value: "other"},
	"gateway.parentRefs[].namespace":                   {value: "other"},
	"gateway.parentRefs[].port":                        {value: "443"},
	"gateway.parentRefs[].sectionName":                 {value: "other"},
	"gateway.udpRoute.enabled":                         {value: "false"},
	"gateway.udpRoute.parentRefs[].group":              {value: "example.com"},
	"gateway.udpRoute.parentRefs[].kind":               {value: "Other"},
	"gateway.udpRoute.parentRefs[].name":               {value: "other"},
	"gateway.udpRoute.parentRefs[].namespace":          {value: "other"},
	"gateway.udpRoute.parentRefs[].port":               {value: "443"},
	"gateway.udpRoute.parentRefs[].sectionName":        {value: "other"},
	"gateway.udpRoute.port":                            {base: baseRoute, value: "443"},
	"gluetun.credentials.secretRef.name":               {base: baseGluetun, value: "other"},
	"gluetun.endpoint.ip":                              {base: baseCustom, value: "198.51.100.2"},
	"gluetun.endpoint.port":                            {base: baseCustom, value: "51821"},
	"gluetun.endpoint.publicKey":                       {base: baseCustom, value: "xTIBA5rboUvnH4htodjb6e697QjLERt1NAB4mZqp8Dg="},
	"gluetun.env[].name":                               {base: baseGluetun, before: `gluetun: {env: [{name: TZ, value: "1"}]}`, value: "LOG_LEVEL"},
	"gluetun.env[].value":                              {base: baseGluetun, before: `gluetun: {env: [{name: TZ, value: "1"}]}`, value: `"2"`},
	"gluetun.image":                                    {base: baseGluetun, value: "example.com/gluetun:v1"},
	"gluetun.outboundSubnets[]":                        {base: baseGluetun, value: "192.168.77.0/24"},
	"gluetun.portForwarding.enabled":                   {base: baseGluetun, value: "true"},
	"gluetun.provider":                                 {base: baseGluetun, value: "mullvad"},
	"gluetun.resources":                                {base: baseGluetun, value: "{limits: {memory: 77Mi}}"},
	"gluetun.servers.cities[]":                         {base: baseGluetun, value: "Zurich"},
	"gluetun.servers.countries[]":                      {base: baseGluetun, value: "Switzerland"},
	"gluetun.servers.hostnames[]":                      {base: baseGluetun, value: "ch-01.example.com"},
	"gluetun.servers.names[]":                          {base: baseGluetun, value: "CH#1"},
	"gluetun.servers.regions[]":                        {base: baseGluetun, value: "Europe"},
	"gluetun.type":                                     {base: baseGluetun, value: "openvpn"},
	"implementation":                                   {value: "Kernel"},
	"initContainers[]":                                 {value: "{name: init, image: example.com/init}"},
	"ipForwarding":                                     {value: "None"},
	"keys.acceptSeed":                                  {base: baseOwnKeys, without: "it answers the message of a seed that differs: TestSeedReferenced"},
	"keys.rotation":                                    {value: "1"},
	"keys.seedSecretRef.key":                           {base: baseOwnKeys, value: "missing"},
	"keys.seedSecretRef.name":                          {base: baseOwnKeys, value: "missing"},
	"listenPort":                                       {value: "51821"},
	"monitoring.podMonitor.enabled":                    {value: "false"},
	"monitoring.podMonitor.interval":                   {value: "15s"},
	"monitoring.podMonitor.labels{}":                   {value: "yes-please"},
	"mtu.direct":                                       {value: "1400"},
	"mtu.tunnel":                                       {value: "1300"},
	"networkPolicy.enabled":                            {value: "true"},
	"peerCIDR":                                         {value: "10.9.0.0/24"},
	"peerCIDRv6":                                       {value: `"fd00:9::/64"`},
	"peerToPeer":                                       {value: "false"},
	"peers[].access[].action":                          {value: "Reject"},
	"peers[].access[].protocol":                        {value: "UDP"},
	"peers[].access[].to.cidr":                         {value: "10.44.0.0/16"},
	"peers[].access[].to.ports[]":                      {value: `"80"`},
	"peers[].addresses[]":                              {value: "10.8.0.99", stays: "a peer keeps its address"},
	"peers[].advertisedEndpoint.host":                  {before: "peers: [{name: laptop, advertisedEndpoint: {host: one.example.com}}]", value: "two.example.com"},
	"peers[].advertisedEndpoint.port":                  {before: "peers: [{name: laptop, advertisedEndpoint: {host: one.example.com}}]", value: "444"},
	"peers[].allowedIPs[]":                             {value: "10.44.0.0/16"},
	"peers[].disabled":                                 {value: "true"},
	"peers[].dns.searchDomains[]":                      {before: "peers: [{name: laptop, dns: {servers: [9.9.9.9]}}]", value: "lan"},
	"peers[].dns.servers[]":                            {value: "9.9.9.9"},
	"peers[].endpoint":                                 {value: "198.51.100.9:51820"},
	"peers[].expiresAt":                                {value: `"2099-01-01T00:00:00Z"`},
	"peers[].keyRotation":                              {value: "1"},
	"peers[].mtu":                                      {value: "1300"},
	"peers[].name":                                     {value: "renamed", stays: "a new peer is given the address that its name picks"},
	"peers[].persistentKeepalive":                      {value: "15"},
	"peers[].presharedKey.generate":                    {value: "true"},
	"peers[].presharedKey.secretRef.key":               {before: "peers: [{name: laptop, presharedKey: {secretRef: {name: keys, key: first}}}]", value: "second"},
	"peers[].presharedKey.secretRef.name":              {before: "peers: [{name: laptop, presharedKey: {secretRef: {name: keys, key: first}}}]", value: "missing"},
	"peers[].privateKeySecretRef.key":                  {before: "peers: [{name: laptop, privateKeySecretRef: {name: keys, key: first}}]", value: "second"},
	"peers[].privateKeySecretRef.name":                 {before: "peers: [{name: laptop, privateKeySecretRef: {name: keys, key: first}}]", value: "missing"},
	"peers[].publicKey":                                {value: "RwFCRXCVPCjXVYGeyR+xiMDomjxX7oI4VVwzPvY6vWI="},
	"peers[].qrCode":                                   {value: "true"},
	"peers[].routes[]":                                 {value: "192.168.60.0/24"},
	"persistentKeepalive":                              {value: "20"},
	"pod.affinity":                                     {value: "{podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: zone, labelSelector: {matchLabels: {a: b}}}]}}"},
	"pod.annotations{}":                                {value: "yes-please"},
	"pod.hostNetwork":                                  {value: "true"},
	"pod.imagePullSecrets[].name":                      {value: "registry"},
	"pod.labels{}":                                     {value: "yes-please"},
	"pod.nodeSelector{}":                               {value: "yes-please"},
	"pod.priorityClassName":                            {value: "high"},
	"pod.terminationGracePeriodSeconds":                {value: "20"},
	"pod.tolerations[]":                                {value: "{key: dedicated, operator: Exists}"},
	"pod.topologySpreadConstraints[]":                  {value: "{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {a: b}}}"},
	"podDisruptionBudget.enabled":                      {value: "true"},
	"reservedAddresses[]":                              {before: "reservedAddresses: null", value: reserving, stays: "a peer keeps its address"},
	"resources":                                        {value: "{limits: {memory: 77Mi}}"},
	"service.annotations{}":                            {value: "yes-please"},
	"service.externalTrafficPolicy":                    {value: "Local"},
	"service.healthCheckPort":                          {value: "9587"},
	"service.ipFamilies[]":                             {before: "service: {ipFamilyPolicy: SingleStack, ipFamilies: null}", without: "the API server lets nobody change a Service's first family: the next test creates one with it"},
	"service.ipFamilyPolicy":                           {value: "PreferDualStack"},
	"service.labels{}":                                 {value: "yes-please"},
	"service.loadBalancerClass":                        {before: "service: {type: ClusterIP, healthCheckPort: null}", without: "the API server lets nobody set it later: the next test creates one with it"},
	"service.loadBalancerIP":                           {value: "203.0.113.77"},
	"service.loadBalancerSourceRanges[]":               {value: "198.51.100.0/24"},
	"service.nodePort":                                 {before: "{endpoint: {port: null}, service: {type: NodePort, healthCheckPort: null}}", value: "31820", stays: "the API server keeps a port"},
	"service.type":                                     {value: "ClusterIP"},
	"tunnel.image":                                     {value: "example.com/wstunnel:v1"},
	"tunnel.pathPrefix":                                {value: "own-prefix"},
	"tunnel.resources":                                 {value: "{limits: {memory: 77Mi}}"},
	"tunnel.type":                                      {without: "there is one type"},
	"volumes[]":                                        {value: "{name: extra, emptyDir: {}}"},
}

// Gateway and WireguardPeers from which one field of a peer is changed.
const (
	baseOfPeers = `{endpoint: {host: vpn.example.com}, service: {type: ClusterIP}, peerToPeer: true, allowedPeerNamespaces: {from: All}}`
	baseClient  = `{gatewayRef: {name: home, namespace: GATEWAY}, client: {access: [{action: Accept, protocol: TCP, to: {cidr: 10.43.0.0/16, ports: ["443"]}}]}}`
	basePods    = `{gatewayRef: {name: home, namespace: GATEWAY}, pods: {implementation: Auto}}`
)

// peerChanges has every field of the WireguardPeer's schema.
var peerChanges = map[string]change{
	"client.access[].action":             {value: "Reject"},
	"client.access[].protocol":           {value: "UDP"},
	"client.access[].to.cidr":            {value: "10.44.0.0/16"},
	"client.access[].to.ports[]":         {value: `"80"`},
	"client.addresses[]":                 {value: "10.8.0.99", stays: "a peer keeps its address"},
	"client.advertisedEndpoint.host":     {before: "client: {advertisedEndpoint: {host: one.example.com}}", value: "two.example.com"},
	"client.advertisedEndpoint.port":     {before: "client: {advertisedEndpoint: {host: one.example.com}}", value: "444"},
	"client.allowedIPs[]":                {value: "10.44.0.0/16"},
	"client.disabled":                    {value: "true"},
	"client.dns.searchDomains[]":         {before: "client: {dns: {servers: [9.9.9.9]}}", value: "lan"},
	"client.dns.servers[]":               {value: "9.9.9.9"},
	"client.endpoint":                    {value: "198.51.100.9:51820"},
	"client.expiresAt":                   {value: `"2099-01-01T00:00:00Z"`},
	"client.keyRotation":                 {value: "1"},
	"client.mtu":                         {value: "1300"},
	"client.persistentKeepalive":         {value: "15"},
	"client.presharedKey.generate":       {value: "true"},
	"client.presharedKey.secretRef.key":  {without: "a WireguardPeer may have none: TestSchema"},
	"client.presharedKey.secretRef.name": {without: "a WireguardPeer may have none: TestSchema"},
	"client.privateKeySecretRef.key":     {before: "client: {privateKeySecretRef: {name: keys, key: first}}", value: "second"},
	"client.privateKeySecretRef.name":    {before: "client: {privateKeySecretRef: {name: keys, key: first}}", value: "missing"},
	"client.publicKey":                   {value: "RwFCRXCVPCjXVYGeyR+xiMDomjxX7oI4VVwzPvY6vWI="},
	"client.qrCode":                      {value: "true"},
	"client.routes[]":                    {value: "192.168.60.0/24"},
	"gatewayRef.name":                    {value: "missing"},
	"gatewayRef.namespace":               {value: "missing"},
	"pods.allowEgress[]":                 {base: basePods, value: "{to: [{ipBlock: {cidr: 192.168.60.0/24}}]}"},
	"pods.bypassCIDRs[]":                 {base: basePods, value: "10.77.0.0/16"},
	"pods.image":                         {base: basePods, value: "example.com/agent:v1"},
	"pods.implementation":                {base: basePods, value: "Userspace"},
	"pods.networkPolicy.type":            {base: basePods, value: "None"},
	"pods.resources":                     {base: basePods, value: "{limits: {memory: 77Mi}}"},
}

// Values that are known only when the test runs.
const (
	sharing   = "(the namespace of the attached peer)"
	reserving = "(the address of the first peer)"
)

// leaves returns the paths of all fields of a schema that have no fields of
// their own.
func leaves(path string, schema map[string]any) []string {
	if items, ok := schema["items"].(map[string]any); ok {
		return leaves(path+"[]", items)
	}
	if values, ok := schema["additionalProperties"].(map[string]any); ok {
		return leaves(path+"{}", values)
	}
	properties, _ := schema["properties"].(map[string]any)
	if len(properties) == 0 || schema["x-kubernetes-preserve-unknown-fields"] == true {
		return []string{strings.TrimPrefix(path, ".")}
	}
	var out []string
	for name, p := range properties {
		if path == "" && name == "crossplane" {
			continue // Crossplane's own.
		}
		out = append(out, leaves(path+"."+name, p.(map[string]any))...)
	}
	return out
}

// set sets a field in a spec. Lists and maps on the way get one item where they
// have none.
func set(at any, path []string, value any) any {
	if len(path) == 0 {
		return value
	}
	switch step := path[0]; step {
	case "[]":
		list, _ := at.([]any)
		if len(list) == 0 {
			list = []any{nil}
		}
		list[0] = set(list[0], path[1:], value)
		return list
	default:
		m, _ := at.(map[string]any)
		if m == nil {
			m = map[string]any{}
		}
		if step == "{}" {
			step = "team"
		}
		m[step] = set(m[step], path[1:], value)
		return m
	}
}

func steps(path string) []string {
	return strings.FieldsFunc(strings.NewReplacer("[]", ".[]", "{}", ".{}").Replace(path), func(r rune) bool { return r == '.' })
}

// effect is all that a composite resource is: what it composes, and its status.
func (g *gateway) effect() string {
	g.t.Helper()
	b := &strings.Builder{}
	composed := g.composed()
	for _, key := range slices.Sorted(maps.Keys(composed)) {
		fmt.Fprintf(b, "%s: %s\n", key, text(g.t, composed[key]))
	}
	xr := g.get()
	status, _, _ := unstructured.NestedMap(xr.Object, "status")
	delete(status, "conditions")
	j, err := json.Marshal(status)
	if err != nil {
		g.t.Fatal(err)
	}
	b.Write(j)
	for _, name := range []string{"KeysReady", "PeersReady", "GatewayFound", "Permitted"} {
		c := harness.Condition(xr, name)
		fmt.Fprintf(b, "\n%s: %v %v", name, c["status"], c["reason"])
	}
	return b.String()
}

// subject is a composite resource whose fields are changed.
type subject struct {
	*gateway

	// base is its spec.
	base string
	// of is the gateway of a WireguardPeer. What it does to that counts, too.
	of *gateway
	// apps is the namespace of a peer that was let in.
	apps string
}

func (s subject) effect() string {
	s.t.Helper()
	if s.of == nil {
		return s.gateway.effect()
	}
	return s.gateway.effect() + "\n" + s.of.effect()
}

// TestFields changes every field of the schemas, one at a time, on gateways and
// peers that are ready. Each changes an object, a configuration or the status, in
// the API server.
func TestFields(t *testing.T) {
	t.Parallel()
	c := shared(t)
	for _, tc := range []struct {
		kind    string
		changes map[string]change
		base    string
		create  func(t *testing.T, c *harness.Cluster, spec string) subject
	}{
		{v1alpha1.GatewayKind, changes, baseRich, newFieldGateway},
		{v1alpha1.PeerKind, peerChanges, baseClient, newFieldPeer},
	} {
		all := fieldsOf(t, c, tc.kind)
		for _, path := range slices.Sorted(maps.Keys(tc.changes)) {
			if !slices.Contains(all, path) {
				t.Errorf("%s: %s is no field", tc.kind, path)
			}
		}
		byBase := map[string][]string{}
		for _, path := range all {
			switch change, ok := tc.changes[path]; {
			case !ok:
				t.Errorf("%s: nobody says what %s changes", tc.kind, path)
			case change.without != "":
				t.Logf("%s: %s is not tried: %s", tc.kind, path, change.without)
			default:
				base := cmp.Or(change.base, tc.base)
				byBase[base] = append(byBase[base], path)
			}
		}
		for _, base := range slices.Sorted(maps.Keys(byBase)) {
			for paths := range slices.Chunk(byBase[base], fieldsOfOne) {
				t.Run(tc.kind+" from "+paths[0], func(t *testing.T) {
					t.Parallel()
					changeFields(t, tc.create(t, c, base), paths, tc.changes)
				})
			}
		}
	}
}

// fieldsOfOne is how many fields are changed of one composite resource, one after
// the other.
const fieldsOfOne = 20

// fieldsOf returns all fields of a kind, as the API server has them.
func fieldsOf(t *testing.T, c *harness.Cluster, kind string) []string {
	t.Helper()
	crd, err := c.Get(t.Context(), "apiextensions.k8s.io/v1", "CustomResourceDefinition", "", strings.ToLower(kind)+"s."+v1alpha1.GroupVersion.Group)
	if err != nil {
		t.Fatal(err)
	}
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	schema, _, _ := unstructured.NestedMap(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "spec")
	all := leaves("", schema)
	slices.Sort(all)
	return all
}

// changeFields changes fields of one composite resource, one after the other.
func changeFields(t *testing.T, s subject, paths []string, changes map[string]change) {
	t.Helper()
	s.settle()
	effect, slowest, undone := s.effect(), time.Duration(0), true
	// What cannot be undone comes last.
	slices.SortStableFunc(paths, func(a, b string) int { return cmp.Compare(changes[a].stays, changes[b].stays) })
	for _, path := range paths {
		tc := changes[path]
		before, from := effect, merged(t, s.base, tc.before)
		if tc.before != "" || !undone {
			s.applyMap(from)
			s.settle()
			before = s.effect()
		}
		value := tc.value
		switch value {
		case sharing:
			value = s.apps
		case reserving:
			value = s.status().Peers[0].Addresses[0]
		}
		var v any
		if err := yaml.Unmarshal([]byte(value), &v); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if err := s.tryApplyMap(set(runtimeCopy(from), steps(path), v).(map[string]any)); err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if err := s.within("an effect", func() error {
			if s.effect() == before {
				return errors.New("nothing changed")
			}
			return nil
		}); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		slowest = max(slowest, time.Since(start))
		if undone = tc.stays == ""; !undone {
			continue
		}
		s.applyMap(merged(t, s.base, ""))
		if err := s.within("the change to be undone", func() error {
			if now := s.effect(); now != effect {
				return errors.New(firstDifference(effect, now))
			}
			return nil
		}); err != nil {
			t.Errorf("%s: %v", path, err)
			effect = s.effect()
		}
	}
	t.Logf("%d fields tried, each has an effect, the slowest after %v", len(paths), slowest.Round(time.Millisecond))
}

// namespaces are where the subject has an effect.
func (s subject) namespaces() []string {
	if s.of == nil {
		return []string{s.namespace}
	}
	return []string{s.namespace, s.of.namespace}
}

// settle waits until Crossplane has reconciled what was applied, and is done.
func (s subject) settle() {
	s.t.Helper()
	s.eventually("what was applied to be reconciled", func() error {
		o := s.get()
		if seen, _ := harness.Condition(o, "Synced")["observedGeneration"].(int64); seen != o.GetGeneration() {
			return fmt.Errorf("generation %d is not reconciled yet, the last was %d", o.GetGeneration(), seen)
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	if err := s.c.WaitQuietIn(ctx, s.namespaces()...); err != nil {
		s.t.Fatal(err)
	}
}

// within waits for what takes less than a second, for as long as a machine that
// is busy may take. It looks again whenever anything was written.
func (s subject) within(what string, check func() error) error {
	ctx, cancel := context.WithTimeout(s.t.Context(), time.Minute)
	defer cancel()
	seen, last := -1, error(nil)
	return s.c.Wait(ctx, what, func() error {
		n, err := s.c.WritesIn(s.namespaces()...)
		if err != nil || n == seen {
			return cmp.Or(err, last)
		}
		seen, last = n, check()
		return last
	})
}

// newFieldGateway creates a gateway with the Secrets that changes refer to, and a
// peer of another namespace.
func newFieldGateway(t *testing.T, c *harness.Cluster, spec string) subject {
	t.Helper()
	namespace, apps := newNamespace(t, c, "fields-"), newNamespace(t, c, "apps-")
	fieldSecrets(t, c, namespace)
	g := newGatewayIn(t, c, namespace, "home", spec)
	g.waitReady()
	if spec == baseShared {
		if err := c.MergePatch(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: apps}}, `{"metadata":{"labels":{"team":"a"}}}`); err != nil {
			t.Fatal(err)
		}
		newPeer(t, g, apps, "guest", "{routes: [192.168.77.0/24]}")
		g.waitDevice(apps + "/guest")
	}
	return subject{gateway: g, base: spec, apps: apps}
}

// newFieldPeer creates a WireguardPeer and its gateway.
func newFieldPeer(t *testing.T, c *harness.Cluster, spec string) subject {
	t.Helper()
	apps := newNamespace(t, c, "apps-")
	fieldSecrets(t, c, apps)
	g := newGatewayIn(t, c, newNamespace(t, c, "fields-"), "home", baseOfPeers)
	g.waitReady()
	p := &gateway{t: t, c: c, kind: v1alpha1.PeerKind, namespace: apps, name: "media"}
	t.Cleanup(p.remove)
	base := strings.ReplaceAll(spec, "GATEWAY", g.namespace)
	p.apply(base)
	// Not before that are all of its objects there.
	if spec == baseClient {
		p.waitReady()
	} else {
		// Admission is there while other tests have it.
		p.eventually("its pods to be let in, but for admission", func() error {
			if c := harness.Condition(p.get(), "PodsReady"); c["reason"] != "Available" && c["reason"] != "AdmissionMissing" {
				return fmt.Errorf("PodsReady is %v, %v", c["reason"], c["message"])
			}
			return nil
		})
	}
	return subject{gateway: p, base: base, of: g}
}

// fieldSecrets makes the Secrets that changes refer to.
func fieldSecrets(t *testing.T, c *harness.Cluster, namespace string) {
	t.Helper()
	key := func(b byte) []byte { return []byte(strings.Repeat(string(b), 42) + "A=") }
	for name, data := range map[string]map[string][]byte{
		"credentials": {"wireguard-private-key": key('c')},
		"keys":        {"first": key('d'), "second": key('e')},
		"seeds":       {"first": key('f')},
	} {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data}
		if err := c.Client.Create(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
}

func (g *gateway) applyMap(spec map[string]any) {
	g.t.Helper()
	if err := g.tryApplyMap(spec); err != nil {
		g.t.Fatal(err)
	}
}

func (g *gateway) tryApplyMap(spec map[string]any) error {
	b, err := yaml.Marshal(spec)
	if err != nil {
		return err
	}
	return g.tryApply(string(b))
}

// merged returns a spec with a merge patch applied.
func merged(t *testing.T, spec, patch string) map[string]any {
	t.Helper()
	b, err := yaml.YAMLToJSON([]byte(spec))
	if err != nil {
		t.Fatal(err)
	}
	if patch != "" {
		p, err := yaml.YAMLToJSON([]byte(patch))
		if err != nil {
			t.Fatal(err)
		}
		if b, err = jsonpatch.MergePatch(b, p); err != nil {
			t.Fatal(err)
		}
	}
	m := map[string]any{}
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func runtimeCopy(m map[string]any) map[string]any {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	out := map[string]any{}
	if err := json.Unmarshal(b, &out); err != nil {
		panic(err)
	}
	return out
}

// firstDifference shows where two effects part.
func firstDifference(want, got string) string {
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for i := range min(len(w), len(g)) {
		if w[i] != g[i] {
			at := 0
			for at < min(len(w[i]), len(g[i])) && w[i][at] == g[i][at] {
				at++
			}
			from := max(0, at-60)
			return fmt.Sprintf("%.20s: want …%.160s, got …%.160s", w[i], w[i][from:], g[i][from:])
		}
	}
	return fmt.Sprintf("want %d lines, got %d", len(w), len(g))
}

// TestFieldsAtCreation has the fields that the API server fixes when an object is
// created.
func TestFieldsAtCreation(t *testing.T) {
	t.Parallel()
	c := shared(t)
	g := newGateway(t, c, `
endpoint: {host: vpn.example.com}
service: {loadBalancerClass: example.com/class, ipFamilyPolicy: SingleStack, ipFamilies: [IPv6]}
`)
	g.waitReady()
	service := g.composed()["service"]
	if class, _, _ := unstructured.NestedString(service.Object, "spec", "loadBalancerClass"); class != "example.com/class" {
		t.Errorf("the class is %q", class)
	}
	if families, _, _ := unstructured.NestedStringSlice(service.Object, "spec", "ipFamilies"); !slices.Equal(families, []string{"IPv6"}) {
		t.Errorf("the families are %v", families)
	}
}
