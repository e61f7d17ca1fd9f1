package gateway

import (
	"net/netip"
	"slices"

	"k8s.io/client-go/rest"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/config"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/pods"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/route"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// podState is what the gateway knows of the pods that join it.
type podState struct {
	watcher  *pods.Watcher
	selector pods.Selector
	file     pods.File
	// unkept tells that the file could not be written the last time.
	unkept bool

	// owners are the pods, by UID, whose addresses the kernel may have routes or
	// connections of.
	owners map[netip.Addr]string
	// served are the pods on the device, and wanted those that the present sync
	// is for.
	served, wanted []pods.Served
	// told are the reasons that were logged, by the UID of the pod.
	told map[string]string
}

// restorePods takes over what an agent before this one has left.
func (g *gateway) restorePods(client rest.Interface, path string) {
	g.pods.file.Path = path
	restored, err := g.pods.file.Read()
	if err != nil {
		g.log.Warn("cannot restore pods, those that join are found by the API", "error", err)
	}
	g.pods.watcher = pods.NewWatcher(client, restored, g.log)
	g.pods.owners = ownersOf(restored)
}

func ownersOf(list []pods.Pod) map[netip.Addr]string {
	out := map[netip.Addr]string{}
	for _, p := range list {
		for _, a := range p.Addresses {
			out[a] = p.UID
		}
	}
	return out
}

// selectPods gives the configuration the pods that are to be served now. It
// returns the addresses that are no longer those of the pod that had them.
func (g *gateway) selectPods(c *config.Config, own []netip.Addr) []netip.Addr {
	p := &g.pods
	served, ignored := p.selector.Select(c, p.watcher.Pods(), own)
	g.explain(ignored)
	p.wanted = served
	c.Pods = nil
	owners := map[netip.Addr]string{}
	for _, s := range served {
		c.Pods = append(c.Pods, s.Peer)
		for _, a := range s.Pod.Addresses {
			owners[a] = s.Pod.UID
		}
	}
	var left []netip.Addr
	for a, uid := range p.owners {
		if owners[a] != uid {
			left = append(left, a)
		}
	}
	slices.SortFunc(left, netip.Addr.Compare)
	return left
}

// keepPods notes who has which address from now on: what others had is
// forgotten.
func (g *gateway) keepPods() {
	list := make([]pods.Pod, len(g.pods.wanted))
	for i, s := range g.pods.wanted {
		list[i] = s.Pod
	}
	g.pods.owners = ownersOf(list)
	g.kept(&g.pods.unkept, "cannot keep pods for a restart", g.pods.file.Write(list))
}

// explain logs why pods are not served, once for each pod and reason.
func (g *gateway) explain(ignored []pods.Ignored) {
	told := make(map[string]string, len(ignored))
	for _, i := range ignored {
		if g.pods.told[i.Pod.UID] != i.Reason {
			g.log.Info("pod is not served", "pod", i.Pod.String(), "peer", i.Pod.Class, "reason", i.Reason)
		}
		told[i.Pod.UID] = i.Reason
	}
	g.pods.told = told
}

// noteServed notes that the pods which were wanted are served.
func (g *gateway) noteServed() {
	g.pods.served = g.pods.wanted
	counts := make(map[[2]string]int, len(g.config.PodClasses))
	for _, c := range g.config.PodClasses {
		counts[[2]string{c.Namespace, c.Name}] = 0
	}
	for _, s := range g.pods.served {
		counts[[2]string{s.Pod.Namespace, s.Pod.Class}]++
	}
	g.metrics.Pods(counts)
}

// ensurePodRoutes routes the pods' addresses into the device.
func ensurePodRoutes(c *config.Config) error {
	var addresses []netip.Addr
	for _, p := range c.Pods {
		addresses = append(addresses, p.Addresses...)
	}
	return route.EnsurePodRoutes(wireguard.Device, addresses)
}
