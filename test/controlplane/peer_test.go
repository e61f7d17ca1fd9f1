package controlplane

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/test/controlplane/harness"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// newPeer applies a WireguardPeer. It is removed with the test.
func newPeer(t *testing.T, g *gateway, namespace, name, client string) *gateway {
	t.Helper()
	p := &gateway{t: t, c: g.c, kind: v1alpha1.PeerKind, namespace: namespace, name: name}
	t.Cleanup(p.remove)
	p.applyClient(g, client)
	return p
}

func (g *gateway) applyClient(of *gateway, client string) {
	g.t.Helper()
	g.apply(fmt.Sprintf("{gatewayRef: {name: %s, namespace: %s}, client: %s}", of.name, of.namespace, client))
}

// remove deletes the object, and waits until what it composed is gone too.
func (g *gateway) remove() {
	g.t.Helper()
	ctx := context.WithoutCancel(g.t.Context())
	o := g.object()
	if err := client.IgnoreNotFound(g.c.Client.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationForeground))); err != nil {
		g.t.Error(err)
	}
	g.c.Eventually(g.t, g.name+" to go", func() error { return gone(g.c.Client.Get(ctx, client.ObjectKeyFromObject(o), o)) })
}

// direct waits for the peer's configuration. A Secret that was on its way out
// when it was wanted again goes first, and is then made anew.
func (g *gateway) direct() string {
	g.t.Helper()
	s := &corev1.Secret{}
	g.eventually("the configuration", func() error {
		if err := harness.HasCondition(g.get(), "ConfigReady", "True", "Available"); err != nil {
			return err
		}
		err := g.c.Client.Get(g.t.Context(), client.ObjectKey{Namespace: g.namespace, Name: g.name + "-wireguard.peer"}, s)
		if err == nil && s.DeletionTimestamp != nil {
			err = errors.New("the Secret is on its way out")
		}
		return err
	})
	return string(s.Data["direct.conf"])
}

// onDevice returns the peers that may connect, as namespace/name.
func (g *gateway) onDevice() ([]string, error) {
	s := &corev1.Secret{}
	if err := g.c.Client.Get(g.t.Context(), client.ObjectKey{Namespace: g.namespace, Name: g.name + "-wireguard.config"}, s); err != nil {
		return nil, err
	}
	c, err := wireguard.DecodeGatewayConfig(s.Data["config.json"])
	if err != nil {
		return nil, err
	}
	var out []string
	for _, p := range c.Peers {
		out = append(out, p.Namespace+"/"+p.Name)
	}
	return out, nil
}

func (g *gateway) waitDevice(want ...string) {
	g.t.Helper()
	g.eventually("the device", func() error {
		got, err := g.onDevice()
		if err == nil && !slices.Equal(want, got) {
			err = fmt.Errorf("want %v on the device, got %v", want, got)
		}
		return err
	})
}

// nothingIn fails where a namespace has a Secret or an attachment.
func nothingIn(t *testing.T, c *harness.Cluster, namespace string) error {
	t.Helper()
	secrets, maps := &corev1.SecretList{}, &corev1.ConfigMapList{}
	if err := errors.Join(c.Client.List(t.Context(), secrets, client.InNamespace(namespace)), c.Client.List(t.Context(), maps, client.InNamespace(namespace))); err != nil {
		return err
	}
	for _, s := range secrets.Items {
		return fmt.Errorf("there is the Secret %s", s.Name)
	}
	for _, m := range maps.Items {
		if m.Name != "kube-root-ca.crt" {
			return fmt.Errorf("there is the ConfigMap %s", m.Name)
		}
	}
	return nil
}

const (
	closedGateway = `{endpoint: {host: vpn.example.com}, service: {type: ClusterIP}}`
	openGateway   = `{endpoint: {host: vpn.example.com}, service: {type: ClusterIP}, allowedPeerNamespaces: {from: Names, names: [%s]}}`
)

