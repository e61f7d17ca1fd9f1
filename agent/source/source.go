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
	// lost is when the API could no longer be reached.
	lost string
	// held is a version of the file that came while the API was live.
	held *Update
	// last is the version that was sent last.
	last [sha256.Size]byte
	// seen are versions that the API has given. When the file has one of
	// them, it is behind.
	seen ring
}

func (s *selector) fromFile() *Update {
	u := s.file.read()
	if s.live {
		if u != nil {
			s.held = u
		}
		return nil
	}
	if u == nil {
		u, s.held = s.held, nil
	}
	if u == nil || u.Err != nil {
		return u
	}
	h := sha256.Sum256(u.Data)
	if h == s.last || s.seen.has(h) {
		return nil
	}
	s.last = h
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
		return &Update{Origin: origin, Err: fmt.Errorf("cannot find %s", origin)}
	}
	s.live, s.held = true, nil
	b, ok := secret.Data[wireguard.ConfigKey]
	if !ok {
		return &Update{Origin: origin, Err: fmt.Errorf("cannot find %s in %s", wireguard.ConfigKey, origin)}
	}
	h := sha256.Sum256(b)
	s.seen.add(h)
	if h == s.last {
		return nil
	}
	s.last = h
	return &Update{Origin: origin, Data: b}
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
