package fn

import (
	"strings"
	"testing"

	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"github.com/google/go-cmp/cmp"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

const egressSpec = `
gluetun:
  provider: protonvpn
  credentials: {secretRef: {name: proton}}
peers: [{name: laptop}]
`

// TestEgressReady goes from the agent's report to what the gateway says.
func TestEgressReady(t *testing.T) {
	const yes, no = fnv1.Status_STATUS_CONDITION_TRUE, fnv1.Status_STATUS_CONDITION_FALSE
	up := wireguard.EgressReport{State: wireguard.EgressTunnelUp, PublicIP: "203.0.113.77", Country: "Switzerland", ForwardedPorts: []int{41230, 41231}}
	in := func(state string) wireguard.EgressReport {
		e := up
		e.State = state
		return e
	}
	cases := map[string]struct {
		why     string
		spec    string
		report  *wireguard.EgressReport
		status  fnv1.Status
		reason  string
		message string // how it ends
		egress  any
	}{
		"NotRequested": {"Without gluetun there is nothing to wait for.", "peers: [{name: laptop}]", &up, yes, "NotRequested", "", nil},
		"Silent":       {"Without a report nothing is known.", egressSpec, nil, no, "TunnelStarting", "name the cluster's Service networks as serviceCIDRs in the function's input, or in outboundSubnets.", nil},
		"SilentNamed": {
			"The agent may be on its way where it can reach the API server.", strings.Replace(egressSpec, "peers:", "  outboundSubnets: [10.43.0.0/16]\npeers:", 1),
			nil, no, "TunnelStarting", "Peers' traffic is dropped until then.", nil,
		},
		"Starting": {"Not yet.", egressSpec, new(in(wireguard.EgressTunnelStarting)), no, "TunnelStarting", "Peers' traffic is dropped until then.", nil},
		"Down":     {"What was known of the exit is not true any more.", egressSpec, new(in(wireguard.EgressTunnelDown)), no, "TunnelDown", "Peers' traffic is dropped until it is back.", nil},
		"Credentials": {
			"The message says what to do.", egressSpec, new(in(wireguard.EgressCredentialsMissing)), no, "CredentialsMissing",
			`The Secret "proton" does not hold wireguard-private-key: create it, or add what is missing.`, nil,
		},
		"CredentialsAddress": {
			"Most providers give each customer an address.", strings.Replace(egressSpec, "protonvpn", "mullvad", 1),
			new(in(wireguard.EgressCredentialsMissing)), no, "CredentialsMissing", `The Secret "proton" does not hold wireguard-private-key and wireguard-addresses: create it, or add what is missing.`, nil,
		},
		"CredentialsOpenVPN": {
			"Each type has its own.", strings.Replace(egressSpec, "provider: protonvpn", "provider: protonvpn\n  type: openvpn", 1),
			new(in(wireguard.EgressCredentialsMissing)), no, "CredentialsMissing", `The Secret "proton" does not hold openvpn-user and openvpn-password: create it, or add what is missing.`, nil,
		},
		"Newer": {"A state that a newer agent knows is none that passes traffic.", egressSpec, new(in("TunnelDreaming")), no, "TunnelStarting", "", nil},
		"Up": {
			"The exit is told, with one port.", egressSpec, &up, yes, "TunnelUp", "",
			map[string]any{"publicIP": "203.0.113.77", "country": "Switzerland", "forwardedPort": 41230.0},
		},
		"UpUnknown": {"The tunnel may be up before its exit is known.", egressSpec, &wireguard.EgressReport{State: wireguard.EgressTunnelUp}, yes, "TunnelUp", "", nil},
		"UpPort": {
			"Each part is told by itself.", egressSpec, &wireguard.EgressReport{State: wireguard.EgressTunnelUp, ForwardedPorts: []int{8}}, yes, "TunnelUp", "",
			map[string]any{"forwardedPort": 8.0},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tc.spec)
			w.reconcile(t)
			if tc.report != nil {
				w.report(t, wireguard.Report{Ready: true, Egress: *tc.report})
			}
			rsp := w.run(t)
			status, reason, message := conditionOf(rsp, conditionEgressReady)
			if status != tc.status || reason != tc.reason || !strings.HasSuffix(message, tc.message) || tc.message == "" && status == yes && message != "" {
				t.Errorf("%s\nwant %s, %s, %q, got %s, %s, %q", tc.why, tc.status, tc.reason, tc.message, status, reason, message)
			}
			st, _ := rsp.GetDesired().GetComposite().GetResource().AsMap()["status"].(map[string]any)
			if diff := cmp.Diff(tc.egress, st["egress"]); diff != "" {
				t.Errorf("%s\nstatus.egress: -want, +got:\n%s", tc.why, diff)
			}
		})
	}
}

