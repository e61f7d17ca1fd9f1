package firewall

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
)

func TestRenderLockdown(t *testing.T) {
	cases := map[string]struct {
		reason   string
		lockdown Lockdown
	}{
		"lockdown-nothing": {"before anything is known nothing leaves", Lockdown{NoInbound: true}},
		"lockdown": {"the tunnel's packets, its name's lookup, and some networks", Lockdown{
			GatewayPort: 51820, Nameservers: addrs("10.96.0.10", "fd96::a"), Bypass: prefixes("10.244.0.0/16", "fd44::/48"),
		}},
		"lockdown-guarded": {"interfaces let out only what has the mark", Lockdown{
			GatewayPort: 4500, Nameservers: addrs("10.96.0.10"), Interfaces: []string{"eth0", "net1"}, Guard: 0x1234567,
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			netns.Enter(t)
			for _, device := range tc.lockdown.Interfaces {
				ip(t, "link", "add", device, "type", "veth", "peer", "name", "peer-"+device)
			}
			f := newFirewall(t)
			if _, err := f.Ensure(RenderLockdown(tc.lockdown)); err != nil {
				t.Fatal(err)
			}
			got := nft(t, "-n", "list", "ruleset")
			golden := filepath.Join("testdata", name+".nft")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
			if n, err := f.Count(DroppedCounter); err != nil || n != 0 {
				t.Errorf("%d packets were dropped, %v", n, err)
			}
		})
	}
}

// What somebody does to either table is noticed, and the next one takes the
// place of what an earlier process has left.
func TestLockdownCheck(t *testing.T) {
	for name, change := range map[string][]string{
		"Deleted":       {"delete", "table", "inet", "wireguard_lockdown"},
		"EgressDeleted": {"delete", "table", "netdev", "wireguard_lockdown"},
		"EgressFlushed": {"flush", "table", "netdev", "wireguard_lockdown"},
	} {
		t.Run(name, func(t *testing.T) {
			netns.Enter(t)
			ip(t, "link", "add", "eth0", "type", "veth", "peer", "name", "peer")
			f := newFirewall(t)
			if there, err := f.Exists("wireguard_lockdown"); err != nil || there {
				t.Fatalf("it is there: %t, %v", there, err)
			}
			r := RenderLockdown(Lockdown{Interfaces: []string{"eth0"}, Guard: 1})
			if _, err := f.Ensure(r); err != nil {
				t.Fatal(err)
			}
			if there, err := f.Exists("wireguard_lockdown"); err != nil || !there {
				t.Fatalf("it is there: %t, %v", there, err)
			}
			if intact, err := f.Check(); err != nil || !intact {
				t.Fatalf("it is intact: %t, %v", intact, err)
			}
			before := nft(t, "list", "ruleset")
			nft(t, change...)
			if intact, err := f.Check(); err != nil || intact {
				t.Fatalf("it is intact: %t, %v", intact, err)
			}
			if _, err := newFirewall(t).Ensure(r); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, nft(t, "list", "ruleset")); diff != "" {
				t.Errorf("-want, +got:\n%s", diff)
			}
		})
	}
}

// ip runs ip(8).
func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %v: %v\n%s", args, err, out)
	}
}
