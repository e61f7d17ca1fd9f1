package render_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/conn"
	"golang.zx2c4.com/wireguard/device"
	"golang.zx2c4.com/wireguard/ipc"
	"golang.zx2c4.com/wireguard/tun"
)

// TestSetConf: a real device takes every configuration from wg(8), in a network
// namespace that nobody else sees.
func TestSetConf(t *testing.T) {
	wg, quick := tool(t, "wg"), tool(t, "wg-quick")
	if os.Getuid() != 0 {
		t.Skip("a device needs root")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip("a device in userspace needs /dev/net/tun")
	}
	// The thread is never given back, so its namespace ends with it.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Skipf("cannot make a network namespace: %v", err)
	}
	name := newDevice(t)
	for conf, text := range rendered(t) {
		file := filepath.Join(t.TempDir(), "stripped.conf")
		if err := os.WriteFile(file, []byte(numeric(strip(t, quick, withKey(text)))), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), wg, "setconf", name, file).CombinedOutput(); err != nil {
			t.Errorf("%s: wg setconf: %v: %s\n%s", conf, err, out, text)
			continue
		}
		shown, err := exec.CommandContext(t.Context(), wg, "showconf", name).CombinedOutput()
		if err != nil {
			t.Fatalf("wg showconf: %v: %s", err, shown)
		}
		// What the device has is what the configuration said. It clamps private
		// keys, which makes no other key of them.
		for line := range strings.Lines(text) {
			key, value, _ := strings.Cut(strings.TrimSpace(line), " = ")
			switch key {
			case "PublicKey", "PresharedKey", "AllowedIPs", "PersistentKeepalive":
				if !bytes.Contains(shown, []byte(value)) {
					t.Errorf("%s: the device has no %s %s:\n%s", conf, key, value, shown)
				}
			}
		}
	}
}

// newDevice starts a WireGuard device in userspace.
func newDevice(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("wgt%d", os.Getpid())
	link, err := tun.CreateTUN(name, device.DefaultMTU)
	if err != nil {
		t.Skipf("cannot make a TUN device: %v", err)
	}
	d := device.NewDevice(link, conn.NewDefaultBind(), device.NewLogger(device.LogLevelSilent, ""))
	t.Cleanup(d.Close)
	file, err := ipc.UAPIOpen(name)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := ipc.UAPIListen(name, file)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := listener.Close(); err != nil {
			t.Error(err)
		}
	})
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go d.IpcHandle(c)
		}
	}()
	return name
}
