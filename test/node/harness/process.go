package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// daemon is a component of the node that runs until it is stopped.
type daemon struct {
	log  string
	cmd  *exec.Cmd
	done chan struct{}
}

// start runs a component. Its output is appended to a log of its name, also
// after a restart.
func (n *Node) start(name string, args ...string) (*daemon, error) {
	d := &daemon{log: n.path(name + ".log"), done: make(chan struct{})}
	out, err := os.OpenFile(d.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	d.cmd = exec.Command(filepath.Join(n.bin, name), args...)
	// containerd finds its shim there, and CoreDNS and others nothing.
	d.cmd.Env = append(os.Environ(), "PATH="+n.bin+":"+os.Getenv("PATH"))
	d.cmd.Dir = n.Dir
	d.cmd.Stdout, d.cmd.Stderr = out, out
	if err := n.Start(d.cmd); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", name, err)
	}
	go func() {
		_ = d.cmd.Wait()
		close(d.done)
	}()
	n.daemons[name] = d
	return d, nil
}

// ended tells whether the component has ended, which none does by itself.
func (d *daemon) ended() bool {
	select {
	case <-d.done:
		return true
	default:
		return false
	}
}

// tail returns the last lines of the log.
func (d *daemon) tail(lines int) string {
	b, err := os.ReadFile(d.log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
