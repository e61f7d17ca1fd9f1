package dataplane

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
)

const (
	apiserver4 = "10.96.0.2"
	adminToken = "admin-token"
	agentToken = "agent-token"
)

// cluster is a Kubernetes API: a real kube-apiserver and etcd on a host of
// their own.
type cluster struct {
	t    *testing.T
	host *host
	http http.Client
	// api is the API server, from that program.
	api    *netns.Process
	binary string
}

// newCluster starts the API, with a user "agent" that may do what the
// function's Role lets the gateway's service account do, and no more.
func (w *world) newCluster() *cluster {
	w.t.Helper()
	bin := map[string]string{}
	for _, name := range []string{"kube-apiserver", "etcd"} {
		path, err := filepath.Abs(filepath.Join("..", "..", "_output", "bin", name))
		if err != nil {
			w.t.Fatal(err)
		}
		if _, err := os.Stat(path); err != nil {
			w.t.Skipf("needs %s: run tools/build.sh %s", name, name)
		}
		bin[name] = path
	}
	h := w.attach("api", apiserver4+"/24", "10.96.0.1/24", "2001:db8:96::2/64", "2001:db8:96::1/64")
	c := &cluster{t: w.t, host: h, binary: bin["kube-apiserver"]}
	cert, key := c.certificate()
	h.Write("pki/tls.crt", cert)
	h.Write("pki/tls.key", key)
	h.Write("pki/tokens.csv", adminToken+",admin,admin,system:masters\n"+agentToken+",agent,agent\n")
	h.Start(bin["etcd"], "--data-dir=/run/etcd", "--unsafe-no-fsync", "--listen-peer-urls=http://127.0.0.1:2380",
		"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379", "--log-level=error")
	c.startAPI()

	// Where a container finds the API and its token.
	w.gateway.Write("secrets/kubernetes.io/serviceaccount/ca.crt", cert)
	w.gateway.Write("secrets/kubernetes.io/serviceaccount/token", agentToken)
	c.create("/api/v1/namespaces", `{"metadata":{"name":"vpn"}}`)
	c.create("/apis/rbac.authorization.k8s.io/v1/namespaces/vpn/roles", `{"metadata":{"name":"agent"},"rules":[
		{"apiGroups":[""],"resources":["secrets"],"resourceNames":["home-wireguard.config"],"verbs":["get","list","watch"]},
		{"apiGroups":[""],"resources":["configmaps"],"resourceNames":["home-wireguard.status"],"verbs":["get","watch","patch"]}]}`)
	c.create("/apis/rbac.authorization.k8s.io/v1/namespaces/vpn/rolebindings", `{"metadata":{"name":"agent"},
		"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"agent"},
		"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"agent"}]}`)
	return c
}

// startAPI starts the API server, and waits until it is ready.
func (c *cluster) startAPI() {
	c.t.Helper()
	c.api = c.host.Start(c.binary, "--etcd-servers=http://127.0.0.1:2379", "--bind-address=0.0.0.0", "--secure-port=6443",
		"--advertise-address="+apiserver4, "--service-cluster-ip-range=10.97.0.0/16",
		"--tls-cert-file=/run/pki/tls.crt", "--tls-private-key-file=/run/pki/tls.key", "--cert-dir=/run/pki",
		"--token-auth-file=/run/pki/tokens.csv", "--authorization-mode=RBAC",
		"--service-account-key-file=/run/pki/tls.crt", "--service-account-signing-key-file=/run/pki/tls.key", "--service-account-issuer=https://test",
		"--disable-admission-plugins=ServiceAccount", "--v=0")
	netns.WaitFor(c.t, 3*limit, "the API server", func() error {
		if !c.api.Running() {
			c.t.Fatalf("the API server has ended:\n%s", c.api.Out)
		}
		code, body, err := c.try(http.MethodGet, "/readyz", "", nil)
		if err == nil && code != http.StatusOK {
			err = fmt.Errorf("%d %s", code, body)
		}
		return err
	})
}

// certificate makes a certificate for the server that is its own authority.
func (c *cluster) certificate() (cert, key string) {
	c.t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		c.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IPAddresses: []net.IP{net.ParseIP(apiserver4), net.ParseIP("127.0.0.1")},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		c.t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		c.t.Fatal(err)
	}
	certPEM := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(certPEM)
	c.http = http.Client{Timeout: limit, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
			return c.host.dial(network, address)
		},
	}}
	return string(certPEM), string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: keyDER}))
}

// try sends a request as administrator.
func (c *cluster) try(method, path, contentType string, body []byte) (int, []byte, error) {
	req, err := http.NewRequestWithContext(c.t.Context(), method, "https://127.0.0.1:6443"+path, bytes.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+adminToken)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	return resp.StatusCode, b, err
}

func (c *cluster) request(method, path, contentType string, body []byte) []byte {
	c.t.Helper()
	code, b, err := c.try(method, path, contentType, body)
	if err != nil || code >= http.StatusBadRequest {
		c.t.Fatalf("%s %s: %d %s %v", method, path, code, b, err)
	}
	return b
}

func (c *cluster) create(path, object string) {
	c.t.Helper()
	c.request(http.MethodPost, path, "application/json", []byte(object))
}

// apply writes an object as Crossplane does: by server-side apply, with a
// field manager of its own.
func (c *cluster) apply(path string, object map[string]any) {
	c.t.Helper()
	b, err := json.Marshal(object)
	if err != nil {
		c.t.Fatal(err)
	}
	c.request(http.MethodPatch, path+"?fieldManager=crossplane&force=true", "application/apply-patch+yaml", b)
}
