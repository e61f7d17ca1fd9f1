package tunnel

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestTunnel connects a laptop that sends everything through the tunnel, and
// disconnects it again.
func TestTunnel(t *testing.T) {
	t.Parallel()
	n := newTopology(t, nil)
	before := n.laptop.run(t, "ip", "rule") + n.laptop.run(t, "ip", "route") + n.laptop.run(t, "nft", "list", "ruleset")
	n.up(t)
	for _, address := range []string{"10.8.0.1", "fd00:8::1", site, sitev6} {
		if !n.reaches(address, 30) {
			t.Fatalf("want %s to answer through the tunnel, got nothing\n%s", address, n.laptop.run(t, "wg", "show"))
		}
	}

	t.Run("MTU", func(t *testing.T) {
		if got := n.laptop.run(t, "ip", "-o", "link", "show", n.iface); !strings.Contains(got, " mtu 1360 ") {
			t.Errorf("want an MTU of 1360, got %s", got)
		}
		// Headers are 28 bytes in IPv4, 48 in IPv6.
		for address, size := range map[string]int{site: 1332, sitev6: 1312} {
			n.laptop.run(t, "ping", "-c3", "-i0.2", "-W5", "-Mdo", "-s", strconv.Itoa(size), address)
			if out, err := n.laptop.try("ping", "-c1", "-W2", "-Mdo", "-s", strconv.Itoa(size+1), address); err == nil {
				t.Errorf("want no packet above the MTU, got\n%s", out)
			}
		}
	})

	t.Run("Outside", func(t *testing.T) {
		if got := strings.Count(n.gateway.output(), "request from "+addressLaptop+":"); got != 1 {
			t.Errorf("want one WebSocket that lasts, from the laptop's own address, got %d:\n%s", got, n.gateway.output())
		}
	})

	t.Run("WrongPrefix", func(t *testing.T) { wrongPrefix(t, n) })

	n.server.stop()
	if n.reaches(site, 1) {
		t.Error("want nothing to get through without the server, got an answer")
	}
	n.startServer(t)
	if !n.reaches(site, 30) {
		t.Error("want the tunnel back after a restart of its server, got nothing")
	}

	t.Run("Down", func(t *testing.T) {
		pid := n.pid(t)
		n.down(t)
		if alive(pid) {
			t.Error("want wstunnel stopped, got it running")
		}
		if _, err := os.Stat(n.pidFile()); err == nil {
			t.Error("want no file left, got", n.pidFile())
		}
		if after := n.laptop.run(t, "ip", "rule") + n.laptop.run(t, "ip", "route") + n.laptop.run(t, "nft", "list", "ruleset"); after != before {
			t.Errorf("want rules and routes as they were:\n%s\ngot\n%s", before, after)
		}
	})

	t.Run("UpAgain", func(t *testing.T) {
		n.up(t)
		if !n.reaches(site, 30) {
			t.Error("want the tunnel up again, got nothing")
		}
	})
}

// wrongPrefix asks for paths that are not the tunnel's, at the Gateway and at
// the server behind it.
func wrongPrefix(t *testing.T, n *topology) {
	t.Helper()
	right := strings.Trim(*n.route.Spec.Rules[0].Matches[0].Path.Value, "/")
	for name, tc := range map[string]struct {
		from   *host
		url    string
		prefix string
	}{
		"AtTheGateway": {n.laptop, "wss://ws.example.com:443", "wrong"},
		"LongerPrefix": {n.laptop, "wss://ws.example.com:443", right + "x"},
		"AtTheServer":  {n.router, "ws://" + addressPod + ":8080", "wrong"},
	} {
		t.Run(name, func(t *testing.T) {
			tc.from.env = n.laptop.env
			p := tc.from.start(t, filepath.Join(n.programs, "wstunnel"), "client", "--tls-verify-certificate", "--socket-so-mark", "51820",
				"--http-upgrade-path-prefix", tc.prefix, "--local-to-remote", "udp://127.0.0.1:51999:127.0.0.1:51820?timeout_sec=0", tc.url)
			eventually(t, "the upgrade is refused", func() bool {
				_, _ = tc.from.try("bash", "-c", "echo x >/dev/udp/127.0.0.1/51999")
				return strings.Contains(p.output(), "the upgrade was refused: 4")
			})
			if strings.Contains(p.output(), "connected") {
				t.Errorf("want no tunnel, got\n%s", p.output())
			}
			p.stop()
		})
	}
	t.Run("OtherDestination", func(t *testing.T) {
		p := n.laptop.start(t, filepath.Join(n.programs, "wstunnel"), "client", "--tls-verify-certificate", "--socket-so-mark", "51820",
			"--http-upgrade-path-prefix", right, "--local-to-remote", "udp://127.0.0.1:51998:10.244.0.1:53?timeout_sec=0", "wss://ws.example.com:443")
		eventually(t, "the destination is refused", func() bool {
			_, _ = n.laptop.try("bash", "-c", "echo x >/dev/udp/127.0.0.1/51998")
			return strings.Contains(p.output(), "the upgrade was refused: 400")
		})
		p.stop()
	})
}

