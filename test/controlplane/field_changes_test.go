package controlplane

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
