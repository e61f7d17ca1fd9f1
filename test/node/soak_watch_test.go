package node

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	node "github.com/wireguardgateway/function-wireguard-gateway/test/node/harness"
)

// tenant is a pod that has or had an address.
type tenant struct {
	name        string
	gateway     bool
	since, gone time.Time // gone is zero while it is there
}

// ledger knows which pod had an address at a time. Addresses are given out
// again, since pods come and go for long.
type ledger struct {
	mu      sync.Mutex
	tenants map[string]map[types.UID]*tenant
}

func keepLedger(t *testing.T, n *node.Node) *ledger {
	t.Helper()
	l := &ledger{tenants: map[string]map[types.UID]*tenant{}}
	w, err := client.NewWithWatch(n.Config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			events, err := w.Watch(ctx, &corev1.PodList{})
			if err != nil {
				time.Sleep(100 * time.Millisecond)
				continue
			}
			for e := range events.ResultChan() {
				if p, ok := e.Object.(*corev1.Pod); ok {
					l.note(p, e.Type == watch.Deleted)
				}
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return l
}

func (l *ledger) note(p *corev1.Pod, deleted bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, ip := range p.Status.PodIPs {
		of := l.tenants[ip.IP]
		if of == nil {
			of = map[types.UID]*tenant{}
			l.tenants[ip.IP] = of
		}
		if of[p.UID] == nil {
			gateway := p.Labels[names.LabelName] == names.Application
			of[p.UID] = &tenant{name: p.Namespace + "/" + p.Name, gateway: gateway, since: p.CreationTimestamp.Time}
		}
		if deleted && of[p.UID].gone.IsZero() {
			of[p.UID].gone = time.Now()
		}
	}
}

// outside returns what pods that are no gateways have called, and how many
// connections there were at all. A gateway's pod may be seen late, so it knows
// better after a second.
func (l *ledger) outside(c *callers) (leaks map[string]int, all int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	leaks = map[string]int{}
	for call, count := range c.seen {
		all += count
		var others []string
		gateway := false
		for _, p := range l.tenants[call.source] {
			at := time.Unix(call.second, 0)
			if at.Before(p.since.Add(-time.Second)) || (!p.gone.IsZero() && at.After(p.gone.Add(time.Second))) {
				continue
			}
			gateway = gateway || p.gateway
			if !p.gateway {
				others = append(others, p.name)
			}
		}
		switch {
		case len(others) > 0:
			slices.Sort(others)
			leaks[strings.Join(others, " or ")] += count
		case !gateway:
			leaks["nobody at "+call.source] += count
		}
	}
	return leaks, all
}
