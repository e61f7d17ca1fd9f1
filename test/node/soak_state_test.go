package node

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/test/controlplane/harness"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// linkLocal are addresses that each pod has anew.
var linkLocal = regexp.MustCompile(`fe80::[0-9a-f:]+`)

// state is all that could be left over: objects, what pods have on the node, and
// in each gateway its peers, rules, routes and firewall.
func (s *soak) state(t *testing.T) map[string]string {
	t.Helper()
	ctx := t.Context()
	out := map[string]string{}
	for _, namespace := range s.namespaces() {
		objects, err := s.n.Kubectl(ctx, "-n", namespace, "get", "-o", "name",
			"secrets,configmaps,services,serviceaccounts,deployments,roles,rolebindings,networkpolicies,wireguardgateways,wireguardpeers")
		if err != nil {
			t.Fatal(err)
		}
		out["objects of "+namespace] = objects
	}
	traces, err := s.n.Traces(ctx)
	if err != nil {
		t.Fatal(err)
	}
	out["node"] = fmt.Sprint(traces)
	for _, g := range s.gateways() {
		p := g.waitPod()
		pids, err := s.n.Processes(p, names.ContainerAgent)
		if err != nil || len(pids) != 1 {
			t.Fatalf("processes of %s: %v, %v", p.Name, pids, err)
		}
		rules := "nft -s list ruleset"
		if g == s.leaving.gateway {
			// gluetun appends its own again whenever it starts.
			rules = "nft -s list table inet wireguard_gateway"
		}
		for _, line := range []string{"ip rule", "ip -6 rule", "ip route show table all", "ip -6 route show table all", rules} {
			b, err := exec.CommandContext(ctx, "nsenter", append([]string{"-t", strconv.Itoa(pids[0]), "-n"}, strings.Fields(line)...)...).Output()
			if err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			text := linkLocal.ReplaceAllString(string(b), "LINK")
			for _, ip := range p.Status.PodIPs {
				text = regexp.MustCompile(regexp.QuoteMeta(ip.IP)+`\b`).ReplaceAllString(text, "POD")
			}
			if strings.Contains(line, "route") {
				// Those of a table are in the order of their addresses.
				lines := strings.Split(text, "\n")
				slices.Sort(lines)
				text = strings.Join(lines, "\n")
			}
			out[g.namespace+": "+line] = text
		}
		page, err := s.metrics(ctx, p, "9586")
		if err != nil {
			t.Fatal(err)
		}
		out[g.namespace+": peers"] = peersOf(page)
	}
	return out
}

func (s *soak) namespaces() []string {
	out := []string{s.apps}
	for _, g := range s.gateways() {
		out = append(out, g.namespace)
	}
	return out
}

// metrics returns the page of a pod that can be reached.
func (s *soak) metrics(ctx context.Context, p *corev1.Pod, port string) (string, error) {
	h := &http.Client{Transport: &http.Transport{DialContext: s.n.Dial, DisableKeepAlives: true}, Timeout: 5 * time.Second}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+net.JoinHostPort(p.Status.PodIP, port)+"/metrics", nil)
	if err != nil {
		return "", err
	}
	rsp, err := h.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = rsp.Body.Close() }()
	b, err := io.ReadAll(rsp.Body)
	return string(b), err
}

// peersOf picks from an agent's metrics who is on the device.
func peersOf(page string) string {
	var out []string
	for line := range strings.Lines(page) {
		switch {
		case strings.HasPrefix(line, "wireguard_latest_handshake_seconds{"):
			peer, _, _ := strings.Cut(line, "} ")
			out = append(out, peer)
		case strings.HasPrefix(line, "wireguard_gateway_peers "), strings.HasPrefix(line, "wireguard_gateway_injected_pods"):
			out = append(out, strings.TrimSpace(line))
		}
	}
	slices.Sort(out)
	return strings.Join(out, "\n")
}

// sample is what a process uses at a time.
type sample struct {
	after             time.Duration
	pid               int
	memory            int // resident, in KiB
	files, goroutines int // goroutines are zero where they cannot be had
}

// usage is what processes have used, by name.
type usage struct {
	series map[string][]sample
}

// watch samples until the context ends.
func (u *usage) watch(ctx context.Context, s *soak) {
	for ctx.Err() == nil {
		u.take(ctx, s)
		select {
		case <-ctx.Done():
		case <-time.After(10 * time.Second):
		}
	}
}

