package render_test

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"

	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// fuzzed are the invariants that hold whatever the function is given. The
// others say something of what users write in Kubernetes' own types, too.
var fuzzed = []string{
	"1 all or nothing", "5 frozen keys", "7 explicit readiness", "8 quiet", "8 conditions", "9 fail closed",
	"11 clean objects", "11 names", "11 namespaces", "11 pods", "11 status only",
}

// survive runs the function on anything: it must not panic, return no error,
// and answer with a full set, with requirements, or with Fatal. What it
// composes must settle.
func survive(t *testing.T, req *fnv1.RunFunctionRequest) {
	t.Helper()
	o := again(t, req)
	judge(t, o)
	if o.fatal() || o.rsp.GetDesired().GetResources()["config"] == nil || req.GetDesired().GetResources()["config"] != nil {
		return
	}
	second := again(t, reconciled(t, o))
	judge(t, second)
	if second.fatal() {
		t.Errorf("it composes at first, and refuses then: %v", second.rsp.GetResults())
		return
	}
	third := again(t, reconciled(t, second))
	judge(t, third)
	fourth := again(t, reconciled(t, third))
	for _, v := range notFixed(t, third, fourth) {
		t.Errorf("2 fixpoint: %s", v)
	}
}

func judge(t *testing.T, o outcome) {
	t.Helper()
	if _, err := proto.Marshal(o.rsp); err != nil {
		t.Errorf("the response cannot be sent: %v", err)
	}
	for _, name := range fuzzed {
		for _, v := range checkers[name](t, o) {
			t.Errorf("%s: %s", name, v)
		}
	}
}

// FuzzRunFunction changes good requests in many places at once: fields vanish,
// values change for others of the same or another type, fields appear that
// exist elsewhere.
func FuzzRunFunction(f *testing.F) {
	var requests []*fnv1.RunFunctionRequest
	for i, c := range cases(f) {
		requests = append(requests, c.run(f).req)
		for _, s := range []string{"", "a", "between", strings.Repeat("\x17\xf3\x05\x80", 16)} {
			f.Add(uint8(i), []byte(s))
		}
	}
	words := vocabulary(requests)
	f.Fuzz(func(t *testing.T, which uint8, program []byte) {
		req := proto.CloneOf(requests[int(which)%len(requests)])
		if req.GetObserved().GetResources() == nil {
			req.Observed.Resources = map[string]*fnv1.Resource{}
		}
		m := &mutator{program: program, words: words, requests: requests}
		for m.more() {
			m.mutate(req)
		}
		survive(t, req)
	})
}

