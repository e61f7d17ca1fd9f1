package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/kube/kubetest"
)

const patience = 10 * time.Second

// mirror is a collection as Reflect has told it: names of objects, with what
// they say.
type mirror struct {
	mu      sync.Mutex
	objects map[string]string
	lists   int
	errs    []string
	sound   bool
}

func (m *mirror) take(c Change[[2]string]) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sound = c.Err == nil
	switch {
	case c.Err != nil:
		m.errs = append(m.errs, c.Err.Error())
	case c.All != nil:
		m.lists++
		m.objects = map[string]string{}
		for _, o := range c.All {
			m.objects[o[0]] = o[1]
		}
	case c.Set != nil:
		m.objects[c.Set[0]] = c.Set[1]
	case c.Deleted != nil:
		delete(m.objects, c.Deleted[0])
	}
}

// wants waits until the mirror shows what it should.
func (m *mirror) wants(t *testing.T, reason string, want map[string]string) {
	t.Helper()
	diff := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		m.mu.Lock()
		diff = cmp.Diff(want, m.objects)
		m.mu.Unlock()
		if diff == "" {
			return
		}
	}
	t.Fatalf("%s: -want, +got:\n%s", reason, diff)
}

// eventually waits for something.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %s", what, patience)
		}
	}
}

func (m *mirror) count() (lists, errs int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.lists, len(m.errs)
}

func pod(namespace, name, says string) kubetest.Object {
	return kubetest.Object{"metadata": map[string]any{
		"namespace": namespace, "name": name, "labels": map[string]any{"example.com/x": "y"}, "annotations": map[string]any{"says": says},
	}}
}

