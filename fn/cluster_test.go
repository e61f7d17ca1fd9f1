package fn

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/offline"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// cluster is what Crossplane and an API server do for composite resources in
// several namespaces: it applies what the function returns, removes what it
// stops returning, and shows each of them what the others have become.
type cluster struct {
	t       *testing.T
	now     time.Time
	logs    bytes.Buffer
	said    strings.Builder // conditions and results, of all runs
	objects map[string]*unstructured.Unstructured
	last    map[string]*fnv1.RunFunctionResponse // of each composite resource
	uids    int
	// known is what each composite resource required when it last succeeded.
	known map[string]*fnv1.Requirements
	// composed are what each composite resource refers to.
	composed map[string]map[string]bool
	// claims tells that the cluster has the claim flavour.
	claims bool
	// lacks are kinds that it does not have. Where it is nil, Crossplane is too old
	// to tell.
	lacks map[string]bool
	// stale are composite resources that do not get to run.
	stale map[string]bool
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	return &cluster{
		t:       t,
		now:     time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC),
		objects: map[string]*unstructured.Unstructured{},
		last:    map[string]*fnv1.RunFunctionResponse{},
		known:   map[string]*fnv1.Requirements{},
		stale:   map[string]bool{},

		composed: map[string]map[string]bool{},
	}
}

func objectID(kind, namespace, name string) string { return kind + " " + namespace + "/" + name }

func idOf(o *unstructured.Unstructured) string {
	return objectID(o.GetKind(), o.GetNamespace(), o.GetName())
}

// apply creates the objects, or changes their specs.
func (c *cluster) apply(manifests string) {
	c.t.Helper()
	for doc := range strings.SplitSeq(manifests, "\n---\n") {
		m := map[string]any{}
		if err := yaml.Unmarshal([]byte(doc), &m); err != nil {
			c.t.Fatal(err)
		}
		if len(m) == 0 {
			continue
		}
		o := &unstructured.Unstructured{Object: m}
		if have := c.objects[idOf(o)]; have != nil {
			o.SetUID(have.GetUID())
			if status, ok := have.Object["status"]; ok {
				o.Object["status"] = status
			}
		} else {
			c.uids++
			o.SetUID(typesUID(fmt.Sprintf("uid-%d", c.uids)))
		}
		c.objects[idOf(o)] = o
	}
}

// gateway creates the gateway home in the namespace vpn, or changes it.
func (c *cluster) gateway(spec string) {
	c.t.Helper()
	c.apply("apiVersion: wireguardgateway.io/v1alpha1\nkind: WireguardGateway\nmetadata: {name: home, namespace: vpn}\nspec: " + spec)
}

// peer creates a client of that gateway, or changes it.
func (c *cluster) peer(namespace, name, client string) {
	c.t.Helper()
	c.apply("apiVersion: wireguardgateway.io/v1alpha1\nkind: WireguardPeer\nmetadata: {name: " + name + ", namespace: " + namespace +
		"}\nspec: {gatewayRef: {name: home, namespace: vpn}, client: " + client + "}")
}

// remove deletes an object, and what it owns.
func (c *cluster) remove(kind, namespace, name string) {
	c.t.Helper()
	o := c.objects[objectID(kind, namespace, name)]
	if o == nil {
		c.t.Fatalf("there is no %s", objectID(kind, namespace, name))
	}
	delete(c.objects, idOf(o))
	delete(c.last, idOf(o))
	delete(c.known, idOf(o))
	delete(c.composed, idOf(o))
	maps.DeleteFunc(c.objects, func(_ string, other *unstructured.Unstructured) bool {
		return slices.ContainsFunc(other.GetOwnerReferences(), func(r ownerReference) bool { return r.UID == o.GetUID() })
	})
}

// composites returns the composite resources, in the order of their names, or in
// reverse.
func (c *cluster) composites(reverse bool) []string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(c.objects)) {
		if o := c.objects[id]; o.GroupVersionKind().Group == "wireguardgateway.io" {
			out = append(out, id)
		}
	}
	if reverse {
		slices.Reverse(out)
	}
	return out
}

// settle runs all composite resources in turn, until nothing changes any more.
func (c *cluster) settle() { c.t.Helper(); c.settleIn(false) }

func (c *cluster) settleIn(reverse bool) {
	c.t.Helper()
	const rounds = 12
	for range rounds {
		before := c.snapshot()
		for _, id := range c.composites(reverse) {
			if !c.stale[id] {
				c.reconcile(id)
			}
		}
		if c.snapshot() == before {
			return
		}
	}
	c.t.Fatal("the cluster does not settle")
}

// snapshot is all that there is. Maps print in the order of their keys.
func (c *cluster) snapshot() string {
	all := make(map[string]any, len(c.objects))
	for id, o := range c.objects {
		all[id] = o.Object
	}
	return fmt.Sprint(all)
}

// composite is what Crossplane observes: the object itself, or what it has made
// of a claim.
func (c *cluster) composite(o *unstructured.Unstructured) *unstructured.Unstructured {
	out := o.DeepCopy()
	if !c.claims {
		return out
	}
	out.SetKind("X" + o.GetKind())
	out.SetNamespace("")
	out.SetName(o.GetName() + "-x7x2q")
	if err := unstructured.SetNestedMap(out.Object, map[string]any{"namespace": o.GetNamespace(), "name": o.GetName()}, "spec", "claimRef"); err != nil {
		c.t.Fatal(err)
	}
	return out
}

