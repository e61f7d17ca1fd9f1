package fn

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/crossplane/function-sdk-go/logging"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// What a gateway may cost. The floor is what every function pays for the same
// messages: to read the request, and to write the response.
const (
	maxRatio  = 4.0 // of a run at 1,000 peers to its floor
	maxGrowth = 1.2 // of the time per peer at 1,000 to that at 100
)

// load is a steady state: a request where everything is observed, as it comes
// from Crossplane, and the response to it.
type load struct {
	peers    int
	function *Function
	request  []byte
	response *fnv1.RunFunctionResponse
}

func newLoad(tb testing.TB, peers int) *load {
	tb.Helper()
	seed := make([]byte, 32)
	for i := range seed {
		seed[i] = byte(i)
	}
	l := &load{peers: peers, function: New(logging.NewNopLogger(),
		WithClock(func() time.Time { return time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC) }),
		WithRandom(forever(seed)))}
	req := steady(tb, l.function, firstRequest(tb, peers))
	l.response = respond(tb, l.function, req)
	var err error
	if l.request, err = proto.Marshal(req); err != nil {
		tb.Fatal(err)
	}
	return l
}

// forever is a random source that never runs out.
type forever []byte

func (f forever) Read(b []byte) (int, error) { return copy(b, f), nil }

func respond(tb testing.TB, f *Function, req *fnv1.RunFunctionRequest) *fnv1.RunFunctionResponse {
	tb.Helper()
	rsp, err := f.RunFunction(tb.Context(), req)
	if err != nil {
		tb.Fatal(err)
	}
	return rsp
}

// firstRequest is that of a gateway nothing is observed of. Its peers are what
// most gateways have: names, some of them with a little more.
func firstRequest(tb testing.TB, peers int) *fnv1.RunFunctionRequest {
	tb.Helper()
	list := make([]any, peers)
	for i := range list {
		p := map[string]any{"name": fmt.Sprintf("peer-%04d", i)}
		switch i % 10 {
		case 1:
			p["presharedKey"] = map[string]any{"generate": true}
		case 2:
			p["allowedIPs"] = []any{"10.43.0.0/16"}
		case 3:
			p["access"] = []any{map[string]any{"action": "Accept", "protocol": "TCP", "to": map[string]any{"cidr": "10.43.0.20/32", "ports": []any{"443"}}}}
		}
		list[i] = p
	}
	return &fnv1.RunFunctionRequest{
		Meta: &fnv1.RequestMeta{Tag: "bench"},
		Observed: &fnv1.State{Composite: &fnv1.Resource{Resource: newStruct(tb, map[string]any{
			"apiVersion": "wireguardgateway.io/v1alpha1",
			"kind":       "WireguardGateway",
			"metadata":   map[string]any{"name": "home", "namespace": "vpn"},
			"spec": map[string]any{
				"peerCIDR":   "10.8.0.0/16",
				"peerCIDRv6": "fd00:8::/64",
				"endpoint":   map[string]any{"host": "vpn.example.com"},
				"peers":      list,
			},
		})}},
	}
}

// steady answers the requirements, and turns what is desired into what is
// observed, with the metadata that an API server keeps.
func steady(tb testing.TB, f *Function, req *fnv1.RunFunctionRequest) *fnv1.RunFunctionRequest {
	tb.Helper()
	req.RequiredResources = map[string]*fnv1.Resources{}
	for name := range respond(tb, f, req).GetRequirements().GetResources() {
		req.RequiredResources[name] = &fnv1.Resources{}
	}
	for range 2 {
		rsp := respond(tb, f, req)
		if len(rsp.GetResults()) > 0 {
			tb.Fatalf("want a quiet run, got %v", rsp.GetResults())
		}
		req.Observed.Resources = map[string]*fnv1.Resource{}
		for key, r := range rsp.GetDesired().GetResources() {
			o := r.GetResource().AsMap()
			addServerMetadata(o)
			if key == "deployment" {
				o["status"] = map[string]any{"observedGeneration": 1, "replicas": 1, "updatedReplicas": 1, "readyReplicas": 1, "availableReplicas": 1}
			}
			req.Observed.Resources[key] = &fnv1.Resource{Resource: newStruct(tb, o)}
		}
		req.RequiredResources["seed"] = &fnv1.Resources{Items: []*fnv1.Resource{req.GetObserved().GetResources()["seed"]}}
		req.GetObserved().GetComposite().GetResource().GetFields()["status"] = rsp.GetDesired().GetComposite().GetResource().GetFields()["status"]
	}
	return req
}