func testClient(t *testing.T, s *kubetest.Server) rest.Interface {
	t.Helper()
	server := httptest.NewServer(s)
	t.Cleanup(server.Close)
	client, err := NewClientFor(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// reflected starts to mirror the pods of a namespace that have the label.
func reflected(t *testing.T, s *kubetest.Server) *mirror {
	t.Helper()
	client := testClient(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	m := &mirror{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		Reflect(ctx, client, Collection[[2]string]{
			Resource: "pods", Namespace: "apps", Label: "example.com/x",
			Decode: func(b []byte) [2]string {
				o := struct {
					Metadata struct {
						Name        string            `json:"name"`
						Annotations map[string]string `json:"annotations"`
					} `json:"metadata"`
				}{}
				if err := json.Unmarshal(b, &o); err != nil {
					t.Error(err)
				}
				return [2]string{o.Metadata.Name, o.Metadata.Annotations["says"]}
			},
		}, m.take)
	}()
	// The server waits for its connections to end.
	t.Cleanup(func() { cancel(); <-done; s.HangUp() })
	return m
}

func TestReflect(t *testing.T) {
	s := &kubetest.Server{}
	s.Set("pods", pod("apps", "a", "1"))
	s.Set("pods", pod("other", "b", "1"))
	unlabelled := pod("apps", "c", "1")
	delete(unlabelled["metadata"].(map[string]any), "labels")
	s.Set("pods", unlabelled)
	m := reflected(t, s)
	m.wants(t, "what is there, of the namespace and with the label", map[string]string{"a": "1"})
	s.Set("pods", pod("apps", "d", "1"))
	s.Set("pods", pod("apps", "a", "2"))
	m.wants(t, "what comes and changes", map[string]string{"a": "2", "d": "1"})
	s.Delete("pods", "apps", "a")
	m.wants(t, "what goes", map[string]string{"d": "1"})
	if lists, errs := m.count(); lists != 1 || errs != 0 {
		t.Errorf("got %d lists, %d errors, want one list", lists, errs)
	}
}

// A connection that is lost is taken up where it was left: nothing is missed,
// and nothing listed again, unless the server has forgotten.
func TestReflectLostConnection(t *testing.T) {
	cases := map[string]struct {
		reason string
		lose   func(*kubetest.Server)
		lists  int
	}{
		"HangUp": {"what happened meanwhile is told by the next watch", func(s *kubetest.Server) {
			s.HangUp()
			s.Delete("pods", "apps", "a")
			s.Set("pods", pod("apps", "b", "1"))
		}, 1},
		"Down": {"an outage is no more than that", func(s *kubetest.Server) {
			s.Down(true)
			time.Sleep(300 * time.Millisecond)
			s.Delete("pods", "apps", "a")
			s.Set("pods", pod("apps", "b", "1"))
			s.Down(false)
		}, 1},
		"Expired": {"what the server has forgotten is listed anew, deletions too", func(s *kubetest.Server) {
			s.Down(true)
			time.Sleep(100 * time.Millisecond)
			s.Delete("pods", "apps", "a")
			s.Set("pods", pod("apps", "b", "1"))
			s.Forget()
			s.Down(false)
		}, 2},
		"Bookmark": {"a bookmark says that what is forgotten was told", func(s *kubetest.Server) {
			s.Delete("pods", "apps", "a")
			s.Set("pods", pod("apps", "b", "1"))
			s.Set("pods", pod("other", "z", "1"))
			s.Bookmark()
			time.Sleep(300 * time.Millisecond)
			s.Forget()
			s.HangUp()
		}, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := &kubetest.Server{}
			s.Set("pods", pod("apps", "a", "1"))
			m := reflected(t, s)
			m.wants(t, "before", map[string]string{"a": "1"})
			tc.lose(s)
			m.wants(t, tc.reason, map[string]string{"b": "1"})
			s.Set("pods", pod("apps", "b", "2"))
			m.wants(t, "after", map[string]string{"b": "2"})
			if lists, _ := m.count(); lists != tc.lists {
				t.Errorf("%s: got %d lists, want %d: %v", tc.reason, lists, tc.lists, s.Requests())
			}
		})
	}
}

// What is known stays while it cannot be seen, and that is told.
func TestReflectOutage(t *testing.T) {
	s := &kubetest.Server{}
	s.Set("pods", pod("apps", "a", "1"))
	m := reflected(t, s)
	m.wants(t, "before", map[string]string{"a": "1"})
	s.Down(true)
	eventually(t, "an error", func() bool { _, errs := m.count(); return errs > 0 })
	m.wants(t, "during the outage", map[string]string{"a": "1"})
	s.Down(false)
	eventually(t, "the end of it", func() bool { m.mu.Lock(); defer m.mu.Unlock(); return m.sound })
	m.wants(t, "after the outage", map[string]string{"a": "1"})
}

// The right to see a collection may come later. It is asked for soon, and not
// too often.
func TestReflectForbidden(t *testing.T) {
	s := &kubetest.Server{}
	s.Set("pods", pod("apps", "a", "1"))
	s.Forbid("apps", true)
	m := reflected(t, s)
	time.Sleep(2 * time.Second)
	n := len(s.Requests())
	if n < 2 || n > 8 {
		t.Errorf("got %d requests in two seconds: %v", n, s.Requests())
	}
	s.Forbid("apps", false)
	m.wants(t, "with the right to it", map[string]string{"a": "1"})
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.errs) == 0 || !strings.Contains(m.errs[0], "cannot list pods of namespace apps") {
		t.Errorf("got errors %q", m.errs)
	}
}

// A long list comes in pages, and is told as a whole.
func TestReflectPages(t *testing.T) {
	s := &kubetest.Server{}
	want := map[string]string{}
	for i := range 2*pageSize + 10 {
		name := fmt.Sprintf("p%03d", i)
		s.Set("pods", pod("apps", name, "1"))
		want[name] = "1"
	}
	m := reflected(t, s)
	m.wants(t, "all pages", want)
	pages := slices.DeleteFunc(s.Requests(), func(r string) bool { return strings.Contains(r, "watch=true") })
	if lists, _ := m.count(); len(pages) != 3 || lists != 1 {
		t.Errorf("got %d pages and %d lists, want 3 and one: %v", len(pages), lists, pages)
	}
}

// Who makes objects decides how large they are. A list is read object by object,
// and one that ends too early is none.
func TestReflectStreams(t *testing.T) {
	decoded := make(chan struct{}, 8)
	cut := true
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Query().Get("watch") != "" {
			<-q.Context().Done()
			return
		}
		_, _ = io.WriteString(w, `{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[{"metadata":{"name":"a"}}`)
		_ = http.NewResponseController(w).Flush()
		select {
		case <-decoded:
		case <-q.Context().Done():
		case <-time.After(patience):
			t.Error("an object waits for the rest of its list")
		}
		if !cut {
			_, _ = io.WriteString(w, `,{"metadata":{"name":"b"}}]}`)
		}
		cut = false
	}))
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(s.Close)
	t.Cleanup(cancel)
	c, err := NewClientFor(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	m := &mirror{}
	decode := func(b []byte) [2]string {
		decoded <- struct{}{}
		return [2]string{string(b)}
	}
	go Reflect(ctx, c, Collection[[2]string]{Resource: "pods", Namespace: "apps", Label: "join", Decode: decode}, m.take)
	m.wants(t, "the second time", map[string]string{`{"metadata":{"name":"a"}}`: "", `{"metadata":{"name":"b"}}`: ""})
	if lists, errs := m.count(); lists != 1 || errs != 1 {
		t.Errorf("got %d lists and %d errors, want one after one", lists, errs)
	}
}