func (u *usage) take(ctx context.Context, s *soak) {
	add := func(name string, p *corev1.Pod, container, port string) {
		pids, err := s.n.Processes(p, container)
		if err != nil || len(pids) != 1 {
			return // It is about to be replaced.
		}
		one := sample{after: time.Since(s.start), pid: pids[0]}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", one.pid))
		if err != nil {
			return
		}
		_, rest, _ := strings.Cut(string(status), "VmRSS:")
		_, _ = fmt.Sscan(rest, &one.memory)
		files, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", one.pid))
		if err != nil {
			return
		}
		one.files = len(files)
		if port != "" {
			page, err := s.metrics(ctx, p, port)
			if err != nil {
				return
			}
			_, rest, _ := strings.Cut(page, "\ngo_goroutines ")
			if _, err := fmt.Sscan(rest, &one.goroutines); err != nil {
				return
			}
		}
		u.series[name] = append(u.series[name], one)
	}
	for name, g := range map[string]*gateway{"agent, steady": s.steady.gateway, "agent of joined pods": s.joined, "agent, shaken": s.shaken[0].gateway} {
		if p, err := g.pod(ctx); err == nil {
			add(name, p, names.ContainerAgent, "9586")
		}
	}
	for name, labels := range map[string]client.MatchingLabels{
		"function":   {"pkg.crossplane.io/function": harness.FunctionName},
		"Crossplane": {"app": "crossplane"},
	} {
		pods, err := podsOf(ctx, s.n, "crossplane-system", labels)
		if err == nil && len(pods) == 1 {
			add(name, &pods[0], pods[0].Spec.Containers[0].Name, "8080")
		}
	}
	if pods, err := podsOf(ctx, s.n, s.apps, client.MatchingLabels{"app": "statefulset"}); err == nil && len(pods) == 1 {
		add("sidecar, steady", &pods[0], wireguard.Sidecar, "")
	}
}

// check holds that nothing of ours grows. The last process of each name counts, if
// it has lived for long enough, and has its first eighth to warm up.
func (u *usage) check(t *testing.T) {
	t.Helper()
	for _, name := range []string{"agent, steady", "agent of joined pods", "function", "sidecar, steady"} {
		if len(u.series[name]) == 0 {
			t.Errorf("%s: what it uses was never seen", name)
		}
	}
	table := &strings.Builder{}
	for name, all := range u.series {
		last := all
		for i := range all {
			if all[i].pid != all[len(all)-1].pid {
				last = all[i+1:]
			}
		}
		quarter := len(last) / 4
		if quarter < 30 {
			t.Logf("%s: the last process of %d samples has %d, too few to tell whether it grows", name, len(all), len(last))
			continue
		}
		first, end := last[quarter/2:quarter/2+quarter], last[len(last)-quarter:]
		m1, m2 := median(first, func(s sample) int { return s.memory }), median(end, func(s sample) int { return s.memory })
		f1, f2 := least(first, func(s sample) int { return s.files }), least(end, func(s sample) int { return s.files })
		g1, g2 := least(first, func(s sample) int { return s.goroutines }), least(end, func(s sample) int { return s.goroutines })
		t.Logf("%s, same process for %v: resident %d KiB, later %d KiB; files %d, later %d; goroutines %d, later %d",
			name, (last[len(last)-1].after - last[0].after).Round(time.Second), m1, m2, f1, f2, g1, g2)
		if name == "Crossplane" {
			continue
		}
		if m2 > m1+m1/4 {
			t.Errorf("%s: memory grows", name)
		}
		if f2 > f1+4 {
			t.Errorf("%s: files are left open", name)
		}
		// A peer on the device has two goroutines of its own, and a quarter may have had
		// more of them at all times.
		if g2 > g1+10 {
			t.Errorf("%s: goroutines are left", name)
		}
	}
	for name, all := range u.series {
		for _, s := range all {
			fmt.Fprintf(table, "%s\t%.0f\t%d\t%d\t%d\t%d\n", name, s.after.Seconds(), s.pid, s.memory, s.files, s.goroutines)
		}
	}
	path := filepath.Join(started.node.Root, "_output", "soak.tsv")
	if err := os.WriteFile(path, []byte("process\tseconds\tpid\tresident KiB\tfiles\tgoroutines\n"+table.String()), 0o644); err != nil {
		t.Error(err)
	}
}

func median(all []sample, of func(sample) int) int {
	var out []int
	for _, s := range all {
		out = append(out, of(s))
	}
	slices.Sort(out)
	return out[len(out)/2]
}

func least(all []sample, of func(sample) int) int {
	out := of(all[0])
	for _, s := range all {
		out = min(out, of(s))
	}
	return out
}
