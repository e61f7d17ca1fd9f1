package node

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	node "github.com/wireguardgateway/function-wireguard-gateway/test/node/harness"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// listens returns where a pod listens for others than itself, as protocol and
// port.
func listens(t *testing.T, n *node.Node, p *corev1.Pod, container string) []string {
	t.Helper()
	pid, err := aProcess(n, p, container)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for file, state := range map[string]string{"tcp": "0A", "tcp6": "0A", "udp": "07", "udp6": "07"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, file))
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(b)) {
			words := strings.Fields(line)
			address, hex, _ := strings.Cut(words[1], ":")
			if words[3] != state || address == "0100007F" || address == "00000000000000000000000001000000" {
				continue
			}
			port, err := strconv.ParseUint(hex, 16, 16)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, fmt.Sprintf("%s %d", strings.TrimSuffix(file, "6"), port))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// world is what policies judge by: pods, and the labels of namespaces.
type world struct {
	pods       []corev1.Pod
	namespaces map[string]labels.Set
}

func seeWorld(t *testing.T, n *node.Node) *world {
	t.Helper()
	pods, all := &corev1.PodList{}, &corev1.NamespaceList{}
	if err := n.Client.List(t.Context(), pods); err != nil {
		t.Fatal(err)
	}
	if err := n.Client.List(t.Context(), all); err != nil {
		t.Fatal(err)
	}
	w := &world{pods: pods.Items, namespaces: map[string]labels.Set{}}
	for _, ns := range all.Items {
		w.namespaces[ns.Name] = ns.Labels
	}
	return w
}

// matches tells whether labels are selected.
func matches(s *metav1.LabelSelector, set labels.Set) bool {
	selector, err := metav1.LabelSelectorAsSelector(s)
	return err == nil && selector.Matches(set)
}

// selected returns the names of the pods that a policy is about.
func (w *world) selected(p *networkingv1.NetworkPolicy) []string {
	var out []string
	for _, pod := range w.pods {
		if pod.Namespace == p.Namespace && matches(&p.Spec.PodSelector, pod.Labels) {
			out = append(out, pod.Name)
		}
	}
	return out
}

// is tells whether an address is that of a policy's peer.
func (w *world) is(address netip.Addr, namespace string, peer networkingv1.NetworkPolicyPeer) bool {
	if peer.IPBlock != nil {
		block, err := netip.ParsePrefix(peer.IPBlock.CIDR)
		return err == nil && block.Contains(address)
	}
	return slices.ContainsFunc(w.pods, func(pod corev1.Pod) bool {
		ours := pod.Namespace == namespace
		if peer.NamespaceSelector != nil {
			ours = matches(peer.NamespaceSelector, w.namespaces[pod.Namespace])
		}
		return ours && (peer.PodSelector == nil || matches(peer.PodSelector, pod.Labels)) &&
			slices.ContainsFunc(pod.Status.PodIPs, func(ip corev1.PodIP) bool { return ip.IP == address.String() })
	})
}

func isPort(ports []networkingv1.NetworkPolicyPort, protocol string, port int) bool {
	return len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		return strings.EqualFold(string(*p.Protocol), protocol) && p.Port.IntValue() == port
	})
}

// sends tells whether a policy lets a pod send there.
func (w *world) sends(p *networkingv1.NetworkPolicy, protocol string, to netip.AddrPort) bool {
	return slices.ContainsFunc(p.Spec.Egress, func(r networkingv1.NetworkPolicyEgressRule) bool {
		return isPort(r.Ports, protocol, int(to.Port())) && (len(r.To) == 0 || slices.ContainsFunc(r.To, func(peer networkingv1.NetworkPolicyPeer) bool {
			return w.is(to.Addr(), p.Namespace, peer)
		}))
	})
}

// TestNetworkPolicy holds that the policies which are applied would let through
// what is needed, and nothing else. The node's network does not enforce them: it
// is a test's own reading of them, of what pods really sent.
func TestNetworkPolicy(t *testing.T) {
	n := shared(t)
	seen := watchLeaks(t, n)
	g, apps := newJoinable(t, n)
	g.spec["networkPolicy"] = map[string]any{"enabled": true}
	g.apply()
	n.Eventually(t, "admission", func() error { return n.ApplyYAML(t.Context(), workload("Deployment", apps, "app", 2)) })
	if _, err := n.Kubectl(t.Context(), "-n", apps, "rollout", "status", "deployment/app", "--timeout=120s"); err != nil {
		t.Fatal(err)
	}
	gateway := g.waitPod()
	joined, err := podsOf(t.Context(), n, apps, client.MatchingLabels{wireguard.PeerLabel: "media"})
	if err != nil {
		t.Fatal(err)
	}
	policy := func(namespace, name string) *networkingv1.NetworkPolicy {
		t.Helper()
		p := &networkingv1.NetworkPolicy{}
		n.Eventually(t, "policy "+name, func() error {
			return n.Client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, p)
		})
		return p
	}
	in, out := policy(g.namespace, names.Workload(gatewayName)), policy(apps, names.Pods("media"))
	w := seeWorld(t, n)

	if diff := cmp.Diff([]string{gateway.Name}, w.selected(in)); diff != "" {
		t.Errorf("the gateway's policy is about: -want +got:\n%s", diff)
	}
	if diff := cmp.Diff([]string{joined[0].Name, joined[1].Name}, w.selected(out)); diff != "" {
		t.Errorf("the policy of the pods is about: -want +got:\n%s", diff)
	}
	var open []string
	for _, p := range in.Spec.Ingress[0].Ports {
		open = append(open, fmt.Sprintf("%s %d", strings.ToLower(string(*p.Protocol)), p.Port.IntValue()))
	}
	slices.Sort(open)
	t.Logf("the gateway's policy opens %q", open)
	if diff := cmp.Diff(listens(t, n, gateway, names.ContainerAgent), open); diff != "" || len(in.Spec.Ingress[0].From) > 0 {
		t.Errorf("-where the gateway listens +what its policy opens:\n%s", diff)
	}

	time.Sleep(2 * time.Second)
	judged, refused := 0, map[string]int{}
	for _, pod := range joined {
		index, err := hostDevice(n, &pod, "app")
		if err != nil {
			t.Fatal(err)
		}
		answers := listens(t, n, &pod, "app")
		for p, count := range seen.from(index) {
			if p.FromPort == 0 || slices.Contains(answers, fmt.Sprintf("%s %d", p.Protocol, p.FromPort)) && p.ToPort != listenPort {
				continue
			}
			judged += count
			to := netip.AddrPortFrom(p.To, p.ToPort)
			if !w.sends(out, p.Protocol, to) {
				refused[p.String()] += count
			}
		}
	}
	t.Logf("the policy of the pods was asked about %d packets", judged)
	if judged == 0 || len(refused) > 0 {
		t.Errorf("of %d packets the policy refuses %v", judged, refused)
	}
	wireguardPort := netip.AddrPortFrom(netip.MustParseAddr(gateway.Status.PodIP), listenPort)
	for _, tc := range []struct {
		protocol, to string
		want         bool
	}{
		{"udp", wireguardPort.String(), true},
		{"udp", "10.96.0.10:53", true},
		{"tcp", node.Site4 + ":7", false},
		{"udp", node.Site4 + ":51820", false},
		{"udp", "198.51.100.1:51820", false},
		{"tcp", "1.1.1.1:443", false},
	} {
		if got := w.sends(out, tc.protocol, netip.MustParseAddrPort(tc.to)); got != tc.want {
			t.Errorf("%s to %s: the policy lets it through: %v, want %v", tc.protocol, tc.to, got, tc.want)
		}
	}
}
