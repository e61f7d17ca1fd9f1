// Package render_test holds what every rendered gateway must be. Each folder in
// testdata is a gateway and what is observed of it; so is each example. What is
// rendered stands in want.yaml, and all of them are checked for the function's
// invariants.
package render_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/crossplane/crossplane-runtime/v2/pkg/logging"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/wireguardgateway/function-wireguard-gateway/fn"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/offline"
)

// now is when all gateways are rendered.
var now = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// newSeed is what the random source of all cases gives, once.
var newSeed = []byte{
	0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f,
	0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f,
}

// testCase is a gateway to render.
type testCase struct {
	name string
	want string // file with what is rendered
	in   offline.Request
}

// cases returns all of testdata, and all examples.
func cases(tb testing.TB) []testCase {
	tb.Helper()
	var out []testCase
	for _, from := range []struct{ glob, prefix string }{{"testdata/*/xr.yaml", ""}, {"../example/*/xr.yaml", "example-"}} {
		files, err := filepath.Glob(from.glob)
		if err != nil {
			tb.Fatal(err)
		}
		if len(files) == 0 {
			tb.Fatalf("%s matches nothing", from.glob)
		}
		for _, f := range files {
			dir := filepath.Dir(f)
			c := testCase{name: from.prefix + filepath.Base(dir)}
			c.want = filepath.Join("testdata", c.name, "want.yaml")
			c.in = load(tb, dir)
			out = append(out, c)
		}
	}
	return out
}

// caseNamed returns one of testdata.
func caseNamed(tb testing.TB, name string) testCase {
	tb.Helper()
	return testCase{name: name, in: load(tb, filepath.Join("testdata", name))}
}

func load(tb testing.TB, dir string) offline.Request {
	tb.Helper()
	in := offline.Request{Observed: objects(tb, filepath.Join(dir, "observed.yaml"))}
	// What is composed can be required too, as in a cluster.
	in.Required = append(in.Required, in.Observed...)
	in.Required = append(in.Required, objects(tb, filepath.Join(dir, "required.yaml"))...)
	if input := objects(tb, filepath.Join(dir, "input.yaml")); len(input) > 0 {
		in.Input = input[0]
	}
	// A list of kinds that the cluster lacks, for a Crossplane that can tell.
	if b, err := os.ReadFile(filepath.Join(dir, "lacks.yaml")); err == nil {
		var lacks []string
		if err := yaml.Unmarshal(b, &lacks); err != nil {
			tb.Fatal(err)
		}
		in.Lacks = map[string]bool{}
		for _, kind := range lacks {
			in.Lacks[kind] = true
		}
	}
	in.Composite = objects(tb, filepath.Join(dir, "xr.yaml"))[0]
	return in
}

// objects reads a file that may not be there.
func objects(tb testing.TB, path string) []*unstructured.Unstructured {
	tb.Helper()
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	os, err := offline.ReadObjects(path)
	if err != nil {
		tb.Fatal(err)
	}
	return os
}

// outcome is what a run of the function was given and gave.
type outcome struct {
	req  *fnv1.RunFunctionRequest
	rsp  *fnv1.RunFunctionResponse
	logs string // at debug level
}

// fatal tells whether the function refused to compose.
func (o outcome) fatal() bool {
	for _, r := range o.rsp.GetResults() {
		if r.GetSeverity() == fnv1.Severity_SEVERITY_FATAL {
			return true
		}
	}
	return false
}

func (c testCase) run(tb testing.TB) outcome {
	tb.Helper()
	return run(tb, c.in)
}

// run renders a gateway as Crossplane does, with its requirements answered.
func run(tb testing.TB, in offline.Request) outcome {
	tb.Helper()
	logs := &bytes.Buffer{}
	r := &recorder{Function: newFunction(logs)}
	rsp, err := offline.Run(context.Background(), r, in)
	if err != nil {
		tb.Fatal(err)
	}
	return outcome{req: r.last, rsp: rsp, logs: logs.String()}
}

// again runs the function on a request as it is.
func again(tb testing.TB, req *fnv1.RunFunctionRequest) outcome {
	tb.Helper()
	logs := &bytes.Buffer{}
	req = proto.CloneOf(req)
	rsp, err := newFunction(logs).RunFunction(context.Background(), proto.CloneOf(req))
	if err != nil {
		tb.Fatalf("RunFunction must not return errors, got %v", err)
	}
	return outcome{req: req, rsp: rsp, logs: logs.String()}
}

// newFunction returns one that always lives at the same time, with the same
// luck.
func newFunction(logs *bytes.Buffer) *fn.Function {
	return fn.New(spy{logs}, fn.WithClock(func() time.Time { return now }), fn.WithRandom(bytes.NewReader(newSeed)))
}

// spy is a logger that keeps all that it is told, at any level.
type spy struct{ logs *bytes.Buffer }

func (s spy) Info(msg string, keysAndValues ...any) {
	fmt.Fprintf(s.logs, "%s %v\n", msg, keysAndValues)
}

func (s spy) Debug(msg string, keysAndValues ...any) {
	fmt.Fprintf(s.logs, "%s %v\n", msg, keysAndValues)
}

func (s spy) WithValues(keysAndValues ...any) logging.Logger {
	fmt.Fprintf(s.logs, "%v\n", keysAndValues)
	return s
}

// recorder remembers the last request.
type recorder struct {
	*fn.Function

	last *fnv1.RunFunctionRequest
}

func (r *recorder) RunFunction(ctx context.Context, req *fnv1.RunFunctionRequest) (*fnv1.RunFunctionResponse, error) {
	r.last = proto.CloneOf(req)
	return r.Function.RunFunction(ctx, req)
}

// canonical returns the one form of a message's bytes.
func canonical(tb testing.TB, m proto.Message) []byte {
	tb.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// clone returns a deep copy of a value in JSON.
func clone[T any](tb testing.TB, v T) T {
	tb.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	out := new(T)
	if err := json.Unmarshal(b, out); err != nil {
		tb.Fatal(err)
	}
	return *out
}
