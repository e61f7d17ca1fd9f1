package device

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/config"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// fake is a device in memory.
type fake struct {
	key   wgtypes.Key
	peers map[wgtypes.Key]*wgtypes.Peer
	// fail and half are of the next write: nothing is taken of it, or all.
	fail, half error
	// unread is of each read.
	unread error
}

func (f *fake) Close() error { return nil }

func (f *fake) Device(string) (*wgtypes.Device, error) {
	if f.unread != nil {
		return nil, f.unread
	}
	d := &wgtypes.Device{PrivateKey: f.key}
	for _, p := range f.peers {
		d.Peers = append(d.Peers, *p)
	}
	return d, nil
}

func (f *fake) ConfigureDevice(_ string, c wgtypes.Config) error {
	fail, half := f.fail, f.half
	f.fail, f.half = nil, nil
	if fail != nil {
		return fail
	}
	for _, ch := range c.Peers {
		p := f.peers[ch.PublicKey]
		if p == nil {
			if ch.UpdateOnly {
				continue
			}
			p = &wgtypes.Peer{PublicKey: ch.PublicKey}
			f.peers[ch.PublicKey] = p
		}
		if ch.Remove {
			delete(f.peers, ch.PublicKey)
			continue
		}
		if ch.Endpoint != nil {
			p.Endpoint = ch.Endpoint
		}
		if ch.PersistentKeepaliveInterval != nil {
			p.PersistentKeepaliveInterval = *ch.PersistentKeepaliveInterval
		}
		if ch.ReplaceAllowedIPs {
			p.AllowedIPs = nil
		}
		p.AllowedIPs = append(p.AllowedIPs, ch.AllowedIPs...)
	}
	return half
}

// process is an agent's device, on a fake one.
type process struct {
	*Device
	t    *testing.T
	fake *fake
	now  time.Time
	log  *bytes.Buffer
}

// start is a new agent. The kernel's device is there already, one in userspace
// is not.
func start(t *testing.T, f *fake, path string) *process {
	t.Helper()
	p := &process{t: t, fake: f, now: time.Now(), log: &bytes.Buffer{}}
	p.Device = &Device{
		name: "wg0", log: slog.New(slog.NewTextHandler(p.log, nil)), client: f,
		file: endpointsFile{path: path}, waking: map[wgtypes.Key]time.Time{}, dials: map[wgtypes.Key]*dial{},
	}
	p.read()
	return p
}

// next is the agent after this one.
func (p *process) next(f *fake) *process {
	p.t.Helper()
	n := start(p.t, f, p.file.path)
	n.now = p.now
	return n
}

func (p *process) read() {
	p.t.Helper()
	read, err := p.client.Device(p.name)
	if err != nil {
		p.t.Fatal(err)
	}
	p.learn(read)
}

// sync is what the agent's does to the device.
func (p *process) sync(c *config.Config) error {
	p.t.Helper()
	if _, err := p.Revoke(c); err != nil {
		return err
	}
	if !p.known {
		p.read()
	}
	_, err := p.Grant(c, p.now)
	return err
}

func (p *process) mustSync(c *config.Config) {
	p.t.Helper()
	if err := p.sync(c); err != nil {
		p.t.Fatal(err)
	}
}

// look looks at the device for so many seconds, and sets what is due. A peer
// that answers does so all the time.
func (p *process) look(seconds int, answers bool) {
	p.t.Helper()
	for range seconds {
		p.now = p.now.Add(time.Second)
		if peer := p.fake.peers[key(1)]; peer != nil && answers {
			peer.LastHandshakeTime = p.now
		}
		o, err := p.Observe(p.now)
		if err != nil {
			p.t.Fatal(err)
		}
		if err := p.SetEndpoints(resolve(o.Due)); err != nil {
			p.t.Fatal(err)
		}
	}
}

// endpoint is where the device has its one peer.
func (f *fake) endpoint() string {
	if p := f.peers[key(1)]; p != nil && p.Endpoint != nil {
		return p.Endpoint.String()
	}
	return ""
}

func (f *fake) moveTo(endpoint string) {
	f.peers[key(1)].Endpoint = net.UDPAddrFromAddrPort(netip.MustParseAddrPort(endpoint))
}

// one is a configuration of one peer, with that endpoint.
func one(endpoint string) *config.Config {
	return &config.Config{GatewayConfig: wireguard.GatewayConfig{Peers: []wireguard.Peer{{
		Namespace: "vpn", Name: "a", PublicKey: wireguard.Key{Key: key(1)},
		Addresses: []netip.Addr{netip.MustParseAddr("10.8.0.2")}, Endpoint: endpoint,
	}}}}
}

const (
	endpointA = "198.51.100.1:51820"
	endpointB = "198.51.100.2:51820"
	moved     = "203.0.113.9:4000"
	nameA     = "a.example.com:51820"
	nameB     = "b.example.com:51820"
)

// resolve has a DNS of two names.
func resolve(due map[wgtypes.Key]string) map[wgtypes.Key]Resolved {
	out := map[wgtypes.Key]Resolved{}
	for k, e := range due {
		address := e
		switch e {
		case nameA:
			address = endpointA
		case nameB:
			address = endpointB
		}
		out[k] = Resolved{Endpoint: e, Address: netip.MustParseAddrPort(address)}
	}
	return out
}

