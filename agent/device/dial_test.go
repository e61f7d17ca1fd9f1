package device

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// Somebody may configure names that nobody answers for. They hold up no other.
func TestResolveSlow(t *testing.T) {
	before := net.DefaultResolver
	t.Cleanup(func() { net.DefaultResolver = before })
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		<-ctx.Done() // a name server that never answers
		return nil, ctx.Err()
	}}
	names := map[wgtypes.Key]string{key(1): "localhost:51820"} // from the hosts file
	for i := range 20 {
		names[key(byte(2+i))] = fmt.Sprintf("h%d.slow.example.com:51820", i)
	}
	ctx, cancel := context.WithCancel(t.Context())
	told := make(chan map[wgtypes.Key]Resolved, len(names))
	ended := make(chan error)
	go func() { ended <- Resolve(ctx, names, func(r map[wgtypes.Key]Resolved) { told <- r }) }()
	select {
	case got := <-told:
		if r := got[key(1)]; r.Err != nil || r.Endpoint != names[key(1)] || !r.Address.Addr().IsLoopback() || r.Address.Port() != 51820 {
			t.Errorf("want the address of localhost, got %+v", got)
		}
	case <-time.After(5 * time.Second):
		t.Error("a name that is known waits for others")
	}
	cancel()
	if err := <-ended; err == nil {
		t.Error("want to know that the others were not found")
	}
	for range len(names) - 1 {
		for _, r := range <-told {
			if r.Err == nil {
				t.Errorf("nobody answers for %s, got %s", r.Endpoint, r.Address)
			}
		}
	}
}

// A name is looked up once at a time, however long that takes.
func TestResolveOnce(t *testing.T) {
	p := start(t, &fake{peers: map[wgtypes.Key]*wgtypes.Peer{}}, filepath.Join(t.TempDir(), "endpoints.json"))
	p.mustSync(one(nameA))
	due := func(after time.Duration) map[wgtypes.Key]string {
		t.Helper()
		o, err := p.Observe(p.now.Add(after))
		if err != nil {
			t.Fatal(err)
		}
		return o.Due
	}
	name := map[wgtypes.Key]string{key(1): nameA}
	if diff := cmp.Diff(name, due(0)); diff != "" {
		t.Errorf("at first: -want, +got:\n%s", diff)
	}
	if got := due(10 * redial); len(got) != 0 {
		t.Errorf("it is looked up already, got %v", got)
	}
	if err := p.SetEndpoints(map[wgtypes.Key]Resolved{key(1): {Endpoint: nameA, Err: errors.New("timeout")}}); err != nil {
		t.Fatal(err)
	}
	if got := p.fake.endpoint(); got != "" {
		t.Errorf("it was not found, got %s", got)
	}
	if diff := cmp.Diff(name, due(11*redial)); diff != "" {
		t.Errorf("it was not found: -want, +got:\n%s", diff)
	}
}

// The search domains of the pod may know any name, so that a whole one is not
// looked for there first.
func TestLookup(t *testing.T) {
	const own, cluster = "198.51.100.1", "10.96.0.9"
	notFound := &net.DNSError{Err: "no such host", IsNotFound: true}
	cases := map[string]struct {
		reason string
		host   string
		knows  map[string]string // addresses by what is asked for, the name server fails for "failure"
		asked  []string
		want   string
	}{
		"Whole":    {"it is asked for as it is", "vpn.example.com", map[string]string{"vpn.example.com.": own, "vpn.example.com": cluster}, []string{"vpn.example.com."}, own},
		"Absolute": {"so it says itself", "vpn.example.com.", map[string]string{"vpn.example.com.": own}, []string{"vpn.example.com."}, own},
		"Service":  {"a Service's may be short for another", "peer.vpn", map[string]string{"peer.vpn": cluster}, []string{"peer.vpn.", "peer.vpn"}, cluster},
		"Short":    {"a name without a dot is always", "peer", map[string]string{"peer": cluster}, []string{"peer"}, cluster},
		"Failure":  {"who cannot be asked has not said that there is none", "vpn.example.com", map[string]string{"vpn.example.com.": "failure", "vpn.example.com": cluster}, []string{"vpn.example.com."}, ""},
		"Unknown":  {"nobody knows it", "vpn.example.com", nil, []string{"vpn.example.com.", "vpn.example.com"}, ""},
		"Nothing":  {"and there is nothing beyond a whole name", "vpn.example.com.", nil, []string{"vpn.example.com."}, ""},
		"Address":  {"an address is no name", own, nil, nil, own},
		"IPv6":     {"of either family", "2001:db8::1", nil, nil, "2001:db8::1"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var asked []string
			got, err := lookup(t.Context(), tc.host, func(_ context.Context, _, host string) ([]netip.Addr, error) {
				asked = append(asked, host)
				switch a := tc.knows[host]; a {
				case "":
					return nil, notFound
				case "failure":
					return nil, &net.DNSError{Err: "server misbehaving", IsTemporary: true}
				default:
					return []netip.Addr{netip.MustParseAddr(a)}, nil
				}
			})
			if diff := cmp.Diff(tc.asked, asked); diff != "" {
				t.Errorf("%s: asked for: -want, +got:\n%s", tc.reason, diff)
			}
			if (err != nil) != (tc.want == "") || err == nil && got.String() != tc.want {
				t.Errorf("%s: want %q, got %s, %v", tc.reason, tc.want, got, err)
			}
		})
	}
}
