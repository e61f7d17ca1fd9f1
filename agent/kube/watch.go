package kube

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

const (
	// watchTime is how long the server keeps a watch open, at the least. It is
	// begun anew after that, as by every client of Kubernetes.
	watchTime = 5 * time.Minute

	// minSilence is how long a watch may say nothing at first, also because it
	// does not come about, before the server is asked, which it has getTimeout to
	// answer.
	minSilence = time.Second
	getTimeout = 10 * time.Second

	minBackoff, maxBackoff = 500 * time.Millisecond, 30 * time.Second
)

// Event is what a watch tells.
type Event struct {
	// Object is the object as it is now, or nil where there is none.
	Object runtime.Object
	// Err tells that the connection is lost. The next event without ends it.
	Err error
}

// errClosed ends a watch that has run its time.
var errClosed = errors.New("watch ended")

// Watch calls handle with the object as it is, and again whenever it changes,
// until the context ends. After each lost connection it tells the object anew,
// changed or not. Being told that there is no object takes a second or so.
func Watch(ctx context.Context, client rest.Interface, resource string, name Name, handle func(Event)) {
	backoff := minBackoff
	for ctx.Err() == nil {
		started := time.Now()
		err := watchOnce(ctx, client, resource, name, handle)
		if errors.Is(err, errClosed) && time.Since(started) > time.Second {
			backoff = minBackoff
			continue
		}
		if ctx.Err() == nil && !errors.Is(err, errClosed) {
			handle(Event{Err: err})
		}
		if time.Since(started) > maxBackoff {
			backoff = minBackoff
		}
		// Spread, since every gateway of a cluster loses its server at once.
		wait := backoff/2 + spread(backoff)
		backoff = min(2*backoff, maxBackoff)
		select {
		case <-ctx.Done():
		case <-time.After(wait):
		}
	}
}

// spread returns a random time up to a limit. It may be easy to guess.
func spread(limit time.Duration) time.Duration {
	return rand.N(limit) //nolint:gosec // It is no secret.
}

func watchOnce(ctx context.Context, client rest.Interface, resource string, name Name, handle func(Event)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begun := begin(ctx, client, resource, name)

	// The server says nothing where there is no object, nor while it is busy or
	// cannot be reached. So it is asked which it is, until the watch has said
	// something.
	pause := minSilence
	silent := time.NewTimer(pause)
	defer silent.Stop()
	var asked chan error
	ask := func() {
		asked = make(chan error, 1)
		go func(answer chan<- error) { answer <- find(ctx, client, resource, name) }(asked)
	}
	var results <-chan watch.Event
	heard, closed := false, false
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case a := <-begun:
			if a.err != nil {
				return fmt.Errorf("cannot watch %s %s: %w", resource, name, a.err)
			}
			defer a.watch.Stop()
			results = a.watch.ResultChan()
		case <-silent.C:
			ask()
		case err := <-asked:
			asked, heard = nil, true
			switch {
			case err == nil:
				pause = min(2*pause, maxBackoff)
				silent.Reset(pause)
			case apierrors.IsNotFound(err):
				handle(Event{})
			default:
				return err
			}
			if closed {
				return errClosed
			}
		case e, open := <-results:
			silent.Stop()
			if !open {
				if heard {
					return errClosed
				}
				// A watch that never came about looks like one that had nothing to
				// say: client-go makes an empty one of some failures to connect.
				results, closed = nil, true
				if asked == nil {
					ask()
				}
				continue
			}
			asked, heard = nil, true
			switch e.Type {
			case watch.Added, watch.Modified:
				handle(Event{Object: e.Object})
			case watch.Deleted:
				handle(Event{})
			case watch.Error:
				return fmt.Errorf("cannot watch %s %s: %w", resource, name, apierrors.FromObject(e.Object))
			case watch.Bookmark:
			}
		}
	}
}

// answer is to a request for a watch.
type answer struct {
	watch watch.Interface
	err   error
}

// begin connects once: client-go would go on for minutes, and tell nobody.
func begin(ctx context.Context, client rest.Interface, resource string, name Name) <-chan answer {
	seconds := int64((watchTime + spread(watchTime)).Seconds())
	// Without a resource version the server starts with the object as it is.
	// No list is needed, nor the right to it.
	request := client.Get().Namespace(name.Namespace).Resource(resource).VersionedParams(&metav1.ListOptions{
		Watch: true, TimeoutSeconds: &seconds,
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, name.Name).String(),
	}, metav1.ParameterCodec).MaxRetries(0)
	begun := make(chan answer)
	go func() {
		w, err := request.Watch(ctx)
		select {
		case begun <- answer{w, err}:
		case <-ctx.Done():
			if err == nil {
				w.Stop()
			}
		}
	}()
	return begun
}

// find returns an error where there is no object, or no answer.
func find(ctx context.Context, client rest.Interface, resource string, name Name) error {
	ctx, cancel := context.WithTimeout(ctx, getTimeout)
	defer cancel()
	err := client.Get().Namespace(name.Namespace).Resource(resource).Name(name.Name).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("cannot get %s %s: %w", resource, name, err)
	}
	return nil
}
