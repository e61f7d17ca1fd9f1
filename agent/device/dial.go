package device

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/config"
)

const (
	// stale is after how long without handshake a session is dead: what
	// WireGuard calls Reject-After-Time.
	stale = 180 * time.Second

	// redial is how often a name is looked up for a peer that does not answer.
	redial = 30 * time.Second

	// lookupTime is how long a name may take, in which name servers are asked
	// twice. maxLookups are made at a time: whoever writes a peer chooses a name,
	// and it may be one that nobody answers for.
	lookupTime = 10 * time.Second
	maxLookups = 100
)

// lookups has an element for each name that is being looked up.
var lookups = make(chan struct{}, maxLookups)

// dial is a peer that the gateway calls, by the endpoint in its configuration.
type dial struct {
	endpoint string
	literal  bool // an address and port, no name
	tried    time.Time
	pending  bool // it is being looked up

	// changed tells that the device has an address of what was configured before
	// this name, which is looked up whether the peer answers there or not.
	changed bool
	// unsure tells that the device has an address of which nobody knows what was
	// configured then, and since is when that was first seen. A peer that answers
	// after that is at it.
	unsure bool
	since  time.Time
}

// withEndpoints adds the endpoints that are configured to the changes, where
// they are others than the device was given before. It returns what is dialled
// once the device has taken them.
//
// A peer may move, and the device follows it. So an endpoint is set once, and
// from then on the peer is where it was seen last, also after a restart: the
// file says under which endpoint that was. Where it does not, nobody knows
// whether an adopted device has been given this one. A session that works is
// left alone then, and due sets the endpoint as soon as it does not.
func (d *Device) withEndpoints(c *config.Config, changes []wgtypes.PeerConfig) ([]wgtypes.PeerConfig, map[wgtypes.Key]*dial) {
	at := make(map[wgtypes.Key]int, len(changes))
	for i, ch := range changes {
		at[ch.PublicKey] = i
	}
	dials := map[wgtypes.Key]*dial{}
	for _, p := range c.Peers {
		if p.Endpoint == "" {
			continue
		}
		key := p.PublicKey.Key
		i, changed := at[key]
		isNew := changed && !changes[i].UpdateOnly
		if old, there := d.dials[key]; there && old.endpoint == p.Endpoint && !isNew {
			dials[key] = old
			continue
		}
		address, err := netip.ParseAddrPort(p.Endpoint)
		dl := &dial{endpoint: p.Endpoint, literal: err == nil}
		dials[key] = dl
		before := d.last[key].configured
		adopted := !isNew && !d.complete
		switch {
		case before == p.Endpoint && (isNew || adopted):
			// It is where it was seen last.
		case before == "" && adopted:
			dl.unsure = true
		case !dl.literal && isNew:
			changes[i].Endpoint = nil
		case !dl.literal:
			dl.changed = true
		case changed:
			changes[i].Endpoint = net.UDPAddrFromAddrPort(address)
		default:
			changes = append(changes, wgtypes.PeerConfig{PublicKey: key, UpdateOnly: true, Endpoint: net.UDPAddrFromAddrPort(address)})
		}
	}
	return changes, dials
}

// configured is the endpoint of the configuration that the device was given last,
// and empty where there was none or it is not known.
func (d *Device) configured(k wgtypes.Key) string {
	dl := d.dials[k]
	switch {
	case dl == nil:
		return ""
	case dl.changed || dl.unsure:
		return d.last[k].configured
	}
	return dl.endpoint
}

// due returns the endpoints that have to be looked up now: of peers that have no
// address yet, or that of another name, or have not answered for so long that
// their name may point elsewhere by now. A configured address does not change,
// so that it is due only where nobody knows whether it was ever set. None is due
// again before SetEndpoints was told what became of it.
func (d *Device) due(read *wgtypes.Device, now time.Time) map[wgtypes.Key]string {
	if len(d.dials) == 0 {
		return nil
	}
	out := map[wgtypes.Key]string{}
	for _, p := range read.Peers {
		dl := d.dials[p.PublicKey]
		if dl == nil {
			continue
		}
		if dl.unsure && dl.since.IsZero() {
			dl.since = now
		}
		if dl.unsure && p.LastHandshakeTime.After(dl.since) {
			dl.unsure = false
		}
		if dl.pending || now.Sub(dl.tried) < redial {
			continue
		}
		silent := now.Sub(p.LastHandshakeTime) > stale
		if p.Endpoint == nil || dl.changed || silent && (dl.unsure || !dl.literal) {
			dl.tried, dl.pending = now, true
			out[p.PublicKey] = dl.endpoint
		}
	}
	return out
}

