package dataplane

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/wireguardgateway/function-wireguard-gateway/test/netns"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// What the agent sees comes to the gateway's status: through a real API server
// and the function.
func TestGluetunStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	k := w.newCluster()
	p := w.provider()
	w.server.echo(443)
	e := newEgressGateway(t)
	e.write(w.gateway)
	w.gateway.Exec("rm", "-r", "/run/secrets/gluetun")
	k.writeStatus()
	g := w.newGluetun(e.env(), e.file(wireguard.PostRulesKey))
	g.firewall()
	g.routing()
	g.serve(e.file(wireguard.GluetunAuthKey))
	a := w.runAgentInCluster("--secret=")

	// status goes from the agent's report to the composite.
	status := func(step, reason, egress string) {
		t.Helper()
		netns.WaitFor(t, 2*limit, step, func() error {
			e.render(k.status().Data[wireguard.ReportKey])
			got := fmt.Sprint(e.spec.Object["status"].(map[string]any)["egress"])
			if r := e.spec.Object["conditions"].(map[string]any)["EgressReady"]; r != reason || got != egress {
				return fmt.Errorf("want %s %s, got %s %s", reason, egress, r, got)
			}
			return nil
		})
	}
	const none = "<nil>"
	status("no credentials", "CredentialsMissing", none)
	a.refuses(t, "gluetun's credentials lack wireguard-private-key and wireguard-addresses")
	e.credentials(w.gateway)
	status("not up", "TunnelStarting", none)
	if err := g.up(); err != nil {
		t.Fatal(err)
	}
	status("up", "TunnelUp", "map[country:CH publicIP:"+provider4+"]")
	g.exit(provider4, 41230)
	status("a port", "TunnelUp", "map[country:CH forwardedPort:41230 publicIP:"+provider4+"]")
	g.control.Upgrade()
	g.exit("198.51.100.11", 41231, 41230)
	status("another exit", "TunnelUp", "map[country:CH forwardedPort:41231 publicIP:198.51.100.11]")
	p.server.Kill()
	status("the provider is dead", "TunnelDown", none)
	p.serve()
	status("the provider is back", "TunnelUp", "map[country:CH forwardedPort:41231 publicIP:198.51.100.11]")
	g.crash()
	status("killed", "TunnelDown", none)
	netns.WaitFor(t, limit, "readiness to follow", func() error {
		code, _, err := a.get("/readyz")
		if err == nil && code != http.StatusServiceUnavailable {
			err = fmt.Errorf("%d", code)
		}
		return err
	})
	if log := a.Out.String(); strings.Contains(log, e.file(wireguard.GluetunAuthKey)[30:50]) || strings.Count(log, "gluetun's tunnel has another state") > 8 {
		t.Errorf("the log has a secret, or too much:\n%s", log)
	}
}
