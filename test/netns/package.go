package netns

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// atOnce is how many of the parallel tests run at once: they wait far more than
// they compute. Those that measure are not parallel, and so run before.
const atOnce = 4

// Package is what the tests of a package need.
type Package struct {
	// Tests is what they are the tests of, for those who wonder why they are
	// skipped.
	Tests string
	// Tools are the commands that they use, and which package of Debian has them.
	Tools map[string]string
	// Programs are built for them, by the variable that gets the path, from what
	// `go build` knows.
	Programs map[*string]string
}

// Main runs the tests, and returns the exit status.
func (p Package) Main(m *testing.M) int {
	flag.Parse()
	_ = flag.Set("test.parallel", strconv.Itoa(atOnce))
	if reason := p.missing(); reason != "" {
		fmt.Printf("skipping the tests of %s: %s\n", p.Tests, reason)
		return 0
	}
	dir, err := os.MkdirTemp("", "programs")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	for path, source := range p.Programs {
		*path = filepath.Join(dir, filepath.Base(source))
		cmd := exec.Command("go", "build", "-o", *path, source)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Printf("cannot build %s: %v\n%s", source, err, out)
			return 1
		}
	}
	return m.Run()
}

// missing returns why the tests cannot run here.
func (p Package) missing() string {
	if os.Getuid() != 0 {
		return "they need root, for network namespaces"
	}
	for tool, pkg := range p.Tools {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Sprintf("they need %s, of package %s", tool, pkg)
		}
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return "they need /dev/net/tun"
	}
	return ""
}
