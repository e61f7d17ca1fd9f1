package tunnel

import (
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
	"log"
	"math/big"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// proxySettings is the environment variable that makes the test's own program
// the proxy: it has to run in another network namespace.
const proxySettings = "TUNNEL_TEST_PROXY"

// settings are what the proxy goes by: the route as it was rendered, and what
// the Service that it names leads to.
type settings struct {
	Route       gatewayv1.HTTPRoute `json:"route"`
	Service     string              `json:"service"` // name:port
	Address     string              `json:"address"` // of the pod, as host:port
	AppProtocol string              `json:"appProtocol"`
	Certificate string              `json:"certificate"`
	Key         string              `json:"key"`
}

// unset is how long a request may last where the route says nothing: proxies
// have such a default, of some seconds.
const unset = 2 * time.Second

// proxyMain terminates TLS and routes by host and path, as a Gateway does.
func proxyMain() {
	log.SetFlags(0)
	var s settings
	if err := json.Unmarshal([]byte(os.Getenv(proxySettings)), &s); err != nil {
		log.Fatal(err)
	}
	server := &http.Server{
		Addr:              ":443",
		Handler:           s,
		ReadHeaderTimeout: 10 * time.Second,
		TLSConfig:         &tls.Config{NextProtos: []string{"http/1.1"}, MinVersion: tls.VersionTLS12},
	}
	log.Fatal(server.ListenAndServeTLS(s.Certificate, s.Key))
}

// ServeHTTP implements http.Handler.
func (s settings) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rule := s.match(r)
	if rule == nil {
		http.NotFound(w, r)
		return
	}
	b := rule.BackendRefs[0]
	if fmt.Sprintf("%s:%d", b.Name, *b.Port) != s.Service {
		http.Error(w, "no such backend", http.StatusServiceUnavailable)
		return
	}
	if s.AppProtocol != "kubernetes.io/ws" {
		r.Header.Del("Upgrade")
	}
	limit := unset
	if rule.Timeouts != nil && rule.Timeouts.Request != nil && rule.Timeouts.BackendRequest != nil {
		limit, _ = time.ParseDuration(string(*rule.Timeouts.Request))
	}
	if limit > 0 {
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		r = r.WithContext(ctx)
	}
	log.Print("request from ", r.RemoteAddr)
	httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: s.Address}).ServeHTTP(w, r)
}

// match returns the first rule that a request matches, as the Gateway API
// defines it: a prefix matches whole segments.
func (s settings) match(r *http.Request) *gatewayv1.HTTPRouteRule {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	known := false
	for _, h := range s.Route.Spec.Hostnames {
		known = known || string(h) == host
	}
	if !known {
		return nil
	}
	for i, rule := range s.Route.Spec.Rules {
		for _, m := range rule.Matches {
			prefix := strings.TrimSuffix(*m.Path.Value, "/")
			if *m.Path.Type == gatewayv1.PathMatchPathPrefix && (r.URL.Path == prefix || strings.HasPrefix(r.URL.Path, prefix+"/")) {
				return &s.Route.Spec.Rules[i]
			}
		}
	}
	return nil
}

// authority makes certificates that only its own file vouches for.
type authority struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
	file        string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{certificate: template("Test CA"), file: filepath.Join(t.TempDir(), "ca.pem")}
	a.certificate.IsCA, a.certificate.BasicConstraintsValid, a.certificate.KeyUsage = true, true, x509.KeyUsageCertSign
	a.key = newKey(t)
	der, err := x509.CreateCertificate(rand.Reader, a.certificate, a.certificate, &a.key.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, a.file, "CERTIFICATE", der)
	return a
}

// issue makes a certificate for a name, and returns the files.
func (a *authority) issue(t *testing.T, name string) (certificate, key string) {
	t.Helper()
	c, k := template(name), newKey(t)
	c.DNSNames, c.SerialNumber = []string{name}, big.NewInt(2)
	der, err := x509.CreateCertificate(rand.Reader, c, a.certificate, &k.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	certificate, key = filepath.Join(folder, "tls.crt"), filepath.Join(folder, "tls.key")
	writePEM(t, certificate, "CERTIFICATE", der)
	writePEM(t, key, "PRIVATE KEY", private)
	return certificate, key
}

func template(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
	}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func writePEM(t *testing.T, file, kind string, der []byte) {
	t.Helper()
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
}
