package node

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	node "github.com/wireguardgateway/function-wireguard-gateway/test/node/harness"
)

const (
	tunnelHost  = "ws.example.com"
	tunnelImage = "ghcr.io/erebe/wstunnel:v10.6.2"
	// tunnelProxy is the router, on which a Gateway's proxy is played.
	tunnelProxy = "10.200.0.254"
)

// TestTunnel reaches a gateway over a WebSocket. wstunnel is a stand-in, as a
// container beside the agent and on the client, and the Gateway is played.
func TestTunnel(t *testing.T) {
	n := shared(t)
	ctx := t.Context()
	gatewayAPI, err := n.Module(ctx, ".", "sigs.k8s.io/gateway-api")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.Kubectl(ctx, "apply", "--server-side", "-f", filepath.Join(gatewayAPI, "config", "crd", "standard")); err != nil {
		t.Fatal(err)
	}
	programs := t.TempDir()
	wstunnel := filepath.Join(programs, "wstunnel")
	if err := n.Build(ctx, wstunnel, "./test/tunnel/wstunnel-standin"); err != nil {
		t.Fatal(err)
	}
	if err := n.PushProgram(ctx, tunnelImage, wstunnel, "home/app/wstunnel"); err != nil {
		t.Fatal(err)
	}

	g := newGateway(t, n, newNamespace(t, n, "privileged"), `
gateway: {hostname: `+tunnelHost+`, parentRefs: [{name: public, namespace: ingress}]}
tunnel: {}
peers: [{name: laptop}]
`)
	start := g.apply()
	g.waitCondition("RouteReady", "False", "Pending")
	acceptRoute(t, n, g.namespace)
	pod := g.waitPod()
	t.Logf("the pod with its sidecar was ready after %v", time.Since(start).Round(time.Millisecond))
	g.waitReady()
	t.Logf("the gateway was ready after %v", time.Since(start).Round(time.Millisecond))

	certificate := filepath.Join(programs, "ca.pem")
	serveTunnel(t, n, g, certificate)
	c, err := n.NewClient(ctx)
	if err != nil {
		t.Fatal(err)
	}
	c.Setenv("PATH", programs+":"+os.Getenv("PATH"))
	c.Setenv("SSL_CERT_FILE", certificate)
	c.Do(func() { err = os.WriteFile("/run/hosts", []byte(tunnelProxy+" "+tunnelHost+"\n"), 0o644) })
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Run(ctx, "mount --bind /run/hosts /etc/hosts"); err != nil {
		t.Fatal(err)
	}
	s := &corev1.Secret{}
	if err := n.Client.Get(ctx, client.ObjectKey{Namespace: g.namespace, Name: names.Peer(gatewayName, "laptop")}, s); err != nil {
		t.Fatal(err)
	}
	if err := c.Up(ctx, string(s.Data[names.DataTunnel])); err != nil {
		t.Fatal(err)
	}
	up := time.Now()
	t.Logf("first reply %v after the client was up", waitReply(t, c, node.Site4).Sub(up).Round(time.Millisecond))

	for fault, do := range map[string]func(context.Context) error{
		"wstunnel killed": func(ctx context.Context) error {
			p, err := g.pod(ctx)
			if err != nil {
				return err
			}
			return kill(n, p, unix.SIGKILL, names.ContainerWstunnel)
		},
		"agent killed": g.killAgent,
	} {
		t.Run(fault, func(t *testing.T) {
			if r := watchFault(t, g, c, do, node.Site4); r.Silence > 21*time.Second || r.Broken != nil {
				t.Errorf("the client had no answer for %v, its TCP connection: %v", r.Silence, r.Broken)
			}
		})
	}
	if after := g.waitPod(); after.UID != pod.UID {
		t.Errorf("the pod was %s and is %s", pod.Name, after.Name)
	}
}

// acceptRoute plays a Gateway's controller, once.
func acceptRoute(t *testing.T, n *node.Node, namespace string) {
	t.Helper()
	o, err := n.Get(t.Context(), "gateway.networking.k8s.io/v1", "HTTPRoute", namespace, names.Workload(gatewayName))
	if err != nil {
		t.Fatal(err)
	}
	refs, _, _ := unstructured.NestedSlice(o.Object, "spec", "parentRefs")
	var conditions []any
	for _, kind := range []string{"Accepted", "ResolvedRefs"} {
		conditions = append(conditions, map[string]any{
			"type": kind, "status": "True", "reason": kind, "message": "played",
			"observedGeneration": o.GetGeneration(), "lastTransitionTime": "2026-01-01T00:00:00Z",
		})
	}
	o.Object["status"] = map[string]any{"parents": []any{map[string]any{
		"parentRef": refs[0], "controllerName": "example.com/gateway", "conditions": conditions,
	}}}
	if err := n.Client.Status().Update(t.Context(), o); err != nil {
		t.Fatal(err)
	}
}

// serveTunnel plays the Gateway's proxy: it terminates TLS, and passes on to the
// Service what the route matches.
func serveTunnel(t *testing.T, n *node.Node, g *gateway, certificate string) {
	t.Helper()
	route, err := n.Get(t.Context(), "gateway.networking.k8s.io/v1", "HTTPRoute", g.namespace, names.Workload(gatewayName))
	if err != nil {
		t.Fatal(err)
	}
	rules, _, _ := unstructured.NestedSlice(route.Object, "spec", "rules")
	matches, _, _ := unstructured.NestedSlice(rules[0].(map[string]any), "matches")
	prefix, _, _ := unstructured.NestedString(matches[0].(map[string]any), "path", "value")
	service := &corev1.Service{}
	if err := n.Client.Get(t.Context(), client.ObjectKey{Namespace: g.namespace, Name: names.Tunnel(gatewayName)}, service); err != nil {
		t.Fatal(err)
	}
	backend := net.JoinHostPort(service.Spec.ClusterIP, fmt.Sprint(service.Spec.Ports[0].Port))
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", backend },
		// From the node, as a proxy in the cluster.
		Transport: &http.Transport{DialContext: n.Dial, DisableKeepAlives: true},
		ErrorLog:  log.New(io.Discard, "", 0),
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{tunnelHost}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := n.Internet.Listen(net.JoinHostPort(tunnelProxy, "443"))
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Host != tunnelHost || !strings.HasPrefix(r.URL.Path, prefix) {
				http.NotFound(w, r)
				return
			}
			proxy.ServeHTTP(w, r)
		}),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, NextProtos: []string{"http/1.1"}},
	}
	go func() { _ = s.ServeTLS(l, "", "") }()
	t.Cleanup(func() { _ = s.Close() })
}
