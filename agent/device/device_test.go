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
	peers map[wgtypes.Key]*wgtypes.Peer
	// fail and half are of the next write: nothing is taken of it, or all.
	fail, half error
}

func (f *fake) Close() error { return nil }

func (f *fake) Device(string) (*wgtypes.Device, error) {
	d := &wgtypes.Device{}
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
func resolve(due map[wgtypes.Key]string) map[wgtypes.Key]netip.AddrPort {
	out := map[wgtypes.Key]netip.AddrPort{}
	for k, e := range due {
		switch e {
		case nameA:
			e = endpointA
		case nameB:
			e = endpointB
		}
		out[k] = netip.MustParseAddrPort(e)
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
	p.last = map[wgtypes.Key]netip.AddrPort{key(1): netip.MustParseAddrPort(moved)}
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
			return p.SetEndpoints(map[wgtypes.Key]netip.AddrPort{key(1): netip.MustParseAddrPort(endpointA)})
		}},
		"Settle": {"a keepalive could not be set back", func(p *process) error {
			p.fake.peers[key(1)].LastHandshakeTime = p.now
			_, err := p.Observe(p.now)
			return err
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := &fake{peers: map[wgtypes.Key]*wgtypes.Peer{}}
			p := start(t, f, filepath.Join(t.TempDir(), "endpoints.json"))
			p.last = map[wgtypes.Key]netip.AddrPort{key(1): netip.MustParseAddrPort(moved)}
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