// A peer that cannot be called back is not kept for a restart, and the others
// are.
func TestObserveWithoutPort(t *testing.T) {
	f := &fake{peers: map[wgtypes.Key]*wgtypes.Peer{}}
	path := filepath.Join(t.TempDir(), "endpoints.json")
	p := start(t, f, path)
	c := one("")
	c.Peers = append(c.Peers, wireguard.Peer{PublicKey: wireguard.Key{Key: key(2)}})
	p.mustSync(c)
	f.moveTo(moved)
	f.peers[key(2)].Endpoint = &net.UDPAddr{IP: net.IPv4(192, 0, 2, 2)}
	p.look(1, true)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), moved) || strings.Contains(string(b), "192.0.2.2") {
		t.Errorf("want the one at %s only, got %s", moved, b)
	}
}

// Where the endpoints cannot be kept, peers that have answered are no longer
// woken all the same, and it is said once.
func TestObserveFullDisk(t *testing.T) {
	f := &fake{peers: map[wgtypes.Key]*wgtypes.Peer{}}
	path := filepath.Join(t.TempDir(), "state", "endpoints.json")
	p := start(t, f, path)
	p.last = map[wgtypes.Key]sighting{key(1): {address: netip.MustParseAddrPort(moved)}}
	p.mustSync(one(""))
	if got := f.peers[key(1)].PersistentKeepaliveInterval; got != wakeKeepalive {
		t.Fatalf("the peer is woken by a keepalive of %s, got %s", wakeKeepalive, got)
	}
	p.look(3, true)
	if got := f.peers[key(1)].PersistentKeepaliveInterval; got != 0 {
		t.Errorf("the peer has answered and still has a keepalive of %s, configured is none", got)
	}
	const warning = "cannot keep endpoints for a restart"
	if n := strings.Count(p.log.String(), warning); n != 1 {
		t.Errorf("want one warning, got %d: %s", n, p.log)
	}

	// It goes on as soon as there is room, and says so again the next time.
	if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	p.look(1, true)
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(filepath.Dir(path)); err != nil {
		t.Fatal(err)
	}
	f.moveTo(endpointA)
	p.look(3, true)
	if n := strings.Count(p.log.String(), warning); n != 2 {
		t.Errorf("want another warning, got %d: %s", n, p.log)
	}
}

// After a write that failed outside of a sync nobody knows what the device has.
// That is told until a sync has read it.
func TestObserveAfterFailure(t *testing.T) {
	cases := map[string]struct {
		reason string
		fails  func(p *process) error
	}{
		"Endpoints": {"an endpoint could not be set", func(p *process) error {
			return p.SetEndpoints(resolve(map[wgtypes.Key]string{key(1): nameA}))
		}},
		"Settle": {"a keepalive could not be set back", func(p *process) error {
			p.fake.peers[key(1)].LastHandshakeTime = p.now
			o, err := p.Observe(p.now)
			if err := p.SetEndpoints(resolve(o.Due)); err != nil {
				p.t.Fatal(err)
			}
			return err
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := &fake{peers: map[wgtypes.Key]*wgtypes.Peer{}}
			p := start(t, f, filepath.Join(t.TempDir(), "endpoints.json"))
			p.last = map[wgtypes.Key]sighting{key(1): {address: netip.MustParseAddrPort(moved)}}
			c := one(nameA)
			p.mustSync(c)
			f.fail = errors.New("no memory")
			if err := tc.fails(p); err == nil {
				t.Fatal("it did not fail")
			}
			for range 2 {
				if o, err := p.Observe(p.now); err != nil || !o.Unknown || o.Drifted {
					t.Errorf("%s: got %+v, %v", tc.reason, o, err)
				}
			}
			p.mustSync(c)
			p.look(1, true)
			if o, err := p.Observe(p.now); err != nil || o.Unknown || o.Drifted {
				t.Errorf("all is well after a sync, got %+v, %v", o, err)
			}
			if got := f.peers[key(1)].PersistentKeepaliveInterval; got != 0 {
				t.Errorf("the peer has answered and still has a keepalive of %s, configured is none", got)
			}
			f.peers[key(1)].LastHandshakeTime = time.Time{}
			o, err := p.Observe(p.now.Add(time.Hour))
			if err != nil || len(o.Due) != 1 {
				t.Errorf("the name of a peer that does not answer is looked up again, got %+v, %v", o, err)
			}
		})
	}
}

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
			f := &fake{peers: map[wgtypes.Key]*wgtypes.Peer{}}
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
				f = &fake{peers: map[wgtypes.Key]*wgtypes.Peer{}}
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

func removeFile(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}

// An endpoint that changes is in force with the sync, not with the next look.
func TestEndpointAtOnce(t *testing.T) {
	p := start(t, &fake{peers: map[wgtypes.Key]*wgtypes.Peer{}}, filepath.Join(t.TempDir(), "endpoints.json"))
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
			p := start(t, &fake{peers: map[wgtypes.Key]*wgtypes.Peer{}}, filepath.Join(t.TempDir(), "endpoints.json"))
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
	p := start(t, &fake{peers: map[wgtypes.Key]*wgtypes.Peer{}}, filepath.Join(t.TempDir(), "endpoints.json"))
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
			p := start(t, &fake{peers: map[wgtypes.Key]*wgtypes.Peer{}}, filepath.Join(t.TempDir(), "endpoints.json"))
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
	p := start(t, &fake{peers: map[wgtypes.Key]*wgtypes.Peer{}}, filepath.Join(t.TempDir(), "endpoints.json"))
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