// TestStrictReversePath has a laptop whose kernel drops what should have come
// in elsewhere, as some distributions set it.
func TestStrictReversePath(t *testing.T) {
	t.Parallel()
	n := newTopology(t, func(n *topology) {
		n.laptop.sysctl(t, "net.ipv4.conf.all.rp_filter=1", "net.ipv4.conf.default.rp_filter=1", "net.ipv4.conf.eth0.rp_filter=1")
	})
	n.up(t)
	if !n.reaches(site, 30) {
		t.Fatal("want an answer through the tunnel, got nothing")
	}
	// A connection that is made while the tunnel has the default route is the
	// harder one.
	n.server.stop()
	n.startServer(t)
	if !n.reaches(site, 30) {
		t.Error("want the tunnel back, got nothing")
	}
	if got := strings.TrimSpace(n.laptop.run(t, "sysctl", "-n", "net.ipv4.conf.all.rp_filter")); got != "1" {
		t.Errorf("want the filter left as it was, got %s", got)
	}
}

// TestWithoutNftables has a laptop with iptables alone.
func TestWithoutNftables(t *testing.T) {
	t.Parallel()
	n := newTopology(t, func(n *topology) {
		n.laptop.sysctl(t, "net.ipv4.conf.all.rp_filter=1", "net.ipv4.conf.eth0.rp_filter=1")
	})
	// wg-quick finds its helpers beside itself, so a folder without nft has to be
	// all that there is.
	folder := t.TempDir()
	for d := range strings.SplitSeq("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", ":") {
		files, _ := os.ReadDir(d)
		for _, f := range files {
			if f.Name() != "nft" && f.Name() != "wg-quick" {
				_ = os.Symlink(filepath.Join(d, f.Name()), filepath.Join(folder, f.Name()))
			}
		}
	}
	if _, err := os.Stat(filepath.Join(folder, "iptables-restore")); err != nil {
		t.Skip("needs iptables")
	}
	script, err := os.ReadFile("/usr/bin/wg-quick")
	if err != nil {
		t.Skip("needs wg-quick in /usr/bin")
	}
	if err := os.WriteFile(filepath.Join(folder, "wg-quick"), script, 0o755); err != nil {
		t.Fatal(err)
	}
	n.laptop.env[0] = "PATH=" + n.programs + ":" + folder
	n.laptop.run(t, filepath.Join(folder, "wg-quick"), "up", n.conf)
	t.Cleanup(func() { _, _ = n.laptop.try(filepath.Join(folder, "wg-quick"), "down", n.conf) })
	n.server.stop()
	n.startServer(t)
	if !n.reaches(site, 30) {
		t.Error("want an answer through the tunnel, got nothing")
	}
	if got := strings.TrimSpace(n.laptop.run(t, "sysctl", "-n", "net.ipv4.conf.all.rp_filter")); got != "2" {
		t.Errorf("want the filter loosened, got %s", got)
	}
}

// TestNameBehindTunnel has a laptop whose name server is behind the tunnel, as
// it is with a DNS line: without the tunnel it knows no names, and it needs one
// to get the tunnel back.
func TestNameBehindTunnel(t *testing.T) {
	t.Parallel()
	n := newTopology(t, nil)
	n.up(t)
	if !n.reaches(site, 30) {
		t.Fatal("want an answer through the tunnel, got nothing")
	}
	n.laptop.resolves(t, "other.example.com", addressProxy)
	n.server.stop()
	// For as long as names are remembered.
	if n.reaches(site, 7) {
		t.Error("want nothing to get through without the server, got an answer")
	}
	n.startServer(t)
	if !n.reaches(site, 30) {
		t.Error("want the tunnel back, got nothing")
	}
}

// TestOtherProcessSurvives has a file that names a process of somebody else's,
// which got the number of the one that was started.
func TestOtherProcessSurvives(t *testing.T) {
	n := newTopology(t, nil)
	n.up(t)
	if !n.reaches(site, 30) {
		t.Fatal("want an answer through the tunnel, got nothing")
	}
	own := n.pid(t)
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", own))
	if err != nil {
		t.Fatal(err)
	}
	args := strings.Split(strings.TrimRight(string(b), "\x00"), "\x00")
	// The same command line, elsewhere.
	n.router.env = n.laptop.env
	other := n.router.start(t, append([]string{filepath.Join(n.programs, "wstunnel")}, args[1:]...)...)
	number := regexp.MustCompile(`^\d+`)
	file, err := os.ReadFile(n.pidFile())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(n.pidFile(), number.ReplaceAll(file, []byte(strconv.Itoa(other.cmd.Process.Pid))), 0o644); err != nil {
		t.Fatal(err)
	}
	n.down(t)
	if !alive(other.cmd.Process.Pid) {
		t.Error("want the other process left alone, got it killed")
	}
}

