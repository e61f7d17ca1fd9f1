package pods

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/config"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// Class names a class of pods.
type Class struct {
	Namespace, Name string
}

// Served is a pod that is a peer.
type Served struct {
	Pod  Pod
	Peer wireguard.Peer
}

// Ignored is a pod that is none, and why.
type Ignored struct {
	Pod    Pod
	Reason string
}

// Selector decides which pods are served. It keeps their public keys, which
// take longer to derive than all else.
type Selector struct {
	keys map[identity]wireguard.Key
}

type identity struct {
	class wireguard.Key
	uid   string
}

// Select returns the pods of a configuration's classes that are served, in the
// order of their names, and those that are not though they should be. Own are
// the addresses of the gateway's pod.
//
// Where two pods have one address, it is that of the pod that was started last:
// the network of the other one is gone, and its status late.
func (s *Selector) Select(c *config.Config, pods []Pod, own []netip.Addr) ([]Served, []Ignored) {
	classes := make(map[Class]wireguard.PodClass, len(c.PodClasses))
	for _, x := range c.PodClasses {
		classes[Class{x.Namespace, x.Name}] = x
	}
	pods = slices.DeleteFunc(slices.Clone(pods), func(p Pod) bool {
		_, known := classes[Class{p.Namespace, p.Class}]
		return !known || p.Ended || len(p.Addresses) == 0
	})
	slices.SortFunc(pods, newestFirst)

	keys := make(map[identity]wireguard.Key, len(pods))
	owners := owners(c, own)
	var served []Served
	var ignored []Ignored
	for _, p := range pods {
		class := classes[Class{p.Namespace, p.Class}]
		if reason := refusal(p, c, owners); reason != "" {
			ignored = append(ignored, Ignored{p, reason})
			continue
		}
		for _, a := range p.Addresses {
			owners[a] = owner{p.Namespace, p.Name, true}
		}
		id := identity{class.Key, p.UID}
		key, known := s.keys[id]
		if !known {
			key = wireguard.PodKey(class.Key, p.UID).Public()
		}
		keys[id] = key
		served = append(served, Served{p, wireguard.Peer{
			Namespace: p.Namespace, Name: p.Name, PublicKey: key, Addresses: p.Addresses, Access: class.Access,
		}})
	}
	s.keys = keys
	slices.SortFunc(served, func(a, b Served) int { return byName(a.Pod, b.Pod) })
	slices.SortFunc(ignored, func(a, b Ignored) int { return byName(a.Pod, b.Pod) })
	return served, ignored
}

// owner is who has an address: a pod, a peer, or the gateway, which has no name.
type owner struct {
	namespace, name string
	pod             bool
}

func (o owner) String() string {
	switch {
	case o.pod:
		return "pod " + o.namespace + "/" + o.name + ", which is newer"
	case o.name != "":
		return "peer " + o.namespace + "/" + o.name
	default:
		return "the gateway"
	}
}

// owners returns who has which address, apart from pods.
func owners(c *config.Config, own []netip.Addr) map[netip.Addr]owner {
	out := map[netip.Addr]owner{}
	for _, a := range own {
		out[a] = owner{}
	}
	for _, p := range c.Peers {
		for _, n := range p.AllowedIPs() {
			if n.IsSingleIP() {
				out[n.Addr()] = owner{p.Namespace, p.Name, false}
			}
		}
	}
	return out
}

// refusal returns why a pod is no peer, and empty where it is one.
func refusal(p Pod, c *config.Config, owners map[netip.Addr]owner) string {
	switch {
	case p.UID == "":
		return "it has no UID"
	case p.HostNetwork:
		return "it is on its node's network"
	case !slices.Contains(p.Enrolments, wireguard.EnrolmentSecret(p.Class)):
		return fmt.Sprintf("it has no init container %s that mounts the Secret %s", wireguard.Sidecar, wireguard.EnrolmentSecret(p.Class))
	}
	for _, a := range p.Addresses {
		if !a.IsGlobalUnicast() {
			return fmt.Sprintf("its address %s is none of a pod", a)
		}
		if !inside(a, c.PodCIDRs) {
			return fmt.Sprintf("its address %s is outside of the cluster's networks of pods", a)
		}
		if owner, taken := owners[a]; taken {
			return fmt.Sprintf("its address %s is that of %s", a, owner)
		}
		for _, pool := range c.Addresses {
			if pool.Contains(a) {
				return fmt.Sprintf("its address %s is in the gateway's pool %s", a, pool.Masked())
			}
		}
	}
	return ""
}

// inside tells whether an address is in one of the networks of its family, or
// none is known.
func inside(a netip.Addr, networks []netip.Prefix) bool {
	known := false
	for _, n := range networks {
		if n.Addr().Is4() != a.Is4() {
			continue
		}
		if n.Contains(a) {
			return true
		}
		known = true
	}
	return !known
}

func newestFirst(a, b Pod) int {
	return cmp.Or(b.Started.Compare(a.Started), b.Created.Compare(a.Created), cmp.Compare(a.UID, b.UID))
}

func byName(a, b Pod) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
}
