package node

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/test/node/harness"
)

var started struct {
	once sync.Once
	node *harness.Node
	err  error
}

// shared returns the one node that tests share.
func shared(t *testing.T) *harness.Node {
	t.Helper()
	started.once.Do(func() {
		start := time.Now()
		lap := func(what string) {
			t.Logf("%s after %v", what, time.Since(start).Round(100*time.Millisecond))
		}
		if started.node, started.err = harness.Run(harness.Options{}); started.err != nil {
			return
		}
		lap("the node with Crossplane ran")
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		if started.err = publish(ctx, started.node); started.err != nil {
			return
		}
		lap("packages were published")
		if started.err = install(ctx, started.node); started.err == nil {
			lap("the configuration was installed")
		}
	})
	t.Cleanup(func() {
		if t.Failed() {
			started.node.DumpLogs(t)
		}
	})
	if started.err != nil {
		t.Fatal(started.err)
	}
	return started.node
}

func stopShared() error {
	if started.node == nil {
		return nil
	}
	return started.node.Stop()
}
