package node

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	node "github.com/wireguardgateway/function-wireguard-gateway/test/node/harness"
)

// TestPeers adds peers to gateways that run, beside a client that has traffic.
// It does so no faster than Crossplane's circuit breaker allows: that takes a
// hundred events of a gateway at once, and one a second.
func TestPeers(t *testing.T) {
	n := shared(t)
	const each, pace = 10, 15 * time.Second
	start := breaker(t, n)
	g, c := connected(t, n, `{}`)
	time.Sleep(3 * time.Second)
	t.Logf("a new gateway with one peer: %.0f events", breaker(t, n).events-start.events)
	gateways := []*gateway{g}
	for range 2 {
		g, _ := connected(t, n, `{}`)
		gateways = append(gateways, g)
	}
	before := g.waitPod()
	other, err := n.NewClient(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * pace)
	start = breaker(t, n)
	f := startFlow(t, c, node.Site4)
	var confs, replies, dials []time.Duration
	for i := range each * len(gateways) {
		turn := time.Now()
		name, g := fmt.Sprintf("peer-%02d", i), gateways[i%len(gateways)]
		g.addPeer(name)
		applied := g.apply()
		conf := g.conf(name)
		confs = append(confs, time.Since(applied))
		if err := other.Up(t.Context(), conf); err != nil {
			t.Fatal(err)
		}
		up := time.Now()
		reply := waitReply(t, other, node.Site4)
		replies, dials = append(replies, reply.Sub(applied)), append(dials, reply.Sub(up))
		if err := other.Down(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(turn.Add(pace / time.Duration(len(gateways)))))
	}
	r, end := f.end(), breaker(t, n)
	t.Logf("from apply to the configuration: %s", quantiles(confs))
	t.Logf("from apply to the first reply: %s", quantiles(replies))
	t.Logf("of that, from the client being up: %s", quantiles(dials))
	t.Logf("each peer: %.1f events; the circuit breaker opened %.0f times", (end.events-start.events)/float64(len(replies)), end.opened-start.opened)
	t.Logf("meanwhile the other client: of %d packets %d lost, longest silence %v; TCP: slowest round trip %v, %v",
		r.Sent, r.Lost, r.Silence, r.Slowest, ended(r.Broken))
	if p50 := quantile(replies, 50); p50 > 2*time.Second {
		t.Errorf("half of the peers waited longer than %v", p50)
	}
	if end.opened > start.opened {
		t.Error("the circuit breaker opened")
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
	if len(all) == 0 {
		return "never"
	}
	return fmt.Sprintf("p50 %v, p99 %v of %d", quantile(all, 50), quantile(all, 99), len(all))
}

// counted is what Crossplane's circuit breakers have counted of gateways.
type counted struct{ events, opened float64 }

func breaker(t *testing.T, n *node.Node) counted {
	t.Helper()
	pods, err := podsOf(t.Context(), n, "crossplane-system", client.MatchingLabels{"app": "crossplane"})
	if err != nil || len(pods) == 0 {
		t.Fatalf("there are %d pods of Crossplane: %v", len(pods), err)
	}
	h := &http.Client{Transport: &http.Transport{DialContext: n.Dial, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, "http://"+net.JoinHostPort(pods[0].Status.PodIP, "8080")+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	rsp, err := h.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rsp.Body.Close() }()
	c := counted{}
	for s := bufio.NewScanner(rsp.Body); s.Scan(); {
		_, number, _ := strings.Cut(s.Text(), "} ")
		v, err := strconv.ParseFloat(number, 64)
		switch {
		case err != nil || !strings.Contains(s.Text(), "composite/wireguardgateways"):
		case strings.HasPrefix(s.Text(), "circuit_breaker_events_total"):
			c.events += v
		case strings.HasPrefix(s.Text(), "circuit_breaker_opens_total"):
			c.opened += v
		}
	}
	return c
}
