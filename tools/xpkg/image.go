package main

import (
	"archive/tar"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// A spec is what distinguishes one of our images from another. The Dockerfile says the same, and a
// test holds the two together.
type spec struct {
	entrypoint string
	user       string
	port       string
}

var specs = map[string]spec{
	// Crossplane calls a function on this port. The user is nonroot in distroless images.
	"function": {entrypoint: "/function", user: "65532:65532", port: "9443/tcp"},
	// Kubernetes hands the capabilities that the agent needs to uid 0 only.
	"agent": {entrypoint: "/agent", user: "0:0"},
}

// machines maps architectures to what the header of a binary calls them.
var machines = map[string]elf.Machine{
	"amd64": elf.EM_X86_64,
	"arm64": elf.EM_AARCH64,
}

// build returns an image for one architecture whose only file is the binary. All times are zero,
// so that the image depends on the binary alone.
func build(s spec, arch string, binary []byte) (v1.Image, error) {
	if err := checkStatic(arch, binary); err != nil {
		return nil, err
	}

	content, err := archive(s.entrypoint, binary)
	if err != nil {
		return nil, fmt.Errorf("cannot archive the binary: %w", err)
	}

	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	})
	if err != nil {
		return nil, fmt.Errorf("cannot make the layer: %w", err)
	}

	img, err := mutate.Append(empty.Image, mutate.Addendum{
		Layer:   layer,
		History: v1.History{CreatedBy: "COPY " + s.entrypoint, Created: epoch()},
	})
	if err != nil {
		return nil, fmt.Errorf("cannot append the layer: %w", err)
	}

	file, err := img.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("cannot read the image configuration: %w", err)
	}

	file = file.DeepCopy()
	file.OS = "linux"
	file.Architecture = arch
	file.Created = epoch()
	file.Config = v1.Config{Entrypoint: []string{s.entrypoint}, User: s.user}

	if s.port != "" {
		file.Config.ExposedPorts = map[string]struct{}{s.port: {}}
	}

	img, err = mutate.ConfigFile(img, file)
	if err != nil {
		return nil, fmt.Errorf("cannot set the image configuration: %w", err)
	}

	return img, nil
}

// checkStatic refuses a binary that could not start in the image: one for another architecture, or
// one that asks for a dynamic loader.
func checkStatic(arch string, binary []byte) error {
	machine, ok := machines[arch]
	if !ok {
		return fmt.Errorf("unknown architecture %q", arch)
	}

	file, err := elf.NewFile(bytes.NewReader(binary))
	if err != nil {
		return fmt.Errorf("cannot read the binary as ELF: %w", err)
	}

	if file.Machine != machine {
		return fmt.Errorf("binary is for %s, not for %s", file.Machine, arch)
	}

	for _, segment := range file.Progs {
		if segment.Type == elf.PT_INTERP {
			return errors.New("binary is not static: it names a dynamic loader")
		}
	}

	return nil
}

// archive returns a tar archive with one executable owned by root.
func archive(path string, content []byte) ([]byte, error) {
	var buf bytes.Buffer

	w := tar.NewWriter(&buf)
	header := &tar.Header{Name: path[1:], Mode: 0o755, Size: int64(len(content)), ModTime: epoch().Time, Format: tar.FormatUSTAR}

	if err := w.WriteHeader(header); err != nil {
		return nil, fmt.Errorf("cannot write the header: %w", err)
	}

	if _, err := w.Write(content); err != nil {
		return nil, fmt.Errorf("cannot write the content: %w", err)
	}

	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("cannot close the archive: %w", err)
	}

	return buf.Bytes(), nil
}

// epoch is the creation time of everything in an image: the one that tools read as "not recorded".
func epoch() v1.Time {
	return v1.Time{Time: time.Unix(0, 0).UTC()}
}
