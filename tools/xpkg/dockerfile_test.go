package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

const repository = "../.."

// stages parses the Dockerfile with the parser that builds it.
func stages(t *testing.T) []instructions.Stage {
	t.Helper()

	file, err := os.Open(filepath.Join(repository, "Dockerfile"))
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = file.Close() })

	result, err := parser.Parse(file)
	if err != nil {
		t.Fatal(err)
	}

	stages, _, err := instructions.Parse(result.AST, nil)
	if err != nil {
		t.Fatal(err)
	}

	return stages
}

// TestDockerfile keeps the images that the Dockerfile describes equal to those that this program
// writes.
func TestDockerfile(t *testing.T) {
	all := stages(t)

	if last := all[len(all)-1].Name; last != "function" {
		t.Errorf("want a build without a target to make the function, got %q", last)
	}

	for name, spec := range specs {
		t.Run(name, func(t *testing.T) {
			i, found := instructions.HasStage(all, name)
			if !found {
				t.Fatalf("want a target %q, got none", name)
			}

			if base := all[i].BaseName; base != "scratch" {
				t.Errorf("want an image from scratch, got one from %q", base)
			}

			type image struct {
				Entrypoint, Ports, Sources, Targets []string
				User                                string
			}

			want := image{
				Entrypoint: []string{spec.entrypoint}, User: spec.user,
				Sources: []string{"/out/" + name}, Targets: []string{spec.entrypoint},
			}
			if spec.port != "" {
				want.Ports = []string{spec.port}
			}

			var got image

			for _, command := range all[i].Commands {
				switch c := command.(type) {
				case *instructions.EntrypointCommand:
					got.Entrypoint = c.CmdLine
					if c.PrependShell {
						t.Error("want an entrypoint that needs no shell, got one that does")
					}
				case *instructions.UserCommand:
					got.User = c.User
				case *instructions.ExposeCommand:
					got.Ports = append(got.Ports, c.Ports...)
				case *instructions.CopyCommand:
					got.Sources = append(got.Sources, c.SourcePaths...)
					got.Targets = append(got.Targets, c.DestPath)
					checkBuild(t, all, c.From, name)
				}
			}

			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("image %s: -program, +Dockerfile:\n%s", name, diff)
			}
		})
	}
}

// checkBuild checks the stage that compiles a program: what it builds exists, for the platform that
// was asked for, without a C library, and with caches.
func checkBuild(t *testing.T, all []instructions.Stage, stage, program string) {
	t.Helper()

	i, found := instructions.HasStage(all, stage)
	if !found {
		t.Fatalf("want a stage %q, got none", stage)
	}

	base, found := instructions.HasStage(all, all[i].BaseName)
	if !found {
		t.Fatalf("want a stage %q, got none", all[i].BaseName)
	}

	if platform := all[base].Platform; platform != "$BUILDPLATFORM" {
		t.Errorf("want the compiler to run on the platform of the builder, got %q", platform)
	}

	var args, env []string

	for _, command := range slices.Concat(all[base].Commands, all[i].Commands) {
		switch c := command.(type) {
		case *instructions.ArgCommand:
			for _, arg := range c.Args {
				args = append(args, arg.Key)
			}
		case *instructions.EnvCommand:
			for _, pair := range c.Env {
				env = append(env, pair.String())
			}
		case *instructions.RunCommand:
			checkCompile(t, c, program)
		}
	}

	if diff := cmp.Diff([]string{"TARGETOS", "TARGETARCH"}, args); diff != "" {
		t.Errorf("arguments of stage %s: -want, +got:\n%s", stage, diff)
	}

	if !slices.Contains(env, "CGO_ENABLED=0") {
		t.Errorf("want CGO_ENABLED=0 in stage %s, got %q", stage, env)
	}
}

func checkCompile(t *testing.T, run *instructions.RunCommand, program string) {
	t.Helper()

	line := strings.Join(run.CmdLine, " ")
	for _, part := range []string{"GOOS=${TARGETOS}", "GOARCH=${TARGETARCH}", "-trimpath", "-o /out/" + program + " "} {
		if !strings.Contains(line, part) {
			t.Errorf("want %q in the command, got %q", part, line)
		}
	}

	fields := strings.Fields(line)

	source := filepath.Join(repository, fields[len(fields)-1])
	if _, err := os.Stat(filepath.Join(source, "main.go")); err != nil {
		t.Errorf("want a program to build: %v", err)
	}

	var caches []string

	for _, flag := range run.FlagsUsed {
		if flag != "mount" {
			t.Errorf("want no flag but mount, got %q", flag)
		}
	}

	if err := run.Expand(func(word string) (string, error) { return word, nil }); err != nil {
		t.Fatal(err)
	}

	for _, mount := range instructions.GetMounts(run) {
		if mount.Type == instructions.MountTypeCache {
			caches = append(caches, mount.Target)
		}
	}

	if diff := cmp.Diff([]string{"/go/pkg/mod", "/root/.cache/go-build"}, caches); diff != "" {
		t.Errorf("caches of %s: -want, +got:\n%s", program, diff)
	}
}
