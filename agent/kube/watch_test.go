package kube

import (
	"net/http"
	"net/http/httptest"
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
			go Watch(t.Context(), client, "secrets", Name{"vpn", "home"}, func(e Event) {
				switch {
				case e.Err != nil:
					events <- "lost"
				case e.Object == nil:
					events <- "none"
				default:
					events <- "object"
				}
			})
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
