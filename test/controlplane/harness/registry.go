package harness

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"path"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Registry is where ServeRegistry serves packages.
const Registry = "127.0.0.1:5000"

// ServeRegistry serves an empty registry in the cluster's network for as long as
// the process runs, and makes Crossplane take packages from it that are named
// after the given registry: as a mirror does where there is no internet.
func (c *Cluster) ServeRegistry(ctx context.Context, instead string) error {
	l, err := c.network.listen(Registry) //nolint:contextcheck // It listens for as long as the process runs.
	if err != nil {
		return err
	}
	s := &http.Server{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	go func() { _ = s.Serve(l) }()
	return c.ApplyYAML(ctx, fmt.Sprintf(`apiVersion: pkg.crossplane.io/v1beta1
kind: ImageConfig
metadata: {name: mirror}
spec:
  matchImages: [{type: Prefix, prefix: %s}]
  rewriteImage: {prefix: %s}
`, instead, Registry))
}

// RunPackagedFunction plays Crossplane's package runtime for the one revision of
// a function that is installed: it runs the program from the package's own image,
// as a pod would, and reports that it is healthy.
func (c *Cluster) RunPackagedFunction(ctx context.Context, revision *unstructured.Unstructured) error {
	image, _, _ := unstructured.NestedString(revision.Object, "spec", "image")
	_, repository, ok := strings.Cut(image, "/")
	if !ok {
		return fmt.Errorf("image %q names no registry", image)
	}
	program, err := c.extractProgram(ctx, Registry+"/"+repository)
	if err != nil {
		return fmt.Errorf("cannot read image %s: %w", image, err)
	}
	// No flags: a function's pod has just this variable.
	if _, err := c.start("function", []string{"TLS_SERVER_CERTS_DIR=" + c.path("function")}, program); err != nil {
		return err
	}
	if err := c.Wait(ctx, "the function", func() error {
		conn, err := c.network.dial(ctx, "tcp", addressFunction)
		if err == nil {
			_ = conn.Close()
		}
		return err
	}); err != nil {
		return err
	}

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: systemNamespace, Name: "function-tls-server"}, Data: map[string][]byte{}}
	for _, file := range []string{"ca.crt", "tls.crt", "tls.key"} {
		if secret.Data[file], err = os.ReadFile(c.path("function", file)); err != nil {
			return err
		}
	}
	if err := c.Client.Create(ctx, secret); err != nil {
		return err
	}
	now := metav1.Now().UTC().Format("2006-01-02T15:04:05Z")
	status := fmt.Sprintf(`{"status":{"endpoint":%q,"tlsServerSecretName":%q,"tlsClientSecretName":"crossplane-tls-client"}}`, addressFunction, secret.Name)
	if err := c.Client.Status().Patch(ctx, revision, client.RawPatch(types.MergePatchType, []byte(status))); err != nil {
		return err
	}
	return c.Wait(ctx, "the revision's status", func() error {
		if err := c.Client.Get(ctx, client.ObjectKeyFromObject(revision), revision); err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(revision.Object, "status", "conditions")
		for _, kind := range []string{"RuntimeHealthy", "RuntimeActive"} {
			if Condition(revision, kind) == nil {
				conditions = append(conditions, map[string]any{"type": kind, "status": "True", "reason": kind, "lastTransitionTime": now})
			}
		}
		if err := unstructured.SetNestedSlice(revision.Object, conditions, "status", "conditions"); err != nil {
			return err
		}
		return c.Client.Status().Update(ctx, revision)
	})
}

// extractProgram stores the file that an image's entry point names.
func (c *Cluster) extractProgram(ctx context.Context, image string) (string, error) {
	ref, err := name.ParseReference(image)
	if err != nil {
		return "", err
	}
	img, err := remote.Image(ref, remote.WithContext(ctx),
		remote.WithTransport(&http.Transport{DialContext: c.network.dial}),
		remote.WithPlatform(v1.Platform{OS: "linux", Architecture: runtime.GOARCH}))
	if err != nil {
		return "", err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return "", err
	}
	if len(config.Config.Entrypoint) != 1 {
		return "", fmt.Errorf("its entry point is %q, not one program", config.Config.Entrypoint)
	}
	files := mutate.Extract(img)
	defer func() { _ = files.Close() }()
	for r := tar.NewReader(files); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return "", fmt.Errorf("it has no file %s", config.Config.Entrypoint[0])
		}
		if err != nil {
			return "", err
		}
		if path.Clean("/"+h.Name) != path.Clean("/"+config.Config.Entrypoint[0]) {
			continue
		}
		program := c.path("packaged-function")
		f, err := os.OpenFile(program, os.O_CREATE|os.O_EXCL|os.O_WRONLY, h.FileInfo().Mode().Perm())
		if err != nil {
			return "", err
		}
		_, err = io.Copy(f, r)
		return program, errors.Join(err, f.Close())
	}
}
