package kube

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/kube/kubetest"
)

// A watch says nothing where there is no object, and nothing for as long as the
// server is slow. Which of both it is has to be told apart.
func TestWatchSilence(t *testing.T) {
	const slow = 2500 * time.Millisecond // longer than the first silence
	set := func(s *kubetest.Server) {
		s.Set("secrets", kubetest.Object{"kind": "Secret", "apiVersion": "v1", "metadata": map[string]any{"namespace": "vpn", "name": "home"}})
	}
	cases := map[string]struct {
		reason string
		there  bool                   // before the watch begins
		silent time.Duration          // how long the watch says nothing
		get    int                    // what the server answers to a get, 0 for the truth
		asked  func(*kubetest.Server) // once the server was asked
		told   func(*kubetest.Server) // once the first event has come
		want   []string
	}{
		"There":     {"what is there is told at once", true, 0, 0, nil, nil, []string{"object"}},
		"Absent":    {"so is what is not there, a moment later", false, 0, 0, nil, nil, []string{"none"}},
		"Comes":     {"and what comes then", false, 0, 0, nil, set, []string{"none", "object"}},
		"Slow":      {"a server that is slow has the object", true, slow, 0, nil, nil, []string{"object"}},
		"SlowBoth":  {"one that is slow in everything too", true, slow, http.StatusGatewayTimeout, nil, nil, []string{"lost"}},
		"GoneSince": {"it may go before the watch has seen it", true, time.Hour, 0, func(s *kubetest.Server) { s.Delete("secrets", "vpn", "home") }, nil, []string{"none"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := &kubetest.Server{}
			if tc.there {
				set(api)
			}
			asked := make(chan struct{}, 100)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.URL.Query().Get("watch") != "":
					w.Header().Set("Content-Type", "application/json")
					_ = http.NewResponseController(w).Flush()
					select {
					case <-time.After(tc.silent):
					case <-r.Context().Done():
						return
					}
				case tc.get != 0:
					w.WriteHeader(tc.get)
					return
				default:
					defer func() { asked <- struct{}{} }()
				}
				api.ServeHTTP(w, r)
			}))
			t.Cleanup(func() { server.CloseClientConnections(); api.HangUp(); server.Close() })
			client, err := NewClientFor(&rest.Config{Host: server.URL})
			if err != nil {
				t.Fatal(err)
			}
			events := make(chan string, 100)
			go Watch(t.Context(), client, "secrets", Name{"vpn", "home"}, tellInto(events))
			if tc.asked != nil {
				select {
				case <-asked:
				case <-time.After(patience):
					t.Fatalf("%s: the server is not asked", tc.reason)
				}
				tc.asked(api)
			}
			for i, want := range tc.want {
				select {
				case got := <-events:
					if got != want {
						t.Fatalf("%s: got %q, want %q", tc.reason, got, want)
					}
					if i == 0 && tc.told != nil {
						tc.told(api)
					}
				case <-time.After(patience):
					t.Fatalf("%s: got nothing, want %q", tc.reason, want)
				}
			}
		})
	}
}

// broken is a connection that ends as soon as something is read.
type broken struct {
	net.Conn
	err error
}

func (c broken) Read([]byte) (int, error) { return 0, c.err }

// An API that cannot be reached any more is told within seconds, however that
// shows: client-go takes some of it for a watch that has nothing to say.
func TestWatchUnreachable(t *testing.T) {
	dialled := func(err error) error { return &net.OpError{Op: "dial", Net: "tcp", Err: err} }
	cases := map[string]struct {
		reason string
		dial   func(context.Context, net.Conn) (net.Conn, error)
	}{
		"Refused": {"nobody listens", func(context.Context, net.Conn) (net.Conn, error) { return nil, dialled(syscall.ECONNREFUSED) }},
		"Timeout": {"nobody answers, and the kernel gives up", func(context.Context, net.Conn) (net.Conn, error) { return nil, dialled(syscall.ETIMEDOUT) }},
		"Silent":  {"nobody answers, and the kernel goes on", func(ctx context.Context, _ net.Conn) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }},
		"Reset": {"the connection is reset", func(_ context.Context, c net.Conn) (net.Conn, error) {
			return broken{c, dialled(syscall.ECONNRESET)}, nil
		}},
		"EOF": {"the connection is closed", func(_ context.Context, c net.Conn) (net.Conn, error) { return broken{c, io.EOF}, nil }},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := &kubetest.Server{}
			api.Set("secrets", kubetest.Object{"kind": "Secret", "apiVersion": "v1", "metadata": map[string]any{"namespace": "vpn", "name": "home"}})
			server := httptest.NewServer(api)
			t.Cleanup(func() { server.CloseClientConnections(); api.HangUp(); server.Close() })
			var away atomic.Bool
			client, err := NewClientFor(&rest.Config{Host: server.URL, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
				c, err := (&net.Dialer{}).DialContext(ctx, network, address)
				if err != nil || !away.Load() {
					return c, err
				}
				b, err := tc.dial(ctx, c)
				if err != nil {
					_ = c.Close()
				}
				return b, err
			}})
			if err != nil {
				t.Fatal(err)
			}
			events := make(chan string, 100)
			go Watch(t.Context(), client, "secrets", Name{"vpn", "home"}, tellInto(events))
			wants := func(want string) {
				t.Helper()
				select {
				case got := <-events:
					if got != want {
						t.Fatalf("%s: got %q, want %q", tc.reason, got, want)
					}
				case <-time.After(minSilence + getTimeout + patience/2):
					t.Fatalf("%s: got nothing, want %q", tc.reason, want)
				}
			}
			wants("object")
			away.Store(true)
			api.HangUp()
			server.CloseClientConnections()
			wants("lost")
			away.Store(false)
			for event := "lost"; event == "lost"; {
				select {
				case event = <-events:
				case <-time.After(minSilence + getTimeout + patience/2):
					t.Fatalf("%s: it is back, and nobody says so", tc.reason)
				}
			}
		})
	}
}

// A watch ends every few minutes. One that had nothing to say is begun anew, and
// that is all.
func TestWatchQuiet(t *testing.T) {
	t.Parallel()
	var watches, gets atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") == "" {
			gets.Add(1)
			(&kubetest.Server{}).ServeHTTP(w, r)
			return
		}
		watches.Add(1)
		w.Header().Set("Content-Type", "application/json")
		_ = http.NewResponseController(w).Flush()
		select {
		case <-time.After(2 * minSilence):
		case <-r.Context().Done():
		}
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	client, err := NewClientFor(&rest.Config{Host: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	events := make(chan string, 100)
	go Watch(t.Context(), client, "secrets", Name{"vpn", "home"}, tellInto(events))
	time.Sleep(7 * minSilence) // the fourth watch is one second old
	if watches.Load() > 4 || gets.Load() > watches.Load() {
		t.Errorf("want four watches, and one question in each, got %d and %d", watches.Load(), gets.Load())
	}
	if len(events) < 3 {
		t.Errorf("want to be told in each watch that there is no object, got %d events", len(events))
	}
	for len(events) > 0 {
		if got := <-events; got != "none" {
			t.Errorf("there is no object: got %q", got)
		}
	}
}

// tellInto returns what tells each event by a word.
func tellInto(events chan<- string) func(Event) {
	return func(e Event) {
		switch {
		case e.Err != nil:
			events <- "lost"
		case e.Object == nil:
			events <- "none"
		default:
			events <- "object"
		}
	}
}
