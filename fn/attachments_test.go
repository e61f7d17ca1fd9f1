package fn

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Attachments that were forged, copied or kept are counted, and change nothing.
func TestAttachmentsOfOthers(t *testing.T) {
	c := newCluster(t)
	c.gateway(`{endpoint: {host: vpn.example.com}, allowedPeerNamespaces: {from: Names, names: [apps, web]}}`)
	c.peer("apps", "media", "{}")
	c.settle()
	valid := c.objects[objectID("ConfigMap", "apps", "media-wireguard.attachment")].DeepCopy()
	config := c.secret("vpn", "home-wireguard.config")["config.json"]

	put := func(namespace, name string, change func(o *unstructured.Unstructured)) {
		o := valid.DeepCopy()
		o.SetNamespace(namespace)
		o.SetName(name)
		if change != nil {
			change(o)
		}
		// Nothing that Crossplane made owns it.
		c.objects[idOf(o)] = o
	}
	put("web", "media-wireguard.attachment", nil)
	put("apps", "video-wireguard.attachment", nil)
	put("other", "media-wireguard.attachment", nil)
	put("apps", "forged-wireguard.attachment", func(o *unstructured.Unstructured) {
		o.Object["data"] = map[string]any{"client.json": `{"publicKey":"` + alicesKey + `","addresses":["10.8.0.2"]}`, "uid": "uid-2", "mac": "AAAA"}
	})
	c.settle()
	if got := c.secret("vpn", "home-wireguard.config")["config.json"]; got != config {
		t.Error("an attachment that nobody vouches for changed the gateway")
	}
	if is, message := c.condition("WireguardGateway", "vpn", "home", "PeersReady"); is != "TRUE Available" || message != "4 attachments were not accepted" {
		t.Errorf("want them counted, got %s: %q", is, message)
	}
	if status := fmt.Sprint(c.objects[objectID("WireguardGateway", "vpn", "home")].Object["status"]); strings.Contains(status, "video") || strings.Contains(status, "forged") || strings.Contains(status, "other") {
		t.Errorf("want no names of them, got %s", status)
	}

	// What is put back after its WireguardPeer is gone has no owner to vouch for
	// it; with one that is gone, garbage collection takes it.
	c.remove("WireguardPeer", "apps", "media")
	valid.SetOwnerReferences(nil)
	c.objects[idOf(valid)] = valid
	c.settle()
	if got := c.onDevice(); len(got) != 0 {
		t.Errorf("a replay is on the device: %v", got)
	}
}

// A closed gateway does not even look at what other namespaces label for it.
func TestClosedGatewayLooksAtItsOwnNamespaceOnly(t *testing.T) {
	c := newCluster(t)
	c.gateway(gatewayClosed)
	c.settle()
	s := c.last[objectID("WireguardGateway", "vpn", "home")].GetRequirements().GetResources()["attachments"]
	if s.GetNamespace() != "vpn" || s.GetMatchLabels().GetLabels()["wireguardgateway.io/gateway"] != "home" || s.GetMatchLabels().GetLabels()["wireguardgateway.io/gateway-namespace"] != "vpn" {
		t.Errorf("want its own attachments in its own namespace, got %v", s)
	}
	c.gateway(gatewayAll)
	c.settle()
	s = c.last[objectID("WireguardGateway", "vpn", "home")].GetRequirements().GetResources()["attachments"]
	if s.Namespace != nil || len(s.GetMatchLabels().GetLabels()) != 2 {
		t.Errorf("want its own attachments in all namespaces, got %v", s)
	}
}

// Fifty peers of ten namespaces settle, and whoever was there first stays, in
// whichever order they are seen.
func TestManyPeers(t *testing.T) {
	var configs []string
	for _, reverse := range []bool{false, true} {
		c := newCluster(t)
		c.gateway(gatewayAll)
		for i := range 50 {
			c.peer(fmt.Sprintf("team%d", i%10), fmt.Sprintf("p%d", i), "{}")
		}
		c.settleIn(reverse)
		for i := range 50 {
			c.want("WireguardPeer", fmt.Sprintf("team%d", i%10), fmt.Sprintf("p%d", i), "ConfigReady", "TRUE Available")
		}
		configs = append(configs, c.secret("vpn", "home-wireguard.config")["config.json"])
	}
	if len(configs[0]) == 0 {
		t.Error("want a configuration, got none")
	}
}
