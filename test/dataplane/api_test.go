package dataplane

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

const (
	secretPath = "/api/v1/namespaces/vpn/secrets/home-wireguard.config"
	statusPath = "/api/v1/namespaces/vpn/configmaps/home-wireguard.status"
)

// runAgentInCluster starts the agent as its Deployment does, with these
// arguments on top.
func (w *world) runAgentInCluster(more ...string) *agent {
	w.t.Helper()
	args := append(container("-all,+net_admin"), "env", "KUBERNETES_SERVICE_HOST="+apiserver4, "KUBERNETES_SERVICE_PORT=6443",
		agentBinary, "gateway", "--config=/run/config/config.json", "--secret=vpn/home-wireguard.config", "--status=vpn/home-wireguard.status")
	return newAgent(w.gateway, w.gateway.Start(append(args, more...)...))
}

func (c *cluster) writeSecret(g wireguard.GatewayConfig) {
	c.t.Helper()
	c.apply(secretPath, map[string]any{
		"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "home-wireguard.config"},
		"stringData": map[string]string{wireguard.ConfigKey: encode(c.t, g)},
	})
}

// writeStatus composes the ConfigMap as the function does: without data.
func (c *cluster) writeStatus() {
	c.t.Helper()
	c.apply(statusPath, map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "home-wireguard.status", "labels": map[string]string{"by": "crossplane"}},
	})
}

type configMap struct {
	Metadata struct {
		ResourceVersion string `json:"resourceVersion"`
		ManagedFields   []struct {
			Manager   string `json:"manager"`
			Operation string `json:"operation"`
		} `json:"managedFields"`
	} `json:"metadata"`
	Data map[string]string `json:"data"`
}

func (c *cluster) status() configMap {
	c.t.Helper()
	m := configMap{}
	if err := json.Unmarshal(c.request(http.MethodGet, statusPath, "", nil), &m); err != nil {
		c.t.Fatal(err)
	}
	return m
}

// waitReport waits for a report that is as it should be.
func (c *cluster) waitReport(what string, check func(wireguard.Report) error) configMap {
	c.t.Helper()
	m := configMap{}
	netns.WaitFor(c.t, limit, what, func() error {
		m = c.status()
		r, err := wireguard.DecodeReport([]byte(m.Data[wireguard.ReportKey]))
		if err != nil {
			return err
		}
		return check(r)
	})
	return m
}

func readyWith(t *testing.T, g wireguard.GatewayConfig) func(wireguard.Report) error {
	t.Helper()
	hash := wireguard.ConfigHash([]byte(encode(t, g)))
	return func(r wireguard.Report) error {
		if !r.Ready || r.ConfigHash != hash || len(r.Reasons) > 0 {
			return fmt.Errorf("%+v", r)
		}
		return nil
	}
}

