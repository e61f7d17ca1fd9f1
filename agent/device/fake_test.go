package device

import (
	"bytes"
	"log/slog"
	"net"
	"net/netip"
	"os"
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

func newFake() *fake { return &fake{peers: map[wgtypes.Key]*wgtypes.Peer{}} }

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

func removeFile(t *testing.T, path string) {
	t.Helper()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
}
