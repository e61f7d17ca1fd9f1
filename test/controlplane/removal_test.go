package controlplane

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
)

// everything has, beside what stays, a part of every kind that can be removed.
const everything = `
peerCIDR: 10.8.0.0/24
endpoint: {host: vpn.example.com}
reservedAddresses: [10.8.0.77]
dns: {servers: [10.43.0.77], searchDomains: [search.example.com]}
service:
  type: LoadBalancer
  annotations: {kept: "1", example.com/service-annotation: "1"}
  labels: {kept: "1", service-label: "1"}
  healthCheckPort: 9586
  loadBalancerIP: 203.0.113.77
  loadBalancerSourceRanges: [198.51.100.77/32, 198.51.100.78/32]
  externalTrafficPolicy: Local
gateway:
  hostname: ws.example.com
  annotations: {example.com/route-annotation: "1"}
  parentRefs: [{name: kept}, {name: parent-ref, sectionName: section-name}]
  udpRoute: {enabled: true, parentRefs: [{name: kept}]}
tunnel: {pathPrefix: own-prefix}
peers:
  - {name: kept, qrCode: true, presharedKey: {generate: true}, routes: [192.168.77.0/24], access: [{action: Accept, to: {cidr: 10.77.0.0/16}}]}
  - {name: removed, addresses: [10.8.0.177]}
initContainers:
  - {name: init-container, image: example.com/init}
extraContainers:
  - name: kept
    image: example.com/kept
    args: [--kept, --container-argument]
    env: [{name: KEPT, value: "1"}, {name: CONTAINER_ENV, value: "1"}]
    ports: [{name: kept, containerPort: 8000}, {name: removed, containerPort: 8077}]
    volumeMounts: [{name: kept, mountPath: /kept}, {name: kept, mountPath: /volume-mount}]
  - {name: extra-container, image: example.com/extra}
volumes:
  - {name: kept, emptyDir: {}}
  - {name: extra-volume, emptyDir: {}}
pod:
  labels: {kept: "1", pod-label: "1"}
  annotations: {kept: "1", example.com/pod-annotation: "1"}
  nodeSelector: {kept: "1", node-selector: "1"}
  tolerations: [{key: kept, operator: Exists}, {key: toleration-key, operator: Exists}]
  priorityClassName: priority-class
  imagePullSecrets: [{name: kept}, {name: pull-secret}]
resources: {requests: {cpu: 50m}, limits: {memory: 77Mi}}
networkPolicy: {enabled: true}
podDisruptionBudget: {enabled: true}
monitoring: {podMonitor: {enabled: true, labels: {kept: "1", monitor-label: "1"}}}
`

// kept is the rest of it.
const kept = `
peerCIDR: 10.8.0.0/24
endpoint: {host: vpn.example.com}
service:
  type: LoadBalancer
  annotations: {kept: "1"}
  labels: {kept: "1"}
  loadBalancerSourceRanges: [198.51.100.78/32]
gateway:
  hostname: ws.example.com
  parentRefs: [{name: kept}]
tunnel: {}
peers:
  - {name: kept}
extraContainers:
  - name: kept
    image: example.com/kept
    args: [--kept]
    env: [{name: KEPT, value: "1"}]
    ports: [{name: kept, containerPort: 8000}]
    volumeMounts: [{name: kept, mountPath: /kept}]
volumes:
  - {name: kept, emptyDir: {}}
pod:
  labels: {kept: "1"}
  annotations: {kept: "1"}
  nodeSelector: {kept: "1"}
  tolerations: [{key: kept, operator: Exists}]
  imagePullSecrets: [{name: kept}]
resources: {requests: {cpu: 50m}}
monitoring: {podMonitor: {enabled: true, labels: {kept: "1"}}}
`

