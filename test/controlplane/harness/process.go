package harness

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// process is a component that runs until it is stopped.
type process struct {
	name string
	log  string
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// start runs a component in the cluster's network. Its output is appended to a
// log of its name, also after a restart.
func (c *Cluster) start(name string, env []string, command string, args ...string) (*process, error) {
	p := &process{name: name, log: filepath.Join(c.Dir, name+".log"), done: make(chan struct{})}
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	p.cmd = exec.Command(command, args...)
	p.cmd.Env = append(os.Environ(), env...)
	p.cmd.Dir = c.Dir
	p.cmd.Stdout, p.cmd.Stderr = out, out
	// Nothing outlives the tests, however they end.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.network.start(p.cmd); err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", name, err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	c.processes[name] = p
	return p, nil
}

// ended tells whether the process has ended, which none does by itself.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// stop asks the process to end, and makes it end where it takes too long.
func (p *process) stop() {
	if p == nil || p.ended() {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
	case <-time.After(10 * time.Second):
		p.kill()
	}
}

// kill ends the process as a crash would.
func (p *process) kill() {
	if p == nil || p.ended() {
		return
	}
	_ = p.cmd.Process.Kill()
	<-p.done
}

// tail returns the last lines of the log.
func (p *process) tail(lines int) string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