// A peer's life: before its gateway, refused, let in, withdrawn, deleted,
// created again, and with its gateway deleted and restored.
func TestPeerLife(t *testing.T) {
	t.Parallel()
	c := shared(t)
	vpn, apps := newNamespace(t, c, "vpn-"), newNamespace(t, c, "apps-")
	open := fmt.Sprintf(openGateway, apps)

	g := &gateway{t: t, c: c, kind: v1alpha1.GatewayKind, namespace: vpn, name: "home"}
	p := newPeer(t, g, apps, "media", "{}")
	p.waitCondition("GatewayFound", "False", "NotFound")

	g = newGatewayIn(t, c, vpn, "home", closedGateway)
	p.waitCondition("Permitted", "False", "NamespaceNotAllowed")
	g.waitReady()
	if err := nothingIn(t, c, apps); err != nil {
		t.Errorf("refused: %v", err)
	}
	if text := fmt.Sprint(p.get().Object["status"]); strings.Contains(text, g.status().PublicKey) || strings.Contains(text, "vpn.example.com") {
		t.Errorf("refused, it learns of the gateway: %s", text)
	}
	if err := harness.HasCondition(p.get(), "Ready", "False", ""); err != nil {
		t.Errorf("refused: %v", err)
	}

	start := time.Now()
	g.apply(open)
	first := p.direct()
	t.Logf("let in: served after %v", time.Since(start).Round(10*time.Millisecond))
	p.waitReady()
	g.waitDevice(apps + "/media")

	start = time.Now()
	g.apply(closedGateway)
	g.waitDevice()
	t.Logf("withdrawn: off the device after %v", time.Since(start).Round(10*time.Millisecond))
	p.eventually("the Secret to go", func() error { return nothingIn(t, c, apps) })
	t.Logf("withdrawn: without a Secret after %v", time.Since(start).Round(10*time.Millisecond))
	p.waitCondition("Permitted", "False", "NamespaceNotAllowed")

	g.apply(open)
	if diff := cmp.Diff(first, p.direct()); diff != "" {
		t.Errorf("let in again: -before, +after:\n%s", diff)
	}

	p.remove()
	g.waitDevice()
	start = time.Now()
	p.applyClient(g, "{}")
	again := p.direct()
	t.Logf("created: served after %v", time.Since(start).Round(10*time.Millisecond))
	if diff := cmp.Diff(first, again); diff != "" {
		t.Errorf("created again: -before, +after:\n%s", diff)
	}

	seed := g.secret("home-wireguard.seed")["seed"]
	g.remove()
	p.waitCondition("GatewayFound", "False", "NotFound")
	p.eventually("the Secret to go", func() error { return nothingIn(t, c, apps) })
	if err := c.Client.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: vpn, Name: "backup"}, Data: map[string][]byte{"seed": seed}}); err != nil {
		t.Fatal(err)
	}
	g.apply(strings.Replace(open, "{endpoint", "{keys: {seedSecretRef: {name: backup}}, endpoint", 1))
	if diff := cmp.Diff(first, p.direct()); diff != "" {
		t.Errorf("gateway restored: -before, +after:\n%s", diff)
	}
	p.keepsSecrets(seed)
}

// testPeerClaim shows that with claims, a peer finds its gateway's claim, and its
// own namespace by that of its own.
func testPeerClaim(t *testing.T, c *harness.Cluster) {
	t.Helper()
	vpn, apps := newNamespace(t, c, "vpn-"), newNamespace(t, c, "apps-")
	selecting := `{endpoint: {host: vpn.example.com}, service: {type: ClusterIP}, allowedPeerNamespaces: {from: Selector, selector: {matchLabels: {vpn: "yes"}}}}`
	g := newGatewayIn(t, c, vpn, "home", selecting)
	p := newPeer(t, g, apps, "media", "{}")
	p.waitCondition("Permitted", "False", "NamespaceNotAllowed")

	label := func(value string) {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: apps}}
		if err := c.MergePatch(t.Context(), n, `{"metadata":{"labels":{"vpn":`+value+`}}}`); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	label(`"yes"`)
	first := p.direct()
	t.Logf("labelled: served after %v", time.Since(start).Round(10*time.Millisecond))
	g.waitDevice(apps + "/media")
	// What is in the claim's status is what the other side goes by.
	seed := g.secret("home-wireguard.seed")["seed"]
	if want := wireguard.Seed(seed).PeerKey(apps, "media", 0).String(); !strings.Contains(first, "PrivateKey = "+want) {
		t.Error("want the key of the claim's namespace and name")
	}
	p.keepsSecrets(seed)

	start = time.Now()
	label("null")
	g.waitDevice()
	p.eventually("the Secret to go", func() error { return nothingIn(t, c, apps) })
	t.Logf("label taken: withdrawn after %v", time.Since(start).Round(10*time.Millisecond))
}