// removals are what is gone from an object then.
var removals = map[string]struct{ key, text string }{
	"toleration":                  {names.KeyDeployment, `"toleration-key"`},
	"pod annotation":              {names.KeyDeployment, `"example.com/pod-annotation"`},
	"pod label":                   {names.KeyDeployment, `"pod-label"`},
	"node selector":               {names.KeyDeployment, `"node-selector"`},
	"priority class":              {names.KeyDeployment, `"priority-class"`},
	"pull secret":                 {names.KeyDeployment, `"pull-secret"`},
	"resource limit":              {names.KeyDeployment, `"77Mi"`},
	"init container":              {names.KeyDeployment, `"init-container"`},
	"extra container":             {names.KeyDeployment, `"extra-container"`},
	"argument":                    {names.KeyDeployment, `"--container-argument"`},
	"environment variable":        {names.KeyDeployment, `"CONTAINER_ENV"`},
	"container port":              {names.KeyDeployment, `8077`},
	"volume":                      {names.KeyDeployment, `"extra-volume"`},
	"volume mount":                {names.KeyDeployment, `"/volume-mount"`},
	"path prefix":                 {names.KeyDeployment, `own-prefix`},
	"service port":                {names.KeyService, `9586`},
	"service annotation":          {names.KeyService, `"example.com/service-annotation"`},
	"service label":               {names.KeyService, `"service-label"`},
	"load balancer address":       {names.KeyService, `"203.0.113.77"`},
	"source range":                {names.KeyService, `"198.51.100.77/32"`},
	"parent of a route":           {names.KeyHTTPRoute, `"parent-ref"`},
	"section of a parent":         {names.KeyHTTPRoute, `"section-name"`},
	"route annotation":            {names.KeyHTTPRoute, `"example.com/route-annotation"`},
	"monitor label":               {names.KeyPodMonitor, `"monitor-label"`},
	"peer on the device":          {names.KeyConfig, `"10.8.0.177"`},
	"route of a peer":             {names.KeyConfig, `"192.168.77.0/24"`},
	"access rule":                 {names.KeyConfig, `"10.77.0.0/16"`},
	"preshared key on the device": {names.KeyConfig, `"presharedKey"`},
	"preshared key of a client":   {names.KeyPeer("kept"), `PresharedKey`},
	"QR code":                     {names.KeyPeer("kept"), `"direct.png"`},
	"DNS server":                  {names.KeyPeer("kept"), `10.43.0.77`},
	"search domain":               {names.KeyPeer("kept"), `search.example.com`},
}

// removedObjects are composed no more then.
var removedObjects = []string{names.KeyPeer("removed"), names.KeyUDPRoute, names.KeyNetworkPolicy, names.KeyPDB}

// text is an object as a user reads it, with the data of Secrets in the clear.
func text(t *testing.T, o *unstructured.Unstructured) string {
	t.Helper()
	m := content(o)
	if data, _, _ := unstructured.NestedStringMap(m, "data"); o.GetKind() == "Secret" && data != nil {
		for k, v := range data {
			b, err := base64.StdEncoding.DecodeString(v)
			if err != nil {
				t.Fatal(err)
			}
			data[k] = string(b)
		}
		m["data"] = data
	}
	b := &strings.Builder{}
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(m); err != nil {
		t.Fatal(err)
	}
	// A document within a Secret is quoted once more.
	return strings.ReplaceAll(b.String(), `\"`, `"`)
}

func TestRemovals(t *testing.T) {
	t.Parallel()
	c := shared(t)
	g := newGateway(t, c, everything)
	g.waitReady()
	before := g.composed()
	for what, r := range removals {
		if before[r.key] == nil || !strings.Contains(text(t, before[r.key]), r.text) {
			t.Errorf("%s: %s is not in %s before", what, r.text, r.key)
		}
	}
	for _, key := range removedObjects {
		if before[key] == nil {
			t.Errorf("%s is not composed before", key)
		}
	}
	if t.Failed() {
		t.FailNow()
	}

	g.apply(kept)
	g.eventually("the removals to arrive", func() error {
		after := g.composed()
		var errs []error
		for what, r := range removals {
			if s := text(t, after[r.key]); strings.Contains(s, r.text) {
				errs = append(errs, fmt.Errorf("%s: %s is still in %s", what, r.text, r.key))
			}
		}
		for _, key := range removedObjects {
			if after[key] != nil {
				errs = append(errs, fmt.Errorf("%s is still composed", key))
			}
		}
		return errors.Join(errs...)
	})
	g.waitReady()
	after := g.composed()
	for key, o := range after {
		if o.GetUID() != before[key].GetUID() {
			t.Errorf("%s was replaced", key)
		}
	}
	for _, key := range removedObjects {
		o := before[key]
		g.eventually(key+" to be removed", func() error {
			_, err := c.Get(t.Context(), o.GetAPIVersion(), o.GetKind(), o.GetNamespace(), o.GetName())
			return gone(err)
		})
	}
	if peers := g.status().Peers; len(peers) != 1 {
		t.Errorf("status.peers still has %v", peers)
	}
	if !strings.Contains(text(t, after[names.KeyDeployment]), `"KEPT"`) {
		t.Error("what is kept is gone, too")
	}
	t.Logf("%d fields and %d objects removed", len(removals), len(removedObjects))
}
