package node

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/test/node/harness"
)

// TestLeavesNothing, the first of all, starts a node and stops it. The machine is as it was.
func TestLeavesNothing(t *testing.T) {
	before := traces(t)
	start := time.Now()
	n, err := harness.Run(harness.Options{Bare: true})
	t.Logf("the node was ready after %v", time.Since(start).Round(100*time.Millisecond))
	if err != nil {
		n.DumpLogs(t)
		t.Error(err)
	}
	if len(processesOf(t, n.Dir)) == 0 {
		t.Error("no process is seen of a node that runs")
	}
	if err := n.Stop(); err != nil {
		t.Error(err)
	}
	// What a node has left whose test was killed is gone.
	for _, trace := range traces(t) {
		if !slices.Contains(before, trace) {
			t.Errorf("the machine is not as it was: %s", trace)
		}
	}
	if _, err := os.Stat(n.Dir); err == nil {
		t.Errorf("%s is left", n.Dir)
	}
	if got := processesOf(t, n.Dir); len(got) > 0 {
		t.Errorf("processes are left: %q", got)
	}
}

// processesOf returns the command lines that name a folder.
func processesOf(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, path := range paths {
		// One that cannot be read has ended.
		if b, err := os.ReadFile(path); err == nil && strings.Contains(string(b), dir) {
			out = append(out, strings.ReplaceAll(string(b), "\x00", " "))
		}
	}
	return out
}

// traces are what a node could leave on a machine on which others work, too.
func traces(t *testing.T) []string {
	t.Helper()
	var out []string
	interfaces, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range interfaces {
		out = append(out, "interface "+i.Name)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*/wireguard-gateway-node-*", "/sys/fs/cgroup/*/kubepods*", "/var/lib/kubelet", "/var/lib/containerd", "/run/containerd", "/run/netns/*", "/var/log/pods", "/var/lib/cni", "/etc/cni"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, paths...)
	}
	for _, setting := range []string{"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "net/ipv4/ip_forward"} {
		b, err := os.ReadFile(filepath.Join("/proc/sys", setting))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, fmt.Sprintf("%s = %s", setting, strings.TrimSpace(string(b))))
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, "/wireguard-gateway-node-") || strings.Contains(line, "kube") || strings.Contains(line, "containerd") {
			out = append(out, line)
		}
	}
	slices.Sort(out)
	return out
}
