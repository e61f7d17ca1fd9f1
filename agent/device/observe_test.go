package device

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// A peer that cannot be called back is not kept for a restart, and the others
// are.
func TestObserveWithoutPort(t *testing.T) {
	f := newFake()
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
	f := newFake()
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
			f := newFake()
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
