package node

import (
	"context"
	"io"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	node "github.com/wireguardgateway/function-wireguard-gateway/test/node/harness"
)

// calls are connections within one second, by the address that a pod has on the
// node.
type calls struct {
	source string
	second int64
}

// callers watches who opens connections to the site.
type callers struct {
	mu   sync.Mutex
	seen map[calls]int
	done chan error
	rest string
}

var sourceOf = regexp.MustCompile(`src=([0-9a-f.:]+) dst=` + regexp.QuoteMeta(node.Site4) + ` `)

func watchCallers(t *testing.T, n *node.Node) *callers {
	t.Helper()
	c := &callers{seen: map[calls]int{}, done: make(chan error, 1)}
	cmd := n.Command(context.Background(), "conntrack", "-E", "-e", "NEW", "-p", "tcp", "-d", node.Site4, "-b", "8388608")
	cmd.Stdout, cmd.Stderr = c, io.Discard
	if err := n.Start(cmd); err != nil {
		t.Fatal(err)
	}
	go func() { c.done <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return c
}

// Write takes what conntrack prints.
func (c *callers) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now().Unix()
	c.rest += string(b)
	for {
		line, rest, ok := strings.Cut(c.rest, "\n")
		if !ok {
			return len(b), nil
		}
		c.rest = rest
		if m := sourceOf.FindStringSubmatch(line); m != nil {
			c.seen[calls{m[1], now}]++
		}
	}
}

// since returns how many connections an address has opened since a time.
func (c *callers) since(source string, start time.Time) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := 0
	for now := time.Now(); !start.After(now); start = start.Add(time.Second) {
		all += c.seen[calls{source, start.Unix()}]
	}
	return all
}

// forget begins anew.
func (c *callers) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.seen)
}

// alive holds that all connections were seen.
func (c *callers) alive(t *testing.T) {
	t.Helper()
	select {
	case err := <-c.done:
		t.Errorf("conntrack has ended: %v", err)
	default:
	}
}

// check holds that nobody called but the gateway, and that it did.
func (c *callers) check(t *testing.T, gateway *corev1.Pod) {
	t.Helper()
	c.alive(t)
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]int{}
	for call, count := range c.seen {
		all[call.source] += count
	}
	if all[gateway.Status.PodIP] == 0 {
		t.Errorf("the gateway at %s made no connection: %v", gateway.Status.PodIP, all)
	}
	for source, count := range all {
		if source != gateway.Status.PodIP {
			t.Errorf("%s made %d connections outside of the tunnel, the gateway is %s", source, count, gateway.Status.PodIP)
		}
	}
	t.Logf("connections that the site saw, by pod: %v", all)
}
