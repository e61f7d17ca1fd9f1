package firewall

import (
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/config"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// Network is what the firewall has to know of the pod's own network.
type Network struct {
	// IPv4 and IPv6 name the interface of the default route of each family.
	// Empty where there is none: no traffic of that family leaves then.
	IPv4, IPv6 string
	// Addresses are the addresses of these interfaces.
	Addresses []netip.Addr
}

func (n Network) device(v4 bool) string {
	if v4 {
		return n.IPv4
	}
	return n.IPv6
}

// Names of chains and sets.
const (
	fromPeers  = "from-peers"
	toPeers    = "to-peers"
	toGateway  = "to-gateway"
	exits      = "exits"
	ownSources = "own-sources"
	inside4    = "inside4"
	inside6    = "inside6"
	peers4     = "peers4"
	peers6     = "peers6"
	pods4      = "pods4"
	pods6      = "pods6"
)

// families lists both, with their sets. Everything holds for IPv6 as it does
// for IPv4.
var families = []struct {
	v4                  bool
	inside, peers, pods string
}{{true, inside4, peers4, pods4}, {false, inside6, peers6, pods6}}

// Render returns the table for a configuration. It depends on its arguments
// only.
//
// What a peer sends is taken or dropped in this order: it has to leave where
// peers' traffic may leave; traffic to other peers needs PeerToPeer; replies to
// connections that others opened pass; its source has to be an address or
// network of a peer, whose access rules then decide. The packets of a running
// connection are judged again each time, so that access that is taken back
// ends at once. Replies to a peer pass as long as the kernel knows whom they
// are for: what a peer may no longer reach has to be forgotten, see Accepts.
//
// Addresses of peers are inside the tunnel and nowhere else. Those of pods are
// outside too: there they send our own datagrams, and whatever the gateway
// serves. What comes in by the uplink gets a mark, which its answers get too, so
// that they go back the same way: routes into the tunnel are for packets without
// mark only.
func Render(c *config.Config, n Network) Ruleset {
	r := Ruleset{table: wireguard.FirewallTable, sets: sets(c)}
	base := func(name string, hook *nftables.ChainHook, kind nftables.ChainType, priority int, rules ...rule) {
		r.chains = append(r.chains, chain{name: name, hook: hook, kind: kind, priority: priority, rules: rules})
	}
	plain := func(name string, rules ...rule) {
		r.chains = append(r.chains, chain{name: name, rules: rules})
	}

	lists, chains := accessChains(c)
	r.chains = append(r.chains, chains...)
	for _, f := range families {
		r.sets = append(r.sets, set{name: f.peers, v4: f.v4, verdicts: true, intervals: intervals(sources(c, f.v4, lists))})
	}

	plain(exits, exitRules(c, n)...)
	plain(fromPeers, fromPeersRules(c)...)
	plain(toPeers,
		clampMSS(),
		match(ctReply(), ctState(expr.CtStateBitESTABLISHED), accept()),
		match(ctState(expr.CtStateBitRELATED), accept()),
		match(drop()),
	)
	plain(toGateway, toGatewayRules()...)

	base("forward", nftables.ChainHookForward, nftables.ChainTypeFilter, priorityFilter, forwardRules(c)...)
	base("input", nftables.ChainHookInput, nftables.ChainTypeFilter, priorityFilter, inputRules(c, n)...)
	if len(c.PodClasses) > 0 {
		base("prerouting", nftables.ChainHookPrerouting, nftables.ChainTypeFilter, priorityMark, markRules(n)...)
		base("reroute", nftables.ChainHookOutput, nftables.ChainTypeRoute, priorityMangle,
			match(ctMark(wireguard.FirewallMark), ctReply(), setMark(wireguard.FirewallMark)),
		)
	}
	base("source-nat", nftables.ChainHookPostrouting, nftables.ChainTypeNAT, prioritySourceNAT, masqueradeRules(c, n)...)
	// A packet that conntrack calls invalid, or does not track, is not
	// masqueraded. It would show the peer's own address to the outside.
	base("after-nat", nftables.ChainHookPostrouting, nftables.ChainTypeFilter, priorityAfterNAT,
		match(oif(wireguard.Device), accept()),
		match(oif("lo"), accept()),
		match(saddrIn(inside4, true), drop()),
		match(saddrIn(inside6, false), drop()),
	)
	if c.Egress.Mode == wireguard.EgressGluetun {
		plain(ownSources, ownSourceRules(n)...)
		base("output", nftables.ChainHookOutput, nftables.ChainTypeFilter, priorityOutputGuard, outputRules(n)...)
	}
	return r
}

// sets returns the addresses that belong inside the tunnel: the pools, and
// what peers have beyond them.
func sets(c *config.Config) []set {
	var out []set
	for _, f := range families {
		var ns []network
		for _, a := range c.Addresses {
			if a.Addr().Is4() == f.v4 {
				ns = append(ns, network{prefix: a.Masked()})
			}
		}
		for _, p := range c.All() {
			for _, n := range p.AllowedIPs() {
				if n.Addr().Is4() == f.v4 && !c.InPools(n) {
					ns = append(ns, network{prefix: n})
				}
			}
		}
		out = append(out, set{name: f.inside, v4: f.v4, intervals: intervals(ns)})
		if len(c.PodClasses) > 0 {
			out = append(out, set{name: f.pods, v4: f.v4, intervals: intervals(podNetworks(c, f.v4))})
		}
	}
	return out
}

func podNetworks(c *config.Config, v4 bool) []network {
	var ns []network
	for _, p := range c.Pods {
		for _, n := range p.AllowedIPs() {
			if n.Addr().Is4() == v4 {
				ns = append(ns, network{prefix: n})
			}
		}
	}
	return ns
}

// sources returns each peer's networks with the chain of its access rules.
func sources(c *config.Config, v4 bool, lists []string) []network {
	all := c.All()
	ns := make([]network, 0, len(all))
	for i, p := range all {
		for _, n := range p.AllowedIPs() {
			if n.Addr().Is4() == v4 {
				ns = append(ns, network{prefix: n, chain: lists[i]})
			}
		}
	}
	return ns
}

// forwardRules decide on what the gateway passes on. Peers have the tunnel for
// it, in both directions: without device, other routes would take what is sent
// to them.
func forwardRules(c *config.Config) []rule {
	rules := []rule{
		match(iif(wireguard.Device), jump(fromPeers)),
		match(oif(wireguard.Device), jump(toPeers)),
		match(saddrIn(inside4, true), drop()),
		match(saddrIn(inside6, false), drop()),
		match(daddrIn(inside4, true), drop()),
		match(daddrIn(inside6, false), drop()),
	}
	if len(c.PodClasses) > 0 {
		rules = append(rules, match(ctMark(wireguard.TunnelMark), drop()))
	}
	return rules
}

// exitRules return to the caller for packets that leave where peers' traffic
// may leave, and drop all others. What is for the cluster or for other peers is
// none of the provider's business: routes that it asks for may lead it into the
// tunnel.
func exitRules(c *config.Config, n Network) []rule {
	rules := []rule{match(oif(wireguard.Device), ret())}
	if c.Egress.Mode == wireguard.EgressGluetun {
		for _, p := range slices.Concat(c.Egress.ClusterCIDRs, c.LeftOut) {
			rules = append(rules, match(oif(wireguard.GluetunDevice), daddr(p), drop()))
		}
		for _, f := range families {
			rules = append(rules, match(oif(wireguard.GluetunDevice), daddrIn(f.inside, f.v4), drop()))
		}
		rules = append(rules, match(oif(wireguard.GluetunDevice), ret()))
		for _, p := range c.Egress.ClusterCIDRs {
			if dev := n.device(p.Addr().Is4()); dev != "" {
				rules = append(rules, match(oif(dev), daddr(p), ret()))
			}
		}
	} else {
		for _, f := range families {
			if dev := n.device(f.v4); dev != "" {
				rules = append(rules, match(family(f.v4), oif(dev), ret()))
			}
		}
		// On a node's own network pods are behind other interfaces.
		for _, p := range c.Egress.ClusterCIDRs {
			rules = append(rules, match(daddr(p), ret()))
		}
	}
	return append(rules, match(drop()))
}

// fromPeersRules decide on what peers send through the gateway.
func fromPeersRules(c *config.Config) []rule {
	rules := []rule{
		clampMSS(),
		match(jump(exits)),
		match(ctState(expr.CtStateBitINVALID), drop()),
	}
	// Also of connections that were opened when they might be.
	if !c.PeerToPeer {
		rules = append(rules, match(oif(wireguard.Device), reject()))
	}
	return append(rules,
		match(ctReply(), ctState(expr.CtStateBitESTABLISHED), accept()),
		match(ctState(expr.CtStateBitRELATED), accept()),
		match(saddrVerdict(peers4, true)),
		match(saddrVerdict(peers6, false)),
		match(drop()),
	)
}

// toGatewayRules decide on what peers send to the gateway itself: they may
// ping it and ask its resolver, as far as their access rules let them. Metrics
// and gluetun's control server are none of their business.
func toGatewayRules() []rule {
	rules := []rule{
		match(ctReply(), ctState(expr.CtStateBitESTABLISHED), accept()),
		match(ctState(expr.CtStateBitRELATED), accept()),
	}
	for _, proto := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP} {
		rules = append(rules, match(l4proto(proto), dport(expr.CmpOpNeq, dns), reject()))
	}
	for _, proto := range []byte{unix.IPPROTO_TCP, unix.IPPROTO_UDP, unix.IPPROTO_ICMP, unix.IPPROTO_ICMPV6} {
		for _, f := range families {
			rules = append(rules, match(l4proto(proto), saddrVerdict(f.peers, f.v4)))
		}
	}
	return append(rules, match(drop()))
}

