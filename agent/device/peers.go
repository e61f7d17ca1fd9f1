package device

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/config"
)

const (
	// wakeKeepalive makes the device start a handshake at once, and try again
	// until the peer answers.
	wakeKeepalive = time.Second

	// wakeTime is for how long: a client that is there answers the first
	// packet, and the others are not to be bothered.
	wakeTime = 20 * time.Second
)

// Changes counts what a sync did to the device.
type Changes struct {
	Added, Removed, Changed int
}

// Revoke takes from the device what the configuration no longer has: peers,
// and addresses of peers. It belongs before the change of the firewall, so
// that no peer ever has its own rules with another's address.
func (d *Device) Revoke(c *config.Config) (Changes, error) {
	d.want = wanted(c.All())
	if !d.known {
		if err := d.adopt(); err != nil {
			return Changes{}, err
		}
	}
	return d.revoke()
}

// Owners returns which networks the device gives to which peers. Before the first
// Revoke that is what an earlier agent has left.
func (d *Device) Owners() (map[netip.Prefix]wgtypes.Key, error) {
	out := map[netip.Prefix]wgtypes.Key{}
	if !d.known {
		if err := d.adopt(); err != nil || !d.known {
			return out, err
		}
	}
	for k, p := range d.have {
		for _, n := range p.allowedIPs {
			out[n] = k
		}
	}
	return out, nil
}

// Met tells whether one of the peers may have had a session. Of those that it has
// the device tells, all others may.
func (d *Device) Met(keys []wgtypes.Key) bool {
	if len(keys) == 0 {
		return false
	}
	read, err := d.client.Device(d.name)
	if err != nil {
		return true
	}
	never := map[wgtypes.Key]bool{}
	for _, p := range read.Peers {
		never[p.PublicKey] = p.LastHandshakeTime.IsZero()
	}
	return slices.ContainsFunc(keys, func(k wgtypes.Key) bool { return !never[k] })
}

// adopt reads a device that is there already, so that what it must no longer
// have goes before the firewall changes: our own after a write that has failed,
// or one of the kernel that an earlier agent has left. One that cannot be read
// may have anything: our own in userspace ends, as where somebody has moved its
// control socket, and is made anew.
func (d *Device) adopt() error {
	if d.user == nil || d.user.gone() {
		link, err := netlink.LinkByName(d.name)
		if errors.As(err, &netlink.LinkNotFoundError{}) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("cannot look for %s: %w", d.name, err)
		}
		if !ours(link) {
			return nil
		}
		d.index = link.Attrs().Index
	}
	return d.reread()
}

// reread learns what the device has, after somebody else may have changed it.
func (d *Device) reread() error {
	read, err := d.client.Device(d.name)
	if err != nil && d.user != nil {
		d.log.Warn("cannot read the device, so it is made anew", "error", err)
		d.user.close()
		d.user = nil
		return nil
	}
	if err != nil {
		return fmt.Errorf("cannot read device %s: %w", d.name, err)
	}
	d.learn(read)
	return nil
}

func (d *Device) revoke() (Changes, error) {
	if !d.known {
		return Changes{}, nil
	}
	changes := revocations(d.have, d.want)
	if err := d.apply(changes); err != nil {
		return Changes{}, fmt.Errorf("cannot remove peers: %w", err)
	}
	counts := Changes{}
	for _, ch := range changes {
		if !ch.Remove {
			p := d.have[ch.PublicKey]
			p.allowedIPs = slices.DeleteFunc(slices.Clone(p.allowedIPs), func(n netip.Prefix) bool {
				return !slices.Contains(d.want[ch.PublicKey].allowedIPs, n)
			})
			d.have[ch.PublicKey] = p
			counts.Changed++
			continue
		}
		delete(d.have, ch.PublicKey)
		delete(d.waking, ch.PublicKey)
		counts.Removed++
	}
	return counts, nil
}

// Grant gives the device what the configuration that Revoke was given has
// beyond it. It belongs after the change of the firewall.
func (d *Device) Grant(c *config.Config, now time.Time) (Changes, error) {
	d.recall()
	// What a device that was only just read has too much of goes first.
	counts, err := d.revoke()
	if err != nil {
		return Changes{}, err
	}
	changes := grants(d.have, d.want)
	counts.Changed = 0
	var woken []wgtypes.Key
	for i := range changes {
		if changes[i].UpdateOnly {
			counts.Changed++
			continue
		}
		counts.Added++
		// A session that is gone on this side is dead until the client
		// notices, unless this side calls first.
		if last, ok := d.last[changes[i].PublicKey]; ok {
			keepalive := wakeKeepalive
			changes[i].Endpoint = net.UDPAddrFromAddrPort(last.address)
			changes[i].PersistentKeepaliveInterval = &keepalive
			woken = append(woken, changes[i].PublicKey)
		}
	}
	changes, dials := d.withEndpoints(c, changes)
	// What fails may have been taken in part, so that it is set again.
	maps.DeleteFunc(d.dials, func(k wgtypes.Key, dl *dial) bool { return dials[k] != dl })
	if err := d.apply(changes); err != nil {
		return Changes{}, fmt.Errorf("cannot configure peers: %w", err)
	}
	for _, k := range woken {
		d.waking[k] = now.Add(wakeTime)
	}
	d.have, d.dials, d.complete = d.want, dials, true
	return counts, nil
}

func (d *Device) apply(changes []wgtypes.PeerConfig) error {
	if len(changes) == 0 {
		return nil
	}
	if err := d.client.ConfigureDevice(d.name, wgtypes.Config{Peers: changes}); err != nil {
		// It may have taken a part of it.
		d.known = false
		return err
	}
	return nil
}
