package route

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

const (
	sysctls = "/proc/sys/net"

	// inetConf is IFLA_INET_CONF of linux/if_link.h.
	inetConf = 1
)

// Conf is a setting that each interface has of its own for IPv4, as in
// /proc/sys/net/ipv4/conf. Its number is the kernel's, of linux/ip.h.
type Conf struct {
	name   string
	number int
	value  uint32
}

// ReversePath are the settings with which the kernel takes a packet that comes
// in by one interface while its answer, unmarked, would leave by another: it
// looks for the way back with the packet's mark, and any way back will do. The
// greater of the interface's rp_filter and that of all holds, so that 2 also
// overrules a strict default.
var ReversePath = []Conf{{"rp_filter", 8, 2}, {"src_valid_mark", 24, 1}}

// EnsureConf gives the interface the settings, and returns whether it had to.
// It goes through rtnetlink, which works where /proc/sys is read-only. A new
// interface of the same name starts without.
func EnsureConf(device string, settings []Conf) (bool, error) {
	var missing []Conf
	for _, c := range settings {
		same, err := c.isSet(device)
		if err != nil {
			return false, err
		}
		if !same {
			missing = append(missing, c)
		}
	}
	if len(missing) == 0 {
		return false, nil
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
	for _, c := range missing {
		conf.AddRtAttr(c.number, nl.Uint32Attr(c.value))
	}
	request.AddData(spec)
	if _, err := request.Execute(unix.NETLINK_ROUTE, 0); err != nil {
		return false, fmt.Errorf("cannot set %s of %s: %w", missing[0].name, device, err)
	}
	// The kernel ignores what it does not know, so the answer is no proof.
	for _, c := range missing {
		same, err := c.isSet(device)
		if err != nil {
			return false, err
		}
		if !same {
			return false, fmt.Errorf("cannot set %s of %s: the kernel ignores it", c.name, device)
		}
	}
	return true, nil
}

func (c Conf) isSet(device string) (bool, error) {
	b, err := os.ReadFile(filepath.Join(sysctls, "ipv4", "conf", device, c.name)) //nolint:gosec // Names of interfaces have no slashes.
	if err != nil {
		return false, fmt.Errorf("cannot read %s of %s: %w", c.name, device, err)
	}
	return strings.TrimSpace(string(b)) == strconv.FormatUint(uint64(c.value), 10), nil
}
