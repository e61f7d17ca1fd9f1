package injection

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// uapi speaks to a device in userspace, whichever program made it.
func (p *pod) uapi(volume, device, request string) (string, error) {
	conn, err := net.Dial("unix", filepath.Join(p.dir, volume, device+".sock"))
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, request+"\n\n"); err != nil {
		return "", err
	}
	out, b := &strings.Builder{}, make([]byte, 1<<16)
	for !strings.HasSuffix(out.String(), "\n\n") {
		n, err := conn.Read(b)
		if err != nil {
			return "", err
		}
		out.Write(b[:n])
	}
	if !strings.Contains(out.String(), "errno=0") {
		return "", errors.New(out.String())
	}
	return out.String(), nil
}

// device speaks to the gateway's device.
func (p *pod) device(request string) (string, error) {
	matches, err := filepath.Glob(filepath.Join(p.dir, "volume-*", wireguard.Device+".sock"))
	if err != nil || len(matches) != 1 {
		return "", fmt.Errorf("no socket of the gateway's device: %v %w", matches, err)
	}
	return p.uapi(filepath.Base(filepath.Dir(matches[0])), wireguard.Device, request)
}

// peers returns the public keys on the gateway's device, in hexadecimal digits.
func (p *pod) peers() ([]string, error) {
	d, err := p.device("get=1")
	var out []string
	for l := range strings.Lines(d) {
		if key, ok := strings.CutPrefix(strings.TrimSpace(l), "public_key="); ok {
			out = append(out, key)
		}
	}
	return out, err
}

// metrics returns the agent's metrics, by their names with labels.
func (p *pod) metrics() (map[string]float64, error) {
	h := http.Client{Timeout: dialTimeout, Transport: &http.Transport{DisableKeepAlives: true, DialContext: p.net.dial}}
	rsp, err := h.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", wireguard.HTTPPort))
	if err != nil {
		return nil, err
	}
	defer func() { _ = rsp.Body.Close() }()
	b, err := io.ReadAll(rsp.Body)
	out := map[string]float64{}
	for l := range strings.Lines(string(b)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(l), " "); ok && !strings.HasPrefix(l, "#") {
			if i := strings.LastIndex(l, " "); i > 0 {
				name, value = l[:i], strings.TrimSpace(l[i:])
			}
			if out[name], err = strconv.ParseFloat(value, 64); err != nil {
				return nil, err
			}
		}
	}
	return out, err
}

// state is all that a gateway keeps of its pods.
type state struct {
	Peers, Rules, Routes []string
	Firewall             string
}

var (
	counters = regexp.MustCompile(`counter packets \d+ bytes \d+`)
	expires  = regexp.MustCompile(` (expires|timeout) \S+`)
)

func (p *pod) state() (state, error) {
	s := state{}
	var err error
	if s.Peers, err = p.peers(); err != nil {
		return s, err
	}
	slices.Sort(s.Peers)
	for _, family := range []string{"-4", "-6"} {
		for into, what := range map[*[]string]string{&s.Rules: "rule show", &s.Routes: "route show table all"} {
			out, err := p.net.run(append([]string{"ip", family}, strings.Fields(what)...)...)
			if err != nil {
				return s, err
			}
			for l := range strings.Lines(out) {
				*into = append(*into, strings.TrimSpace(l))
			}
		}
	}
	slices.Sort(s.Rules)
	slices.Sort(s.Routes)
	out, err := p.net.run("nft", "list", "ruleset")
	s.Firewall = expires.ReplaceAllString(counters.ReplaceAllString(out, "counter"), "")
	return s, err
}

// asBefore says what differs from an earlier state.
func (p *pod) asBefore(before state) error {
	after, err := p.state()
	if err != nil {
		return err
	}
	if diff := cmp.Diff(before, after); diff != "" {
		return fmt.Errorf("left over on the gateway: -before, +after:\n%s", diff)
	}
	return nil
}

// flows returns how many connections with an address the pod's kernel
// remembers.
func (p *pod) flows(a netip.Addr) (int, error) {
	family := netlink.InetFamily(unix.AF_INET)
	if a.Is6() {
		family = unix.AF_INET6
	}
	flows, err := p.net.ConntrackTableList(netlink.ConntrackTable, family)
	n := 0
	for _, f := range flows {
		for _, t := range []netlink.IPTuple{f.Forward, f.Reverse} {
			if t.SrcIP.Equal(a.AsSlice()) || t.DstIP.Equal(a.AsSlice()) {
				n++
				break
			}
		}
	}
	return n, err
}
