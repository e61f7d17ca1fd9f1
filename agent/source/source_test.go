package source

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/kube"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/kube/kubetest"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// step is something that happens, and what the agent is given for it.
type step struct {
	file   string // the file has this now, empty for no change
	away   bool   // there is no file now
	api    string // the API says this, empty for nothing
	absent bool   // the API says that there is no Secret
	lost   bool   // the API is lost
	want   string // "" for nothing, "error" for a reason
}

func TestSelector(t *testing.T) {
	cases := map[string]struct {
		reason string
		steps  []step
	}{
		"FileOnly":   {"without the API the file decides", []step{{file: "1", want: "1"}, {}, {file: "2", want: "2"}, {file: "1", want: "1"}}},
		"NoFile":     {"what is missing is said once", []step{{want: "error"}, {}, {file: "1", want: "1"}}},
		"Same":       {"what both have is given once", []step{{file: "1", want: "1"}, {api: "1"}, {}}},
		"APIFirst":   {"the API overtakes the file", []step{{file: "1", want: "1"}, {api: "2", want: "2"}, {file: "2"}, {api: "3", want: "3"}}},
		"FileBehind": {"a file that is behind undoes nothing", []step{{file: "1", want: "1"}, {api: "2", want: "2"}, {api: "3", want: "3"}, {lost: true}, {file: "2"}, {file: "3"}}},
		"Outage":     {"while the API is lost the file decides", []step{{file: "1", want: "1"}, {api: "1"}, {lost: true}, {file: "2", want: "2"}, {api: "3", want: "3"}}},
		"Held":       {"what the file got just before the API was lost counts", []step{{file: "1", want: "1"}, {api: "1"}, {file: "2"}, {lost: true}, {want: "2"}}},
		"Back":       {"a version may come back", []step{{file: "1", want: "1"}, {api: "2", want: "2"}, {api: "1", want: "1"}, {api: "2", want: "2"}}},
		"Absent":     {"a Secret that is gone is a reason, and the file serves", []step{{file: "1", want: "1"}, {absent: true, want: "error"}, {file: "2", want: "2"}}},
		"NoKey":      {"a Secret without config.json is a reason", []step{{file: "1", want: "1"}, {api: "-", want: "error"}}},

		"AbsentOver":    {"the reason is over when the same Secret is back", []step{{file: "1", want: "1"}, {api: "1"}, {absent: true, want: "error"}, {}, {api: "1", want: "1"}, {api: "1"}}},
		"AbsentStays":   {"and not before: the file still has what the Secret had", []step{{file: "1", want: "1"}, {api: "2", want: "2"}, {file: "2"}, {absent: true, want: "error"}, {}, {}}},
		"AbsentAndLost": {"nor with the API", []step{{file: "1", want: "1"}, {api: "1"}, {absent: true, want: "error"}, {lost: true}, {}, {api: "1", want: "1"}}},
		"NoKeyOver":     {"as it is when the same config.json is back", []step{{file: "1", want: "1"}, {api: "1"}, {api: "-", want: "error"}, {api: "1", want: "1"}}},
		"FileOver":      {"or when the same file is", []step{{file: "1", want: "1"}, {away: true, want: "error"}, {}, {file: "1", want: "1"}, {}}},
		"FileOverLost":  {"while the API is lost too", []step{{file: "1", want: "1"}, {api: "2", want: "2"}, {lost: true}, {away: true, want: "error"}, {file: "1"}, {file: "2", want: "2"}}},
		"FileOverLive":  {"and while it is not, the file is no reason", []step{{file: "1", want: "1"}, {api: "1"}, {away: true}, {file: "1"}, {lost: true}, {}}},

		"TakenBack":      {"a file that was up to date is not behind", []step{{file: "1", want: "1"}, {api: "1"}, {api: "2", want: "2"}, {file: "2"}, {lost: true}, {file: "1", want: "1"}, {file: "2", want: "2"}}},
		"CaughtUp":       {"nor is one that caught up while the API was lost", []step{{file: "1", want: "1"}, {api: "1"}, {api: "2", want: "2"}, {lost: true}, {file: "2"}, {file: "1", want: "1"}}},
		"Ahead":          {"nor one that had what the API has not given", []step{{file: "1", want: "1"}, {api: "1"}, {lost: true}, {file: "2", want: "2"}, {file: "1", want: "1"}}},
		"AheadOnce":      {"the API decides again when it is back", []step{{file: "1", want: "1"}, {api: "1"}, {lost: true}, {file: "2", want: "2"}, {api: "3", want: "3"}, {lost: true}, {file: "2"}, {file: "3"}, {file: "2", want: "2"}}},
		"BehindAtStart":  {"the first file is behind too", []step{{file: "1", want: "1"}, {api: "2", want: "2"}, {lost: true}, {away: true, want: "error"}, {file: "1"}}},
		"BehindAndBack":  {"what the API has taken back may come from the kubelet yet", []step{{file: "1", want: "1"}, {api: "1"}, {api: "2", want: "2"}, {api: "1", want: "1"}, {lost: true}, {file: "2"}, {file: "1"}}},
		"BehindAndAgain": {"what came while the API was live is behind all the same", []step{{file: "1", want: "1"}, {api: "2", want: "2"}, {api: "3", want: "3"}, {file: "2"}, {lost: true}, {}, {file: "3"}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config.json")
			s := &selector{file: file{path: path}, log: slog.New(slog.DiscardHandler)}
			for i, st := range tc.steps {
				if st.away {
					if err := os.Remove(path); err != nil {
						t.Fatal(err)
					}
				}
				if st.file != "" {
					// Renamed, as the kubelet does: another file each time.
					if err := os.WriteFile(path+".new", []byte(st.file), 0o600); err != nil {
						t.Fatal(err)
					}
					if err := os.Rename(path+".new", path); err != nil {
						t.Fatal(err)
					}
				}
				var u *Update
				switch {
				case st.lost:
					u = s.fromAPI(kube.Event{Err: errors.New("lost")})
				case st.absent:
					u = s.fromAPI(kube.Event{})
				case st.api == "-":
					u = s.fromAPI(kube.Event{Object: &corev1.Secret{}})
				case st.api != "":
					u = s.fromAPI(kube.Event{Object: &corev1.Secret{Data: map[string][]byte{wireguard.ConfigKey: []byte(st.api)}}})
				default:
					u = s.fromFile()
				}
				got := ""
				if u != nil {
					got = string(u.Data)
					if u.Err != nil {
						got = "error"
					}
				}
				if got != st.want {
					t.Errorf("%s: step %d: got %q, want %q", tc.reason, i, got, st.want)
				}
			}
		})
	}
}