// A report outlives the pod that wrote it.
func TestReportOfLostPod(t *testing.T) {
	w := newWorld(t, egressSpec)
	w.reconcile(t)
	w.report(t, wireguard.Report{Ready: true, InjectedPods: 3, Egress: wireguard.EgressReport{State: wireguard.EgressTunnelUp, PublicIP: "203.0.113.77"}})
	for _, step := range []struct {
		what      string
		available int
		want      string
		pods      any
	}{
		{"the pod is there", 1, "TRUE TunnelUp", 3.0},
		{"the pod is gone", 0, "FALSE TunnelStarting", nil},
		{"another has come", 1, "TRUE TunnelUp", 3.0},
	} {
		w.objects[names.KeyDeployment]["status"] = map[string]any{"observedGeneration": 1.0, "availableReplicas": float64(step.available)}
		rsp := w.run(t)
		status, reason, _ := conditionOf(rsp, conditionEgressReady)
		if is := strings.TrimPrefix(status.String(), "STATUS_CONDITION_") + " " + reason; is != step.want {
			t.Errorf("%s: want %s, got %s", step.what, step.want, is)
		}
		st := rsp.GetDesired().GetComposite().GetResource().AsMap()["status"].(map[string]any)
		if _, ok := st["egress"]; ok != (step.available == 1) {
			t.Errorf("%s: status.egress is %v", step.what, st["egress"])
		}
		if diff := cmp.Diff(step.pods, st["injectedPods"]); diff != "" {
			t.Errorf("%s: injectedPods: -want, +got:\n%s", step.what, diff)
		}
	}
}

// report puts the agent's report where the agent does.
func (w *world) report(t *testing.T, r wireguard.Report) {
	t.Helper()
	b, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	w.objects[names.KeyStatus]["data"] = map[string]any{wireguard.ReportKey: string(b)}
}

// TestEgressFollows holds that status.egress moves with the report, and goes
// with the tunnel.
func TestEgressFollows(t *testing.T) {
	w := newWorld(t, egressSpec)
	w.reconcile(t)
	for _, step := range []struct {
		report wireguard.EgressReport
		want   any
	}{
		{wireguard.EgressReport{State: wireguard.EgressTunnelUp, PublicIP: "203.0.113.77"}, map[string]any{"publicIP": "203.0.113.77"}},
		{wireguard.EgressReport{State: wireguard.EgressTunnelUp, PublicIP: "203.0.113.78", ForwardedPorts: []int{8}}, map[string]any{"publicIP": "203.0.113.78", "forwardedPort": 8.0}},
		{wireguard.EgressReport{State: wireguard.EgressTunnelDown}, nil},
		{wireguard.EgressReport{State: wireguard.EgressTunnelUp, PublicIP: "203.0.113.77"}, map[string]any{"publicIP": "203.0.113.77"}},
	} {
		w.report(t, wireguard.Report{Ready: true, Egress: step.report})
		rsp := w.run(t)
		w.composite["status"] = rsp.GetDesired().GetComposite().GetResource().AsMap()["status"]
		if diff := cmp.Diff(step.want, w.composite["status"].(map[string]any)["egress"]); diff != "" {
			t.Errorf("after %+v: -want, +got:\n%s", step.report, diff)
		}
	}
}

// A spec with an outbound subnet that the provider uses itself is valid, and
// likely a mistake.
func TestOutboundSubnetOverlap(t *testing.T) {
	w := newWorld(t, strings.Replace(egressSpec, "peers:", "  outboundSubnets: [10.0.0.0/8]\npeers:", 1))
	w.reconcile(t)
	status, reason, message := conditionOf(w.run(t), conditionSpecValid)
	if status != fnv1.Status_STATUS_CONDITION_TRUE || reason != "OutboundSubnetOverlap" || !strings.Contains(message, "10.0.0.0/8 overlaps with 10.2.0.0/16, which protonvpn uses") {
		t.Errorf("got %s, %s, %q", status, reason, message)
	}
	w.set(t, strings.Replace(egressSpec, "peers:", "  outboundSubnets: [192.168.50.0/24]\npeers:", 1))
	w.reconcile(t)
	if _, reason, _ := conditionOf(w.run(t), conditionSpecValid); reason == "OutboundSubnetOverlap" {
		t.Error("a subnet that overlaps with nothing is said to overlap")
	}
}
