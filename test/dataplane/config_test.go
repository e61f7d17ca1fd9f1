package dataplane

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// badConfigs are contents that must not be applied, and a part of the reason.
func badConfigs(t *testing.T, good wireguard.GatewayConfig) map[string]struct{ content, reason string } {
	t.Helper()
	whole := encode(t, good)
	newer := strings.Replace(whole, `"version":1`, `"version":2`, 1)
	twice := good
	twice.Peers = append([]wireguard.Peer{}, good.Peers...)
	twice.Peers = append(twice.Peers, testPeer(9, testKey("client", 1)))
	return map[string]struct{ content, reason string }{
		"Truncated":     {whole[:len(whole)/2], "is no JSON"},
		"Empty":         {"", "is no JSON"},
		"Version":       {newer, "version 2 is not known"},
		"DuplicateKeys": {encode(t, twice), "has the public key of"},
		"Garbage":       {strings.Repeat("\x00\x01\xfe garbage", 1<<20/11), "is no JSON"},
	}
}

// What is bad is not taken: the last good configuration stays, clients notice
// nothing, and everybody can see why.
func TestBadConfig(t *testing.T) {
	w := newWorld(t)
	w.server.echo(443)
	c := w.client(1)
	good := configWith(c.peer)
	a := w.startAgent(good)
	c.up()
	works := map[string]bool{"tcp " + server4 + " 443": true, "udp " + server6 + " 443": true}
	c.expect(t, "before", works)
	for name, tc := range badConfigs(t, good) {
		t.Run(name, func(t *testing.T) {
			rejected := a.metric("wireguard_gateway_config_rejected_total")
			a.write(tc.content)
			netns.WaitFor(t, limit, "the reason", func() error {
				code, body, err := a.get("/readyz")
				if err != nil || code != http.StatusOK {
					t.Fatalf("the gateway serves its peers, but is not ready: %d %s %v", code, body, err)
				}
				return want(body, tc.reason)
			})
			c.expect(t, "with a bad configuration", works)
			if got := a.metric("wireguard_gateway_config_rejected_total"); got != rejected+1 {
				t.Errorf("%v configurations were rejected, want %v", got, rejected+1)
			}
			if got := a.metric("wireguard_gateway_config_valid"); got != 0 {
				t.Errorf("the configuration is valid: %v", got)
			}
			if !strings.Contains(a.Out.String(), tc.reason) {
				t.Errorf("the log does not say %q", tc.reason)
			}
			a.apply(good)
			if got := a.metric("wireguard_gateway_config_valid"); got != 1 {
				t.Errorf("the configuration is not valid: %v", got)
			}
		})
	}
	if log := a.Out.String(); strings.Contains(log, serverKey.String()) {
		t.Error("the private key is in the log")
	}
}

// An agent that never had a good configuration is not ready, and says why.
func TestBadConfigAtStart(t *testing.T) {
	w := newWorld(t)
	c := w.client(1)
	good := configWith(c.peer)
	w.gateway.Write("config/other.json", "") // the directory is there, as the kubelet makes it
	a := w.runAgent()
	notReady := func(reason string) {
		t.Helper()
		netns.WaitFor(t, limit, "the reason", func() error {
			code, body, err := a.get("/readyz")
			if err != nil {
				return err
			}
			if code != http.StatusServiceUnavailable {
				t.Fatalf("ready without configuration: %d %s", code, body)
			}
			return want(body, reason)
		})
		if code, body, err := a.get("/healthz"); err != nil || code != http.StatusOK {
			t.Errorf("a restart would not help, but the probe fails: %d %s %v", code, body, err)
		}
	}
	notReady("no such file")
	for _, tc := range badConfigs(t, good) {
		a.write(tc.content)
		notReady(tc.reason)
	}
	a.apply(good)
}

// Fields of a newer function mean nothing to this agent.
func TestUnknownFields(t *testing.T) {
	w := newWorld(t)
	w.server.echo(443)
	c := w.client(1)
	a := w.startAgent(configWith())
	document := map[string]any{}
	if err := json.Unmarshal([]byte(encode(t, configWith(c.peer))), &document); err != nil {
		t.Fatal(err)
	}
	document["later"] = map[string]any{"a": []string{"b"}}
	document["peers"].([]any)[0].(map[string]any)["later"] = 7
	b, err := json.Marshal(document)
	if err != nil {
		t.Fatal(err)
	}
	a.write(string(b))
	hash := wireguard.ConfigHash(b)
	netns.WaitFor(t, limit, "the configuration", func() error {
		_, body, err := a.get("/readyz")
		if err != nil {
			return err
		}
		return want(body, hash)
	})
	c.up()
	c.expect(t, "unknown fields", map[string]bool{"tcp " + server4 + " 443": true})
}

// A peer expires at its time, with no new configuration.
func TestExpiry(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.server.echo(443)
	c, other := w.client(1), w.client(2)
	expires := time.Now().Add(6 * time.Second)
	c.peer.ExpiresAt = &expires
	a := w.startAgent(configWith(c.peer, other.peer))
	c.up()
	other.up()
	works := map[string]bool{"tcp " + server4 + " 443": true}
	c.expect(t, "before it expires", works)
	has := func() bool { return contains(w.gateway.Run("wg show wg0 peers"), c.peer.PublicKey.String()) }
	if !has() {
		t.Fatal("the peer is not on the device")
	}
	if time.Now().After(expires) {
		t.Fatal("the machine is too slow for this test")
	}
	netns.WaitFor(t, limit, "expiry", func() error {
		if has() {
			return fmt.Errorf("still there %s after its time", time.Since(expires))
		}
		return nil
	})
	if early := time.Until(expires); early > 0 {
		t.Errorf("the peer expired %s too early", early)
	}
	c.expect(t, "expired", map[string]bool{"tcp " + server4 + " 443": false})
	other.expect(t, "not expired", works)
	if n := a.metric(`wireguard_gateway_sync_duration_seconds_count{cause="config"}`); n != 1 {
		t.Errorf("%v configurations were applied, want 1", n)
	}
}
