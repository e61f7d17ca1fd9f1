package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Traces counts what each pod has on a node, and what would be left of it if
// something went wrong.
func (n *Node) Traces(ctx context.Context) (map[string]int, error) {
	processes, err := n.cgroups.processes()
	if err != nil {
		return nil, fmt.Errorf("cannot count processes: %w", err)
	}
	links, err := n.Output(n.Command(ctx, "ip", "-o", "link", "show", "type", "veth"))
	if err != nil {
		return nil, err
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mounts", n.pid))
	if err != nil {
		return nil, fmt.Errorf("cannot count mounts: %w", err)
	}
	networks, err := os.ReadDir(fmt.Sprintf("/proc/%d/root/run/netns", n.pid))
	if err != nil {
		return nil, fmt.Errorf("cannot count network namespaces: %w", err)
	}
	all := 0
	for _, h := range hierarchies {
		_ = filepath.WalkDir(filepath.Join(n.cgroups.dir(h), "kubepods"), func(_ string, e os.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				all++
			}
			return nil
		})
	}
	return map[string]int{
		"processes": len(processes), "interfaces": strings.Count(links, "\n"), "mounts": strings.Count(string(mounts), "\n"),
		"network namespaces": len(networks), "cgroups": all,
	}, nil
}
