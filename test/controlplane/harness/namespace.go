package harness

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os/exec"
	"runtime"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// network is a network namespace that has nothing but loopback. Whatever a
// component binds, and some bind all interfaces on fixed ports, is reached from
// within only. It is gone with the last process in it.
type network struct {
	calls  chan func()
	closed chan struct{}
	// path names the namespace while the process runs.
	path string
}

// newNetwork starts the one thread that is in the namespace. Processes that are
// started on it live there. They are killed when the thread ends, so it ends
// with this process.
func newNetwork() (*network, error) {
	n := &network{calls: make(chan func()), closed: make(chan struct{})}
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = loopbackUp()
		}
		n.path = fmt.Sprintf("/proc/%d/task/%d/ns/net", unix.Getpid(), unix.Gettid())
		started <- err
		if err != nil {
			return
		}
		for {
			select {
			case call := <-n.calls:
				call()
			case <-n.closed:
				return
			}
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("cannot make a network namespace: %w", err)
	}
	return n, nil
}

func loopbackUp() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(lo)
}

// close ends the thread. Clients that are still there may call later.
func (n *network) close() { close(n.closed) }

// do runs a function on the thread in the namespace, unless it has ended.
func (n *network) do(f func()) error {
	done := make(chan struct{})
	call := func() {
		defer close(done)
		f()
	}
	select {
	case n.calls <- call:
		<-done
		return nil
	case <-n.closed:
		return net.ErrClosed
	}
}

// start starts a command within the namespace.
func (n *network) start(cmd *exec.Cmd) (err error) {
	closed := n.do(func() { err = cmd.Start() })
	return cmp.Or(closed, err)
}

// dial connects within the namespace.
func (n *network) dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	closed := n.do(func() {
		d := net.Dialer{Timeout: 5 * time.Second}
		c, err = d.DialContext(ctx, network, address)
	})
	return c, cmp.Or(closed, err)
}

// listen listens within the namespace.
func (n *network) listen(address string) (l net.Listener, err error) {
	closed := n.do(func() {
		l, err = (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
	})
	return l, cmp.Or(closed, err)
}
