package device

import (
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"

	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/ipc"
	"golang.zx2c4.com/wireguard/tun"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// userspace is WireGuard within this process, behind a TUN device. It listens
// on the socket that wg(8) and wgctrl know, so that it is configured and
// looked at like the kernel's.
type userspace struct {
	device *device.Device
	socket net.Listener
}

// newUserspace makes the TUN device, which is gone when the process ends.
func newUserspace(name string, mtu int, log *slog.Logger) (*userspace, error) {
	t, err := tun.CreateTUN(name, mtu)
	if err != nil {
		return nil, fmt.Errorf("cannot create TUN device: %w", err)
	}
	d := device.NewDevice(t, conn.NewDefaultBind(), &device.Logger{
		Verbosef: device.DiscardLogf,
		// What it reports are mostly packets that others sent: no fault of ours.
		Errorf: func(format string, args ...any) {
			log.Debug("userspace WireGuard", "message", fmt.Sprintf(format, args...))
		},
	})
	socket, err := control(name, ipc.UAPIListen)
	if err != nil {
		d.Close()
		return nil, err
	}
	u := &userspace{device: d, socket: socket}
	go u.serve(log)
	return u, nil
}

// control opens the control socket, and listens on it.
func control(name string, listen func(string, *os.File) (net.Listener, error)) (net.Listener, error) {
	file, err := ipc.UAPIOpen(name)
	if err != nil {
		return nil, fmt.Errorf("cannot open control socket of %s: %w", name, err)
	}
	socket, err := listen(name, file)
	_ = file.Close() // the listener has a copy
	if err != nil {
		// As where the node has no inotify instances left. Nobody can close the
		// socket any more, and it would count as in use the next time.
		_ = os.Remove(filepath.Join(wireguard.ControlSockets, name+".sock"))
		return nil, fmt.Errorf("cannot listen on control socket of %s: %w", name, err)
	}
	return socket, nil
}

// serve answers on the control socket. A device whose socket is gone, as where
// somebody has deleted it, can be changed no more, so that it ends: with its
// interface gone, a sync follows that makes it anew.
func (u *userspace) serve(log *slog.Logger) {
	for {
		c, err := u.socket.Accept()
		if err != nil {
			if !u.gone() {
				log.Warn("the control socket is gone, so the device is made anew", "error", err)
				u.device.Close()
			}
			return
		}
		go u.device.IpcHandle(c)
	}
}

// gone tells whether the device has ended, as it does when somebody deletes
// its interface.
func (u *userspace) gone() bool {
	select {
	case <-u.device.Wait():
		return true
	default:
		return false
	}
}

// close ends the device first, so that serve knows who has closed the socket.
func (u *userspace) close() {
	u.device.Close()
	_ = u.socket.Close()
}
