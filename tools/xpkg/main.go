// Command xpkg packs a static binary into an image that holds nothing else and writes the image
// as a tarball, the form that `crossplane xpkg build` embeds and that every container runtime
// loads. It needs no container engine and no registry, and the same binary always gives the same
// bytes.
package main

import (
	"flag"
	"fmt"
	"log/slog"
	"os"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		slog.Error("Cannot write the image", "error", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	flags := flag.NewFlagSet("xpkg", flag.ContinueOnError)
	kind := flags.String("image", "", "which image to write: function or agent")
	arch := flags.String("arch", "", "architecture of the image, as Go spells it: amd64 or arm64")
	binary := flags.String("binary", "", "the static binary to pack")
	output := flags.String("output", "", "the tarball to write")

	if err := flags.Parse(args); err != nil {
		return fmt.Errorf("cannot parse flags: %w", err)
	}

	spec, ok := specs[*kind]
	if !ok {
		return fmt.Errorf("no such image: %q", *kind)
	}

	content, err := os.ReadFile(*binary)
	if err != nil {
		return fmt.Errorf("cannot read the binary: %w", err)
	}

	img, err := build(spec, *arch, content)
	if err != nil {
		return fmt.Errorf("cannot build the image: %w", err)
	}

	// Runtimes that load the tarball show this name. Nothing pulls by it.
	tag, err := name.NewTag(*kind+":"+*arch, name.WeakValidation)
	if err != nil {
		return fmt.Errorf("cannot name the image: %w", err)
	}

	if err := tarball.WriteToFile(*output, tag, img); err != nil {
		return fmt.Errorf("cannot write the tarball: %w", err)
	}

	return nil
}
