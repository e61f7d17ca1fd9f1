package device

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	wgdevice "golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/ipc"
	"golang.zx2c4.com/wireguard/tun/tuntest"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/config"
)

// A failure to listen is over when its cause is.
func TestControlAgain(t *testing.T) {
	if err := os.MkdirAll(controlSockets, 0o755); err != nil || unix.Access(controlSockets, unix.W_OK) != nil {
		t.Skip("needs to write to", controlSockets)
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
		gone   bool  // the device has ended
		fails  bool
		peers  int // left on the device
	}{
		"Read":   {"the device is read again", nil, false, false, 0},
		"Unread": {"what cannot be read may have the peer yet", errors.New("no memory"), false, true, 1},
		"Gone":   {"a device that has ended serves nobody", errors.New("no such device"), true, false, 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := &fake{peers: map[wgtypes.Key]*wgtypes.Peer{}}
			p := start(t, f, filepath.Join(t.TempDir(), "endpoints.json"))
			p.user = inMemory(t)
			p.mustSync(one(""))
			f.fail = errors.New("no memory")
			if _, err := p.Revoke(&config.Config{}); err == nil {
				t.Fatal("it did not fail")
			}
			f.unread = tc.unread
			if tc.gone {
				p.user.device.Close()
			}
			if _, err := p.Revoke(&config.Config{}); (err != nil) != tc.fails || len(f.peers) != tc.peers {
				t.Errorf("%s: got %v, with %d peers on the device", tc.reason, err, len(f.peers))
			}
		})
	}
}
