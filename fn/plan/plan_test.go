package plan

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/spec"
	"github.com/wireguardgateway/function-wireguard-gateway/input/v1beta1"
)

// now is when all tests take place.
var now = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

// seedA and seedB are raw seeds. Their IDs were computed apart from this
// repository's code.
var (
	seedA = bytes.Repeat([]byte{0xff}, 32)
	seedB = []byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f")
)

const (
	seedAID = "23d530d57164d24f"
	seedBID = "73ae928e833bcc0c"

	// Public keys of both seeds' gateways, at rotation 0.
	seedAPublic = "OQkP07NRHx1P30KUytm0uofBOyZGAIFLwlcREWeG3HE="
	seedBPublic = "EpIiFFj4a/ZJcY8IUGfzj94oHoGZBl77ryenHCPV1GI="
)

// gluetunSpec is a gateway behind a provider that reaches a network beside it.
const gluetunSpec = "gluetun: {provider: protonvpn, credentials: {secretRef: {name: proton}}, outboundSubnets: [192.168.50.0/24, \"fd50::/64\"]}"

// noRandom fails the test that makes use of it: a seed is generated once.
type noRandom struct{ t *testing.T }

func (r noRandom) Read([]byte) (int, error) {
	r.t.Error("a seed was generated")
	return 0, io.ErrUnexpectedEOF
}

// inputs are those of a gateway called home in the namespace vpn, which has a
// seed and nothing else yet.
func inputs(t *testing.T, s string) Inputs {
	t.Helper()
	return inputsOn(t, s, `{}`)
}

func inputsOn(t *testing.T, s, platform string) Inputs {
	t.Helper()
	in := v1beta1.InputSpec{}
	if err := yaml.UnmarshalStrict([]byte(platform), &in); err != nil {
		t.Fatal(err)
	}
	p, errs := spec.ParsePlatform(in)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	gs := &v1alpha1.WireguardGatewaySpec{}
	if err := yaml.UnmarshalStrict([]byte(s), gs); err != nil {
		t.Fatal(err)
	}
	g, errs := spec.Parse("home", "vpn", gs, &v1alpha1.WireguardGatewayStatus{}, p)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	data := map[string][]byte{"seed": seedA}
	return Inputs{
		Spec:         g,
		Status:       &v1alpha1.WireguardGatewayStatus{},
		ObservedSeed: data,
		RequiredSeed: data,
		Secrets:      map[string]map[string][]byte{},
		Now:          now,
		Random:       noRandom{t},
	}
}

func planned(t *testing.T, in Inputs) *Gateway {
	t.Helper()
	g, err := New(in)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// next returns the inputs of the pass after a plan: its status and its
// configuration are there by then.
func next(t *testing.T, g *Gateway, s string) Inputs {
	t.Helper()
	in := inputs(t, s)
	in.Status = statusOf(g)
	in.ObservedConfig = configOf(t, g)
	return in
}

func statusOf(g *Gateway) *v1alpha1.WireguardGatewayStatus {
	st := &v1alpha1.WireguardGatewayStatus{PublicKey: g.Keys.Public.String(), SeedID: g.Keys.Seed.ID()}
	for i := range g.Peers {
		p := &g.Peers[i]
		ps := v1alpha1.PeerStatus{Name: p.Name, Namespace: p.Namespace, State: p.State, PublicKey: p.PublicKey.String()}
		for _, ip := range p.Addresses {
			ps.Addresses = append(ps.Addresses, ip.String())
		}
		if p.State != v1alpha1.PeerRejected {
			for _, r := range p.Routes {
				ps.Routes = append(ps.Routes, r.String())
			}
		}
		st.Peers = append(st.Peers, ps)
	}
	for i := range g.PodClasses {
		c := &g.PodClasses[i]
		st.Peers = append(st.Peers, v1alpha1.PeerStatus{Name: c.Name, Namespace: c.Namespace, Pods: true, State: c.State})
	}
	return st
}

func configOf(t *testing.T, g *Gateway) []byte {
	t.Helper()
	b, err := g.Config().Encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// addressesOf returns every peer's addresses, by name.
func addressesOf(g *Gateway) map[string]string {
	out := map[string]string{}
	for i := range g.Peers {
		var ips []string
		for _, ip := range g.Peers[i].Addresses {
			ips = append(ips, ip.String())
		}
		out[g.Peers[i].Name] = strings.Join(ips, " ")
	}
	return out
}

// statesOf returns every peer's state, and the reason of those that have one.
func statesOf(g *Gateway) map[string]string {
	out := map[string]string{}
	for i := range g.Peers {
		out[g.Peers[i].Name] = strings.TrimSpace(g.Peers[i].State + " " + g.Peers[i].Reason)
	}
	return out
}

func peerOf(t *testing.T, g *Gateway, name string) *Peer {
	t.Helper()
	for i := range g.Peers {
		if g.Peers[i].Name == name {
			return &g.Peers[i]
		}
	}
	t.Fatalf("there is no peer %q", name)
	return nil
}

// peersSpec is a gateway with so many peers.
func peersSpec(names ...string) string {
	b := &strings.Builder{}
	b.WriteString("peers: [")
	for _, n := range names {
		fmt.Fprintf(b, "{name: %s}, ", n)
	}
	b.WriteString("]")
	return b.String()
}

// splitmix is a small source of numbers that is the same for ever.
type splitmix struct{ state uint64 }

func (s *splitmix) next() uint64 {
	s.state += 0x9e3779b97f4a7c15
	z := s.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
