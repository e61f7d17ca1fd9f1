package node

import (
	"fmt"
	"slices"
	"testing"
	"time"

	node "github.com/wireguardgateway/function-wireguard-gateway/test/node/harness"
)

// TestPeers adds one peer after the other to a gateway that runs, beside a
// client that has traffic.
func TestPeers(t *testing.T) {
	n := shared(t)
	g, c := connected(t, n, `{}`)
	before := g.waitPod()
	other, err := n.NewClient(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	f := startFlow(t, c)
	var confs, replies, dials []time.Duration
	for i := range 30 {
		name := fmt.Sprintf("peer-%02d", i)
		g.addPeer(name)
		start := g.apply()
		conf := g.conf(name)
		confs = append(confs, time.Since(start))
		if err := other.Up(t.Context(), conf); err != nil {
			t.Fatal(err)
		}
		up := time.Now()
		reply := waitReply(t, other, node.Site4)
		replies, dials = append(replies, reply.Sub(start)), append(dials, reply.Sub(up))
		if err := other.Down(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r := f.end()
	t.Logf("from apply to the configuration: %s", quantiles(confs))
	t.Logf("from apply to the first reply: %s", quantiles(replies))
	t.Logf("of that, from the client being up: %s", quantiles(dials))
	t.Logf("meanwhile the other client: of %d packets %d lost, longest silence %v; TCP: slowest round trip %v, %v",
		r.Sent, r.Lost, r.Silence, r.Slowest, ended(r.Broken))
	if p50 := quantile(replies, 50); p50 > 2*time.Second {
		t.Errorf("half of the peers waited longer than %v", p50)
	}
	if r.Lost > 0 || r.Broken != nil {
		t.Errorf("the other client lost %d packets; its TCP connection: %v", r.Lost, r.Broken)
	}
	after := g.waitPod()
	if before.UID != after.UID || after.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the pod was %s and is %s, restarted %d times", before.Name, after.Name, after.Status.ContainerStatuses[0].RestartCount)
	}
}

func quantile(all []time.Duration, percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[(len(sorted)*percent+99)/100-1].Round(time.Millisecond)
}

func quantiles(all []time.Duration) string {
	return fmt.Sprintf("p50 %v, p99 %v of %d", quantile(all, 50), quantile(all, 99), len(all))
}