// inputRules decide on what is sent to the gateway itself. Addresses of peers
// that do not come out of the tunnel are forged, but for those of pods.
func inputRules(c *config.Config, n Network) []rule {
	rules := []rule{
		match(iif("lo"), accept()),
		match(iif(wireguard.Device), jump(toGateway)),
	}
	if len(c.PodClasses) > 0 {
		for _, f := range families {
			if dev := n.device(f.v4); dev != "" {
				rules = append(rules, match(iif(dev), saddrIn(f.pods, f.v4), accept()))
			}
		}
	}
	return append(rules,
		match(saddrIn(inside4, true), drop()),
		match(saddrIn(inside6, false), drop()),
	)
}

// markRules note by which way a connection came in. Packets of those that were
// opened through the tunnel come out of it or leave by it: whoever has the
// address next gets none of them.
func markRules(n Network) []rule {
	rules := []rule{match(iif(wireguard.Device), ctOriginal(), setCtMark(wireguard.TunnelMark))}
	for _, f := range families {
		dev := n.device(f.v4)
		if dev == "" {
			continue
		}
		toUs := match(family(f.v4), iif(dev), toLocal())
		rules = append(rules,
			match(toUs, setMark(wireguard.FirewallMark)),
			match(toUs, ctOriginal(), setCtMark(wireguard.FirewallMark)),
		)
	}
	return rules
}

