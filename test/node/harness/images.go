package harness

import (
	"archive/tar"
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// Images beside ours, as the node pulls them.
const (
	// ImageProgram is that of test/node/container, also for the first process of
	// every pod.
	ImageProgram    = "registry.example.com/program:node"
	imageDNS        = "registry.example.com/coredns:node"
	imageCrossplane = "registry.example.com/crossplane"
)

// serveRegistry serves an empty registry for as long as the process runs.
func (n *Node) serveRegistry(context.Context) error {
	l, err := n.Listen(Registry) //nolint:contextcheck // It goes on for as long as the node does.
	if err != nil {
		return err
	}
	s := &http.Server{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0)))}
	go func() { _ = s.Serve(l) }()
	return nil
}

// file is one of an image.
type file struct {
	name    string
	content []byte
	mode    int64
}

// newImage makes an image of files whose first is the program.
func newImage(user string, files ...file) (v1.Image, error) {
	b := &bytes.Buffer{}
	w := tar.NewWriter(b)
	for _, f := range files {
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.content))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil })
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	config, err := img.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{Entrypoint: []string{"/" + files[0].name}, User: user}
	return mutate.ConfigFile(img, config)
}

// Push stores an image in the node's registry under the path and tag that it
// has in another one.
func (n *Node) Push(ctx context.Context, image string, img v1.Image) error {
	_, repository, _ := strings.Cut(image, "/")
	ref, err := name.ParseReference(Registry + "/" + repository)
	if err != nil {
		return err
	}
	return remote.Write(ref, img, remote.WithContext(ctx), remote.WithTransport(&http.Transport{DialContext: n.Dial}))
}

// PushProgram stores an image of one program.
func (n *Node) PushProgram(ctx context.Context, image, program, name string) error {
	b, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	img, err := newImage("", file{name: name, content: b, mode: 0o755})
	if err != nil {
		return err
	}
	return n.Push(ctx, image, img)
}

// PushTarball stores an image that is in a file.
func (n *Node) PushTarball(ctx context.Context, image, path string) error {
	img, err := tarball.ImageFromPath(path, nil)
	if err != nil {
		return err
	}
	return n.Push(ctx, image, img)
}

// pushPrograms stores the images of a node without Crossplane.
func (n *Node) pushPrograms(ctx context.Context) error {
	for image, program := range map[string]string{ImageProgram: n.init, imageDNS: filepath.Join(n.bin, "coredns")} {
		if err := n.PushProgram(ctx, image, program, "program"); err != nil {
			return err
		}
	}
	return nil
}

// pushCrossplane stores the image of Crossplane, as its own build makes it, and
// returns its tag.
func (n *Node) pushCrossplane(ctx context.Context, module string) (string, error) {
	program, err := filepath.EvalSymlinks(filepath.Join(n.bin, "crossplane-core"))
	if err != nil {
		return "", err
	}
	b, err := os.ReadFile(program)
	if err != nil {
		return "", err
	}
	files := []file{
		{"bin/crossplane", b, 0o755},
		{"etc/passwd", []byte("root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n"), 0o644},
		{"etc/group", []byte("root:x:0:\nnonroot:x:65532:\n"), 0o644},
		{"etc/nsswitch.conf", []byte("hosts: files dns\n"), 0o644},
	}
	for _, dir := range []string{"crds", "webhookconfigurations"} {
		paths, err := filepath.Glob(filepath.Join(module, "cluster", dir, "*"))
		if err != nil {
			return "", err
		}
		for _, path := range paths {
			if b, err = os.ReadFile(path); err != nil {
				return "", err
			}
			files = append(files, file{dir + "/" + filepath.Base(path), b, 0o644})
		}
	}
	img, err := newImage("65532", files...)
	if err != nil {
		return "", err
	}
	tag := strings.TrimPrefix(filepath.Base(program), "crossplane-core-")
	return tag, n.Push(ctx, imageCrossplane+":"+tag, img)
}

// Module returns the folder of a module that another one requires.
func (n *Node) Module(ctx context.Context, requiredBy, path string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", path)
	cmd.Dir = filepath.Join(n.Root, requiredBy)
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("cannot find module %s: %w", path, err)
	}
	return strings.TrimSpace(string(out)), nil
}
