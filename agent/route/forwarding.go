package route

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	sysctls = "/proc/sys/net"

	// Numbers of linux/if_link.h and linux/ip.h.
	inetConf          = 1 // IFLA_INET_CONF
	devconfForwarding = 1 // IPV4_DEVCONF_FORWARDING
)

// EnsureForwarding makes the kernel forward IPv4 that comes in by the device,
// and returns whether it had to. It sets the interface's own flag through
// rtnetlink, which works where /proc/sys is read-only. The kernel looks at the
// flag of the interface that a packet comes in by, so that net.ipv4.ip_forward
// may stay 0.
func EnsureForwarding(device string) (bool, error) {
	on, err := Forwarding(device)
	if on || err != nil {
		return false, err
	}
	link, err := netlink.LinkByName(device)
	if err != nil {
		return false, fmt.Errorf("cannot find %s: %w", device, err)
	}
	request := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	message := nl.NewIfInfomsg(unix.AF_UNSPEC)
	message.Index = int32(link.Attrs().Index)
	request.AddData(message)
	spec := nl.NewRtAttr(unix.IFLA_AF_SPEC|unix.NLA_F_NESTED, nil)
	inet := spec.AddRtAttr(unix.AF_INET|unix.NLA_F_NESTED, nil)
	conf := inet.AddRtAttr(inetConf|unix.NLA_F_NESTED, nil)
	conf.AddRtAttr(devconfForwarding, nl.Uint32Attr(1))
	request.AddData(spec)
	if _, err := request.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return false, fmt.Errorf("cannot switch on forwarding of %s: %w", device, err)
	}
	// The kernel ignores what it does not know, so the answer is no proof.
	on, err = Forwarding(device)
	if err != nil {
		return false, err
	}
	if !on {
		return false, fmt.Errorf("cannot switch on forwarding of %s: the kernel ignores it", device)
	}
	return true, nil
}

// Forwarding tells whether the kernel forwards IPv4 that comes in by the
// device.
func Forwarding(device string) (bool, error) {
	return isOn("ipv4", device)
}

// ForwardsIPv6 tells whether the kernel forwards IPv6. There is no way to
// switch it on but the sysctl.
func ForwardsIPv6() (bool, error) {
	return isOn("ipv6", "all")
}

func isOn(family, device string) (bool, error) {
	b, err := os.ReadFile(filepath.Join(sysctls, family, "conf", device, "forwarding")) //nolint:gosec // Names of interfaces have no slashes.
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("cannot read forwarding of %s: %w", device, err)
	}
	return strings.TrimSpace(string(b)) == "1", nil
}
