// Package netns makes hosts for tests: network namespaces with what runs in
// them. It needs root, and the tools of util-linux, iproute2, procps and
// nftables.
package netns

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// Host is a network namespace and a mount namespace, with a /run of its own.
// Both live as long as a process that does nothing, so that they need no name
// and leave nothing behind, however the test ends.
type Host struct {
	T    *testing.T
	Name string
	// PID is the process that does nothing.
	PID int
}

// New makes a host, without any interface but lo. The shell commands run within
// it first, before anything else is started there.
func New(t *testing.T, name string, commands ...string) *Host {
	t.Helper()
	script := append([]string{"mount -t tmpfs none /run", "mkdir /run/wireguard"}, commands...)
	cmd := exec.Command("unshare", "--mount", "--net", "--propagation", "private", "sh", "-ec",
		strings.Join(append(script, "echo ready", "exec sleep infinity"), "\n"))
	out := &Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := startToStay(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	WaitFor(t, 10*time.Second, "namespaces of "+name, func() error {
		if !strings.Contains(out.String(), "ready") {
			return fmt.Errorf("not ready: %s", out)
		}
		return nil
	})
	h := &Host{T: t, Name: name, PID: cmd.Process.Pid}
	h.Run("ip link set lo up")
	h.Sysctl("net.ipv6.conf.all.accept_dad=0", "net.ipv6.conf.default.accept_dad=0")
	return h
}

// Command returns a command that runs within the host.
func (h *Host) Command(args ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{"-t", strconv.Itoa(h.PID), "-m", "-n", "--"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// Try runs a command and returns all it printed.
func (h *Host) Try(args ...string) (string, error) {
	return h.finish(h.Command(args...))
}

// finish runs a command of Command to its end.
func (h *Host) finish(cmd *exec.Cmd) (string, error) {
	out := &Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := startToStay(cmd); err != nil {
		return "", err
	}
	err := cmd.Wait()
	if err != nil {
		err = fmt.Errorf("%s: %s: %w\n%s", h.Name, strings.Join(cmd.Args, " "), err, out)
	}
	return out.String(), err
}

// Run runs a command line without quoting, and fails the test if it fails.
func (h *Host) Run(line string) string {
	h.T.Helper()
	return h.Exec(strings.Fields(line)...)
}

// Exec is Run for arguments with spaces.
func (h *Host) Exec(args ...string) string {
	h.T.Helper()
	out, err := h.Try(args...)
	if err != nil {
		h.T.Fatal(err)
	}
	return out
}

// NFT loads rules.
func (h *Host) NFT(rules string) {
	h.T.Helper()
	cmd := h.Command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if _, err := h.finish(cmd); err != nil {
		h.T.Fatal(err)
	}
}

// Sysctl makes settings of the form name=value.
func (h *Host) Sysctl(settings ...string) {
	h.T.Helper()
	h.Exec(append([]string{"sysctl", "-qw"}, settings...)...)
}

// Write makes a file below the host's own /run.
func (h *Host) Write(name, content string) {
	h.T.Helper()
	path := filepath.Join("/proc", strconv.Itoa(h.PID), "root", "run", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.T.Fatal(err)
	}
	// Renamed into place, as the kubelet does with what it mounts.
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		h.T.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		h.T.Fatal(err)
	}
}

// Within calls f on a thread that is in the host's network namespace. What f
// opens stays there: sockets belong to the namespace that they were made in.
func (h *Host) Within(f func()) {
	h.T.Helper()
	done := make(chan error)
	go func() { done <- h.Here(f) }()
	if err := <-done; err != nil {
		h.T.Fatal(err)
	}
}

// Here calls f within the host's network namespace. The goroutine has to end
// with it. It may outlive the test.
func (h *Host) Here(f func()) error {
	// Never unlocked: the thread ends with the goroutine.
	runtime.LockOSThread()
	fd, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", h.PID))
	if err != nil {
		return err
	}
	defer func() { _ = fd.Close() }()
	if err := unix.Setns(int(fd.Fd()), unix.CLONE_NEWNET); err != nil {
		return err
	}
	f()
	return nil
}
