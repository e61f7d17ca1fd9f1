package fn

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/crossplane/function-sdk-go/logging"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
)

// maxMessage is what Crossplane's gRPC client accepts.
const maxMessage = 4 << 20

// TestLargestGateway finds at how many peers a gateway ends, and what its user
// is told there. The schema lets in 2,000 of them.
func TestLargestGateway(t *testing.T) {
	f := New(logging.NewNopLogger(), WithRandom(forever(make([]byte, 32))))
	for _, peers := range []int{1000, 2000} {
		l := newLoad(t, peers)
		if size := proto.Size(l.response); size >= maxMessage {
			t.Errorf("the response for %d peers is %d bytes, and Crossplane accepts %d", peers, size, maxMessage)
		} else {
			t.Logf("the response for %d peers is %d bytes", peers, size)
		}
	}
	most := 2300
	for ; ; most += 100 {
		rsp := respond(t, f, answered(t, f, firstRequest(t, most)))
		if message := fatalOf(rsp); message != "" {
			t.Logf("%d peers are refused: %s", most, message)
			checkRefusal(t, rsp, message, "spec.peers", fmt.Sprint(plan.MaxResponse))
			return
		}
		if size := proto.Size(rsp); size >= maxMessage {
			t.Fatalf("the response for %d peers is %d bytes, and nobody refused it", most, size)
		}
	}
}

// TestLargestConfig holds that a configuration that no Secret can hold is
// refused, rather than by the API server. Rules are what makes one large.
func TestLargestConfig(t *testing.T) {
	f := New(logging.NewNopLogger(), WithRandom(forever(make([]byte, 32))))
	req := firstRequest(t, 1000)
	rules := []any{}
	for i := range 16 {
		rules = append(rules, map[string]any{"action": "Accept", "protocol": "TCP", "to": map[string]any{"cidr": fmt.Sprintf("10.43.%d.0/24", i), "ports": []any{"443", "8000-8100"}}})
	}
	for _, p := range req.GetObserved().GetComposite().GetResource().GetFields()["spec"].GetStructValue().GetFields()["peers"].GetListValue().GetValues() {
		p.GetStructValue().Fields["access"] = newStruct(t, map[string]any{"a": rules}).GetFields()["a"]
	}
	rsp := respond(t, f, answered(t, f, req))
	message := fatalOf(rsp)
	if message == "" {
		t.Fatal("want a Fatal, got none")
	}
	checkRefusal(t, rsp, message, "spec.peers", "1000 peers", "1048576", "access rules")
}

// TestLargestRequirements holds that all of a response is within what Crossplane
// accepts. Secrets that peers refer to are asked for there.
func TestLargestRequirements(t *testing.T) {
	f := New(logging.NewNopLogger(), WithRandom(forever(make([]byte, 32))))
	req := firstRequest(t, 1800)
	for i, p := range req.GetObserved().GetComposite().GetResource().GetFields()["spec"].GetStructValue().GetFields()["peers"].GetListValue().GetValues() {
		name := fmt.Sprintf("%s-%d", strings.Repeat("s", 190), i)
		maps.Copy(p.GetStructValue().GetFields(), newStruct(t, map[string]any{
			"privateKeySecretRef": map[string]any{"name": name},
			"presharedKey":        map[string]any{"secretRef": map[string]any{"name": "x" + name}},
		}).GetFields())
	}
	req = answered(t, f, req)
	encode := base64.StdEncoding.EncodeToString
	for i, name := range keys(req.GetRequiredResources()) {
		if strings.HasPrefix(name, requireSecretPrefix) {
			key := encode([]byte(encode(fmt.Appendf(nil, "%032d", i))))
			s := newStruct(t, map[string]any{"data": map[string]any{"privateKey": key, "presharedKey": key}})
			req.RequiredResources[name] = &fnv1.Resources{Items: []*fnv1.Resource{{Resource: s}}}
		}
	}
	rsp := respond(t, f, req)
	if size := proto.Size(rsp); size >= maxMessage {
		t.Errorf("the response is %d bytes, and Crossplane accepts %d", size, maxMessage)
	}
	checkRefusal(t, rsp, fatalOf(rsp), "spec.peers", fmt.Sprint(plan.MaxResponse), "Secrets")
}

