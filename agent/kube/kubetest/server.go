// Package kubetest is a small part of a Kubernetes API server, for tests that
// have to do with it what no real one can be made to do at will. It gets, lists and
// watches, by name or by the presence of a label, and takes server-side applies.
package kubetest

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Object is any object of the core group.
type Object = map[string]any

// Server is the API. Its zero value is ready for use, and empty.
type Server struct {
	mu       sync.Mutex
	version  int
	oldest   int // before which nothing is remembered
	objects  map[string]Object
	history  []change
	forbid   map[string]bool
	down     bool
	wake     chan struct{}
	epoch    int // connections of earlier ones are closed
	requests []string
}

type change struct {
	version int
	kind    string
	path    string // of the collection
	object  Object
}

// Set writes an object: metadata has its namespace and name.
func (s *Server) Set(resource string, o Object) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(resource, o)
}

func (s *Server) set(resource string, o Object) {
	if s.objects == nil {
		s.objects = map[string]Object{}
	}
	m := meta(o)
	collection := collectionOf(fmt.Sprint(m["namespace"]), resource)
	path := collection + "/" + fmt.Sprint(m["name"])
	kind := "ADDED"
	if _, there := s.objects[path]; there {
		kind = "MODIFIED"
	}
	s.version++
	m["resourceVersion"] = strconv.Itoa(s.version)
	s.objects[path] = clone(o)
	s.tell(change{s.version, kind, collection, clone(o)})
}

// Delete deletes an object.
func (s *Server) Delete(resource, namespace, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	collection := collectionOf(namespace, resource)
	o, there := s.objects[collection+"/"+name]
	if !there {
		return
	}
	delete(s.objects, collection+"/"+name)
	s.version++
	o = clone(o)
	meta(o)["resourceVersion"] = strconv.Itoa(s.version)
	s.tell(change{s.version, "DELETED", collection, o})
}

// Bookmark tells every watch how far it is.
func (s *Server) Bookmark() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.tell(change{s.version, "BOOKMARK", "", Object{"metadata": map[string]any{"resourceVersion": strconv.Itoa(s.version)}}})
}

// Forget makes the server remember nothing of what was, so that a watch that
// begins there has expired.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.history, s.oldest = nil, s.version
}

// Forbid refuses everything of a namespace, or allows it again.
func (s *Server) Forbid(namespace string, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.forbid == nil {
		s.forbid = map[string]bool{}
	}
	s.forbid[namespace] = on
	s.hangUp()
}

// Down makes every request fail, or lets them through again. Watches end.
func (s *Server) Down(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = on
	s.hangUp()
}

// HangUp ends every watch.
func (s *Server) HangUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hangUp()
}

func (s *Server) hangUp() {
	s.epoch++
	s.broadcast()
}

// Requests returns what was asked for, each as its method, path and query.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Get returns an object, or nil.
func (s *Server) Get(resource, namespace, name string) Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o, there := s.objects[collectionOf(namespace, resource)+"/"+name]; there {
		return clone(o)
	}
	return nil
}

func (s *Server) tell(c change) {
	s.history = append(s.history, c)
	s.broadcast()
}

func (s *Server) broadcast() {
	if s.wake != nil {
		close(s.wake)
		s.wake = nil
	}
}

// next is closed when there is something new.
func (s *Server) next() <-chan struct{} {
	if s.wake == nil {
		s.wake = make(chan struct{})
	}
	return s.wake
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.RequestURI())
	namespace, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/api/v1/namespaces/"), "/")
	down, forbidden := s.down, s.forbid[namespace]
	s.mu.Unlock()
	switch {
	case down:
		fail(w, http.StatusInternalServerError, "InternalError")
	case forbidden:
		fail(w, http.StatusForbidden, "Forbidden")
	case r.Method == http.MethodPatch:
		s.patch(w, r)
	case r.URL.Query().Get("watch") != "":
		s.watch(w, r)
	case strings.Count(r.URL.Path, "/") > strings.Count(collectionOf("", ""), "/"):
		s.get(w, r)
	default:
		s.list(w, r)
	}
}