// TestLeftover has a wstunnel that an earlier attempt left behind: wg-quick
// does not clean up what PreUp did when it fails later.
func TestLeftover(t *testing.T) {
	t.Parallel()
	n := newTopology(t, nil)
	n.rendered.conf = strings.Replace(n.rendered.conf, "MTU = 1360", "MTU = 1", 1)
	if err := os.WriteFile(n.conf, []byte(n.rendered.conf), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := n.laptop.try("wg-quick", "up", n.conf); err == nil {
		t.Fatalf("want an attempt that fails, got\n%s", out)
	}
	leftover := n.pid(t)
	if !alive(leftover) {
		t.Fatal("want a process that was left behind, got none")
	}
	n.rendered.conf = strings.Replace(n.rendered.conf, "MTU = 1\n", "MTU = 1360\n", 1)
	if err := os.WriteFile(n.conf, []byte(n.rendered.conf), 0o600); err != nil {
		t.Fatal(err)
	}
	n.up(t)
	if alive(leftover) {
		t.Error("want the leftover stopped, got it running")
	}
	if !n.reaches(site, 30) {
		t.Error("want an answer through the tunnel, got nothing")
	}
}

// TestNotInstalled holds that a laptop without wstunnel is told so, and gets no
// interface that leads nowhere.
func TestNotInstalled(t *testing.T) {
	n := newTopology(t, nil)
	n.laptop.env[0] = "PATH=" + os.Getenv("PATH")
	out, err := n.laptop.try("wg-quick", "up", n.conf)
	if err == nil || !strings.Contains(out, "wstunnel: not found") {
		t.Errorf("want a failure that names wstunnel, got %v\n%s", err, out)
	}
	if _, err := n.laptop.try("ip", "link", "show", n.iface); err == nil {
		t.Error("want no interface, got one")
	}
}

// TestControls takes away what the tunnel depends on, one by one: without it
// nothing must get through, or the tests above would prove nothing.
func TestControls(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		why    string
		change func(t *testing.T, n *topology)
	}{
		"Unmarked": {"The WebSocket would go into the tunnel that it carries.", func(t *testing.T, n *topology) {
			t.Helper()
			n.rendered.conf = drop(t, n.rendered.conf, "--socket-so-mark 51820 ")
		}},
		"OtherAuthority": {"The certificate is verified.", func(t *testing.T, n *topology) {
			t.Helper()
			n.laptop.env[2] = "SSL_CERT_FILE=" + newAuthority(t).file
		}},
		"NoConntrackMark": {"Answers to the WebSocket have no mark.", func(t *testing.T, n *topology) {
			t.Helper()
			n.laptop.sysctl(t, "net.ipv4.conf.all.rp_filter=1", "net.ipv4.conf.eth0.rp_filter=1")
			lines := strings.Split(n.rendered.conf, "\n")
			n.rendered.conf = ""
			for _, l := range lines {
				if !strings.Contains(l, "nft 'table") {
					n.rendered.conf += l + "\n"
				}
			}
		}},
		"NoRoute": {"The Gateway routes by host.", func(_ *testing.T, n *topology) {
			n.route.Spec.Hostnames[0] = "other.example.com"
		}},
		"NoAppProtocol": {"The Gateway asks whether the backend speaks WebSocket.", func(_ *testing.T, n *topology) {
			n.service.Spec.Ports[0].AppProtocol = nil
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newTopology(t, func(n *topology) { tc.change(t, n) })
			n.up(t)
			n.server.stop()
			n.startServer(t)
			if n.reaches(site, 4) {
				t.Errorf("%s\nwant nothing to get through, got an answer", tc.why)
			}
		})
	}
	t.Run("NoTimeouts", func(t *testing.T) {
		t.Parallel()
		n := newTopology(t, func(n *topology) { n.route.Spec.Rules[0].Timeouts = nil })
		n.up(t)
		eventually(t, "the proxy cuts what lasts too long", func() bool {
			n.reaches(site, 1)
			return strings.Count(n.gateway.output(), "request from ") > 1
		})
	})
}

func drop(t *testing.T, s, part string) string {
	t.Helper()
	if !strings.Contains(s, part) {
		t.Fatalf("want %q in\n%s", part, s)
	}
	return strings.Replace(s, part, "", 1)
}
