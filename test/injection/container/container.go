// Package container runs a program as the container of a pod, the way a
// container runtime does: with a root of its own that has nothing but the
// program and what the pod mounts, and with exactly the capabilities that the
// pod gives. The network namespace is that of who runs it.
package container

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// program is where the container has its program.
const program = "/agent"

// Spec is what to run.
type Spec struct {
	// Enter is the process of a container that runs. The program is run in it, as
	// a probe is. What concerns the root is that of the container then.
	Enter int `json:"enter,omitempty"`
	// Root is an empty folder.
	Root string `json:"root"`
	// Program is a static program, the one file of the image.
	Program string `json:"program"`
	// Mounts are files and folders, by their places in the container.
	Mounts map[string]Mount `json:"mounts"`
	// ReadOnly is the root without what is mounted.
	ReadOnly bool `json:"readOnly"`
	// Privileged may write to /proc/sys, and has all capabilities.
	Privileged bool `json:"privileged"`
	// Capabilities are a mask.
	Capabilities uint64 `json:"capabilities"`
	// NoNewPrivileges is the opposite of allowPrivilegeEscalation.
	NoNewPrivileges bool     `json:"noNewPrivileges"`
	Args            []string `json:"args"`
	Env             []string `json:"env"`
}

// Mount is what a container mounts.
type Mount struct {
	Source   string `json:"source"`
	ReadOnly bool   `json:"readOnly"`
}

// Run becomes the container's program. It returns where that fails.
func (s Spec) Run() error {
	// What follows is of one thread, which becomes the program.
	runtime.LockOSThread()
	if s.Enter != 0 {
		if err := enter(s.Enter); err != nil {
			return err
		}
	} else if err := s.build(); err != nil {
		return err
	}
	if err := s.restrict(); err != nil {
		return err
	}
	return syscall.Exec(program, append([]string{program}, s.Args...), s.Env)
}

// enter goes to where the process is.
func enter(pid int) error {
	// A thread can change its mounts once it shares its root with no other.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/mnt", pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Setns(fd, unix.CLONE_NEWNS)
}

// build makes the container's root, and goes there.
func (s Spec) build() error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := unix.Mount("tmpfs", s.Root, "tmpfs", 0, "mode=755"); err != nil {
		return fmt.Errorf("root: %w", err)
	}
	mounts := map[string]Mount{program: {Source: s.Program, ReadOnly: true}, "/dev/null": {Source: "/dev/null"}}
	maps.Copy(mounts, s.Mounts)
	for target, m := range mounts {
		if err := bind(m.Source, filepath.Join(s.Root, target), m.ReadOnly); err != nil {
			return err
		}
	}
	proc := filepath.Join(s.Root, "proc")
	if err := os.MkdirAll(proc, 0o755); err != nil {
		return err
	}
	if err := unix.Mount("proc", proc, "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("proc: %w", err)
	}
	if !s.Privileged {
		if err := bind(filepath.Join(proc, "sys"), filepath.Join(proc, "sys"), true); err != nil {
			return err
		}
	}
	if s.ReadOnly {
		if err := unix.Mount("", s.Root, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("read-only root: %w", err)
		}
	}
	if err := unix.Chdir(s.Root); err != nil {
		return err
	}
	// The old root is put on top of the new one, and taken off.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("old root: %w", err)
	}
	return unix.Chdir("/")
}

// bind mounts a file or a folder.
func bind(source, target string, readOnly bool) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if info.IsDir() {
		err = os.MkdirAll(target, 0o755)
	} else if err = os.MkdirAll(filepath.Dir(target), 0o755); err == nil {
		var f *os.File
		if f, err = os.OpenFile(target, os.O_CREATE|os.O_RDONLY, 0o644); err == nil {
			err = f.Close()
		}
	}
	if err != nil {
		return err
	}
	if err := unix.Mount(source, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s: %w", source, err)
	}
	if readOnly {
		if err := unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
			return fmt.Errorf("mount %s read-only: %w", source, err)
		}
	}
	return nil
}

// restrict gives up what the container may not have.
func (s Spec) restrict() error {
	if s.NoNewPrivileges {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return fmt.Errorf("no new privileges: %w", err)
		}
	}
	if s.Privileged {
		return nil
	}
	for c := range uintptr(unix.CAP_LAST_CAP + 1) {
		if s.Capabilities&(1<<c) != 0 {
			continue
		}
		// The kernel may know fewer than this program.
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil && !errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	return nil
}
