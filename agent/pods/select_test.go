package pods

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/config"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

var (
	classKey = wireguard.Seed{1}.PodClassKey("apps", "media")
	noon     = time.Date(2027, 1, 1, 12, 0, 0, 0, time.UTC)
)

func addresses(ss ...string) []netip.Addr {
	var out []netip.Addr
	for _, s := range ss {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// media is a pod as it should be.
func media(name string, ips ...string) Pod {
	return Pod{
		Namespace: "apps", Name: name, UID: "uid-" + name, Class: "media", Enrolments: []string{"media-wireguard.enrolment"},
		Addresses: addresses(ips...), Started: noon, Created: noon,
	}
}

func gateway() *config.Config {
	c := &config.Config{}
	c.Addresses = []netip.Prefix{netip.MustParsePrefix("10.8.0.1/24")}
	c.Peers = []wireguard.Peer{{Namespace: "vpn", Name: "site", Addresses: addresses("10.8.0.2"), Routes: []netip.Prefix{
		netip.MustParsePrefix("10.244.9.9/32"), netip.MustParsePrefix("10.240.0.0/12"),
	}}}
	c.PodClasses = []wireguard.PodClass{{Namespace: "apps", Name: "media", Key: classKey, Access: []wireguard.AccessRule{{Action: wireguard.Accept}}}}
	c.PodCIDRs = []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}
	return c
}

func TestSelect(t *testing.T) {
	changed := func(name, ip string, change func(*Pod)) Pod {
		p := media(name, ip)
		change(&p)
		return p
	}
	later := func(p *Pod) { p.Started = noon.Add(time.Second) }
	cases := map[string]struct {
		reason  string
		pods    []Pod
		served  []string
		ignored []string
	}{
		"None":      {"there may be none", nil, nil, nil},
		"Plain":     {"pods come in the order of their names", []Pod{media("b", "10.244.1.6"), media("a", "10.244.1.5")}, []string{"a", "b"}, nil},
		"Dual":      {"a family whose networks are not known is taken", []Pod{media("a", "10.244.1.5", "2001:db8::5")}, []string{"a"}, nil},
		"Within":    {"a network behind a peer may be wider than a pod", []Pod{media("a", "10.244.1.5")}, []string{"a"}, nil},
		"NoAddress": {"a pod that has no address yet is awaited", []Pod{media("a")}, nil, nil},
		"Ended": {"a pod that has ended keeps its address in its status only", []Pod{
			changed("a", "10.244.1.5", func(p *Pod) { p.Ended = true }), media("b", "10.244.1.5"),
		}, []string{"b"}, nil},
		"OtherClass": {"another class may be another gateway's", []Pod{
			changed("a", "10.244.1.5", func(p *Pod) { p.Class = "books" }),
			changed("b", "10.244.1.6", func(p *Pod) { p.Namespace = "other" }),
		}, nil, nil},
		"HostNetwork": {"the node's address is not the pod's", []Pod{
			changed("a", "10.244.1.5", func(p *Pod) { p.HostNetwork = true }),
		}, nil, []string{"a: it is on its node's network"}},
		"NoSidecar": {"without sidecar nobody answers", []Pod{
			changed("a", "10.244.1.5", func(p *Pod) { p.Enrolments = nil }),
			changed("b", "10.244.1.6", func(p *Pod) { p.Enrolments = []string{"books-wireguard.enrolment"} }),
		}, nil, []string{
			"a: it has no init container wireguard that mounts the Secret media-wireguard.enrolment",
			"b: it has no init container wireguard that mounts the Secret media-wireguard.enrolment",
		}},
		"NoUID":    {"a pod without UID has no key", []Pod{changed("a", "10.244.1.5", func(p *Pod) { p.UID = "" })}, nil, []string{"a: it has no UID"}},
		"Outside":  {"an address of nobody's network would be taken from somebody", []Pod{media("a", "192.168.1.1")}, nil, []string{"a: its address 192.168.1.1 is outside of the cluster's networks of pods"}},
		"Loopback": {"some addresses are nobody's", []Pod{media("a", "10.244.1.5", "::1")}, nil, []string{"a: its address ::1 is none of a pod"}},
		"Gateway":  {"the gateway keeps its own", []Pod{media("a", "10.244.0.10")}, nil, []string{"a: its address 10.244.0.10 is that of the gateway"}},
		"Peer":     {"configured peers keep theirs", []Pod{media("a", "10.244.9.9")}, nil, []string{"a: its address 10.244.9.9 is that of peer vpn/site"}},
		"Newer": {"the pod that was started last has the address", []Pod{
			media("a", "10.244.1.5"), changed("b", "10.244.1.5", later), media("c", "10.244.1.7"),
		}, []string{"b", "c"}, []string{"a: its address 10.244.1.5 is that of pod apps/b, which is newer"}},
		"NewerOfTwo": {"all addresses of a pod go together", []Pod{
			media("a", "10.244.1.5", "2001:db8::5"), changed("b", "10.244.1.5", later),
		}, []string{"b"}, []string{"a: its address 10.244.1.5 is that of pod apps/b, which is newer"}},
		"Created": {"of two that were started at once, the younger", []Pod{
			changed("a", "10.244.1.5", func(p *Pod) { p.Created = noon.Add(time.Second) }), media("b", "10.244.1.5"),
		}, []string{"a"}, []string{"b: its address 10.244.1.5 is that of pod apps/a, which is newer"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := &Selector{}
			served, ignored := s.Select(gateway(), tc.pods, addresses("10.244.0.10"))
			var gotServed, gotIgnored []string
			for _, x := range served {
				gotServed = append(gotServed, x.Pod.Name)
				if want := wireguard.PodKey(classKey, x.Pod.UID).Public(); x.Peer.PublicKey != want || len(x.Peer.Access) != 1 {
					t.Errorf("%s: got peer %+v", tc.reason, x.Peer)
				}
			}
			for _, x := range ignored {
				gotIgnored = append(gotIgnored, x.Pod.Name+": "+x.Reason)
			}
			if diff := cmp.Diff(tc.served, gotServed); diff != "" {
				t.Errorf("%s: served: -want, +got:\n%s", tc.reason, diff)
			}
			if diff := cmp.Diff(tc.ignored, gotIgnored); diff != "" {
				t.Errorf("%s: ignored: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// Another key of the class is another key of the pod, and pods that are gone
// are not remembered.
func TestSelectKeys(t *testing.T) {
	s := &Selector{}
	c := gateway()
	before, _ := s.Select(c, []Pod{media("a", "10.244.1.5")}, nil)
	c.PodClasses[0].Key = wireguard.Seed{2}.PodClassKey("apps", "media")
	after, _ := s.Select(c, []Pod{media("a", "10.244.1.5")}, nil)
	if before[0].Peer.PublicKey == after[0].Peer.PublicKey {
		t.Error("the pod has the key of the old class")
	}
	s.Select(c, nil, nil)
	if len(s.keys) != 0 {
		t.Errorf("%d keys are kept for nothing", len(s.keys))
	}
}

func BenchmarkSelect(b *testing.B) {
	for _, n := range []int{50, 500} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var list []Pod
			for i := range n {
				list = append(list, media(fmt.Sprintf("p%d", i), fmt.Sprintf("10.244.%d.%d", 1+i/200, i%200)))
			}
			s := &Selector{}
			c := gateway()
			s.Select(c, list, nil)
			for b.Loop() {
				s.Select(c, list, nil)
			}
		})
	}
}