// masqueradeRules give what leaves to the outside the address of the interface
// that it leaves by. Inside the tunnel everybody has their own.
func masqueradeRules(c *config.Config, n Network) []rule {
	rules := []rule{match(oif(wireguard.Device), accept())}
	for _, f := range families {
		dev := n.device(f.v4)
		if c.Egress.Mode == wireguard.EgressDirect {
			if dev != "" {
				rules = append(rules, match(saddrIn(f.inside, f.v4), oif(dev), masquerade()))
			}
			for _, p := range c.Egress.ClusterCIDRs {
				if p.Addr().Is4() == f.v4 {
					rules = append(rules, match(saddrIn(f.inside, f.v4), daddr(p), masquerade()))
				}
			}
			continue
		}
		rules = append(rules, match(saddrIn(f.inside, f.v4), oif(wireguard.GluetunDevice), masquerade()))
		for _, p := range c.Egress.ClusterCIDRs {
			if dev != "" && p.Addr().Is4() == f.v4 {
				rules = append(rules, match(saddrIn(f.inside, f.v4), oif(dev), daddr(p), masquerade()))
			}
		}
	}
	return rules
}

// outputRules send what the pod itself sends through its own interfaces to
// ownSources. When gluetun restarts its tunnel, connections of the pod that
// used it would otherwise go on in the clear, with the tunnel's address.
func outputRules(n Network) []rule {
	var rules []rule
	if n.IPv4 != "" {
		rules = append(rules, match(oif(n.IPv4), jump(ownSources)))
	}
	if n.IPv6 != "" && n.IPv6 != n.IPv4 {
		rules = append(rules, match(oif(n.IPv6), jump(ownSources)))
	}
	return rules
}

// ownSourceRules drop what has not the interface's own address as source. A
// host that has no address yet uses the unspecified one and link-local ones.
func ownSourceRules(n Network) []rule {
	allowed := []netip.Prefix{
		netip.MustParsePrefix("0.0.0.0/32"), netip.MustParsePrefix("::/128"), netip.MustParsePrefix("fe80::/10"),
	}
	for _, a := range n.Addresses {
		allowed = append(allowed, netip.PrefixFrom(a, a.BitLen()))
	}
	var rules []rule
	for _, p := range allowed {
		rules = append(rules, match(saddr(p), ret()))
	}
	return append(rules, match(drop()))
}
