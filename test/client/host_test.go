package client

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// host is a network namespace and a mount namespace, with a /run of its own.
// Both live as long as a process that does nothing, so that they need no name
// and leave nothing behind, however the test ends.
type host struct {
	t    *testing.T
	name string
	pid  int
}

// newHost makes a host, without any interface but lo.
func newHost(t *testing.T, name string) *host {
	t.Helper()
	cmd := exec.Command("unshare", "--mount", "--net", "--propagation", "private", "sh", "-ec",
		"mount -t tmpfs none /run; mkdir /run/wireguard; touch /run/resolv.conf; mount --bind /run/resolv.conf /etc/resolv.conf; echo ready; exec sleep infinity")
	out := &buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := startOnMain(cmd); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	waitFor(t, 10*time.Second, "namespaces of "+name, func() error {
		if !strings.Contains(out.String(), "ready") {
			return fmt.Errorf("not ready: %s", out)
		}
		return nil
	})
	h := &host{t: t, name: name, pid: cmd.Process.Pid}
	h.run("ip link set lo up")
	h.sysctl("net.ipv6.conf.all.accept_dad=0", "net.ipv6.conf.default.accept_dad=0")
	return h
}

// startOnMain starts a command from a thread that stays: with Pdeathsig the
// child would otherwise end with the thread that started it.
func startOnMain(cmd *exec.Cmd) error {
	result := make(chan error)
	starts <- func() { result <- cmd.Start() }
	return <-result
}

// starts is served by one goroutine on a thread of its own.
var starts = func() chan<- func() {
	c := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range c {
			f()
		}
	}()
	return c
}()

// command returns a command that runs within the host.
func (h *host) command(args ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", append([]string{"-t", strconv.Itoa(h.pid), "-m", "-n", "--"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// try runs a command and returns all it printed.
func (h *host) try(args ...string) (string, error) {
	cmd := h.command(args...)
	out := &buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := startOnMain(cmd); err != nil {
		return "", err
	}
	err := cmd.Wait()
	if err != nil {
		err = fmt.Errorf("%s: %s: %w\n%s", h.name, strings.Join(args, " "), err, out)
	}
	return out.String(), err
}

// run runs a command line without quoting, and fails the test if it fails.
func (h *host) run(line string) string {
	h.t.Helper()
	return h.exec(strings.Fields(line)...)
}

// exec is run for arguments with spaces.
func (h *host) exec(args ...string) string {
	h.t.Helper()
	out, err := h.try(args...)
	if err != nil {
		h.t.Fatal(err)
	}
	return out
}

// nft loads rules.
func (h *host) nft(rules string) {
	h.t.Helper()
	cmd := h.command("nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	out := &buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := startOnMain(cmd); err != nil {
		h.t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		h.t.Fatalf("%s: nft: %v\n%s", h.name, err, out)
	}
}

func (h *host) sysctl(settings ...string) {
	h.t.Helper()
	h.exec(append([]string{"sysctl", "-qw"}, settings...)...)
}

// write makes a file below the host's own /run.
func (h *host) write(name, content string) {
	h.t.Helper()
	path := filepath.Join("/proc", strconv.Itoa(h.pid), "root", "run", name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.t.Fatal(err)
	}
	// Renamed into place, as the kubelet does with what it mounts.
	if err := os.WriteFile(path+".new", []byte(content), 0o600); err != nil {
		h.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		h.t.Fatal(err)
	}
}

// within calls f on a thread that is in the host's network namespace. What f
// opens stays there: sockets belong to the namespace that they were made in.
func (h *host) within(f func()) {
	h.t.Helper()
	done := make(chan error)
	go func() { done <- h.here(f) }()
	if err := <-done; err != nil {
		h.t.Fatal(err)
	}
}

// here calls f within the host's network namespace. The goroutine has to end
// with it.
func (h *host) here(f func()) error {
	// Never unlocked: the thread ends with the goroutine.
	runtime.LockOSThread()
	fd, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", h.pid))
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

// process is a command in the background.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	out  *buffer
	done chan struct{}
}

// start runs a command in the background. It is killed when the test is over.
func (h *host) start(args ...string) *process {
	h.t.Helper()
	return start(h.t, h.command(args...))
}

func start(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{t: t, cmd: cmd, out: &buffer{}, done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = p.out
	}
	cmd.Stderr = p.out
	if err := startOnMain(cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(p.kill)
	return p
}

func (p *process) signal(s os.Signal) {
	_ = p.cmd.Process.Signal(s)
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// buffer is a bytes.Buffer that may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// waitFor tries until it succeeds.
func waitFor(t *testing.T, limit time.Duration, what string, try func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s: %v", what, limit, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