// FuzzSpec replaces a whole spec and the whole of what is observed.
func FuzzSpec(f *testing.F) {
	for _, c := range cases(f) {
		req := c.run(f).req
		xr, err := protojson.Marshal(req.GetObserved().GetComposite().GetResource())
		if err != nil {
			f.Fatal(err)
		}
		observed := &structpb.Struct{Fields: map[string]*structpb.Value{}}
		for key, r := range req.GetObserved().GetResources() {
			observed.Fields[key] = structpb.NewStructValue(r.GetResource())
		}
		rs, err := protojson.Marshal(observed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(xr, rs)
	}
	f.Fuzz(func(t *testing.T, xr, observed []byte) {
		composite, resources := &structpb.Struct{}, &structpb.Struct{}
		if protojson.Unmarshal(xr, composite) != nil || protojson.Unmarshal(observed, resources) != nil {
			return
		}
		req := &fnv1.RunFunctionRequest{
			Meta:     &fnv1.RequestMeta{Tag: "fuzz"},
			Observed: &fnv1.State{Composite: &fnv1.Resource{Resource: composite}, Resources: map[string]*fnv1.Resource{}},
		}
		for key, v := range resources.GetFields() {
			req.Observed.Resources[key] = &fnv1.Resource{Resource: v.GetStructValue()}
		}
		// Whatever is required does not exist, or is what is observed.
		rsp, err := newFunction(&bytes.Buffer{}).RunFunction(context.Background(), proto.CloneOf(req))
		if err != nil {
			t.Fatal(err)
		}
		req.RequiredResources = map[string]*fnv1.Resources{}
		for name := range rsp.GetRequirements().GetResources() {
			req.RequiredResources[name] = &fnv1.Resources{}
			if r := req.GetObserved().GetResources()[name]; r != nil {
				req.RequiredResources[name].Items = []*fnv1.Resource{r}
			}
		}
		survive(t, req)
	})
}

// words are what requests are made of.
type words struct {
	fields []string
	values []*structpb.Value
}

func vocabulary(requests []*fnv1.RunFunctionRequest) words {
	fields, strs := map[string]bool{}, map[string]bool{}
	for _, req := range requests {
		for _, s := range structs(req) {
			walk("", structpb.NewStructValue(s), func(_ string, v *structpb.Value) {
				for k := range v.GetStructValue().GetFields() {
					fields[k] = true
				}
				if s := v.GetStringValue(); s != "" && len(s) < 200 {
					strs[s] = true
				}
			})
		}
	}
	for _, s := range []string{
		"", "0", "-1", "a\nb", "a\x00b", "%s%n", "é", " ", "::/0", "0.0.0.0/0", "10.8.0.0/30", "10.8.0.1/24", "10.8.0.255", "fd00::1", "::ffff:10.8.0.5", "fe80::1%eth0",
		"10.8.0.2-10.8.0.250", "fd00:8::-fd00:8::ffff:ffff:ffff:fff0", "65536", "80-79", "2026-06-01T12:00:00Z", "2026-06-01T12:00:01Z", "tomorrow", "1ns",
		strings.Repeat("a", 64), strings.Repeat("A", 43) + "=", "Kernel", "NodePort", "ClusterIP", "PodSysctl", "InitContainer", "None", "true", "agent", "seed", "config",
	} {
		strs[s] = true
	}
	w := words{fields: keysOf(fields)}
	for _, s := range keysOf(strs) {
		w.values = append(w.values, structpb.NewStringValue(s))
	}
	for _, n := range []float64{0, 1, -1, 0.5, 2, 24, 53, 80, 576, 1280, 8080, 9000, 9586, 51820, 65535, 65536, 1 << 31, 1 << 32, 1 << 53, 1e300} {
		w.values = append(w.values, structpb.NewNumberValue(n))
	}
	return w
}

// structs are all objects in a request, in an order that stays.
func structs(req *fnv1.RunFunctionRequest) []*structpb.Struct {
	// The composite resource is what most depends on.
	xr := req.GetObserved().GetComposite().GetResource()
	out := []*structpb.Struct{xr, xr, xr, xr}
	for _, rs := range []map[string]*fnv1.Resource{req.GetObserved().GetResources(), req.GetDesired().GetResources()} {
		for _, key := range keysOf(rs) {
			out = append(out, rs[key].GetResource())
		}
	}
	for _, name := range keysOf(req.GetRequiredResources()) {
		for _, r := range req.GetRequiredResources()[name].GetItems() {
			out = append(out, r.GetResource())
		}
	}
	if req.GetInput() != nil {
		out = append(out, req.GetInput())
	}
	return out
}

// mutator changes requests as a program of bytes says.
type mutator struct {
	program  []byte
	words    words
	requests []*fnv1.RunFunctionRequest
}

func (m *mutator) more() bool { return len(m.program) > 0 }

// pick returns a number below n.
func (m *mutator) pick(n int) int {
	if n <= 1 || len(m.program) == 0 {
		return 0
	}
	i := int(m.program[0])
	m.program = m.program[1:]
	if n > 256 && len(m.program) > 0 {
		i = i<<8 | int(m.program[0])
		m.program = m.program[1:]
	}
	return i % n
}

func (m *mutator) mutate(req *fnv1.RunFunctionRequest) {
	switch m.pick(16) {
	case 0:
		m.drop(req)
		return
	case 1:
		// Another request's observed object comes in.
		other := m.requests[m.pick(len(m.requests))].GetObserved().GetResources()
		if keys := keysOf(other); len(keys) > 0 {
			key := keys[m.pick(len(keys))]
			req.Observed.Resources[key] = proto.CloneOf(other[key])
		}
		return
	}
	all := structs(req)
	v := structpb.NewStructValue(all[m.pick(len(all))])
	// Down to some place, and there something happens.
	for range 1 + m.pick(8) {
		next := m.child(v)
		if next == nil {
			break
		}
		v = next
	}
	m.change(v)
}

// drop takes away an object, or the answer to a requirement.
func (m *mutator) drop(req *fnv1.RunFunctionRequest) {
	if keys := keysOf(req.GetRequiredResources()); m.pick(2) == 0 && len(keys) > 0 {
		key := keys[m.pick(len(keys))]
		if m.pick(2) == 0 {
			delete(req.GetRequiredResources(), key)
		} else {
			req.RequiredResources[key] = &fnv1.Resources{}
		}
		return
	}
	if keys := keysOf(req.GetObserved().GetResources()); len(keys) > 0 {
		key := keys[m.pick(len(keys))]
		if m.pick(2) == 0 {
			delete(req.GetObserved().GetResources(), key)
		} else {
			req.Observed.Resources[key] = &fnv1.Resource{}
		}
	}
}

func (m *mutator) child(v *structpb.Value) *structpb.Value {
	if fields := v.GetStructValue().GetFields(); len(fields) > 0 {
		keys := keysOf(fields)
		return fields[keys[m.pick(len(keys))]]
	}
	if list := v.GetListValue().GetValues(); len(list) > 0 {
		return list[m.pick(len(list))]
	}
	return nil
}

func (m *mutator) change(v *structpb.Value) {
	switch s, l := v.GetStructValue(), v.GetListValue(); {
	case s != nil && m.pick(3) > 0:
		if s.Fields == nil {
			s.Fields = map[string]*structpb.Value{}
		}
		if keys := keysOf(s.GetFields()); m.pick(2) == 0 && len(keys) > 0 {
			delete(s.GetFields(), keys[m.pick(len(keys))])
			return
		}
		s.Fields[m.words.fields[m.pick(len(m.words.fields))]] = m.value(3)
	case l != nil && m.pick(3) > 0:
		switch values := l.GetValues(); {
		case len(values) > 0 && m.pick(3) == 0:
			l.Values = slices.Delete(slices.Clone(values), 0, 1)
		case len(values) > 0 && m.pick(2) == 0:
			l.Values = append(slices.Clone(values), proto.CloneOf(values[m.pick(len(values))]))
		default:
			l.Values = append(slices.Clone(values), m.value(2))
		}
	default:
		v.Kind = m.value(2).GetKind()
	}
}

// value makes one up, or takes one from somewhere else.
func (m *mutator) value(depth int) *structpb.Value {
	switch m.pick(10) {
	case 0:
		return structpb.NewNullValue()
	case 1:
		return structpb.NewBoolValue(m.pick(2) == 0)
	case 2:
		l := &structpb.ListValue{}
		for range m.pick(3) {
			if depth > 0 {
				l.Values = append(l.Values, m.value(depth-1))
			}
		}
		return structpb.NewListValue(l)
	case 3:
		s := &structpb.Struct{Fields: map[string]*structpb.Value{}}
		for range m.pick(3) {
			if depth > 0 {
				s.Fields[m.words.fields[m.pick(len(m.words.fields))]] = m.value(depth - 1)
			}
		}
		return structpb.NewStructValue(s)
	case 4, 5:
		// A part of another gateway's spec.
		v := m.requests[m.pick(len(m.requests))].GetObserved().GetComposite().GetResource().GetFields()["spec"]
		for range m.pick(4) {
			if next := m.child(v); next != nil {
				v = next
			}
		}
		if v == nil {
			return structpb.NewNullValue()
		}
		return proto.CloneOf(v)
	case 6:
		// Letters of the program's own.
		n := min(m.pick(16), len(m.program))
		s := strings.ToValidUTF8(string(m.program[:n]), "?")
		m.program = m.program[n:]
		return structpb.NewStringValue(s)
	default:
		return proto.CloneOf(m.words.values[m.pick(len(m.words.values))])
	}
}