// Files of a Secret are links to a link, and an update switches the latter.
func TestWatchMountedSecret(t *testing.T) {
	dir := t.TempDir()
	version := func(name, content string) {
		t.Helper()
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "config.json"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(name, filepath.Join(dir, "..data_tmp")); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version("..1", "one")
	if err := os.Symlink(filepath.Join("..data", "config.json"), filepath.Join(dir, "config.json")); err != nil {
		t.Fatal(err)
	}
	updates := Watch(t.Context(), Options{File: filepath.Join(dir, "config.json")}, slog.New(slog.DiscardHandler))
	next := func() string {
		t.Helper()
		select {
		case u := <-updates:
			return string(u.Data)
		case <-time.After(pollInterval - time.Second): // before it is polled
			return "nothing"
		}
	}
	got := []string{next()}
	version("..2", "two")
	got = append(got, next())
	if diff := cmp.Diff([]string{"one", "two"}, got); diff != "" {
		t.Errorf("-want, +got:\n%s", diff)
	}
}

// The file is used as soon as the API cannot be reached, also where nobody says
// so: connecting only takes too long.
func TestWatchUnreachableAPI(t *testing.T) {
	api := &kubetest.Server{}
	api.Set("secrets", kubetest.Object{
		"kind": "Secret", "apiVersion": "v1", "metadata": map[string]any{"namespace": "vpn", "name": "home"},
		"data": map[string]any{wireguard.ConfigKey: []byte("one")},
	})
	server := httptest.NewServer(api)
	t.Cleanup(func() { server.CloseClientConnections(); api.HangUp(); server.Close() })
	var away atomic.Bool
	client, err := kube.NewClientFor(&rest.Config{Host: server.URL, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		if away.Load() {
			return nil, &net.OpError{Op: "dial", Net: network, Err: os.ErrDeadlineExceeded}
		}
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "config.json")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("zero")
	updates := Watch(t.Context(), Options{File: path, Secret: kube.Name{Namespace: "vpn", Name: "home"}, Client: client}, slog.New(slog.DiscardHandler))
	wants := func(want string) {
		t.Helper()
		select {
		case u := <-updates:
			if string(u.Data) != want {
				t.Fatalf("want %q, got %q, %v", want, u.Data, u.Err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("want %q, got nothing", want)
		}
	}
	wants("zero")
	wants("one")
	away.Store(true)
	api.HangUp()
	server.CloseClientConnections()
	write("two")
	wants("two")
}
