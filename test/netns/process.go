package netns

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Process is a command in the background.
type Process struct {
	T    *testing.T
	Cmd  *exec.Cmd
	Out  *Buffer
	Done chan struct{} // closed when it has ended
}

// Start runs a command in the background. It is killed when the test is over.
func (h *Host) Start(args ...string) *Process {
	h.T.Helper()
	return Start(h.T, h.Command(args...))
}

// Start is the same for a command of Command that was changed.
func Start(t *testing.T, cmd *exec.Cmd) *Process {
	t.Helper()
	p := &Process{T: t, Cmd: cmd, Out: &Buffer{}, Done: make(chan struct{})}
	if cmd.Stdout == nil {
		cmd.Stdout = p.Out
	}
	cmd.Stderr = p.Out
	if err := startToStay(cmd); err != nil {
		t.Fatal(err)
	}
	go func() {
		_ = cmd.Wait()
		close(p.Done)
	}()
	t.Cleanup(p.Kill)
	return p
}

// startToStay starts a command from a thread that stays: with Pdeathsig the
// child would otherwise end with the thread that started it.
func startToStay(cmd *exec.Cmd) error {
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

// Wait waits for the end, and fails the test if the command failed.
func (p *Process) Wait(limit time.Duration) string {
	p.T.Helper()
	select {
	case <-p.Done:
	case <-time.After(limit):
		p.Kill()
		p.T.Fatalf("%v did not end within %s:\n%s", p.Cmd.Args, limit, p.Out)
	}
	if !p.Cmd.ProcessState.Success() {
		p.T.Fatalf("%v: %v\n%s", p.Cmd.Args, p.Cmd.ProcessState, p.Out)
	}
	return p.Out.String()
}

// Signal sends a signal. It is no error if the process has ended.
func (p *Process) Signal(s os.Signal) {
	_ = p.Cmd.Process.Signal(s)
}

// Kill ends the process and waits until it has ended.
func (p *Process) Kill() {
	_ = p.Cmd.Process.Kill()
	<-p.Done
}

// Running tells whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.Done:
		return false
	default:
		return true
	}
}

// CPU returns the processor time that the process has used.
func (p *Process) CPU() time.Duration {
	p.T.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.Cmd.Process.Pid))
	if err != nil {
		p.T.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	f := strings.Fields(rest)
	const user, system, perSecond = 11, 12, 100 // proc(5), less two fields; USER_HZ
	ticks := 0
	for _, i := range []int{user, system} {
		n, err := strconv.Atoi(f[i])
		if err != nil {
			p.T.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * time.Second / perSecond
}

// Buffer is a bytes.Buffer that may be read while it is written.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

// String returns what was written so far.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// Limit is how long anything may take that takes a moment. It is generous,
// because tests share their machine, and nothing waits for it in vain.
const Limit = 30 * time.Second

// WaitFor tries until it succeeds, and fails the test after the limit.
func WaitFor(t *testing.T, limit time.Duration, what string, try func() error) {
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
