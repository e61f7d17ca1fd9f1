package pods

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/kube"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// Watcher knows the labelled pods of namespaces. It is safe for concurrent use.
type Watcher struct {
	client  rest.Interface
	log     *slog.Logger
	changed chan struct{}

	mu         sync.Mutex
	namespaces map[string]*namespace
	restored   []Pod // that nobody has asked for yet
}

// namespace is what is known of one.
type namespace struct {
	stop context.CancelFunc
	pods map[string]Pod // by UID
	// listed tells that these are the pods that there are, and not those that
	// there were before a restart.
	listed bool
	// lost tells that they cannot be watched for the moment.
	lost bool
}

// NewWatcher returns a watcher of nothing. Without client it never knows more
// pods than those that are restored. These were served before a restart, and
// count until the API has said which pods there are now: an API that cannot be
// reached must cut off no pod. Nobody else can take their place, since each has
// a key of its own.
func NewWatcher(client rest.Interface, restored []Pod, log *slog.Logger) *Watcher {
	return &Watcher{
		client: client, log: log, changed: make(chan struct{}, 1),
		namespaces: map[string]*namespace{}, restored: restored,
	}
}

// Changed sends after changes of Pods or Lost. Those that nobody has waited for are one.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

// Follow watches exactly these classes' namespaces from now on. All classes of a
// namespace share one watch. What is known of a namespace that is no longer
// watched is forgotten.
func (w *Watcher) Follow(ctx context.Context, classes []wireguard.PodClass) {
	w.mu.Lock()
	defer w.mu.Unlock()
	want := map[string]bool{}
	for _, c := range classes {
		want[c.Namespace] = true
	}
	for name, n := range w.namespaces {
		if !want[name] {
			n.stop()
			delete(w.namespaces, name)
		}
	}
	for name := range want {
		if w.namespaces[name] == nil {
			w.namespaces[name] = w.begin(ctx, name)
		}
	}
	w.restored = nil
}

func (w *Watcher) begin(ctx context.Context, name string) *namespace {
	ctx, stop := context.WithCancel(ctx)
	n := &namespace{stop: stop, pods: map[string]Pod{}}
	for _, p := range w.restored {
		if p.Namespace == name {
			n.pods[p.UID] = p
		}
	}
	if w.client != nil {
		c := kube.Collection[Pod]{Resource: "pods", Namespace: name, Label: wireguard.PeerLabel, Decode: decode}
		go kube.Reflect(ctx, w.client, c, func(c kube.Change[Pod]) { w.take(name, n, c) })
	}
	return n
}

// take notes a change of a namespace, and tells of it where it matters. It logs
// once that pods cannot be watched, and once that they can.
func (w *Watcher) take(name string, n *namespace, c kube.Change[Pod]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if c.Err != nil {
		if n.lost {
			w.log.Debug("still cannot watch pods", "namespace", name, "error", c.Err)
			return
		}
		w.log.Warn("cannot watch pods, those that are known stay", "namespace", name, "pods", len(n.pods), "error", c.Err)
	} else if n.lost {
		w.log.Info("pods can be watched", "namespace", name)
	}
	different := n.lost != (c.Err != nil)
	n.lost = c.Err != nil
	if n.apply(c) || different {
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}
}

// apply returns whether anything is different.
func (n *namespace) apply(c kube.Change[Pod]) bool {
	switch {
	case c.All != nil:
		before := n.pods
		n.pods = make(map[string]Pod, len(c.All))
		different := !n.listed || len(before) != len(c.All)
		n.listed = true
		for _, p := range c.All {
			old, known := before[p.UID]
			different = different || !known || !old.equal(p)
			n.pods[p.UID] = p
		}
		return different
	case c.Set != nil:
		old, known := n.pods[c.Set.UID]
		n.pods[c.Set.UID] = *c.Set
		return !known || !old.equal(*c.Set)
	case c.Deleted != nil:
		_, known := n.pods[c.Deleted.UID]
		delete(n.pods, c.Deleted.UID)
		return known
	default:
		return false
	}
}

// Pods returns all pods that are known, served or not.
func (w *Watcher) Pods() []Pod {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []Pod
	for _, n := range w.namespaces {
		for _, p := range n.pods {
			out = append(out, p)
		}
	}
	return out
}

// Lost returns the namespaces whose pods cannot be watched now.
func (w *Watcher) Lost() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []string
	for name, n := range w.namespaces {
		if n.lost {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}
