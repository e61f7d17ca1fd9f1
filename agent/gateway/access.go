package gateway

import (
	"net/netip"
	"slices"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/config"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/firewall"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/route"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// forgetRejected makes the kernel forget the connections that peers have opened
// and that their access rules reject by now, where these have changed. What is
// sent to peers would pass as the answer to them. Nobody knows what they were
// for the agent before this one, nor what was opened while the firewall was not
// there: those that show the peer's own address outside are forgotten then, too,
// since what is dropped for it would not be masqueraded as long as it lasts.
func (g *gateway) forgetRejected(c *config.Config, own []netip.Addr) error {
	before, after := g.access, accessByNetwork(c)
	unguarded := before.values == nil
	// To look for connections holds up packets for milliseconds.
	if unguarded || g.device.Met(accessChanged(before.values, after.values, g.had)) {
		err := route.ForgetFlows(func(f route.Flow) bool {
			list, is := after.of(netip.PrefixFrom(f.Source, f.Source.BitLen()))
			// What pods open beside the tunnel is none of the rules' business.
			if !is || f.Mark == wireguard.FirewallMark {
				return false
			}
			return !firewall.Accepts(list.rules, f.Protocol, f.Destination) || unguarded && shown(f, c, after, own)
		})
		if err != nil {
			return err
		}
	}
	g.access = after
	return nil
}

// shown tells whether a peer's connection to the outside has the peer's own
// address there. Answers come back to where it was translated to.
func shown(f route.Flow, c *config.Config, peers byNetwork[access], own []netip.Addr) bool {
	to := f.Destination.Addr()
	_, toPeer := peers.of(netip.PrefixFrom(to, to.BitLen()))
	inside := toPeer || c.InPools(netip.PrefixFrom(to, to.BitLen()))
	return f.Ends[3] == f.Source && !inside && !slices.Contains(own, to)
}

// access is what a peer may reach.
type access struct {
	rules []wireguard.AccessRule
	key   wgtypes.Key
}

func accessByNetwork(c *config.Config) byNetwork[access] {
	out := make(map[netip.Prefix]access, 2*len(c.Peers))
	for _, p := range c.All() {
		for _, n := range p.AllowedIPs() {
			out[n] = access{p.Access, p.PublicKey.Key}
		}
	}
	return newByNetwork(out)
}

// accessChanged returns the keys of the peers that have other rules than before,
// with the keys that they had. Who had nothing has no connections, but one that
// comes back may have some of the time before.
func accessChanged(before, after map[netip.Prefix]access, had owners) (keys []wgtypes.Key) {
	for n, now := range after {
		was, there := before[n]
		if !there {
			_, there = had.of(n)
		}
		if there && len(now.rules) > 0 && !slices.EqualFunc(was.rules, now.rules, sameRule) {
			keys = append(keys, now.key, was.key)
		}
	}
	return keys
}

func sameRule(a, b wireguard.AccessRule) bool {
	return a.Action == b.Action && a.Protocol == b.Protocol && a.To.CIDR == b.To.CIDR && slices.Equal(a.To.Ports, b.To.Ports)
}
