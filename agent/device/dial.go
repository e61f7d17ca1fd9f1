package device

import (
	"context"
	"fmt"
	"net"
	"net/netip"
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
)

// dial is a peer that the gateway calls, by the endpoint in its configuration.
type dial struct {
	endpoint string
	literal  bool // an address and port, no name
	tried    time.Time
}

// withEndpoints adds the endpoints that are configured to the changes, for
// peers that are new to the device and where the configuration has changed. An
// endpoint that the device has learned since is left alone: the peer may have
// moved. Names wait for due.
func (d *Device) withEndpoints(c *config.Config, changes []wgtypes.PeerConfig) []wgtypes.PeerConfig {
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
		dials[key] = &dial{endpoint: p.Endpoint, literal: err == nil}
		_, had := d.dials[key]
		switch {
		case err != nil:
		case isNew && changes[i].Endpoint == nil:
			changes[i].Endpoint = net.UDPAddrFromAddrPort(address)
		case had && changed:
			changes[i].Endpoint = net.UDPAddrFromAddrPort(address)
		case had:
			changes = append(changes, wgtypes.PeerConfig{PublicKey: key, UpdateOnly: true, Endpoint: net.UDPAddrFromAddrPort(address)})
		}
	}
	d.dials = dials
	return changes
}

// due returns the names that have to be looked up now: of peers that have no
// endpoint yet, or have not answered for so long that their name may point
// elsewhere by now.
func (d *Device) due(read *wgtypes.Device, now time.Time) map[wgtypes.Key]string {
	if len(d.dials) == 0 {
		return nil
	}
	out := map[wgtypes.Key]string{}
	for _, p := range read.Peers {
		dl := d.dials[p.PublicKey]
		if dl == nil || dl.literal && p.Endpoint != nil || now.Sub(dl.tried) < redial {
			continue
		}
		if p.Endpoint == nil || now.Sub(p.LastHandshakeTime) > stale {
			dl.tried = now
			out[p.PublicKey] = dl.endpoint
		}
	}
	return out
}

// Resolve looks up endpoints. It is slow, and safe to call beside everything
// else. The error is of the last one that failed; the others are returned.
func Resolve(ctx context.Context, endpoints map[wgtypes.Key]string) (map[wgtypes.Key]netip.AddrPort, error) {
	out := map[wgtypes.Key]netip.AddrPort{}
	var failure error
	for k, e := range endpoints {
		a, err := net.DefaultResolver.LookupNetIP(ctx, "ip", hostOf(e))
		if err != nil || len(a) == 0 {
			failure = fmt.Errorf("cannot resolve endpoint %s: %w", e, err)
			continue
		}
		port, err := net.DefaultResolver.LookupPort(ctx, "udp", portOf(e))
		if err != nil {
			failure = fmt.Errorf("cannot resolve endpoint %s: %w", e, err)
			continue
		}
		out[k] = netip.AddrPortFrom(a[0].Unmap(), uint16(port))
	}
	return out, failure
}

func hostOf(endpoint string) string {
	host, _, _ := net.SplitHostPort(endpoint)
	return host
}

func portOf(endpoint string) string {
	_, port, _ := net.SplitHostPort(endpoint)
	return port
}

// SetEndpoints sets what Resolve has found, for peers that are still there.
func (d *Device) SetEndpoints(endpoints map[wgtypes.Key]netip.AddrPort) error {
	var changes []wgtypes.PeerConfig
	for k, e := range endpoints {
		if _, there := d.have[k]; there && d.dials[k] != nil {
			changes = append(changes, wgtypes.PeerConfig{PublicKey: k, UpdateOnly: true, Endpoint: net.UDPAddrFromAddrPort(e)})
		}
	}
	if err := d.apply(changes); err != nil {
		return fmt.Errorf("cannot set endpoints: %w", err)
	}
	return nil
}
