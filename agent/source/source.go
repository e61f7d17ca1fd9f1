// Package source finds the gateway's configuration: in its Secret, watched
// through the API, or in the file that the kubelet mounts from it.
package source

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/kube"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// pollInterval is how often the file is looked at where the kernel does not
// tell of its changes, as with some network file systems.
const pollInterval = 5 * time.Second

// Update is a version of config.json, or the reason why there is none.
type Update struct {
	Data []byte
	Err  error
	// Origin tells where it comes from.
	Origin string
}

// Options name where to look.
type Options struct {
	// File is where the Secret is mounted.
	File string
	// Secret is watched with Client, which may be nil: then there is the file
	// only.
	Secret kube.Name
	Client rest.Interface
}

// Watch sends the configuration, and each new version of it, until the context
// ends. The file comes first, since it is there at once. From then on the API
// decides, as long as it can be reached: the kubelet brings the file up to date
// a minute later or so.
func Watch(ctx context.Context, o Options, log *slog.Logger) <-chan Update {
	out := make(chan Update)
	events := make(chan kube.Event)
	if o.Client != nil && !o.Secret.IsZero() {
		go kube.Watch(ctx, o.Client, "secrets", o.Secret, func(e kube.Event) {
			select {
			case events <- e:
			case <-ctx.Done():
			}
		})
	}
	changed, err := notify(ctx, o.File)
	if err != nil {
		log.Warn("cannot be told of a new file, it is looked at now and then", "error", err)
	}
	s := &selector{file: file{path: o.File}, secret: o.Secret, log: log}
	go func() {
		defer close(out)
		ticker := time.NewTicker(pollInterval)
		defer ticker.Stop()
		u := s.fromFile()
		for {
			if u != nil {
				select {
				case out <- *u:
				case <-ctx.Done():
					return
				}
			}
			select {
			case <-ticker.C:
				u = s.fromFile()
			case <-changed:
				u = s.fromFile()
			case e := <-events:
				u = s.fromAPI(e)
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

// selector decides between the two sources.
type selector struct {
	file   file
	secret kube.Name
	log    *slog.Logger

	// live tells that the API can be reached and has the Secret.
	live bool
	// lost is why the API cannot be reached, empty while it can.
	lost string
	// held is what the file had to say while the API was live.
	held *Update
	// last is the version that was sent last.
	last [sha256.Size]byte
	// failed tells that a reason was sent after it, which holds until a version
	// is sent again.
	failed bool
	// shown is the version that the file has.
	shown [sha256.Size]byte
	// seen are versions that the file may come to have because it is behind: those
	// that the API has given, and the one that they have overtaken. Once the file
	// has the last version there are none, and whatever it has next is newer.
	seen ring
}

func (s *selector) fromFile() *Update {
	if u := s.file.read(); u != nil {
		s.held = s.news(u)
	}
	if s.live {
		return nil
	}
	u := s.held
	s.held = nil
	if u != nil && u.Err == nil {
		s.seen = ring{}
	}
	return s.send(u)
}

// news returns what the file has to say that the API has not said.
func (s *selector) news(u *Update) *Update {
	if u.Err != nil {
		return u
	}
	s.shown = sha256.Sum256(u.Data)
	switch {
	case s.shown == s.last:
		s.seen = ring{}
		if !s.failed {
			return nil
		}
	case s.seen.has(s.shown):
		return nil
	}
	return u
}

// send keeps in mind what is sent.
func (s *selector) send(u *Update) *Update {
	if u == nil {
		return nil
	}
	s.failed = u.Err != nil
	if u.Err == nil {
		s.last = sha256.Sum256(u.Data)
	}
	return u
}

func (s *selector) fromAPI(e kube.Event) *Update {
	origin := "Secret " + s.secret.String()
	if e.Err != nil {
		s.live = false
		if s.lost != e.Err.Error() {
			s.lost = e.Err.Error()
			s.log.Warn("cannot reach the Kubernetes API, the mounted file is used", "error", e.Err)
		}
		return nil
	}
	if s.lost != "" {
		s.lost = ""
		s.log.Info("the Kubernetes API can be reached again")
	}
	secret, ok := e.Object.(*corev1.Secret)
	if !ok {
		s.live = false
		return s.send(&Update{Origin: origin, Err: fmt.Errorf("cannot find %s", origin)})
	}
	s.live, s.held = true, nil
	b, ok := secret.Data[wireguard.ConfigKey]
	if !ok {
		return s.send(&Update{Origin: origin, Err: fmt.Errorf("cannot find %s in %s", wireguard.ConfigKey, origin)})
	}
	h := sha256.Sum256(b)
	if h != s.shown {
		s.seen.add(s.shown)
		s.seen.add(h)
	}
	if h == s.last && !s.failed {
		return nil
	}
	return s.send(&Update{Origin: origin, Data: b})
}

// ring holds the last versions. One more than fits forgets the oldest, which
// the file has long left behind.
type ring struct {
	hashes [64][sha256.Size]byte
	next   int
}

func (r *ring) add(h [sha256.Size]byte) {
	if !r.has(h) {
		r.hashes[r.next] = h
		r.next = (r.next + 1) % len(r.hashes)
	}
}

func (r *ring) has(h [sha256.Size]byte) bool {
	for _, x := range r.hashes {
		if x == h {
			return true
		}
	}
	return false
}
