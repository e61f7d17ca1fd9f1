package firewall

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// Lockdown is what may leave a pod outside its tunnel. The zero value is
// nothing.
type Lockdown struct {
	// GatewayPort is the UDP port that the device sends to. 0 is none.
	GatewayPort uint16
	// Nameservers are those that the sidecar asks for the gateway's address.
	Nameservers []netip.Addr
	// Bypass are the networks that the pod reaches directly.
	Bypass []netip.Prefix
	// NoInbound leaves connections from outside without answer.
	NoInbound bool
	// Interfaces are those that packets may leave by, apart from the tunnel.
	// Guard is a mark that nobody knows. With it, the interfaces let out only
	// what the lockdown has marked so. A process with CAP_NET_RAW can hand
	// whole frames to an interface, and these pass no other rule. Not every
	// kernel can do this: 0 is without.
	Interfaces []string
	Guard      uint32
}

// DroppedCounter counts what the lockdown keeps from leaving.
const DroppedCounter = "dropped"

// linkLocal are the destinations that no router passes on: what the kernel
// sends there by itself is not worth an error.
var linkLocal = []netip.Prefix{netip.MustParsePrefix("fe80::/10"), netip.MustParsePrefix("ff00::/8")}

// neighbours are the types of ICMPv6 without which a host cannot talk to the
// next hop: MLD, router and neighbour solicitation, neighbour advertisement,
// MLDv2.
var neighbours = []byte{131, 133, 135, 136, 143}

// RenderLockdown returns the table of a pod whose traffic has to stay in its
// tunnel. It names no interface but ours and lo: whatever else the pod has, or
// gets, is outside.
//
// What comes in from outside is answered there, and what comes in by the tunnel
// through it: the connection keeps a mark that says which. The wall stands in
// postrouting. In the output hook a packet whose mark has changed its route
// still has the interface that it would have left by before.
func RenderLockdown(l Lockdown) Ruleset {
	inside := uint32(wireguard.TunnelMark)
	outside := uint32(wireguard.FirewallMark)
	arrivals := []rule{
		match(iif("lo"), accept()),
		match(fromTunnel(), ctOriginal(), setCtMark(inside)),
		match(fromTunnel(), setMark(inside), accept()),
	}
	if !l.NoInbound {
		arrivals = append(arrivals, match(ctOriginal(), setCtMark(outside)))
	}
	arrivals = append(arrivals, match(setMark(outside)))
	chains := []chain{
		{
			name: "prerouting", hook: nftables.ChainHookPrerouting, kind: nftables.ChainTypeFilter, priority: priorityMangle,
			rules: arrivals,
		},
		{
			name: "reroute", hook: nftables.ChainHookOutput, kind: nftables.ChainTypeRoute, priority: priorityMangle,
			rules: []rule{
				match(ctReply(), ctMark(outside), setMark(outside)),
				match(ctReply(), ctMark(inside), setMark(inside)),
			},
		},
		{
			name: "output", hook: nftables.ChainHookOutput, kind: nftables.ChainTypeFilter, priority: priorityWall,
			rules: fastErrors(l),
		},
		{
			name: "postrouting", hook: nftables.ChainHookPostrouting, kind: nftables.ChainTypeFilter, priority: priorityWall, drops: true,
			rules: wall(l, outside),
		},
		{
			name: "forward", hook: nftables.ChainHookForward, kind: nftables.ChainTypeFilter, priority: priorityWall, drops: true,
			rules: []rule{match(counted(drop()))},
		},
	}
	r := Ruleset{table: wireguard.LockdownTable, counters: []string{DroppedCounter}, chains: chains}
	if l.Guard != 0 {
		r.egress = true
		// What gets here has passed the wall, and whatever others have in this
		// hook.
		r.chains = append(r.chains, chain{
			name: "guard", hook: nftables.ChainHookPostrouting, kind: nftables.ChainTypeFilter, priority: priorityLast,
			rules: []rule{
				match(oif("lo"), accept()),
				match(toTunnel(), accept()),
				match(setMark(l.Guard)),
			},
		})
		for i, name := range l.Interfaces {
			r.chains = append(r.chains, chain{
				// An interface's name may have characters that a chain's may not.
				name: fmt.Sprintf("egress-%d", i), device: name, hook: nftables.ChainHookEgress, kind: nftables.ChainTypeFilter, priority: priorityWall, drops: true,
				rules: []rule{
					// It ends here: a filter of a packet socket, which comes
					// after this hook, could read it.
					match(mark(l.Guard), setMark(0), accept()),
					match(meta(expr.MetaKeyPROTOCOL, binaryutil.BigEndian.PutUint16(unix.ETH_P_ARP)), accept()),
					match(counted(drop())),
				},
			})
		}
	}
	return r
}

// wall is what may leave. Everything else does not.
func wall(l Lockdown, outside uint32) []rule {
	rules := []rule{
		match(oif("lo"), accept()),
		match(toTunnel(), accept()),
	}
	if l.GatewayPort != 0 {
		// The mark alone can be set by any process with CAP_NET_RAW. The port
		// is taken by the device.
		rules = append(rules, match(mark(outside), l4proto(unix.IPPROTO_UDP), sport(wireguard.ClientPort),
			dport(expr.CmpOpEq, wireguard.PortRange{First: l.GatewayPort, Last: l.GatewayPort}), accept()))
	}
	for _, a := range l.Nameservers {
		for _, proto := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_TCP} {
			rules = append(rules, match(mark(outside), daddr(netip.PrefixFrom(a, a.BitLen())), l4proto(proto),
				dport(expr.CmpOpEq, dns), accept()))
		}
	}
	rules = append(rules, match(ctReply(), ctMark(outside), accept()))
	for _, t := range neighbours {
		rules = append(rules, match(icmpv6(t), accept()))
	}
	// An answer to what came in by the tunnel, also where its destination is
	// one that the pod reaches directly.
	rules = append(rules, match(ctReply(), counted(drop())))
	for _, p := range l.Bypass {
		rules = append(rules, match(daddr(p), accept()))
	}
	return append(rules, match(counted(drop())))
}

// fastErrors tell a process at once that what it sends cannot leave, where the
// wall would let it wait. That is so while there is no tunnel.
func fastErrors(l Lockdown) []rule {
	rules := []rule{
		match(oif("lo"), accept()),
		match(toTunnel(), accept()),
		match(marked(), accept()),
		match(family(false), l4proto(unix.IPPROTO_ICMPV6), accept()),
	}
	for _, p := range slices.Concat(linkLocal, l.Bypass) {
		rules = append(rules, match(daddr(p), accept()))
	}
	return append(rules, match(counted(reject())))
}
