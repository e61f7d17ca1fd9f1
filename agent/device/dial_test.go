package device

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/config"
)

// The endpoint in the configuration is set where it is another than before, and
// a peer that has moved stays where it is.
func TestEndpointOfConfiguration(t *testing.T) {
	const (
		disabled = "disabled"                // the peer is gone meanwhile
		fails    = "fails"                   // the device refuses once
		undone   = "undone"                  // it takes B and says that it did not, and the user goes back
		restart  = "restart"                 // the agent ends, and its device with it
		adopt    = "adopt"                   // the agent ends, and the kernel's device stays
		forget   = "adopt without file"      // nothing is known of the time before
		older    = "restart with older file" // of an agent that kept no configured endpoints
		olderToo = "adopt with older file"
	)
	cases := map[string]struct {
		reason string
		was    string // endpoint in the configuration
		seen   string // where the peer moves, empty where it stays
		event  string
		is     string // endpoint in the configuration
		silent bool   // the peer does not answer after the event
		want   string
	}{
		"Moved":          {"a sync does not bring a peer back", endpointA, moved, "", endpointA, false, moved},
		"MovedSilent":    {"nor does one that has nothing to say", endpointA, moved, "", endpointA, true, moved},
		"Changed":        {"the user says where it is now", endpointA, moved, "", endpointB, false, endpointB},
		"First":          {"it is the user's word against one that called once", "", moved, "", endpointB, false, endpointB},
		"Withdrawn":      {"nothing is said of where it is", endpointA, moved, "", "", false, moved},
		"Disabled":       {"it comes back as it was", endpointA, moved, disabled, endpointA, false, moved},
		"DisabledPlain":  {"so does one that calls by itself", "", moved, disabled, "", false, moved},
		"DisabledOther":  {"it comes back with another", endpointA, "", disabled, endpointB, false, endpointB},
		"DisabledFirst":  {"it comes back with its first", "", moved, disabled, endpointB, false, endpointB},
		"Fails":          {"the next sync tries again", endpointA, "", fails, endpointB, false, endpointB},
		"FailsFirst":     {"also with the first", "", moved, fails, endpointB, false, endpointB},
		"Undone":         {"what failed may have been taken", endpointA, "", undone, endpointA, false, endpointA},
		"Restart":        {"a restart leaves it where it is", endpointA, moved, restart, endpointA, false, moved},
		"RestartPlain":   {"so it does one that calls by itself", "", moved, restart, "", false, moved},
		"RestartOther":   {"it was changed meanwhile", endpointA, moved, restart, endpointB, false, endpointB},
		"RestartFirst":   {"it was set meanwhile", "", moved, restart, endpointB, false, endpointB},
		"RestartOlder":   {"it may have been changed meanwhile", endpointA, endpointA, older, endpointB, false, endpointB},
		"RestartOldPeer": {"where none is configured, any file will do", "", moved, older, "", false, moved},
		"Adopt":          {"a restart leaves it where it is", endpointA, moved, adopt, endpointA, false, moved},
		"AdoptSilent":    {"also if there is nothing to say", endpointA, moved, adopt, endpointA, true, moved},
		"AdoptOther":     {"it was changed meanwhile", endpointA, moved, adopt, endpointB, false, endpointB},
		"AdoptFirst":     {"it may have been set meanwhile, and a session that works stays", "", moved, adopt, endpointB, false, moved},
		"AdoptFirstLost": {"one that does not is no loss", "", moved, adopt, endpointB, true, endpointB},
		"Forget":         {"a session that works stays", endpointA, moved, forget, endpointA, false, moved},
		"ForgetLost":     {"one that does not is no loss", endpointA, moved, forget, endpointA, true, endpointA},
		"AdoptOlder":     {"a session that works stays", endpointA, moved, olderToo, endpointA, false, moved},
		"AdoptOlderLost": {"one that does not is no loss", endpointA, moved, olderToo, endpointB, true, endpointB},

		"NameMoved":         {"a name does not bring a peer back", nameA, moved, "", nameA, false, moved},
		"NameSilent":        {"a name may be another address by now", nameA, moved, "", nameA, true, endpointA},
		"NameChanged":       {"also while the peer answers at the old one", nameA, "", "", nameB, false, endpointB},
		"NameFirst":         {"also if it has called", "", moved, "", nameB, false, endpointB},
		"NameInsteadOf":     {"also instead of an address", endpointA, "", "", nameB, false, endpointB},
		"AddressInsteadOf":  {"also the other way", nameA, "", "", endpointB, false, endpointB},
		"NameDisabledOther": {"it comes back with another", nameA, "", disabled, nameB, false, endpointB},
		"NameRestart":       {"a restart leaves it where it is", nameA, moved, restart, nameA, false, moved},
		"NameRestartOther":  {"it was changed meanwhile", nameA, "", restart, nameB, false, endpointB},
		"NameAdoptOther":    {"it was changed meanwhile", nameA, "", adopt, nameB, false, endpointB},
		"NameForget":        {"a session that works stays", nameA, moved, forget, nameA, false, moved},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			path := filepath.Join(t.TempDir(), "endpoints.json")
			p := start(t, f, path)
			p.mustSync(one(tc.was))
			p.look(60, true)
			if tc.seen != "" {
				f.moveTo(tc.seen)
			}
			p.look(2, true)
			switch tc.event {
			case disabled:
				p.mustSync(&config.Config{})
				p.look(2, true)
			case fails:
				f.fail = errors.New("no memory")
				if p.sync(one(tc.is)) == nil {
					t.Fatal("it did not fail")
				}
			case undone:
				f.half = errors.New("interrupted")
				if p.sync(one(endpointB)) == nil {
					t.Fatal("it did not fail")
				}
			case forget:
				removeFile(t, path)
			case older, olderToo:
				b := `{"version":1,"endpoints":{"` + key(1).String() + `":"` + f.endpoint() + `"}}`
				if err := os.WriteFile(path, []byte(b), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			switch tc.event {
			case restart, older:
				f = newFake()
				p = p.next(f)
			case adopt, forget, olderToo:
				p = p.next(f)
			}
			for range 2 {
				p.mustSync(one(tc.is))
				// A session is dead after three minutes.
				p.look(300, !tc.silent)
			}
			if got := f.endpoint(); got != tc.want {
				t.Errorf("%s: want %s, got %s", tc.reason, tc.want, got)
			}
		})
	}
}

