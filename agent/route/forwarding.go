package route

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// EnsureForwarding makes the kernel forward IPv4 that comes in by the device,
// and returns whether it had to. The kernel looks at the flag of the interface
// that a packet comes in by, so that net.ipv4.ip_forward may stay 0.
func EnsureForwarding(device string) (bool, error) {
	return EnsureConf(device, []Conf{{"forwarding", 1, 1}})
}

// ForwardsIPv6 tells whether the kernel forwards IPv6. There is no way to
// switch it on but the sysctl.
func ForwardsIPv6() (bool, error) {
	b, err := os.ReadFile(filepath.Join(sysctls, "ipv6", "conf", "all", "forwarding"))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot read whether IPv6 is forwarded: %w", err)
	}
	return strings.TrimSpace(string(b)) == "1", nil
}