// From the write of the Secret to the peer on the device, through a real API
// server, with the rights of the function's Role and the container's
// restrictions.
func TestSecretToDevice(t *testing.T) {
	const runs = 100
	w := newWorld(t)
	k := w.newCluster()
	c := w.client(1)
	w.server.echo(443)
	k.writeStatus()
	k.writeSecret(configWith())
	a := w.runAgentInCluster()
	a.waitReady(configWith())

	var took []time.Duration
	for i := range runs {
		p := testPeer(2, testKey("run", i))
		key := hex.EncodeToString(p.PublicKey.Key[:])
		start := time.Now()
		k.writeSecret(configWith(c.peer, p))
		for {
			device, err := w.gateway.uapi("wg0")
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(device, key) {
				break
			}
			if time.Since(start) > limit {
				t.Fatalf("the peer is not on the device:\n%s", a.Out)
			}
			time.Sleep(200 * time.Microsecond)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	p50, p99 := took[runs/2], took[runs*99/100]
	t.Logf("%d writes of the Secret, until the peer is on the device: p50 %s, p99 %s", runs, p50, p99)
	if p99 > time.Second {
		t.Errorf("p99 is %s, and a new peer should be live within a second", p99)
	}
	c.up()
	c.expect(t, "by the API alone", map[string]bool{"tcp " + server4 + " 443": true})
}

// uapi reads the whole state of a userspace device.
func (h *host) uapi(device string) (string, error) {
	conn, err := net.Dial("unix", fmt.Sprintf("/proc/%d/root/run/wireguard/%s.sock", h.PID, device))
	if err != nil {
		return "", err
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "get=1\n\n"); err != nil {
		return "", err
	}
	out := &strings.Builder{}
	b := make([]byte, 1<<16)
	for !strings.HasSuffix(out.String(), "\n\n") {
		n, err := conn.Read(b)
		if err != nil {
			return "", err
		}
		out.Write(b[:n])
	}
	return out.String(), nil
}

// The report says what is so, is written when something changes, comes back
// when it is lost, and is not touched otherwise.
func TestReport(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k := w.newCluster()
	good := configWith(testPeer(1, testKey("client", 1)))
	k.writeSecret(good)
	a := w.runAgentInCluster()
	a.waitReady(good)

	// The ConfigMap may come after the agent, which may not make it.
	if code, body, err := k.try(http.MethodGet, statusPath, "", nil); err != nil || code != http.StatusNotFound {
		t.Fatalf("there is a ConfigMap already: %d %s %v", code, body, err)
	}
	k.writeStatus()
	m := k.waitReport("the first report", readyWith(t, good))
	managers := map[string]bool{}
	for _, f := range m.Metadata.ManagedFields {
		managers[f.Manager+" "+f.Operation] = true
	}
	if !managers["wireguard-gateway-agent Apply"] || !managers["crossplane Apply"] || len(managers) != 2 {
		t.Errorf("the ConfigMap is managed by %v", managers)
	}

	// The function composes the ConfigMap again and again, without data.
	for range 3 {
		k.writeStatus()
	}
	// Nothing happens, and so nothing is written.
	time.Sleep(3 * time.Second)
	if later := k.status(); later.Metadata.ResourceVersion != m.Metadata.ResourceVersion {
		t.Errorf("the ConfigMap was written with nothing to say: %+v, before %+v", later, m)
	}

	// Somebody loses the report, or the whole ConfigMap.
	k.request(http.MethodPatch, statusPath, "application/merge-patch+json", []byte(`{"data":null}`))
	k.waitReport("a report after the data was lost", readyWith(t, good))
	k.request(http.MethodDelete, statusPath, "", nil)
	k.writeStatus()
	k.waitReport("a report after the ConfigMap was lost", readyWith(t, good))

	// What is wrong is reported, with the configuration that is in force.
	bad := good
	bad.MTU = 100
	k.writeSecret(bad)
	k.waitReport("a reason", func(r wireguard.Report) error {
		if r.Ready || len(r.Reasons) != 1 || r.ConfigHash != wireguard.ConfigHash([]byte(encode(t, good))) {
			return fmt.Errorf("%+v", r)
		}
		return want(r.Reasons[0], "mtu 100")
	})
	k.writeSecret(good)
	k.waitReport("no reason", readyWith(t, good))
}

// While the API cannot be reached the mounted file serves, and the API again
// as soon as it is back. The file lags behind, and must not undo what the API
// has said. Once it does not, whatever it has next counts.
func TestAPIOutage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k := w.newCluster()
	versions := make([]wireguard.GatewayConfig, 5)
	for i := range versions {
		versions[i] = configWith(testPeer(1, testKey("client", 1)))
		versions[i].PersistentKeepalive = i
	}
	w.gateway.Write("config/config.json", encode(t, versions[0]))
	k.writeSecret(versions[0])
	a := w.runAgentInCluster()
	a.waitReady(versions[0])
	for _, v := range versions[1:3] {
		k.writeSecret(v)
		a.waitReady(v)
	}

	k.api.Kill()
	netns.WaitFor(t, limit, "the outage to be noticed", func() error { return want(a.Out.String(), "cannot reach the Kubernetes API") })
	// What the kubelet brings late is known from the API.
	a.write(encode(t, versions[1]))
	time.Sleep(time.Second)
	a.waitReady(versions[2])
	a.apply(versions[3])
	// What it brings then is not late: somebody took a change back.
	a.apply(versions[1])

	k.startAPI()
	k.writeSecret(versions[4])
	netns.WaitFor(t, 2*limit, "the API", func() error {
		_, body, err := a.get("/readyz")
		return errors.Join(err, want(body, wireguard.ConfigHash([]byte(encode(t, versions[4])))))
	})
}
