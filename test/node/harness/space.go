package harness

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
)

// Space is a thread in namespaces of its own. What is started on it lives there,
// and ends with the node's first process, which ends with this one at the
// latest.
type Space struct {
	name  string
	calls chan func()
	ended chan struct{}
	// network names the network namespace, for who may see our /proc.
	network string
}

// The first thread of a process cannot end before the process does, so no space
// may get it.
func init() { runtime.LockOSThread() } //nolint:gochecknoinits // It has to run on that thread.

// newSpace starts a thread and brings it to where it belongs.
func newSpace(name string, enter func() error) (*Space, error) {
	s := &Space{name: name, calls: make(chan func()), ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		// Never unlocked: the thread ends with the goroutine.
		runtime.LockOSThread()
		err := enter()
		s.network = fmt.Sprintf("/proc/%d/task/%d/ns/net", unix.Getpid(), unix.Gettid())
		started <- err
		if err != nil {
			return
		}
		for {
			select {
			case call := <-s.calls:
				call()
			case <-s.ended:
				return
			}
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("cannot make the namespaces of %s: %w", name, err)
	}
	return s, nil
}

func (s *Space) end() {
	if s != nil {
		close(s.ended)
	}
}

// Do runs a function on the thread, unless that has ended. Sockets stay where
// they were made.
func (s *Space) Do(f func()) {
	done := make(chan struct{})
	select {
	case s.calls <- func() {
		defer close(done)
		f()
	}:
		<-done
	case <-s.ended:
	}
}

// errEnded is what comes of everything in a space that has ended.
var errEnded = errors.New("the node has ended")

// Dial connects from the space.
func (s *Space) Dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	err = errEnded
	s.Do(func() {
		d := net.Dialer{Timeout: time.Second}
		c, err = d.DialContext(ctx, network, address)
	})
	return c, err
}

// Listen listens for TCP in the space.
func (s *Space) Listen(address string) (l net.Listener, err error) {
	err = errEnded
	s.Do(func() { l, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", address) })
	return l, err
}

// ListenPacket listens for UDP in the space.
func (s *Space) ListenPacket(address string) (c net.PacketConn, err error) {
	err = errEnded
	s.Do(func() { c, err = (&net.ListenConfig{}).ListenPacket(context.Background(), "udp", address) })
	return c, err
}

// Start starts a command in the space.
func (s *Space) Start(cmd *exec.Cmd) (err error) {
	err = errEnded
	s.Do(func() { err = cmd.Start() })
	return err
}

// Output runs a command in the space, and returns all that it prints.
func (s *Space) Output(cmd *exec.Cmd) (string, error) {
	out := &netns.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	// What goes on in the background may keep the output open.
	cmd.WaitDelay = time.Second
	if err := s.Start(cmd); err != nil {
		return "", err
	}
	err := cmd.Wait()
	if errors.Is(err, exec.ErrWaitDelay) {
		err = nil
	}
	if err != nil {
		err = fmt.Errorf("%s: %s: %w: %s", s.name, strings.Join(cmd.Args, " "), err, out)
	}
	return out.String(), err
}

// Run runs a command line that needs no quotes.
func (s *Space) Run(ctx context.Context, lines ...string) error {
	for _, line := range lines {
		words := strings.Fields(line)
		if _, err := s.Output(exec.CommandContext(ctx, words[0], words[1:]...)); err != nil {
			return err
		}
	}
	return nil
}

// enterNamespaces moves the thread into namespaces of a process.
func enterNamespaces(pid int, flags int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	// Without this, threads share their root and may not change it.
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return err
	}
	return unix.Setns(fd, flags)
}

// exists tells whether a file is there.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
