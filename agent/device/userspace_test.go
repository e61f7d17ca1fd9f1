package device

import (
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	wgdevice "golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/ipc"
	"golang.zx2c4.com/wireguard/tun/tuntest"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/config"
	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// A failure to listen is over when its cause is.
func TestControlAgain(t *testing.T) {
	if err := os.MkdirAll(wireguard.ControlSockets, 0o755); err != nil || unix.Access(wireguard.ControlSockets, unix.W_OK) != nil {
		t.Skip("needs to write to", wireguard.ControlSockets)
	}
	const name = "test-again"
	_, err := control(name, func(string, *os.File) (net.Listener, error) { return nil, errors.New("too many open files") })
	if err == nil || !strings.Contains(err.Error(), "cannot listen on control socket of test-again: too many open files") {
		t.Fatalf("want the reason, got %v", err)
	}
	socket, err := control(name, ipc.UAPIListen)
	if err != nil {
		t.Fatal(err)
	}
	_ = socket.Close()
}

// inMemory is a userspace device without interface, and its control socket.
func inMemory(t *testing.T) *userspace {
	t.Helper()
	socket, err := net.Listen("unix", filepath.Join(t.TempDir(), "wg.sock"))
	if err != nil {
		t.Fatal(err)
	}
	u := &userspace{
		device: wgdevice.NewDevice(tuntest.NewChannelTUN().TUN(), conn.NewDefaultBind(), wgdevice.NewLogger(wgdevice.LogLevelSilent, "")),
		socket: socket,
	}
	t.Cleanup(u.close)
	return u
}

// What is no longer configured is gone from the device before the firewall
// changes, also where nobody knows any more what the device has.
func TestRevokeAfterFailure(t *testing.T) {
	cases := map[string]struct {
		reason string
		unread error // why the device cannot be read then
		gone   bool  // the device has ended before
		ends   bool  // it is gone after
		peers  int   // left on the device
	}{
		"Read":   {"the device is read again", nil, false, false, 0},
		"Unread": {"what cannot be read may have the peer yet, so it ends", errors.New("no such socket"), false, true, 1},
		"Gone":   {"a device that has ended serves nobody", errors.New("no such device"), true, true, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			p := start(t, f, filepath.Join(t.TempDir(), "endpoints.json"))
			u := inMemory(t)
			p.user = u
			p.mustSync(one(""))
			f.fail = errors.New("no memory")
			if _, err := p.Revoke(&config.Config{}); err == nil {
				t.Fatal("it did not fail")
			}
			f.unread = tc.unread
			if tc.gone {
				u.device.Close()
			}
			if _, err := p.Revoke(&config.Config{}); err != nil || len(f.peers) != tc.peers || u.gone() != tc.ends {
				t.Errorf("%s: got %v, with %d peers on the device, which has ended: %t", tc.reason, err, len(f.peers), u.gone())
			}
		})
	}
}

// A device of the kernel that cannot be read goes on with whatever it has, so
// that nothing else may change.
func TestRereadUnreadKernel(t *testing.T) {
	d := &Device{name: "wg0", log: slog.New(slog.DiscardHandler), client: &fake{unread: errors.New("no memory")}}
	if err := d.reread(); err == nil || !strings.Contains(err.Error(), "cannot read device wg0: no memory") {
		t.Errorf("got %v", err)
	}
}

// A device that cannot be changed any more ends, and the next sync makes it
// anew.
func TestControlSocketGone(t *testing.T) {
	const name = "test-gone"
	path := filepath.Join(wireguard.ControlSockets, name+".sock")
	cases := map[string]struct {
		reason string
		event  func() error
	}{
		"Deleted": {"nobody finds the socket any more", func() error { return os.Remove(path) }},
		"Touched": {"the listener takes it for deleted", func() error { return os.Chmod(path, 0o644) }},
		"Interface": {"with the interface all is gone", func() error {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			return netlink.LinkDel(link)
		}},
	}
	for testName, tc := range cases {
		t.Run(testName, func(t *testing.T) {
			netns.Enter(t)
			if unix.Access("/dev/net/tun", unix.W_OK) != nil {
				t.Skip("needs TUN devices")
			}
			d, err := Open(name, filepath.Join(t.TempDir(), "endpoints.json"), slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(d.Close)
			c := one("")
			c.Implementation = wireguard.ImplementationUserspace
			sync := func() {
				t.Helper()
				if _, err := d.Revoke(c); err != nil {
					t.Fatal(err)
				}
				if err := d.Ensure(c, 1420); err != nil {
					t.Fatal(err)
				}
				if _, err := d.Grant(c, time.Now()); err != nil {
					t.Fatal(err)
				}
			}
			sync()
			before := d.user
			if err := tc.event(); err != nil {
				t.Fatal(err)
			}
			select {
			case <-before.device.Wait():
			case <-time.After(5 * time.Second):
				t.Fatalf("%s: the device goes on", tc.reason)
			}
			if _, err := netlink.LinkByName(name); !errors.As(err, &netlink.LinkNotFoundError{}) {
				t.Errorf("%s: want its interface to be gone, which brings the sync, got %v", tc.reason, err)
			}
			sync()
			read, err := d.client.Device(name)
			if err != nil || len(read.Peers) != 1 {
				t.Errorf("%s: want it with its peer again, got %+v, %v", tc.reason, read, err)
			}
		})
	}
}

// An interface is gone a moment before its device has ended.
func TestEnsureWhileEnding(t *testing.T) {
	netns.Enter(t)
	if unix.Access("/dev/net/tun", unix.W_OK) != nil {
		t.Skip("needs TUN devices")
	}
	d, err := Open("test-ending", "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	c := one("")
	c.Implementation = wireguard.ImplementationUserspace
	if err := d.Ensure(c, 1420); err != nil {
		t.Fatal(err)
	}
	// It ends, and waits for somebody who writes to it.
	stuck, err := net.Dial("unix", filepath.Join(wireguard.ControlSockets, "test-ending.sock"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stuck.Write([]byte("set=1\n")); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond)
	link, err := netlink.LinkByName("test-ending")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkDel(link); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(300*time.Millisecond, func() { _ = stuck.Close() })
	if err := d.Ensure(c, 1420); err != nil {
		t.Fatal(err)
	}
}
