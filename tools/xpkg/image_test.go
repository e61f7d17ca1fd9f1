package main

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// compile returns the path of a program that was really built, because what is packed is judged by
// its ELF header.
func compile(t *testing.T, arch string, flags ...string) string {
	t.Helper()

	dir := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":  "module example\n\ngo 1.26.0\n",
		"main.go": "package main\n\nfunc main() {}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	args := append([]string{"build", "-o", "program"}, flags...)
	cmd := exec.CommandContext(t.Context(), "go", append(args, ".")...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch)

	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}

	return filepath.Join(dir, "program")
}

func TestRun(t *testing.T) {
	type want struct {
		Arch, OS, User  string
		Entrypoint      []string
		Ports           map[string]struct{}
		Files           []string
		Mode, UID, GID  int64
		Created         int64
		LayerModTime    int64
		SameBytesTwice  bool
		ContentUnharmed bool
	}

	cases := map[string]struct {
		reason string
		image  string
		arch   string
		want   want
	}{
		"Function": {
			reason: "Crossplane starts the function as nonroot and calls it on its port.",
			image:  "function",
			arch:   "amd64",
			want: want{
				User: "65532:65532", Entrypoint: []string{"/function"}, Files: []string{"function"},
				Ports: map[string]struct{}{"9443/tcp": {}},
			},
		},
		"FunctionOtherArchitecture": {
			reason: "The architecture comes from the flag, not from the machine that packs.",
			image:  "function",
			arch:   "arm64",
			want: want{
				User: "65532:65532", Entrypoint: []string{"/function"}, Files: []string{"function"},
				Ports: map[string]struct{}{"9443/tcp": {}},
			},
		},
		"Agent": {
			reason: "The agent has to be uid 0 to be given capabilities.",
			image:  "agent",
			arch:   "arm64",
			want:   want{User: "0:0", Entrypoint: []string{"/agent"}, Files: []string{"agent"}},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			binary := compile(t, tc.arch)
			first, second := filepath.Join(t.TempDir(), "1.tar"), filepath.Join(t.TempDir(), "2.tar")

			for _, output := range []string{first, second} {
				if err := run([]string{"-image", tc.image, "-arch", tc.arch, "-binary", binary, "-output", output}); err != nil {
					t.Fatalf("\n%s\nrun(...): %v", tc.reason, err)
				}
			}

			img, err := tarball.ImageFromPath(first, nil)
			if err != nil {
				t.Fatal(err)
			}

			file, err := img.ConfigFile()
			if err != nil {
				t.Fatal(err)
			}

			tc.want.Arch, tc.want.OS, tc.want.Mode = tc.arch, "linux", 0o755
			tc.want.SameBytesTwice, tc.want.ContentUnharmed = true, true

			got := want{
				Arch: file.Architecture, OS: file.OS, User: file.Config.User,
				Entrypoint: file.Config.Entrypoint, Ports: file.Config.ExposedPorts,
				Created:        file.Created.Unix(),
				SameBytesTwice: string(read(t, first)) == string(read(t, second)),
			}

			for header, content := range files(t, img) {
				got.Files = append(got.Files, header.Name)
				got.Mode, got.UID, got.GID = header.Mode, int64(header.Uid), int64(header.Gid)
				got.LayerModTime = header.ModTime.Unix()
				got.ContentUnharmed = content == string(read(t, binary))
			}

			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("\n%s\nrun(...): -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestRunRefuses(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("#!/bin/sh\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	static := compile(t, "amd64")
	dynamic := compile(t, "amd64", "-buildmode=pie")

	cases := map[string]struct {
		reason              string
		image, arch, binary string
	}{
		"UnknownImage":        {reason: "Only our images have a user and an entrypoint.", image: "other", arch: "amd64", binary: static},
		"UnknownArchitecture": {reason: "An image without a known architecture runs nowhere.", image: "function", arch: "x86", binary: static},
		"OtherArchitecture":   {reason: "The label and the binary must agree.", image: "function", arch: "arm64", binary: static},
		"Dynamic":             {reason: "The image has no loader.", image: "function", arch: "amd64", binary: dynamic},
		"NotABinary":          {reason: "The image has no shell.", image: "function", arch: "amd64", binary: text},
		"NoBinary":            {reason: "There is nothing to pack.", image: "function", arch: "amd64", binary: text + "-missing"},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			output := filepath.Join(t.TempDir(), "image.tar")

			if err := run([]string{"-image", tc.image, "-arch", tc.arch, "-binary", tc.binary, "-output", output}); err == nil {
				t.Errorf("\n%s\nrun(...): want an error, got none", tc.reason)
			}

			if _, err := os.Stat(output); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("\n%s\nrun(...): want no tarball after an error, got one", tc.reason)
			}
		})
	}
}

// files returns what the layers of an image hold.
func files(t *testing.T, img v1.Image) map[*tar.Header]string {
	t.Helper()

	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}

	found := map[*tar.Header]string{}

	for _, layer := range layers {
		stream, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}

		for r := tar.NewReader(stream); ; {
			header, err := r.Next()
			if errors.Is(err, io.EOF) {
				break
			}

			if err != nil {
				t.Fatal(err)
			}

			content, err := io.ReadAll(r)
			if err != nil {
				t.Fatal(err)
			}

			found[header] = string(content)
		}
	}

	return found
}

func read(t *testing.T, path string) []byte {
	t.Helper()

	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	return content
}
