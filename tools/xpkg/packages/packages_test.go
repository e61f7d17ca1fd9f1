// Package packages checks what tools/packages.sh has built. It fails when that was not run before.
package packages

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"sigs.k8s.io/yaml"
)

const (
	repository = "../../.."
	built      = repository + "/_output/packages"

	// function is the package that the configurations depend on.
	function = "xpkg.crossplane.io/wireguardgateway/function-wireguard-gateway"
	// installed is the name that Crossplane gives to this dependency when it installs it. A
	// composition that calls the function by another name works only where somebody has made a
	// Function of that name.
	installed = "wireguardgateway-function-wireguard-gateway"
)

// A manifest holds the fields of package metadata, definitions and compositions that are checked.
type manifest struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name        string            `json:"name"`
		Annotations map[string]string `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		Capabilities []string `json:"capabilities"`
		Crossplane   struct {
			Version string `json:"version"`
		} `json:"crossplane"`
		DependsOn []dependency `json:"dependsOn"`

		Scope      string `json:"scope"`
		Group      string `json:"group"`
		Names      names  `json:"names"`
		ClaimNames names  `json:"claimNames"`
		Versions   []struct {
			Name string `json:"name"`
		} `json:"versions"`

		CompositeTypeRef typeRef `json:"compositeTypeRef"`
		Pipeline         []struct {
			FunctionRef struct {
				Name string `json:"name"`
			} `json:"functionRef"`
		} `json:"pipeline"`
	} `json:"spec"`
}

type dependency struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Package    string `json:"package"`
	Version    string `json:"version"`
}

type names struct {
	Kind string `json:"kind"`
}

type typeRef struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// runtime is how an image is started, and where.
type runtime struct {
	OS, Arch, User string
	Entrypoint     []string
	Ports          map[string]struct{}
}

func TestRuntime(t *testing.T) {
	port := map[string]struct{}{"9443/tcp": {}}

	cases := map[string]struct {
		reason string
		file   string
		want   runtime
	}{
		"FunctionAMD64": {
			reason: "The function runs as nonroot and listens where Crossplane calls.",
			file:   "function-wireguard-gateway-amd64.xpkg",
			want:   runtime{OS: "linux", Arch: "amd64", User: "65532:65532", Entrypoint: []string{"/function"}, Ports: port},
		},
		"FunctionARM64": {
			reason: "A package for several architectures is assembled from one file for each.",
			file:   "function-wireguard-gateway-arm64.xpkg",
			want:   runtime{OS: "linux", Arch: "arm64", User: "65532:65532", Entrypoint: []string{"/function"}, Ports: port},
		},
		"AgentAMD64": {
			reason: "Kubernetes hands capabilities to uid 0 only.",
			file:   "agent-amd64.tar",
			want:   runtime{OS: "linux", Arch: "amd64", User: "0:0", Entrypoint: []string{"/agent"}},
		},
		"AgentARM64": {
			reason: "Kubernetes hands capabilities to uid 0 only.",
			file:   "agent-arm64.tar",
			want:   runtime{OS: "linux", Arch: "arm64", User: "0:0", Entrypoint: []string{"/agent"}},
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			img := open(t, tc.file)
			file := config(t, img)
			got := runtime{
				OS: file.OS, Arch: file.Architecture, User: file.Config.User,
				Entrypoint: file.Config.Entrypoint, Ports: file.Config.ExposedPorts,
			}

			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("\n%s\n%s: -want, +got:\n%s", tc.reason, tc.file, diff)
			}

			program := strings.TrimPrefix(tc.want.Entrypoint[0], "/")
			if !slices.Contains(paths(t, img), program) {
				t.Errorf("\n%s\n%s: want the file %q, got %q", tc.reason, tc.file, program, paths(t, img))
			}
		})
	}
}

func TestFunction(t *testing.T) {
	for _, arch := range []string{"amd64", "arm64"} {
		t.Run(arch, func(t *testing.T) {
			meta, objects := contents(t, "function-wireguard-gateway-"+arch+".xpkg")
			checkMeta(t, meta, "Function", "function-wireguard-gateway")

			// Any list that lacks this name makes Crossplane refuse every composition that calls us.
			if diff := cmp.Diff([]string{"composition"}, meta.Spec.Capabilities); diff != "" {
				t.Errorf("capabilities: -want, +got:\n%s", diff)
			}

			if len(objects) == 0 {
				t.Error("want the definition of the function's input, got none")
			}

			for _, object := range objects {
				if object.Kind != "CustomResourceDefinition" {
					t.Errorf("want nothing but definitions in a function package, got %s", object.Kind)
				}
			}
		})
	}
}

func TestConfiguration(t *testing.T) {
	cases := map[string]struct {
		reason string
		file   string
		name   string
		scope  string
		claims bool
		api    string
	}{
		"Namespaced": {
			reason: "Users create namespaced composite resources.",
			file:   "configuration-wireguard-gateway.xpkg",
			name:   "configuration-wireguard-gateway",
			scope:  "Namespaced",
			api:    "apiextensions.crossplane.io/v2",
		},
		"Claim": {
			reason: "Only this older API has claims.",
			file:   "configuration-wireguard-gateway-claim.xpkg",
			name:   "configuration-wireguard-gateway-claim",
			scope:  "LegacyCluster",
			claims: true,
			api:    "apiextensions.crossplane.io/v1",
		},
	}

	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			meta, objects := contents(t, tc.file)
			checkMeta(t, meta, "Configuration", tc.name)

			want := []dependency{{APIVersion: "pkg.crossplane.io/v1", Kind: "Function", Package: function, Version: ">=v0.1.0"}}
			if diff := cmp.Diff(want, meta.Spec.DependsOn); diff != "" {
				t.Errorf("\n%s\ndependsOn: -want, +got:\n%s", tc.reason, diff)
			}

			var defined, composed []typeRef

			var served []string

			for _, object := range objects {
				switch object.Kind {
				case "CompositeResourceDefinition":
					if object.APIVersion != tc.api || object.Spec.Scope != tc.scope {
						t.Errorf("\n%s\n%s: want %s of scope %s, got %s of scope %q", tc.reason,
							object.Metadata.Name, tc.api, tc.scope, object.APIVersion, object.Spec.Scope)
					}

					kind := object.Spec.Names.Kind
					for _, version := range object.Spec.Versions {
						defined = append(defined, typeRef{APIVersion: path.Join(object.Spec.Group, version.Name), Kind: kind})
					}

					if tc.claims {
						kind = object.Spec.ClaimNames.Kind
					}

					served = append(served, kind)
				case "Composition":
					composed = append(composed, object.Spec.CompositeTypeRef)
					checkPipeline(t, object)
				default:
					t.Errorf("want definitions and compositions only, got %s", object.Kind)
				}
			}

			slices.Sort(served)

			if diff := cmp.Diff([]string{"WireguardGateway", "WireguardPeer"}, served); diff != "" {
				t.Errorf("\n%s\nkinds for users: -want, +got:\n%s", tc.reason, diff)
			}

			byKind := func(a, b typeRef) int { return strings.Compare(a.Kind, b.Kind) }
			slices.SortFunc(defined, byKind)
			slices.SortFunc(composed, byKind)

			if diff := cmp.Diff(defined, composed); diff != "" {
				t.Errorf("\n%s\nwant one composition for each definition: -defined, +composed:\n%s", tc.reason, diff)
			}
		})
	}
}

// TestExample holds the name by which the examples are rendered to the one that is installed.
func TestExample(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(repository, "example", "functions.yaml"))
	if err != nil {
		t.Fatal(err)
	}

	functions := parse(t, string(content))
	if len(functions) != 1 || functions[0].Metadata.Name != installed {
		t.Errorf("want one function %q, got %+v", installed, functions)
	}
}

func checkMeta(t *testing.T, meta manifest, kind, name string) {
	t.Helper()

	if meta.APIVersion != "meta.pkg.crossplane.io/v1" || meta.Kind != kind || meta.Metadata.Name != name {
		t.Errorf("want a %s %s, got %s %s of %s", kind, name, meta.Kind, meta.Metadata.Name, meta.APIVersion)
	}

	if version := meta.Spec.Crossplane.Version; version != ">=v2.0.0-0" {
		t.Errorf("want the oldest supported Crossplane as constraint, got %q", version)
	}

	for _, key := range []string{"maintainer", "source", "license", "description", "readme"} {
		if meta.Metadata.Annotations["meta.crossplane.io/"+key] == "" {
			t.Errorf("want the annotation %s, got none", key)
		}
	}
}

// checkPipeline holds a composition to this function alone: what a configuration needs beyond its
// dependencies is missing where it is installed.
func checkPipeline(t *testing.T, composition manifest) {
	t.Helper()

	var called []string
	for _, step := range composition.Spec.Pipeline {
		called = append(called, step.FunctionRef.Name)
	}

	if diff := cmp.Diff([]string{installed}, called); diff != "" {
		t.Errorf("functions of composition %s: -want, +got:\n%s", composition.Metadata.Name, diff)
	}
}

func open(t *testing.T, file string) v1.Image {
	t.Helper()

	img, err := tarball.ImageFromPath(filepath.Join(built, file), nil)
	if err != nil {
		t.Fatalf("cannot open what tools/packages.sh builds: %v", err)
	}

	return img
}

func config(t *testing.T, img v1.Image) *v1.ConfigFile {
	t.Helper()

	file, err := img.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}

	return file
}

// walk calls visit for each file of an image.
func walk(t *testing.T, img v1.Image, visit func(layer v1.Hash, header *tar.Header, content io.Reader)) {
	t.Helper()

	layers, err := img.Layers()
	if err != nil {
		t.Fatal(err)
	}

	for _, layer := range layers {
		digest, err := layer.Digest()
		if err != nil {
			t.Fatal(err)
		}

		stream, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}

		r := tar.NewReader(stream)

		header, err := r.Next()
		for ; err == nil; header, err = r.Next() {
			visit(digest, header, r)
		}

		if !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	}
}

func paths(t *testing.T, img v1.Image) []string {
	t.Helper()

	var found []string

	walk(t, img, func(_ v1.Hash, header *tar.Header, _ io.Reader) { found = append(found, header.Name) })

	return found
}

// contents returns the metadata of a package and its other objects, found as Crossplane finds them:
// in the layer that a label of the image calls its base.
func contents(t *testing.T, file string) (manifest, []manifest) {
	t.Helper()

	img := open(t, file)
	labels := config(t, img).Config.Labels

	var stream string

	walk(t, img, func(layer v1.Hash, header *tar.Header, content io.Reader) {
		if labels["io.crossplane.xpkg:"+layer.String()] != "base" || header.Name != "package.yaml" {
			return
		}

		text, err := io.ReadAll(content)
		if err != nil {
			t.Fatal(err)
		}

		stream = string(text)
	})

	objects := parse(t, stream)
	if len(objects) == 0 {
		t.Fatalf("want objects in %s, got none", file)
	}

	return objects[0], objects[1:]
}

func parse(t *testing.T, stream string) []manifest {
	t.Helper()

	var objects []manifest

	for document := range strings.SplitSeq("\n"+stream, "\n---\n") {
		if strings.TrimSpace(document) == "" {
			continue
		}

		var object manifest
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}

		objects = append(objects, object)
	}

	return objects
}
