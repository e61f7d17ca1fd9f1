package status

import (
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/kube"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/kube/kubetest"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// The number of pods changes often, and each write costs a reconcile. It is
// written soon, but not soon again, while all else does not wait.
func TestCounts(t *testing.T) {
	s := &kubetest.Server{}
	s.Set("configmaps", kubetest.Object{"kind": "ConfigMap", "apiVersion": "v1", "metadata": map[string]any{"namespace": "vpn", "name": "status"}})
	server := httptest.NewServer(s)
	t.Cleanup(func() { server.CloseClientConnections(); s.HangUp(); server.Close() })
	client, err := kube.NewClientFor(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	p := New(client, kube.Name{Namespace: "vpn", Name: "status"}, slog.New(slog.DiscardHandler))
	go p.Run(t.Context())

	writes := func() int {
		n := 0
		for _, r := range s.Requests() {
			if strings.HasPrefix(r, "PATCH") {
				n++
			}
		}
		return n
	}
	wait := func(reason string, limit time.Duration, want wireguard.Report) time.Duration {
		t.Helper()
		start := time.Now()
		for {
			data, _ := s.Get("configmaps", "vpn", "status")["data"].(map[string]any)
			text, _ := data[wireguard.ReportKey].(string)
			got, err := wireguard.DecodeReport([]byte(text))
			if err == nil && got.InjectedPods == want.InjectedPods && got.Ready == want.Ready {
				return time.Since(start)
			}
			if time.Since(start) > limit {
				t.Fatalf("%s: got %q within %s", reason, text, limit)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
	r := wireguard.Report{ConfigHash: "h", Ready: true}
	p.Publish(r)
	wait("the first report", 5*time.Second, r)
	for range 30 {
		r.InjectedPods++
		p.Publish(r)
		time.Sleep(20 * time.Millisecond)
	}
	if n := writes(); n != 1 {
		t.Errorf("got %d writes while pods come, want none after the first", n)
	}
	// A stranger's change of the ConfigMap is no reason to hurry.
	m := s.Get("configmaps", "vpn", "status")
	m["metadata"].(map[string]any)["labels"] = map[string]any{"a": "b"}
	s.Set("configmaps", m)
	time.Sleep(2 * settle)
	if n := writes(); n != 1 {
		t.Errorf("got %d writes after somebody else's", n)
	}
	r.Ready = false
	p.Publish(r)
	if took := wait("what is wrong", 5*time.Second, r); took > 3*time.Second {
		t.Errorf("what is wrong was reported after %s", took)
	}
	start := time.Now()
	r.InjectedPods++
	p.Publish(r)
	wait("the count, in the end", countInterval+5*time.Second, r)
	if took := time.Since(start); took < countInterval-2*time.Second {
		t.Errorf("the count was written again after %s", took)
	}
	if n := writes(); n != 3 {
		t.Errorf("got %d writes, want 3", n)
	}
}