func (s *Server) get(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, there := s.objects[r.URL.Path]
	if !there {
		fail(w, http.StatusNotFound, "NotFound")
		return
	}
	write(w, o)
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := r.URL.Query()
	var paths []string
	for _, p := range slices.Sorted(maps.Keys(s.objects)) {
		if path, _ := split(p); path == r.URL.Path && matches(s.objects[p], q.Get("labelSelector"), q.Get("fieldSelector")) {
			paths = append(paths, p)
		}
	}
	start, _ := strconv.Atoi(q.Get("continue"))
	end := len(paths)
	m := map[string]any{"resourceVersion": strconv.Itoa(s.version)}
	if limit, err := strconv.Atoi(q.Get("limit")); err == nil && start+limit < end {
		end = start + limit
		m["continue"] = strconv.Itoa(end)
	}
	items := []Object{}
	for _, p := range paths[start:end] {
		items = append(items, s.objects[p])
	}
	write(w, Object{"kind": "List", "apiVersion": "v1", "metadata": m, "items": items})
}

func (s *Server) watch(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	w.Header().Set("Content-Type", "application/json")
	s.mu.Lock()
	epoch, from := s.epoch, s.version
	var events []change
	if v := q.Get("resourceVersion"); v != "" {
		from, _ = strconv.Atoi(v)
	} else {
		for p, o := range s.objects {
			if path, _ := split(p); path == r.URL.Path {
				events = append(events, change{kind: "ADDED", path: path, object: clone(o)})
			}
		}
	}
	expired := from < s.oldest
	s.mu.Unlock()
	if expired {
		write(w, Object{"type": "ERROR", "object": status(http.StatusGone, "Expired")})
		return
	}
	flush(w)
	for {
		for _, e := range events {
			if e.kind == "BOOKMARK" && q.Get("allowWatchBookmarks") == "" ||
				e.kind != "BOOKMARK" && (e.path != r.URL.Path || !matches(e.object, q.Get("labelSelector"), q.Get("fieldSelector"))) {
				continue
			}
			write(w, Object{"type": e.kind, "object": e.object})
			flush(w)
		}
		s.mu.Lock()
		if s.epoch != epoch {
			s.mu.Unlock()
			return
		}
		events = nil
		for _, e := range s.history {
			if e.version > from {
				events = append(events, e)
				from = e.version
			}
		}
		next := s.next()
		s.mu.Unlock()
		if len(events) > 0 {
			continue
		}
		select {
		case <-r.Context().Done():
			return
		case <-next:
		}
	}
}

// patch takes what is applied in place of what is there.
func (s *Server) patch(w http.ResponseWriter, r *http.Request) {
	b, err := io.ReadAll(r.Body)
	o := Object{}
	if err == nil {
		err = json.Unmarshal(b, &o)
	}
	if err != nil {
		fail(w, http.StatusBadRequest, "BadRequest")
		return
	}
	path, name := split(r.URL.Path)
	f := strings.Split(path, "/")
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, there := s.objects[r.URL.Path]; !there {
		fail(w, http.StatusNotFound, "NotFound")
		return
	}
	m := meta(o)
	m["namespace"], m["name"] = f[len(f)-2], name
	s.set(f[len(f)-1], o)
	write(w, o)
}

func collectionOf(namespace, resource string) string {
	return "/api/v1/namespaces/" + namespace + "/" + resource
}

func split(path string) (collection, name string) {
	i := strings.LastIndex(path, "/")
	return path[:i], path[i+1:]
}

func meta(o Object) map[string]any {
	m, _ := o["metadata"].(map[string]any)
	return m
}

// matches takes a selector of labels that is one name, and one of fields that is
// metadata.name.
func matches(o Object, label, field string) bool {
	m := meta(o)
	if _, name, ok := strings.Cut(field, "="); ok && name != m["name"] {
		return false
	}
	labels, _ := m["labels"].(map[string]any)
	_, has := labels[label]
	return label == "" || has
}

// clone also brings an object into the form in which JSON is read.
func clone(o Object) Object {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	out := Object{}
	if err := json.Unmarshal(b, &out); err != nil {
		panic(err)
	}
	return out
}

func status(code int, reason string) Object {
	return Object{"kind": "Status", "apiVersion": "v1", "metadata": map[string]any{}, "status": "Failure", "message": reason, "reason": reason, "code": code}
}

func fail(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	encode(w, status(code, reason))
}

func write(w http.ResponseWriter, o Object) {
	w.Header().Set("Content-Type", "application/json")
	encode(w, o)
}

// encode writes a line. Who does not read it any more has hung up.
func encode(w io.Writer, o Object) {
	b, err := json.Marshal(o)
	if err != nil {
		panic(err)
	}
	_, _ = w.Write(append(b, '\n'))
}

func flush(w http.ResponseWriter) {
	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}
}
