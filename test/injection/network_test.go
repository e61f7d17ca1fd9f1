package injection

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	vishnetns "github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
)

// limit is how long anything may take that takes a moment. It is generous,
// because tests share their machine, and nothing waits for it in vain.
const limit = time.Minute

// namespace is a network namespace: that of a pod, of the node, or of a host.
// It has no name, and is gone with this process, however that ends.
type namespace struct {
	name string
	file *os.File
	// Handle configures it.
	*netlink.Handle

	// calls are made on the one thread that stays in the namespace. Processes
	// that are started on it live there. They are killed when the thread ends.
	calls chan func()
}

// newNamespace makes a namespace without any interface but lo.
func newNamespace(name string) (*namespace, error) {
	n := &namespace{name: name, calls: make(chan func())}
	started := make(chan error)
	go func() {
		// Never unlocked: the thread ends with the goroutine.
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			n.file, err = os.Open(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()))
		}
		started <- err
		if err != nil {
			return
		}
		for call := range n.calls {
			call()
		}
	}()
	err := <-started
	if err == nil {
		n.Handle, err = netlink.NewHandleAt(vishnetns.NsHandle(n.file.Fd()))
	}
	if err == nil {
		err = errors.Join(n.up("lo"), n.sysctl(map[string]string{
			"net/ipv6/conf/all/accept_dad": "0", "net/ipv6/conf/default/accept_dad": "0",
			// As most distributions have it.
			"net/ipv4/conf/all/rp_filter": "1", "net/ipv4/conf/default/rp_filter": "1",
		}))
	}
	if err != nil {
		return nil, fmt.Errorf("cannot make a network namespace for %s: %w", name, err)
	}
	return n, nil
}

// close ends all processes that were started in the namespace. Its interfaces
// go with the last of them.
func (n *namespace) close() {
	close(n.calls)
	n.Close()
	_ = n.file.Close()
}

// do calls f on the thread of the namespace.
func (n *namespace) do(f func()) {
	done := make(chan struct{})
	n.calls <- func() {
		defer close(done)
		f()
	}
	<-done
}

// within calls f on another thread in the namespace, for what takes its time.
// What f opens stays there: sockets belong to the namespace that they were made
// in.
func (n *namespace) within(f func()) error {
	done := make(chan error)
	go func() {
		// Never unlocked: the thread ends with the goroutine.
		runtime.LockOSThread()
		err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET)
		if err == nil {
			f()
		}
		done <- err
	}()
	return <-done
}

// dial opens a connection.
func (n *namespace) dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	if e := n.within(func() { c, err = (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, address) }); e != nil {
		return nil, e
	}
	return c, err
}

// listen opens a TCP listener.
func (n *namespace) listen(address string) (l net.Listener, err error) {
	if e := n.within(func() { l, err = net.Listen("tcp", address) }); e != nil {
		return nil, e
	}
	return l, err
}

// packets opens a UDP socket.
func (n *namespace) packets(network, address string) (c net.PacketConn, err error) {
	if e := n.within(func() { c, err = net.ListenPacket(network, address) }); e != nil {
		return nil, e
	}
	return c, err
}

func (n *namespace) up(device string) error {
	l, err := n.LinkByName(device)
	if err != nil {
		return err
	}
	return n.LinkSetUp(l)
}

// sysctl sets kernel parameters, by their paths below /proc/sys.
func (n *namespace) sysctl(settings map[string]string) (err error) {
	n.do(func() {
		for path, value := range settings {
			err = errors.Join(err, os.WriteFile(filepath.Join("/proc/sys", path), []byte(value), 0))
		}
	})
	return err
}

// run runs a command and returns all it printed.
func (n *namespace) run(args ...string) (string, error) {
	return n.runWith("", args...)
}

// runWith runs a command with an input.
func (n *namespace) runWith(input string, args ...string) (string, error) {
	cmd := exec.Command(args[0], args[1:]...)
	out := &netns.Buffer{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), out, out
	var err error
	n.do(func() { err = cmd.Start() })
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		err = fmt.Errorf("%s: %s: %w\n%s", n.name, strings.Join(args, " "), err, out)
	}
	return out.String(), err
}

// must is run for what does not fail.
func (n *namespace) must(t *testing.T, args ...string) string {
	t.Helper()
	out, err := n.run(args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// process is a command in the background.
type process struct {
	cmd  *exec.Cmd
	out  *netns.Buffer
	done chan struct{}
}

// start starts a command in the background.
func (n *namespace) start(cmd *exec.Cmd) (*process, error) {
	p := &process{cmd: cmd, out: &netns.Buffer{}, done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.out, p.out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var err error
	n.do(func() { err = cmd.Start() })
	if err != nil {
		return nil, err
	}
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

func (p *process) signal(s os.Signal) { _ = p.cmd.Process.Signal(s) }

func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// stop asks the process to end, and makes it end where it takes too long.
func (p *process) stop() {
	p.signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		p.kill()
	}
}

func (p *process) running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// waitFor tries until it succeeds, and tells how long that took.
func waitFor(t *testing.T, what string, try func() error) time.Duration {
	t.Helper()
	took, err := poll(20*time.Millisecond, try)
	if err != nil {
		t.Fatalf("%s: not within %s: %v", what, limit, err)
	}
	return took
}

func poll(interval time.Duration, try func() error) (time.Duration, error) {
	start := time.Now()
	for {
		err := try()
		took := time.Since(start)
		if err == nil || took > limit {
			return took, err
		}
		time.Sleep(interval)
	}
}
