package dataplane

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// container wraps a command as the gateway's container is: no capability but
// these, no new privileges, the root and /proc/sys read-only. What the pod
// mounts is writable.
func container(capabilities string) []string {
	return []string{"unshare", "--mount", "--propagation", "private", "sh", "-ec", `
		mount --bind /proc/sys /proc/sys
		mount -o remount,ro,bind /proc/sys
		mount --bind /run/wireguard /run/wireguard
		mount --bind /var/lib/wireguard-gateway /var/lib/wireguard-gateway
		for m in / /run /var/lib; do mount -o remount,ro,bind $m; done
		caps=$1; shift
		exec setpriv --bounding-set=$caps --inh-caps=-all --no-new-privs "$@"`, "container", capabilities}
}

func TestLeastPrivilege(t *testing.T) {
	w := newWorld(t)
	w.server.echo(443)
	c := w.client(1)
	on := configWith(c.peer)
	w.gateway.Write("config/config.json", encode(t, on))

	// The wrapper does what it says.
	for command, allowed := range map[string]bool{
		"touch /root/x": false, "touch /run/x": false, "touch /var/lib/wireguard-gateway/x": true,
		"sysctl -qw net.ipv4.ip_forward=1": false, "ip link set lo mtu 60000": true, "chown 1 /run/wireguard": false,
	} {
		out, err := w.gateway.Try(append(container("-all,+net_admin"), strings.Fields(command)...)...)
		if got := err == nil; got != allowed {
			t.Fatalf("%s: allowed is %t, want %t: %s", command, got, allowed, out)
		}
	}

	a := w.runAgent(container("-all,+net_admin")...)
	a.waitReady(on)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", a.Cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"CapEff:\t0000000000001000", "CapBnd:\t0000000000001000", "NoNewPrivs:\t1", "Uid:\t0\t0\t0\t0"} {
		if !strings.Contains(string(status), line) {
			t.Errorf("no %q in\n%s", line, status)
		}
	}
	c.up()
	c.expect(t, "with least privilege", map[string]bool{"tcp " + server4 + " 443": true, "udp " + server6 + " 443": true, "icmp 10.8.0.1": true})
	if got := strings.TrimSpace(w.gateway.Run("sysctl -n net.ipv4.ip_forward")); got != "0" {
		t.Errorf("net.ipv4.ip_forward is %s: the test shows nothing of forwarding by interface", got)
	}
	if _, err := w.gateway.Try("test", "-s", "/var/lib/wireguard-gateway/endpoints.json"); err != nil {
		netns.WaitFor(t, limit, "the endpoints", func() error {
			_, err := w.gateway.Try("test", "-s", "/var/lib/wireguard-gateway/endpoints.json")
			return err
		})
	}
}

// Without the one capability the agent does not get ready, and says why.
func TestNoPrivilege(t *testing.T) {
	w := newWorld(t)
	w.gateway.Write("config/config.json", encode(t, configWith()))
	a := w.runAgent(container("-all")...)
	a.refuses(t, "operation not permitted")
}

// IPv6 needs a sysctl, which an agent without privileges cannot set.
func TestIPv6ForwardingOff(t *testing.T) {
	w := newWorld(t)
	w.gateway.Sysctl("net.ipv6.conf.all.forwarding=0")
	w.gateway.Write("config/config.json", encode(t, configWith()))
	a := w.runAgent()
	a.refuses(t, "net.ipv6.conf.all.forwarding")
	// Who has no IPv6 pool does not need it.
	only4 := configWith()
	only4.Addresses = only4.Addresses[:1]
	a.apply(only4)
	// And it is noticed when it is switched on.
	a.write(encode(t, configWith()))
	a.refuses(t, "net.ipv6.conf.all.forwarding")
	w.gateway.Exec(agentBinary, "sysctl", "net.ipv6.conf.all.forwarding=1")
	a.waitReady(configWith())
}

// An implementation that is not there is a reason, and no fallback.
func TestKernelImplementation(t *testing.T) {
	w := newWorld(t)
	w.server.echo(443)
	c := w.client(1)
	on := configWith(c.peer)
	on.Implementation = wireguard.ImplementationKernel
	w.gateway.Write("config/config.json", encode(t, on))
	a := w.runAgent()
	if _, err := w.router.Try("ip", "link", "add", "wgtest", "type", "wireguard"); err != nil {
		a.refuses(t, "this kernel has no WireGuard")
		t.Log("this kernel has no WireGuard: its own implementation was not tested")
		return
	}
	a.waitReady(on)
	c.up()
	works := map[string]bool{"tcp " + server4 + " 443": true, "udp " + server6 + " 443": true}
	c.expect(t, "the kernel's device", works)
	a.Kill()
	c.expect(t, "without agent", works)
	a = w.runAgent()
	a.waitReady(on)
	c.expect(t, "adopted", works)
}

// refuses waits until the agent says why it is not ready.
func (a *agent) refuses(t *testing.T, reason string) {
	t.Helper()
	netns.WaitFor(t, limit, "a reason", func() error {
		code, body, err := a.get("/readyz")
		if err != nil {
			return err
		}
		if code != http.StatusServiceUnavailable {
			return fmt.Errorf("%d %s", code, body)
		}
		return want(body, reason)
	})
}