func addServerMetadata(o map[string]any) {
	m := o["metadata"].(map[string]any)
	m["namespace"], m["uid"], m["resourceVersion"], m["generation"], m["creationTimestamp"] = "vpn", "7a1c9f5e-2b0d-4c6e-9a53-0d7d4a1f6b11", "4711", 1, "2026-05-01T00:00:00Z"
	m["annotations"] = map[string]any{"crossplane.io/composition-resource-name": "key"}
	m["ownerReferences"] = []any{map[string]any{"apiVersion": "wireguardgateway.io/v1alpha1", "kind": "WireguardGateway", "name": "home", "uid": "8a1c9f5e-2b0d-4c6e-9a53-0d7d4a1f6b11", "controller": true, "blockOwnerDeletion": true}}
	owned := map[string]any{}
	for k := range m["labels"].(map[string]any) {
		owned["f:"+k] = map[string]any{}
	}
	m["managedFields"] = []any{map[string]any{
		"manager": "apiextensions.crossplane.io/composed/0123456789abcdef", "operation": "Apply", "apiVersion": "v1", "time": "2026-05-01T00:00:00Z", "fieldsType": "FieldsV1",
		"fieldsV1": map[string]any{"f:data": map[string]any{"f:direct.conf": map[string]any{}, "f:internal.conf": map[string]any{}}, "f:metadata": map[string]any{"f:labels": owned, "f:ownerReferences": map[string]any{}}},
	}}
}

func newStruct(tb testing.TB, m map[string]any) *structpb.Struct {
	tb.Helper()
	s, err := structpb.NewStruct(m)
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// floor reads the request and writes the response.
func (l *load) floor(tb testing.TB) {
	tb.Helper()
	req := &fnv1.RunFunctionRequest{}
	if err := proto.Unmarshal(l.request, req); err != nil {
		tb.Fatal(err)
	}
	if _, err := proto.Marshal(l.response); err != nil {
		tb.Fatal(err)
	}
}

// whole reads the request, runs the function, and writes the response.
func (l *load) whole(tb testing.TB) {
	tb.Helper()
	req := &fnv1.RunFunctionRequest{}
	if err := proto.Unmarshal(l.request, req); err != nil {
		tb.Fatal(err)
	}
	if _, err := proto.Marshal(respond(tb, l.function, req)); err != nil {
		tb.Fatal(err)
	}
}

// took returns how long something takes, from a clean slate.
func took(tb testing.TB, f func(testing.TB)) time.Duration {
	tb.Helper()
	runtime.GC()
	start := time.Now()
	f(tb)
	return time.Since(start)
}

// alternate measures in turns, so that whatever else the machine does falls on
// all alike, and returns the median of each.
func alternate(tb testing.TB, rounds int, fs ...func(testing.TB)) []time.Duration {
	tb.Helper()
	times := make([][]time.Duration, len(fs))
	for range rounds {
		for i, f := range fs {
			times[i] = append(times[i], took(tb, f))
		}
	}
	out := make([]time.Duration, len(fs))
	for i := range times {
		slices.Sort(times[i])
		out[i] = times[i][rounds/2]
	}
	return out
}

func BenchmarkRunFunction(b *testing.B) {
	for _, peers := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprintf("peers=%d", peers), func(b *testing.B) {
			l := newLoad(b, peers)
			b.ReportAllocs()
			// Medians, since whatever else the machine does falls on a few.
			var floors, wholes []time.Duration
			var before, after runtime.MemStats
			for b.Loop() {
				floors = append(floors, took(b, l.floor))
				runtime.ReadMemStats(&before)
				wholes = append(wholes, took(b, l.whole))
				runtime.ReadMemStats(&after)
			}
			slices.Sort(floors)
			slices.Sort(wholes)
			n := float64(peers)
			b.ReportMetric(float64(wholes[len(wholes)/2])/float64(floors[len(floors)/2]), "x-floor")
			b.ReportMetric(float64(proto.Size(l.response))/n, "response-B/peer")
			b.ReportMetric(float64(after.Mallocs-before.Mallocs)/n, "mallocs/peer")
		})
	}
}

// raceDetector tells whether the race detector is what would be measured.
var raceDetector bool

// TestSpeedRatio compares times within one process, and knows no absolute one.
func TestSpeedRatio(t *testing.T) {
	if testing.Short() || raceDetector {
		t.Log("times are measured without -short and -race only")
		return
	}
	hundred, thousand := newLoad(t, 100), newLoad(t, 1000)
	// Of several attempts the best: other work on the machine only ever adds.
	ratio, growth := 1e9, 1e9
	for range 5 {
		m := alternate(t, 5, thousand.floor, thousand.whole, func(tb testing.TB) {
			tb.Helper()
			// As much work as that of a thousand, so that both are measured
			// equally well.
			for range 10 {
				hundred.whole(tb)
			}
		})
		ratio = min(ratio, float64(m[1])/float64(m[0]))
		growth = min(growth, float64(m[1])/float64(m[2]))
		if ratio <= maxRatio && growth <= maxGrowth {
			break
		}
	}
	t.Logf("1,000 peers take %.2f times the floor, and each of them %.2f times one of 100", ratio, growth)
	if ratio > maxRatio {
		t.Errorf("want at most %.1f times the floor at 1,000 peers, got %.2f", maxRatio, ratio)
	}
	if growth > maxGrowth {
		t.Errorf("want at most %.1f times the time per peer at 1,000 of that at 100, got %.2f", maxGrowth, growth)
	}
}
