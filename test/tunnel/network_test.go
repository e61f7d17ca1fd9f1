package tunnel

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// programs are built once for all tests.
var programs struct {
	sync.Once

	folder string
	err    error
}

// build returns a folder with wireguard-go and, under its name, the stand-in
// of wstunnel.
func build(t *testing.T) string {
	t.Helper()
	programs.Do(func() {
		if programs.folder, programs.err = os.MkdirTemp("", "tunnel-test-"); programs.err != nil { //nolint:usetesting // All tests share it.
			return
		}
		for name, pkg := range map[string]string{"wireguard-go": "golang.zx2c4.com/wireguard", "wstunnel": "./wstunnel-standin"} {
			out, err := exec.Command("go", "build", "-o", filepath.Join(programs.folder, name), pkg).CombinedOutput()
			if err != nil {
				programs.err = fmt.Errorf("go build %s: %w\n%s", pkg, err, out)
			}
		}
	})
	if programs.err != nil {
		t.Fatal(programs.err)
	}
	return programs.folder
}

// atOnce is how many tests run at once: they wait far more than they compute.
const atOnce = 4

func TestMain(m *testing.M) {
	if os.Getenv(proxySettings) != "" {
		proxyMain()
	}
	flag.Parse()
	_ = flag.Set("test.parallel", strconv.Itoa(atOnce))
	code := m.Run()
	if programs.folder != "" {
		_ = os.RemoveAll(programs.folder)
	}
	os.Exit(code)
}

// needs skips where the test cannot run.
func needs(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root, for network namespaces")
	}
	for _, tool := range []string{"ip", "nft", "wg", "wg-quick", "ping", "sysctl", "cut", "getent"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("needs %s: install iproute2, nftables, wireguard-tools, iputils-ping and procps", tool)
		}
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip("needs /dev/net/tun")
	}
}

// host is a network namespace.
type host struct {
	name   string
	folder string
	env    []string
}

// numbers make names of namespaces and interfaces unique.
var numbers atomic.Int64

// newHost makes a namespace that is removed after the test, with what runs in
// it.
func newHost(t *testing.T, name string) *host {
	t.Helper()
	h := &host{name: fmt.Sprintf("tunnel%d-%d-%s", os.Getpid(), numbers.Add(1), name), folder: t.TempDir()}
	run(t, "ip", "netns", "add", h.name)
	t.Cleanup(func() {
		pids, _ := exec.Command("ip", "netns", "pids", h.name).Output()
		for pid := range strings.FieldsSeq(string(pids)) {
			if n, err := strconv.Atoi(pid); err == nil {
				_ = syscall.Kill(n, syscall.SIGKILL)
			}
		}
		_ = exec.Command("ip", "netns", "del", h.name).Run()
		_ = os.RemoveAll("/etc/netns/" + h.name)
	})
	h.run(t, "ip", "link", "set", "lo", "up")
	return h
}

// resolves makes a name known on the host.
func (h *host) resolves(t *testing.T, name, address string) {
	t.Helper()
	folder := "/etc/netns/" + h.name
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(folder+"/hosts", []byte("127.0.0.1 localhost\n"+address+" "+name+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

// connect joins the host to a router, with a network between them.
func (h *host) connect(t *testing.T, router *host, number int, address, gateway string) {
	t.Helper()
	far := fmt.Sprintf("to%d", number)
	run(t, "ip", "-n", router.name, "link", "add", far, "type", "veth", "peer", "name", "eth0", "netns", h.name)
	router.run(t, "ip", "addr", "add", gateway+"/24", "dev", far)
	router.run(t, "ip", "link", "set", far, "up")
	h.run(t, "ip", "addr", "add", address+"/24", "dev", "eth0")
	h.run(t, "ip", "link", "set", "eth0", "up")
	h.run(t, "ip", "route", "add", "default", "via", gateway)
}

// try runs a command on the host, and returns what it printed.
func (h *host) try(args ...string) (string, error) {
	cmd := exec.Command("ip", append([]string{"netns", "exec", h.name}, args...)...)
	cmd.Env = append(os.Environ(), h.env...)
	// A file, not a pipe: what a command leaves running would keep it open.
	out, err := os.CreateTemp(h.folder, "output-")
	if err != nil {
		return "", err
	}
	defer func() { _ = out.Close() }()
	cmd.Stdout, cmd.Stderr = out, out
	err = cmd.Run()
	b, _ := os.ReadFile(out.Name())
	return string(b), err
}

func (h *host) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := h.try(args...)
	if err != nil {
		t.Fatalf("%s: %s: %v\n%s", h.name, strings.Join(args, " "), err, out)
	}
	return out
}

func (h *host) sysctl(t *testing.T, settings ...string) {
	t.Helper()
	h.run(t, append([]string{"sysctl", "-qw"}, settings...)...)
}

// process runs until it is stopped, or its host is removed.
type process struct {
	cmd *exec.Cmd
	log string
}

func (h *host) start(t *testing.T, args ...string) *process {
	t.Helper()
	out, err := os.CreateTemp(h.folder, "log-")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = out.Close() }()
	p := &process{cmd: exec.Command("ip", append([]string{"netns", "exec", h.name}, args...)...), log: out.Name()}
	p.cmd.Env = append(os.Environ(), h.env...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("%s:\n%s", strings.Join(args, " "), p.output())
		}
	})
	return p
}

func (p *process) stop() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

func (p *process) output() string {
	b, _ := os.ReadFile(p.log)
	return string(b)
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

// eventually waits until something holds, for as long as a slow machine may
// need.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("still not so: %s", what)
}

// alive tells whether a process is there and no zombie.
func alive(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := bytes.Cut(b, []byte(") "))
	return len(rest) > 0 && rest[0] != 'Z'
}