// An endpoint that changes is in force with the sync, not with the next look.
func TestEndpointAtOnce(t *testing.T) {
	p := start(t, newFake(), filepath.Join(t.TempDir(), "endpoints.json"))
	for _, e := range []string{endpointA, endpointB, endpointA} {
		p.mustSync(one(e))
		if got := p.fake.endpoint(); got != e {
			t.Errorf("want %s, got %s", e, got)
		}
	}
	// So is one of a peer that somebody else has taken away.
	delete(p.fake.peers, key(1))
	if o, err := p.Observe(p.now); err != nil || !o.Drifted {
		t.Fatalf("nobody noticed: %+v, %v", o, err)
	}
	p.mustSync(one(endpointA))
	if got := p.fake.endpoint(); got != endpointA {
		t.Errorf("the peer was taken away: want %s, got %s", endpointA, got)
	}
}

// An endpoint that was set late is set once: the peer may move from there.
func TestEndpointOnce(t *testing.T) {
	cases := map[string]struct {
		reason string
		event  func(p *process) *process
		is     string
		silent bool // the peer does not answer before it is set, and after it has moved
	}{
		"Name": {"a name that changed was looked up", func(p *process) *process { return p }, nameB, false},
		"Unsure": {"an endpoint of which nothing was known was set in the end", func(p *process) *process {
			removeFile(p.t, p.file.path)
			return p.next(p.fake)
		}, endpointB, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := start(t, newFake(), filepath.Join(t.TempDir(), "endpoints.json"))
			p.mustSync(one(endpointA))
			p.look(2, true)
			p = tc.event(p)
			p.mustSync(one(tc.is))
			p.look(300, !tc.silent)
			if got := p.fake.endpoint(); got != endpointB {
				t.Fatalf("%s: want %s, got %s", tc.reason, endpointB, got)
			}
			p.look(2, true)
			p.fake.moveTo(moved)
			p.look(300, !tc.silent)
			if got := p.fake.endpoint(); got != moved {
				t.Errorf("%s, and the peer has moved: want %s, got %s", tc.reason, moved, got)
			}
		})
	}
}

// A peer that has answered since its device was adopted is where it is, however
// long it is silent then.
func TestEndpointOfAdopted(t *testing.T) {
	p := start(t, newFake(), filepath.Join(t.TempDir(), "endpoints.json"))
	p.mustSync(one(endpointA))
	p.look(2, true)
	removeFile(t, p.file.path)
	p = p.next(p.fake)
	p.mustSync(one(endpointA))
	p.look(2, true)
	p.fake.moveTo(moved)
	p.look(2, true)
	p.look(600, false)
	if got := p.fake.endpoint(); got != moved {
		t.Errorf("want %s, got %s", moved, got)
	}
}

// What an agent could not set yet, the next one does not take for set.
func TestEndpointNotYetSet(t *testing.T) {
	cases := map[string]struct {
		reason string
		forget bool
		is     string
		silent bool // the peer does not answer any more
	}{
		"Unsure": {"the first session went on", true, endpointB, true},
		"Name":   {"the name was not found", false, nameB, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := start(t, newFake(), filepath.Join(t.TempDir(), "endpoints.json"))
			p.mustSync(one(endpointA))
			p.look(2, true)
			if tc.forget {
				removeFile(t, p.file.path)
				p = start(t, p.fake, p.file.path)
			}
			p.mustSync(one(tc.is))
			p.fake.peers[key(1)].LastHandshakeTime = p.now
			if _, err := p.Observe(p.now); err != nil {
				t.Fatal(err)
			}
			p = start(t, p.fake, p.file.path)
			p.mustSync(one(tc.is))
			p.look(300, !tc.silent)
			if got := p.fake.endpoint(); got != endpointB {
				t.Errorf("%s: want %s, got %s", tc.reason, endpointB, got)
			}
		})
	}
}

// An answer for what is no longer configured is not used, and what could not be
// set is tried again.
func TestEndpointsResolved(t *testing.T) {
	p := start(t, newFake(), filepath.Join(t.TempDir(), "endpoints.json"))
	late := resolve(map[wgtypes.Key]string{key(1): nameA})
	p.mustSync(one(nameA))
	p.look(1, true)

	p.mustSync(one(endpointB))
	if err := p.SetEndpoints(late); err != nil {
		t.Fatal(err)
	}
	if got := p.fake.endpoint(); got != endpointB {
		t.Errorf("the name is no longer configured: want %s, got %s", endpointB, got)
	}

	p.mustSync(one(nameA))
	p.fake.fail = errors.New("no memory")
	if p.SetEndpoints(late) == nil {
		t.Fatal("it did not fail")
	}
	p.mustSync(one(nameA))
	p.look(60, true)
	if got := p.fake.endpoint(); got != endpointA {
		t.Errorf("the device refused once: want %s, got %s", endpointA, got)
	}
}

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
	p := start(t, newFake(), filepath.Join(t.TempDir(), "endpoints.json"))
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
