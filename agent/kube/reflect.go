package kube

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

const (
	// pageSize bounds how much the server has to answer at a time.
	pageSize = 250

	listTimeout = 30 * time.Second

	// A collection that cannot be watched, as one to which the right has not
	// come yet, is asked for again soon, and then ever less often.
	minReflectBackoff, maxReflectBackoff = 250 * time.Millisecond, 15 * time.Second
)

// Change is what is new of a collection: one of its fields is set, or none
// where it can be seen again and nothing has changed.
type Change[T any] struct {
	// All are all the objects there are. It is not nil, though it may be empty.
	All []T
	// Set is an object that is new or has changed.
	Set *T
	// Deleted is an object that is no more, as it was last.
	Deleted *T
	// Err tells that the collection cannot be seen for the moment. What is known
	// of it stays. Any other change ends it.
	Err error
}

// Collection is the objects of one kind and namespace that bear a label.
type Collection[T any] struct {
	Resource, Namespace, Label string
	// Decode reads an object from JSON, as the API writes it. What is left of it
	// is all that is kept: the bytes are used again.
	Decode func([]byte) T
}

func (c Collection[T]) String() string {
	return c.Resource + " of namespace " + c.Namespace
}

// Reflect tells what a collection holds, and each change of it, until the
// context ends. A connection that is lost is taken up where it was left, so that
// nothing is missed: where the server cannot, all is told anew.
func Reflect[T any](ctx context.Context, client rest.Interface, c Collection[T], tell func(Change[T])) {
	r := &reflector[T]{client: client, collection: c, tell: tell}
	backoff := minReflectBackoff
	for ctx.Err() == nil {
		err := r.once(ctx)
		if ctx.Err() != nil {
			return
		}
		if r.seen {
			backoff = minReflectBackoff
		}
		r.seen = false
		if errors.Is(err, errClosed) {
			continue
		}
		tell(Change[T]{Err: err})
		// Spread, since every gateway of a cluster loses its server at once.
		select {
		case <-ctx.Done():
		case <-time.After(backoff/2 + spread(backoff)):
		}
		backoff = min(2*backoff, maxReflectBackoff)
	}
}

type reflector[T any] struct {
	client     rest.Interface
	collection Collection[T]
	tell       func(Change[T])

	// version is up to where the collection is known, and empty where it has to
	// be listed.
	version string
	// seen tells that the last turn was of some use.
	seen bool
	// lost tells that the last turn ended in an error.
	lost bool
}

// once lists, if need be, and watches until the connection ends.
func (r *reflector[T]) once(ctx context.Context) error {
	fresh := r.version == ""
	if fresh {
		if err := r.list(ctx); err != nil {
			r.lost = true
			return err
		}
	}
	err := r.watch(ctx)
	if isGone(err) {
		// The server has forgotten what happened since.
		r.version = ""
		if !fresh {
			return errClosed
		}
	}
	r.lost = err != nil && !errors.Is(err, errClosed)
	return err
}

func isGone(err error) bool {
	return apierrors.IsResourceExpired(err) || apierrors.IsGone(err)
}

func (r *reflector[T]) request(o metav1.ListOptions) *rest.Request {
	o.LabelSelector = r.collection.Label
	return r.client.Get().Namespace(r.collection.Namespace).Resource(r.collection.Resource).
		VersionedParams(&o, metav1.ParameterCodec).SetHeader("Accept", "application/json")
}

func (r *reflector[T]) list(ctx context.Context) error {
	all := []T{}
	add := func(b []byte) { all = append(all, r.collection.Decode(b)) }
	next := ""
	for {
		page, err := r.page(ctx, next, add)
		if err != nil {
			return fmt.Errorf("cannot list %s: %w", r.collection, err)
		}
		if next = page.Continue; next == "" {
			r.version = page.ResourceVersion
			break
		}
	}
	r.seen, r.lost = true, false
	r.tell(Change[T]{All: all})
	return nil
}

// page is what a page of a list says of itself.
type page struct {
	ResourceVersion string `json:"resourceVersion"`
	Continue        string `json:"continue"`
}

// page reads one object at a time: those who make them decide how large they
// are.
func (r *reflector[T]) page(ctx context.Context, next string, add func([]byte)) (page, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	stream, err := r.request(metav1.ListOptions{Limit: pageSize, Continue: next}).Stream(ctx)
	if err != nil {
		return page{}, err
	}
	defer func() { _ = stream.Close() }()
	d, p := json.NewDecoder(stream), page{}
	if _, err := d.Token(); err != nil {
		return page{}, err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return page{}, err
		}
		switch key {
		case "metadata":
			err = d.Decode(&p)
		case "items":
			err = items(d, add)
		default:
			err = d.Decode(new(json.RawMessage))
		}
		if err != nil {
			return page{}, err
		}
	}
	// A page that is cut off ends here.
	if _, err := d.Token(); err != nil {
		return page{}, err
	}
	if p.ResourceVersion == "" {
		return page{}, errors.New("the list has no resourceVersion")
	}
	return p, nil
}

// items calls add with each element of an array, which is good until it returns.
func items(d *json.Decoder, add func([]byte)) error {
	// A list that is null has no elements.
	if begin, err := d.Token(); err != nil || begin == nil {
		return err
	}
	item := json.RawMessage{}
	for d.More() {
		if err := d.Decode(&item); err != nil {
			return err
		}
		add(item)
	}
	_, err := d.Token()
	return err
}

// event is one line of a watch.
type event struct {
	Type   watch.EventType `json:"type"`
	Object json.RawMessage `json:"object"`
}

func (r *reflector[T]) watch(ctx context.Context) error {
	seconds := int64((watchTime + spread(watchTime)).Seconds())
	stream, err := r.request(metav1.ListOptions{
		Watch: true, AllowWatchBookmarks: true, ResourceVersion: r.version, TimeoutSeconds: &seconds,
	}).Stream(ctx)
	if err != nil {
		return fmt.Errorf("cannot watch %s: %w", r.collection, err)
	}
	defer func() { _ = stream.Close() }()
	if r.lost {
		// It is seen again, with no change.
		r.lost = false
		r.tell(Change[T]{})
	}
	started := time.Now()
	defer func() { r.seen = r.seen || time.Since(started) > maxReflectBackoff }()
	d := json.NewDecoder(stream)
	for {
		e := event{}
		if err := d.Decode(&e); err != nil {
			if errors.Is(err, io.EOF) && time.Since(started) > time.Second {
				return errClosed
			}
			return fmt.Errorf("cannot watch %s: %w", r.collection, err)
		}
		if err := r.take(e); err != nil {
			return fmt.Errorf("cannot watch %s: %w", r.collection, err)
		}
		r.seen = true
	}
}

func (r *reflector[T]) take(e event) error {
	if e.Type == watch.Error {
		s := metav1.Status{}
		if err := json.Unmarshal(e.Object, &s); err != nil {
			return err
		}
		if s.Code == 0 {
			s.Code = http.StatusInternalServerError
		}
		return &apierrors.StatusError{ErrStatus: s}
	}
	o := struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
	}{}
	if err := json.Unmarshal(e.Object, &o); err != nil {
		return err
	}
	switch e.Type {
	case watch.Added, watch.Modified:
		x := r.collection.Decode(e.Object)
		r.tell(Change[T]{Set: &x})
	case watch.Deleted:
		x := r.collection.Decode(e.Object)
		r.tell(Change[T]{Deleted: &x})
	default: // A bookmark says how far it is, and nothing else.
	}
	if o.Metadata.ResourceVersion != "" {
		r.version = o.Metadata.ResourceVersion
	}
	return nil
}