// Resolved is an endpoint of the configuration, and its address, or the reason
// why there is none.
type Resolved struct {
	Endpoint string
	Address  netip.AddrPort
	Err      error
}

// Resolve looks up endpoints, and tells each as soon as it is known: a slow one
// holds up no other. It is safe to call beside everything else, and tells from
// several goroutines. It returns once all are told, with the error of the last
// one that failed.
func Resolve(ctx context.Context, endpoints map[wgtypes.Key]string, tell func(map[wgtypes.Key]Resolved)) error {
	failures := make(chan error, len(endpoints))
	var all sync.WaitGroup
	for k, e := range endpoints {
		all.Go(func() {
			r := Resolved{Endpoint: e}
			if r.Address, r.Err = resolveOne(ctx, e); r.Err != nil {
				r.Err = fmt.Errorf("cannot resolve endpoint %s: %w", e, r.Err)
				failures <- r.Err
			}
			tell(map[wgtypes.Key]Resolved{k: r})
		})
	}
	all.Wait()
	close(failures)
	var last error
	for err := range failures {
		last = err
	}
	return last
}

func resolveOne(ctx context.Context, endpoint string) (netip.AddrPort, error) {
	select {
	case lookups <- struct{}{}:
		defer func() { <-lookups }()
	case <-ctx.Done():
		return netip.AddrPort{}, ctx.Err()
	}
	ctx, cancel := context.WithTimeout(ctx, lookupTime)
	defer cancel()
	address, err := lookup(ctx, hostOf(endpoint), net.DefaultResolver.LookupNetIP)
	if err != nil {
		return netip.AddrPort{}, err
	}
	port, err := net.DefaultResolver.LookupPort(ctx, "udp", portOf(endpoint))
	return netip.AddrPortFrom(address, uint16(port)), err
}

// lookup returns the address of a host. A name with a dot is taken for a whole
// one first: the search domains of the pod may know any name.
func lookup(ctx context.Context, host string, ask func(ctx context.Context, network, host string) ([]netip.Addr, error)) (netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.Unmap(), nil
	}
	names := []string{host}
	if strings.Contains(host, ".") && !strings.HasSuffix(host, ".") {
		names = []string{host + ".", host}
	}
	var err error
	for _, name := range names {
		var found []netip.Addr
		if found, err = ask(ctx, "ip", name); err == nil {
			return found[0].Unmap(), nil
		}
		if reason := new(net.DNSError); !errors.As(err, &reason) || !reason.IsNotFound {
			break
		}
	}
	return netip.Addr{}, err
}

func hostOf(endpoint string) string {
	host, _, _ := net.SplitHostPort(endpoint)
	return host
}

func portOf(endpoint string) string {
	_, port, _ := net.SplitHostPort(endpoint)
	return port
}

// SetEndpoints takes what Resolve has told: it sets addresses of peers that are
// still there and have no other endpoint by now.
func (d *Device) SetEndpoints(found map[wgtypes.Key]Resolved) error {
	var changes []wgtypes.PeerConfig
	for k, r := range found {
		dl := d.dials[k]
		if dl == nil || dl.endpoint != r.Endpoint {
			continue
		}
		dl.pending = false
		if _, there := d.have[k]; there && r.Err == nil {
			changes = append(changes, wgtypes.PeerConfig{PublicKey: k, UpdateOnly: true, Endpoint: net.UDPAddrFromAddrPort(r.Address)})
		}
	}
	if err := d.apply(changes); err != nil {
		return fmt.Errorf("cannot set endpoints: %w", err)
	}
	for _, ch := range changes {
		dl := d.dials[ch.PublicKey]
		dl.changed, dl.unsure = false, false
	}
	return nil
}
