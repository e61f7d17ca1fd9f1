package node

import (
	"fmt"
	"testing"

	"github.com/wireguardgateway/function-wireguard-gateway/test/controlplane/harness"
)

// TestZClaim is the last of all: it installs the other configuration instead,
// since a cluster takes one of both.
func TestZClaim(t *testing.T) {
	n := shared(t)
	if _, err := n.Kubectl(t.Context(), "delete", "configuration", "wireguard-gateway"); err != nil {
		t.Fatal(err)
	}
	if err := n.ApplyYAML(t.Context(), fmt.Sprintf(`apiVersion: pkg.crossplane.io/v1
kind: Configuration
metadata: {name: wireguard-gateway-claim}
spec: {package: %s/wireguardgateway/configuration-wireguard-gateway-claim:%s}
`, upstream, release)); err != nil {
		t.Fatal(err)
	}
	n.Eventually(t, "the claim to be offered", func() error {
		o, err := n.Get(t.Context(), "apiextensions.crossplane.io/v1", "CompositeResourceDefinition", "", "xwireguardgateways.wireguardgateway.io")
		if err != nil {
			return err
		}
		return harness.HasCondition(o, "Offered", "True", "")
	})
	firstTraffic(t, n, newGateway(t, n, newNamespace(t, n, "privileged"), `{}`))
}
