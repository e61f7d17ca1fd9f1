package pods

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/kube"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/kube/kubetest"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

const patience = 10 * time.Second

// watcher watches a server.
func watcher(t *testing.T, s *kubetest.Server, restored ...Pod) (*Watcher, *strings.Builder) {
	t.Helper()
	server := httptest.NewServer(s)
	client, err := kube.NewClientFor(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	log := &strings.Builder{}
	w := NewWatcher(client, restored, slog.New(slog.NewTextHandler(log, nil)))
	t.Cleanup(func() {
		w.Follow(t.Context(), nil)
		server.CloseClientConnections()
		s.HangUp()
		server.Close()
	})
	return w, log
}

func podObject(namespace, name string, ips ...string) kubetest.Object {
	var list []any
	for _, ip := range ips {
		list = append(list, map[string]any{"ip": ip})
	}
	return kubetest.Object{
		"metadata": map[string]any{"namespace": namespace, "name": name, "uid": "uid-" + name, "labels": map[string]any{wireguard.PeerLabel: "media"}},
		"status":   map[string]any{"podIPs": list},
	}
}

// waits looks at each change until the pods are as they should be.
func (w *Watcher) waits(t *testing.T, reason string, want ...string) {
	t.Helper()
	timeout := time.After(patience)
	for {
		got := map[string]bool{}
		for _, p := range w.Pods() {
			got[fmt.Sprintf("%s%v", p, p.Addresses)] = true
		}
		diff := cmp.Diff(want, slices.Sorted(maps.Keys(got)))
		if diff == "" {
			return
		}
		select {
		case <-w.Changed():
		case <-timeout:
			t.Fatalf("%s: -want, +got:\n%s", reason, diff)
		}
	}
}

func classes(names ...string) []wireguard.PodClass {
	var out []wireguard.PodClass
	for _, n := range names {
		namespace, name, _ := strings.Cut(n, "/")
		out = append(out, wireguard.PodClass{Namespace: namespace, Name: name})
	}
	return out
}

func TestWatcher(t *testing.T) {
	s := &kubetest.Server{}
	s.Set("pods", podObject("apps", "a", "10.244.1.5"))
	s.Set("pods", podObject("books", "b", "10.244.1.6"))
	w, _ := watcher(t, s)
	w.Follow(t.Context(), classes("apps/media", "apps/music"))
	w.waits(t, "one namespace", "apps/a[10.244.1.5]")
	w.Follow(t.Context(), classes("apps/media", "books/media"))
	w.waits(t, "another class", "apps/a[10.244.1.5]", "books/b[10.244.1.6]")
	lists := 0
	for _, r := range s.Requests() {
		if strings.Contains(r, "/apps/pods") && !strings.Contains(r, "watch=true") {
			lists++
		}
	}
	if lists != 1 {
		t.Errorf("the namespace was listed %d times: %q", lists, s.Requests())
	}
	w.Follow(t.Context(), classes("books/media"))
	w.waits(t, "a class goes", "books/b[10.244.1.6]")
	s.Set("pods", podObject("books", "c"))
	w.waits(t, "a pod comes", "books/b[10.244.1.6]", "books/c[]")

	// What does not matter is no change.
	select {
	case <-w.Changed():
	default:
	}
	o := podObject("books", "c")
	o["metadata"].(map[string]any)["annotations"] = map[string]any{"a": "b"}
	s.Set("pods", o)
	s.Set("pods", podObject("books", "d"))
	w.waits(t, "another", "books/b[10.244.1.6]", "books/c[]", "books/d[]")
	select {
	case <-w.Changed():
		t.Error("a change that does not matter was told")
	default:
	}
}

// What was served before a restart counts until the API says what there is.
func TestWatcherRestored(t *testing.T) {
	s := &kubetest.Server{}
	s.Set("pods", podObject("apps", "new", "10.244.1.6"))
	s.Forbid("apps", true)
	w, log := watcher(t, s, media("old", "10.244.1.5"), Pod{Namespace: "gone", Name: "x", UID: "x"})
	w.Follow(t.Context(), classes("apps/media"))
	w.waits(t, "restored, of classes that are still there", "apps/old[10.244.1.5]")
	for range 200 {
		if len(w.Lost()) > 0 {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	if diff := cmp.Diff([]string{"apps"}, w.Lost()); diff != "" {
		t.Errorf("lost: -want, +got:\n%s", diff)
	}
	time.Sleep(time.Second)
	w.waits(t, "while the API does not let us", "apps/old[10.244.1.5]")
	s.Forbid("apps", false)
	w.waits(t, "what there is", "apps/new[10.244.1.6]")
	if lost := w.Lost(); lost != nil {
		t.Errorf("%v can be watched", lost)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := strings.Count(log.String(), "cannot watch pods"); n != 1 {
		t.Errorf("got %d warnings, want one:\n%s", n, log)
	}
}
