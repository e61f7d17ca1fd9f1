// Package device keeps the gateway's WireGuard device: the kernel's, or one
// in this process. Changes are incremental: peers that stay as they are keep
// their sessions and endpoints, whatever happens to others.
package device

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/vishvananda/netlink"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/config"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// Device is the WireGuard device. It is not safe for concurrent use.
type Device struct {
	name   string
	log    *slog.Logger
	client client
	user   *userspace // nil for the kernel's
	index  int        // of the link, 0 before there is one

	// have is what the device holds, as far as known: what was read from it,
	// and what was written since.
	known bool
	own   settings
	have  map[wgtypes.Key]peer
	want  map[wgtypes.Key]peer

	file endpointsFile
	// unkept tells that the file could not be written the last time.
	unkept bool
	// last is where each peer was seen last, on this device or one before.
	last map[wgtypes.Key]sighting
	// complete tells that the device has been given all its peers once.
	complete bool
	// waking are the peers to which the gateway starts the handshake itself,
	// and until when it tries.
	waking map[wgtypes.Key]time.Time
	dials  map[wgtypes.Key]*dial
}

// client is what talks to WireGuard: a wgctrl.Client, but in tests.
type client interface {
	Device(name string) (*wgtypes.Device, error)
	ConfigureDevice(name string, change wgtypes.Config) error
	Close() error
}

// settings are the device's own, apart from its peers.
type settings struct {
	key        wgtypes.Key
	port, mark int
}

// Open prepares the device of the given name. Nothing is made yet. The file
// keeps the peers' endpoints over restarts.
func Open(name, endpointsPath string, log *slog.Logger) (*Device, error) {
	client, err := wgctrl.New()
	if err != nil {
		return nil, fmt.Errorf("cannot talk to WireGuard: %w", err)
	}
	return &Device{
		name: name, log: log, client: client,
		file:   endpointsFile{path: endpointsPath},
		waking: map[wgtypes.Key]time.Time{},
		dials:  map[wgtypes.Key]*dial{},
	}, nil
}

// Close ends a userspace device. The kernel's stays, with its peers, so that
// traffic goes on until the next agent adopts it.
func (d *Device) Close() {
	if d.user != nil {
		d.user.close()
	}
	_ = d.client.Close()
}

// Ensure makes the device if it is not there, and gives it its key, port, mark
// and MTU. It does not bring it up.
func (d *Device) Ensure(c *config.Config, mtu int) error {
	link, err := d.ensureLink(c.Implementation, mtu)
	if err != nil {
		return err
	}
	if link.Attrs().Index != d.index {
		// It is another device than the last time, whatever its name.
		d.index, d.known = link.Attrs().Index, false
	}
	if link.Attrs().MTU != mtu {
		if err := netlink.LinkSetMTU(link, mtu); err != nil {
			return fmt.Errorf("cannot set MTU of %s to %d: %w", d.name, mtu, err)
		}
	}
	if !d.known {
		read, err := d.client.Device(d.name)
		if err != nil {
			return fmt.Errorf("cannot read device %s: %w", d.name, err)
		}
		d.learn(read)
	}
	return d.configure(settings{key: c.PrivateKey.Key, port: c.ListenPort, mark: wireguard.FirewallMark})
}

// configure sets what differs only: setting the same port again would close
// the socket.
func (d *Device) configure(want settings) error {
	if d.own == want {
		return nil
	}
	change := wgtypes.Config{}
	if d.own.key != want.key {
		change.PrivateKey = &want.key
	}
	if d.own.port != want.port {
		change.ListenPort = &want.port
	}
	if d.own.mark != want.mark {
		change.FirewallMark = &want.mark
	}
	if err := d.client.ConfigureDevice(d.name, change); err != nil {
		d.known = false
		return fmt.Errorf("cannot configure device %s: %w", d.name, err)
	}
	d.own = want
	return nil
}

// Up brings the device up. It fails where the port is taken.
func (d *Device) Up() error {
	if d.user != nil {
		// The interface's event would do the same, but nobody would hear of a
		// failure.
		if err := d.user.device.Up(); err != nil {
			return fmt.Errorf("cannot bring up %s: %w", d.name, err)
		}
	}
	link, err := netlink.LinkByName(d.name)
	if err != nil {
		return fmt.Errorf("cannot find %s: %w", d.name, err)
	}
	if isUp(link) {
		return nil
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("cannot bring up %s: %w", d.name, err)
	}
	return nil
}

// learn takes over what was read from the device.
func (d *Device) learn(read *wgtypes.Device) {
	d.known = true
	d.own = settings{key: read.PrivateKey, port: read.ListenPort, mark: read.FirewallMark}
	d.have = d.present(read)
}

// present returns the device's peers. One that is being woken has a keepalive
// of its own for the moment, which is no difference.
func (d *Device) present(read *wgtypes.Device) map[wgtypes.Key]peer {
	have := present(read.Peers)
	for k := range d.waking {
		if p, there := have[k]; there {
			p.keepalive = d.want[k].keepalive
			have[k] = p
		}
	}
	return have
}
