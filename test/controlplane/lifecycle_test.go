package controlplane

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/test/controlplane/harness"
)

// kindsComposed are all kinds that a gateway may be composed of.
var kindsComposed = []string{
	"v1 Secret", "v1 ConfigMap", "v1 Service", "v1 ServiceAccount", "apps/v1 Deployment",
	"rbac.authorization.k8s.io/v1 Role", "rbac.authorization.k8s.io/v1 RoleBinding",
	"networking.k8s.io/v1 NetworkPolicy", "policy/v1 PodDisruptionBudget",
	"gateway.networking.k8s.io/v1 HTTPRoute", "gateway.networking.k8s.io/v1 UDPRoute",
	"monitoring.coreos.com/v1 PodMonitor",
}

// leftovers returns all objects in a namespace that bear our label.
func leftovers(t *testing.T, c *harness.Cluster, namespace string) []string {
	t.Helper()
	var out []string
	for _, kind := range kindsComposed {
		apiVersion, kind, _ := strings.Cut(kind, " ")
		l := &unstructured.UnstructuredList{}
		l.SetAPIVersion(apiVersion)
		l.SetKind(kind + "List")
		if err := c.Client.List(t.Context(), l, client.InNamespace(namespace), client.MatchingLabels{names.LabelName: names.Application}); err != nil {
			t.Fatal(err)
		}
		for _, o := range l.Items {
			out = append(out, kind+" "+o.GetName())
		}
	}
	return out
}

// wantKeys are the keys of the objects that an example is composed of.
func wantKeys(peers []string, more ...string) []string {
	keys := append([]string{
		names.KeySeed, names.KeyConfig, names.KeyServiceAccount, names.KeyRole, names.KeyRoleBinding,
		names.KeyStatus, names.KeyDeployment, names.KeyService,
	}, more...)
	for _, p := range peers {
		keys = append(keys, names.KeyPeer(p))
	}
	slices.Sort(keys)
	return keys
}

var fullKeys = wantKeys([]string{"laptop", "contractor", "site-b", "tv", "old-phone", "tablet"},
	names.KeyTunnelService, names.KeyHTTPRoute, names.KeyNetworkPolicy, names.KeyPDB, names.KeyPodMonitor)

// checkLifecycle waits until a gateway is ready, with all that it should be
// composed of, deletes it, and waits until nothing is left of it.
func checkLifecycle(t *testing.T, g *gateway, want []string) {
	t.Helper()
	start := time.Now()
	g.waitReady()
	ready := time.Since(start)
	composed := slices.Sorted(maps.Keys(g.composed()))
	if !slices.Equal(composed, want) {
		t.Errorf("composed are %v, want %v", composed, want)
	}
	for _, o := range g.composed() {
		if len(o.GetOwnerReferences()) != 1 {
			t.Errorf("%s %s has owners %v, want one", o.GetKind(), o.GetName(), o.GetOwnerReferences())
		}
	}
	start = time.Now()
	if err := g.c.Client.Delete(t.Context(), g.object()); err != nil {
		t.Fatal(err)
	}
	g.eventually("everything to be removed", func() error {
		o := g.object()
		if err := gone(g.c.Client.Get(t.Context(), client.ObjectKeyFromObject(o), o)); err != nil {
			return err
		}
		if left := leftovers(t, g.c, g.namespace); len(left) > 0 {
			return errors.New(strings.Join(left, ", "))
		}
		return nil
	})
	t.Logf("ready with %d objects after %v, nothing left %v after it was deleted", len(composed),
		ready.Round(time.Millisecond), time.Since(start).Round(time.Millisecond))
}

func TestLifecycle(t *testing.T) {
	t.Parallel()
	c := shared(t)
	checkLifecycle(t, newGateway(t, c, example(t, c, "full")), fullKeys)
}

// TestUnplayed shows what users read while nothing plays the controllers: the
// conditions say what is awaited, and the gateway is not ready.
func TestUnplayed(t *testing.T) {
	t.Parallel()
	c := shared(t)
	g := newGatewayIn(t, c, newNamespace(t, c, harness.Unplayed), "home", `
gateway: {hostname: ws.example.com, parentRefs: [{name: public}]}
tunnel: {}
peers: [{name: laptop}]
`)
	for condition, reason := range map[string]string{"EndpointReady": "Pending", "WorkloadReady": "Pending", "RouteReady": "Pending", "Ready": "Creating"} {
		g.waitCondition(condition, "False", reason)
	}
	for _, condition := range []string{"SpecValid", "KeysReady", "PeersReady", "EgressReady", "Synced"} {
		g.waitCondition(condition, "True", "")
	}
	if _, ok := g.secret("home-wireguard.peer.laptop")[names.DataDirect]; ok {
		t.Error("there is a direct configuration before there is an endpoint")
	}
	t.Log(fmt.Sprint(harness.Condition(g.get(), "EndpointReady")["message"]))
}
