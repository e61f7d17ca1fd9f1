package device

import (
	"errors"
	"net"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// An agent that is killed right after it has made its device leaves one without
// mark. Whatever else has no mark is somebody else's.
func TestUnmarked(t *testing.T) {
	attributes := func(alias string, flags net.Flags) netlink.LinkAttrs {
		return netlink.LinkAttrs{Name: "wg0", Alias: alias, Flags: flags}
	}
	cases := map[string]struct {
		reason string
		link   netlink.Link
		device fake
		want   bool
	}{
		"Left":    {"nobody has used it", &netlink.Wireguard{LinkAttrs: attributes("", 0)}, fake{}, true},
		"Marked":  {"it has the mark", &netlink.Wireguard{LinkAttrs: attributes(alias, 0)}, fake{}, false},
		"Other":   {"it has another's", &netlink.Wireguard{LinkAttrs: attributes("office", 0)}, fake{}, false},
		"Up":      {"somebody has brought it up", &netlink.Wireguard{LinkAttrs: attributes("", net.FlagUp)}, fake{}, false},
		"Key":     {"somebody has given it a key", &netlink.Wireguard{LinkAttrs: attributes("", 0)}, fake{key: key(1)}, false},
		"Peers":   {"somebody has given it peers", &netlink.Wireguard{LinkAttrs: attributes("", 0)}, fake{peers: map[wgtypes.Key]*wgtypes.Peer{key(1): {}}}, false},
		"Unread":  {"nobody knows", &netlink.Wireguard{LinkAttrs: attributes("", 0)}, fake{unread: errors.New("no memory")}, false},
		"Another": {"we make no such link", &netlink.Veth{LinkAttrs: attributes("", 0)}, fake{}, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			d := &Device{name: "wg0", client: &tc.device}
			if got := d.unmarked(tc.link); got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
}
