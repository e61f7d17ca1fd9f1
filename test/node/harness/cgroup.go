package harness

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const cgroupRoot = "/sys/fs/cgroup"

// hierarchies are those of cgroup v1 that a kubelet and a container runtime use.
// Those that exist keep their controllers from cgroup v2 in all namespaces.
var hierarchies = []string{"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "blkio", "pids", "systemd"}

// cgroups is one cgroup of the same name in each hierarchy.
type cgroups string

// prefix begins the names of a node's cgroups and of its folder. The number of
// the test's process follows.
const prefix = "wireguard-gateway-node-"

// removeStale removes what nodes have left whose test was killed.
func removeStale() error {
	old, err := filepath.Glob(filepath.Join(cgroupRoot, "*", prefix+"*"))
	if err != nil {
		return err
	}
	dirs, err := filepath.Glob(filepath.Join(os.TempDir(), prefix+"*"))
	if err != nil {
		return err
	}
	for _, path := range append(old, dirs...) {
		number, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(path), prefix), ".")
		if pid, err := strconv.Atoi(number); err != nil || unix.Kill(pid, 0) == nil {
			continue
		}
		if slices.Contains(dirs, path) {
			err = os.RemoveAll(path)
		} else {
			err = cgroups(filepath.Base(path)).remove()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// newCgroups makes the cgroups of a node.
func newCgroups(name string) (cgroups, error) {
	c := cgroups(name)
	for _, h := range hierarchies {
		if err := os.MkdirAll(c.dir(h), 0o755); err != nil {
			return c, err
		}
	}
	// These are empty in a new one, and then it takes no process.
	for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
		b, err := os.ReadFile(filepath.Join(cgroupRoot, "cpuset", file))
		if err != nil {
			return c, err
		}
		if err := os.WriteFile(filepath.Join(c.dir("cpuset"), file), b, 0o644); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (c cgroups) dir(hierarchy string) string { return filepath.Join(cgroupRoot, hierarchy, string(c)) }

// join moves the calling thread, and what it will start.
func (c cgroups) join() error {
	for _, h := range hierarchies {
		if err := os.WriteFile(filepath.Join(c.dir(h), "tasks"), []byte(strconv.Itoa(unix.Gettid())), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// processes returns those in a cgroup and below it, as this process numbers
// them.
func (c cgroups) processes(below ...string) ([]int, error) {
	var out []int
	dir := filepath.Join(append([]string{c.dir("pids")}, below...)...)
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if errors.Is(err, os.ErrNotExist) || (err == nil && e.Name() != "cgroup.procs") {
			return nil
		}
		if err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			return nil
		}
		for word := range strings.FieldsSeq(string(b)) {
			pid, err := strconv.Atoi(word)
			if err != nil {
				return err
			}
			out = append(out, pid)
		}
		return err
	})
	return out, err
}

// remove removes all, whose processes have ended or are about to.
func (c cgroups) remove() error {
	if c == "" {
		return nil
	}
	var left []string
	for range 100 {
		left = nil
		for _, h := range hierarchies {
			_ = filepath.WalkDir(c.dir(h), func(path string, e os.DirEntry, err error) error {
				if err == nil && e.IsDir() {
					left = append(left, path)
				}
				return nil
			})
		}
		if len(left) == 0 {
			return nil
		}
		for _, dir := range slices.Backward(left) {
			_ = unix.Rmdir(dir)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return fmt.Errorf("cgroups are left: %s", strings.Join(left, " "))
}