// keepsSecrets fails where an event or the status of the peer has the seed or a
// key in it.
func (g *gateway) keepsSecrets(seed []byte) {
	g.t.Helper()
	events := &corev1.EventList{}
	if err := g.c.Client.List(g.t.Context(), events, client.InNamespace(g.namespace)); err != nil {
		g.t.Fatal(err)
	}
	text := fmt.Sprint(g.get().Object)
	for _, e := range events.Items {
		text += e.Message
	}
	s := wireguard.Seed(seed)
	for what, secret := range map[string]string{
		"seed": string(seed), "seed in base64": base64.StdEncoding.EncodeToString(seed), "seed in hex": fmt.Sprintf("%x", seed),
		"server's key": s.ServerKey(0).String(), "peer's key": s.PeerKey(g.namespace, g.name, 0).String(),
	} {
		if strings.Contains(text, secret) {
			g.t.Errorf("the %s stands in the open", what)
		}
	}
}

// Attachments that WireguardPeers did not make are counted and do nothing. What
// is put back after its owner is gone, garbage collection takes.
func TestAttachmentsOfOthers(t *testing.T) {
	t.Parallel()
	c := shared(t)
	vpn, apps, web := newNamespace(t, c, "vpn-"), newNamespace(t, c, "apps-"), newNamespace(t, c, "web-")
	g := newGatewayIn(t, c, vpn, "home", fmt.Sprintf(openGateway, apps+", "+web))
	p := newPeer(t, g, apps, "media", "{}")
	p.direct()
	g.waitDevice(apps + "/media")
	valid := &corev1.ConfigMap{}
	if err := c.Client.Get(t.Context(), client.ObjectKey{Namespace: apps, Name: "media-wireguard.attachment"}, valid); err != nil {
		t.Fatal(err)
	}

	put := func(namespace, name string, owned bool, data map[string]string) {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: valid.Labels}, Data: maps.Clone(valid.Data)}
		if owned {
			m.OwnerReferences = valid.OwnerReferences
		}
		maps.Copy(m.Data, data)
		if err := c.Client.Create(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	put(web, "media-wireguard.attachment", false, nil)                                                      // copied to another namespace
	put(apps, "video-wireguard.attachment", true, nil)                                                      // copied to another name, owner and all
	put(apps, "forged-wireguard.attachment", true, map[string]string{"mac": strings.Repeat("A", 43) + "="}) // made up
	g.eventually("three to be counted", func() error {
		message, _ := harness.Condition(g.get(), "PeersReady")["message"].(string)
		if message != "3 attachments were not accepted" {
			return fmt.Errorf("PeersReady says %q", message)
		}
		return nil
	})
	g.waitDevice(apps + "/media")

	// A replay after deletion: first with the owner that is gone, then without.
	p.remove()
	g.waitDevice()
	put(apps, "media-wireguard.attachment", true, nil)
	g.eventually("the replay to be collected", func() error {
		return gone(c.Client.Get(t.Context(), client.ObjectKey{Namespace: apps, Name: "media-wireguard.attachment"}, &corev1.ConfigMap{}))
	})
	g.waitDevice()
	put(apps, "media-wireguard.attachment", false, nil)
	g.eventually("the replay to be counted", func() error {
		message, _ := harness.Condition(g.get(), "PeersReady")["message"].(string)
		if message != "2 attachments were not accepted" {
			return fmt.Errorf("PeersReady says %q", message)
		}
		return nil
	})
	g.waitDevice()
}