// reconcile runs the function for one composite resource, and applies what it
// says.
func (c *cluster) reconcile(id string) {
	c.t.Helper()
	o := c.objects[id]
	xr := c.composite(o)
	in := offline.Request{Composite: xr, Lacks: c.lacks, Known: c.known[id]}
	for _, other := range slices.Sorted(maps.Keys(c.objects)) {
		object := c.objects[other]
		in.Required = append(in.Required, object)
		// Crossplane hides what another controls.
		if c.composed[id][other] && metav1.IsControlledBy(object, o) {
			in.Observed = append(in.Observed, object)
		}
	}
	f := New(&spyLogger{&c.logs}, WithClock(func() time.Time { return c.now }), WithRandom(bytes.NewReader(bytes.Repeat([]byte{byte(c.uids)}, 64))))
	rsp, err := offline.Run(c.t.Context(), f, in)
	if err != nil {
		c.t.Fatalf("%s: %v", id, err)
	}
	c.last[id] = rsp
	fmt.Fprintln(&c.said, id, rsp.GetConditions(), rsp.GetResults(), rsp.GetDesired().GetComposite())
	if slices.ContainsFunc(rsp.GetResults(), func(r *fnv1.Result) bool { return r.GetSeverity() == fnv1.Severity_SEVERITY_FATAL }) {
		return
	}
	c.known[id] = rsp.GetRequirements()
	desired := map[string]bool{}
	c.composed[id] = desired
	for _, n := range offline.Composed(xr, rsp) {
		n.SetOwnerReferences([]ownerReference{{APIVersion: xr.GetAPIVersion(), Kind: xr.GetKind(), Name: xr.GetName(), UID: o.GetUID(), Controller: new(true)}})
		if n.GetKind() == "Service" {
			namespace := n.GetNamespace()
			controllers(n.Object)
			n.SetNamespace(namespace)
		}
		if n.GetNamespace() != o.GetNamespace() {
			c.t.Errorf("%s composes %s in another namespace", id, idOf(n))
		}
		desired[idOf(n)] = true
		c.objects[idOf(n)] = n
	}
	// Crossplane deletes what has a key that is not desired any more. An object that
	// another takes the key of is forgotten.
	for _, had := range in.Observed {
		if rsp.GetDesired().GetResources()[had.GetAnnotations()[offline.AnnotationKey]] == nil {
			delete(c.objects, idOf(had))
		}
	}
	if status, ok := rsp.GetDesired().GetComposite().GetResource().AsMap()["status"]; ok {
		o.Object["status"] = status
	}
}

// secret returns the data of a Secret in the clear, nil where there is none.
func (c *cluster) secret(namespace, name string) map[string]string {
	c.t.Helper()
	o := c.objects[objectID("Secret", namespace, name)]
	if o == nil {
		return nil
	}
	data, _, _ := unstructured.NestedStringMap(o.Object, "data")
	out := map[string]string{}
	for k, v := range data {
		b, err := base64.StdEncoding.DecodeString(v)
		if err != nil {
			c.t.Fatal(err)
		}
		out[k] = string(b)
	}
	return out
}

// confLine returns the value of a line of a configuration.
func confLine(conf, key string) string {
	for l := range strings.Lines(conf) {
		if k, v, ok := strings.Cut(strings.TrimSpace(l), " = "); ok && k == key {
			return v
		}
	}
	return ""
}

// config is the gateway's configuration.
func (c *cluster) config() wireguard.GatewayConfig {
	c.t.Helper()
	g, err := wireguard.DecodeGatewayConfig([]byte(c.secret("vpn", "home-wireguard.config")["config.json"]))
	if err != nil {
		c.t.Fatal(err)
	}
	return g
}

// onDevice returns the peers that may connect.
func (c *cluster) onDevice() []string {
	c.t.Helper()
	var out []string
	for _, p := range c.config().Peers {
		out = append(out, p.Namespace+"/"+p.Name)
	}
	return out
}

// condition returns status and reason of a condition, and its message apart.
func (c *cluster) condition(kind, namespace, name, condition string) (is, message string) {
	c.t.Helper()
	status, reason, message := conditionOf(c.last[objectID(kind, namespace, name)], condition)
	short := strings.TrimPrefix(status.String(), "STATUS_CONDITION_")
	return short + " " + reason, message
}

func (c *cluster) want(kind, namespace, name, condition, want string) {
	c.t.Helper()
	if is, message := c.condition(kind, namespace, name, condition); is != want {
		c.t.Errorf("%s: condition %s: want %s, got %s: %s", objectID(kind, namespace, name), condition, want, is, message)
	}
}

// namesOf returns what there is in a namespace beside what users made.
func (c *cluster) namesOf(namespace string) []string {
	var out []string
	for _, id := range slices.Sorted(maps.Keys(c.objects)) {
		if o := c.objects[id]; o.GetNamespace() == namespace && len(o.GetOwnerReferences()) > 0 {
			out = append(out, o.GetKind()+" "+o.GetName())
		}
	}
	return out
}

// field prints a field of an object that a peer's team has, empty where there is
// none.
func (c *cluster) field(kind, name string, path ...string) string {
	v, _, _ := unstructured.NestedFieldNoCopy(c.objects[objectID(kind, "apps", name)].Object, path...)
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}

// spyLogger keeps what is logged, at every level.
type spyLogger struct{ to *bytes.Buffer }

func (l *spyLogger) Info(msg string, kv ...any) { fmt.Fprintln(l.to, append([]any{msg}, kv...)...) }

func (l *spyLogger) Debug(msg string, kv ...any)        { fmt.Fprintln(l.to, append([]any{msg}, kv...)...) }
func (l *spyLogger) WithValues(_ ...any) logging.Logger { return l }