// TestLargestSites holds that what routes are repeated in is refused where it is
// too large, before it fills the memory.
func TestLargestSites(t *testing.T) {
	f := New(logging.NewNopLogger(), WithRandom(forever(make([]byte, 32))))
	cases := map[string]struct {
		reason string
		narrow int
		says   []string
	}{
		"Status": {"All routes stand in the status, whoever is on the device.", 0, []string{"the gateway with its status is", fmt.Sprint(plan.MaxObject)}},
		"Secret": {"They stand in a narrow configuration, twice.", 1, []string{`the configurations in the Secret "home-wireguard.peer.peer-0000"`, fmt.Sprint(corev1.MaxSecretSize)}},
		"Memory": {"A thousand of these would be gigabytes.", 1000, []string{"peers with allowedIPs", fmt.Sprint(plan.MaxResponse)}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			req := firstRequest(t, 2000)
			spec := req.GetObserved().GetComposite().GetResource().GetFields()["spec"].GetStructValue().GetFields()
			maps.Copy(spec, newStruct(t, map[string]any{"peerToPeer": true}).GetFields())
			for i, p := range spec["peers"].GetListValue().GetValues() {
				fields := p.GetStructValue().GetFields()
				delete(fields, "allowedIPs")
				if i < tc.narrow {
					maps.Copy(fields, newStruct(t, map[string]any{"allowedIPs": []any{"10.43.0.0/16"}}).GetFields())
				}
				if i >= 1000 {
					routes := make([]any, 32)
					for k := range routes {
						routes[k] = fmt.Sprintf("fd10:%x:%x:abcd::/64", i, 0x1000+k)
					}
					maps.Copy(fields, newStruct(t, map[string]any{"routes": routes, "disabled": true}).GetFields())
				}
			}
			rsp := respond(t, f, answered(t, f, req))
			checkRefusal(t, rsp, fatalOf(rsp), append(tc.says, "spec.peers")...)
		})
	}
}

// TestManyErrors holds that a spec full of errors costs no more than one that
// has none, and that its user is told in few words.
func TestManyErrors(t *testing.T) {
	f := New(logging.NewNopLogger())
	req := firstRequest(t, 2000)
	for i, p := range req.GetObserved().GetComposite().GetResource().GetFields()["spec"].GetStructValue().GetFields()["peers"].GetListValue().GetValues() {
		routes := make([]any, 32)
		for k := range routes {
			routes[k] = fmt.Sprintf("10.8.%d.%d/32", i%256, k)
		}
		p.GetStructValue().Fields["routes"] = newStruct(t, map[string]any{"r": routes}).GetFields()["r"]
	}
	start := time.Now()
	message := fatalOf(respond(t, f, req))
	// It took minutes where all were joined, and takes a second.
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("64,000 errors took %s", took)
	}
	for _, s := range []string{"spec.peers[0].routes[0]", "spec.peers[0].routes[9]", "63990 more"} {
		if !strings.Contains(message, s) {
			t.Errorf("want %q in the message, got %.1000s", s, message)
		}
	}
	if strings.Contains(message, "routes[10]") || len(message) > 4000 {
		t.Errorf("want ten errors, got %d bytes: %.3000s", len(message), message)
	}
}

func answered(t *testing.T, f *Function, req *fnv1.RunFunctionRequest) *fnv1.RunFunctionRequest {
	t.Helper()
	req.RequiredResources = map[string]*fnv1.Resources{}
	for name := range respond(t, f, req).GetRequirements().GetResources() {
		req.RequiredResources[name] = &fnv1.Resources{}
	}
	return req
}

func fatalOf(rsp *fnv1.RunFunctionResponse) string {
	i := slices.IndexFunc(rsp.GetResults(), func(r *fnv1.Result) bool { return r.GetSeverity() == fnv1.Severity_SEVERITY_FATAL })
	if i < 0 {
		return ""
	}
	return rsp.GetResults()[i].GetMessage()
}

func checkRefusal(t *testing.T, rsp *fnv1.RunFunctionResponse, message string, says ...string) {
	t.Helper()
	for _, s := range says {
		if !strings.Contains(message, s) {
			t.Errorf("want %q in the message, got %s", s, message)
		}
	}
	if len(rsp.GetDesired().GetResources()) > 0 {
		t.Error("want nothing changed, got desired resources")
	}
	if c := rsp.GetConditions()[0]; c.GetType() != "SpecValid" || c.GetReason() != "TooLarge" {
		t.Errorf("want SpecValid with reason TooLarge, got %v", c)
	}
}
