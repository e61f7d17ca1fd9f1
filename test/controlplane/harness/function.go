package harness

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// FunctionName is what Crossplane names the function that it installs for the
// configurations, and what the Compositions call.
const FunctionName = "wireguardgateway-function-wireguard-gateway"

// installFunction builds the function from the tree, runs it, and tells
// Crossplane where it is. A revision that is paused is never pulled, so this
// needs no registry.
func (c *Cluster) installFunction(ctx context.Context) error {
	if c.options.Flavour == None {
		return nil
	}
	c.function = c.path("function.bin")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-o", c.function, "./cmd/function")
	build.Dir, build.Env = c.Root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	if err := c.StartFunction(ctx); err != nil {
		return err
	}
	revision := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "pkg.crossplane.io/v1",
		"kind":       "FunctionRevision",
		"metadata": map[string]any{
			"name":        FunctionName + "-test",
			"labels":      map[string]any{"pkg.crossplane.io/package": FunctionName},
			"annotations": map[string]any{"crossplane.io/paused": "true"},
		},
		"spec": map[string]any{
			"desiredState": "Active", "revision": int64(1), "image": "registry.example.com/function:v0.1.0",
			"ignoreCrossplaneConstraints": true, "packagePullPolicy": "Never",
		},
	}}
	if err := c.Client.Create(ctx, revision); err != nil {
		return err
	}
	return c.pointFunction(ctx, addressFunction)
}

// pointFunction tells Crossplane where the function answers.
func (c *Cluster) pointFunction(ctx context.Context, address string) error {
	revision := &unstructured.Unstructured{}
	revision.SetAPIVersion("pkg.crossplane.io/v1")
	revision.SetKind("FunctionRevision")
	revision.SetName(FunctionName + "-test")
	patch := fmt.Sprintf(`{"status":{"endpoint":%q,"capabilities":["composition"]}}`, address)
	return c.Client.Status().Patch(ctx, revision, client.RawPatch(types.MergePatchType, []byte(patch)))
}

// StartFunction runs the function, also after it was killed.
func (c *Cluster) StartFunction(ctx context.Context) error {
	p, err := c.start("function", nil, c.function, "--tls-certs-dir", c.path("function"),
		"--address", addressFunction, "--metrics-address", "")
	if err != nil {
		return err
	}
	return c.Wait(ctx, "the function", func() error {
		if p.ended() {
			return permanent{fmt.Errorf("it ended: %w", p.err)}
		}
		conn, err := c.network.dial(ctx, "tcp", addressFunction)
		if err == nil {
			_ = conn.Close()
		}
		return err
	})
}

// KillFunction ends the function as a crash would.
func (c *Cluster) KillFunction() { c.processes["function"].kill() }

// ReplaceFunction makes Crossplane call a test double until the test ends.
func (c *Cluster) ReplaceFunction(tb testing.TB, double fnv1.FunctionRunnerServiceServer) {
	tb.Helper()
	l, err := c.network.listen("127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	creds, err := c.functionCredentials()
	if err != nil {
		tb.Fatal(err)
	}
	s := grpc.NewServer(grpc.Creds(creds), grpc.MaxRecvMsgSize(32<<20))
	fnv1.RegisterFunctionRunnerServiceServer(s, double)
	go func() { _ = s.Serve(l) }()
	tb.Cleanup(func() {
		if err := c.pointFunction(context.Background(), addressFunction); err != nil {
			tb.Error(err)
		}
		s.Stop()
	})
	if err := c.pointFunction(tb.Context(), l.Addr().String()); err != nil {
		tb.Fatal(err)
	}
}

func (c *Cluster) functionCredentials() (credentials.TransportCredentials, error) {
	cert, err := tls.LoadX509KeyPair(c.path("function", "tls.crt"), c.path("function", "tls.key"))
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(c.authority.pem) {
		return nil, errors.New("cannot read the authority")
	}
	return credentials.NewTLS(&tls.Config{
		MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{cert},
		ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool,
	}), nil
}

// installAPI installs one flavour, as applying the files of its package does.
func (c *Cluster) installAPI(ctx context.Context) error {
	if c.options.Flavour == None {
		return nil
	}
	objects, err := ReadObjects(filepath.Join(c.Root, "package", string(c.options.Flavour)))
	if err != nil {
		return err
	}
	var definitions []*unstructured.Unstructured
	for _, o := range objects {
		switch o.GetKind() {
		case "Configuration":
			continue // It describes the package.
		case "CompositeResourceDefinition":
			definitions = append(definitions, o)
		}
		if err := c.Apply(ctx, o); err != nil {
			return err
		}
	}
	for _, d := range definitions {
		if err := c.waitOffered(ctx, d); err != nil {
			return err
		}
	}
	return nil
}

// waitOffered waits until users can create what is defined.
func (c *Cluster) waitOffered(ctx context.Context, definition *unstructured.Unstructured) error {
	want := []string{"Established"}
	if c.options.Flavour == Claim {
		want = append(want, "Offered")
	}
	return c.Wait(ctx, "the definition of "+definition.GetName(), func() error {
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(definition), definition); err != nil {
			return err
		}
		for _, condition := range want {
			if err := HasCondition(definition, condition, "True", ""); err != nil {
				return err
			}
		}
		return nil
	})
}
