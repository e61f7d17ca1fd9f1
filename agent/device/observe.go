package device

import (
	"fmt"
	"maps"
	"net/netip"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// Observation is what was seen on the device.
type Observation struct {
	// Drifted tells that somebody else changed the device: the next sync puts
	// it right.
	Drifted bool
	// Unknown tells that nobody knows what the device has, since a write has
	// failed. Nothing else is seen until a sync has read it.
	Unknown bool
	// Due are the endpoints to Resolve, by public key.
	Due map[wgtypes.Key]string
}

// Observe looks at the device: it keeps the endpoints that peers have now,
// ends the waking of those that have answered, and notices changes of others.
func (d *Device) Observe(now time.Time) (Observation, error) {
	if !d.known || !d.complete {
		return Observation{Unknown: d.complete}, nil
	}
	read, err := d.client.Device(d.name)
	if err != nil {
		return Observation{}, fmt.Errorf("cannot read device %s: %w", d.name, err)
	}
	endpoints := make(map[wgtypes.Key]sighting, len(read.Peers))
	for _, p := range read.Peers {
		// A datagram may come from port 0. Nobody can be called there.
		if p.Endpoint != nil && p.Endpoint.Port != 0 {
			a := p.Endpoint.AddrPort()
			endpoints[p.PublicKey] = sighting{netip.AddrPortFrom(a.Addr().Unmap(), a.Port()), d.configured(p.PublicKey)}
		}
	}
	d.remember(endpoints)
	o := Observation{Due: d.due(read, now)}
	own := settings{key: read.PrivateKey, port: read.ListenPort, mark: read.FirewallMark}
	if have := d.present(read); own != d.own || !maps.EqualFunc(have, d.have, peer.equal) {
		d.own, d.have, o.Drifted = own, have, true
	}
	d.keep(endpoints)
	return o, d.settle(read, now)
}

// keep writes the file. Where that fails, all else goes on, and it is said once:
// it is tried again at each look.
func (d *Device) keep(endpoints map[wgtypes.Key]sighting) {
	err := d.file.write(endpoints)
	if err != nil && !d.unkept {
		d.log.Warn("cannot keep endpoints for a restart", "error", err)
	}
	d.unkept = err != nil
}

// settle gives peers that were being woken their usual keepalive back.
func (d *Device) settle(read *wgtypes.Device, now time.Time) error {
	var changes []wgtypes.PeerConfig
	for _, p := range read.Peers {
		until, waking := d.waking[p.PublicKey]
		if !waking || p.LastHandshakeTime.IsZero() && now.Before(until) {
			continue
		}
		delete(d.waking, p.PublicKey)
		keepalive := d.want[p.PublicKey].keepalive
		changes = append(changes, wgtypes.PeerConfig{PublicKey: p.PublicKey, UpdateOnly: true, PersistentKeepaliveInterval: &keepalive})
	}
	if err := d.apply(changes); err != nil {
		return fmt.Errorf("cannot reset keepalive: %w", err)
	}
	return nil
}

// remember keeps where peers are, also for those that are removed and may come
// back.
func (d *Device) remember(endpoints map[wgtypes.Key]sighting) {
	maps.Copy(d.last, endpoints)
	const spare = 1024
	if len(d.last) > len(d.want)+spare {
		maps.DeleteFunc(d.last, func(k wgtypes.Key, _ sighting) bool {
			_, wanted := d.want[k]
			return !wanted
		})
	}
}

// recall reads where peers were on the device before this one, or with the agent
// before this one.
func (d *Device) recall() {
	if d.last != nil {
		return
	}
	last, err := d.file.read()
	if err != nil {
		// Without them clients find back by themselves, only later.
		d.log.Warn("cannot restore endpoints", "error", err)
	}
	if last == nil {
		last = map[wgtypes.Key]sighting{}
	}
	d.last = last
}
