package render_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"google.golang.org/protobuf/proto"
)

// A checker returns what is wrong with a response. Each of them is seen failing
// in TestInvariantsCanFail.
type checker func(tb testing.TB, o outcome) []string

// checkers are all that can be told from one response, by the invariant of
// CONTRIBUTING.md that it is about.
var checkers = map[string]checker{
	"1 all or nothing":       allOrNothing,
	"5 frozen keys":          frozenKeys,
	"6 no secrets":           noSecrets,
	"7 explicit readiness":   explicitReadiness,
	"8 quiet":                quiet,
	"8 conditions":           allConditions,
	"9 fail closed":          failClosed,
	"11 clean objects":       cleanObjects,
	"11 names":               goodNames,
	"11 namespaces":          goodNamespaces,
	"11 pods":                goodPods,
	"11 status only":         statusOnly,
	"11 meaningful empties":  meaningfulEmpties,
	"11 zeros":               noZeros,
	"6 keys are well formed": wellFormedKeys,
	"both ends agree":        endsAgree,
	"narrow requirements":    narrowRequirements,
}

// always are the keys that every gateway has, whatever its spec.
var always = []string{"config", "deployment", "role", "role-binding", "service", "service-account", "status"}

// conditionTypes is the closed set, in its order.
var conditionTypes = []string{"SpecValid", "KeysReady", "PeersReady", "EndpointReady", "WorkloadReady", "RouteReady", "EgressReady"}

// peerConditionTypes is that of a WireguardPeer.
var peerConditionTypes = []string{"SpecValid", "GatewayFound", "Permitted", "ConfigReady", "PodsReady"}

// isPeer tells whether a WireguardPeer is rendered.
func isPeer(o outcome) bool {
	return strings.HasSuffix(o.req.GetObserved().GetComposite().GetResource().GetFields()["kind"].GetStringValue(), "WireguardPeer")
}

// wholePeer: a configuration goes with an attachment, without which the gateway
// would not know the client, and with the status that names it. Without one the
// peer is not ready.
func wholePeer(o outcome, ours map[string]bool) (bad []string) {
	if hasPods(o) {
		return wholePods(o, ours)
	}
	if ours["config"] && !ours["attachment"] {
		bad = append(bad, "the peer has a configuration that its gateway does not know of")
	}
	if named := statusOf(o.rsp)["secretName"].GetStringValue() != ""; named != ours["config"] {
		bad = append(bad, fmt.Sprintf("it is %t that status names a Secret, and %t that there is one", named, ours["config"]))
	}
	if !ours["config"] && o.rsp.GetDesired().GetComposite().GetReady() != fnv1.Ready_READY_FALSE && o.rsp.GetDesired().GetComposite() != nil {
		bad = append(bad, "a peer without a configuration is ready")
	}
	return bad
}

// hasPods tells whether a WireguardPeer is a class of pods.
func hasPods(o outcome) bool {
	return o.req.GetObserved().GetComposite().GetResource().GetFields()["spec"].GetStructValue().GetFields()["pods"].GetStructValue() != nil
}

// joining are the keys of what pods need to join, which come and go together.
// Only what lets them in waits for the wall.
var joining = []string{"enrolment", "injection", "role", "role-binding"}

// wholePods: the wall around pods stands whatever becomes of the rest, and pods
// join only with all that this takes, and not before their wall.
func wholePods(o outcome, ours map[string]bool) (bad []string) {
	if o.rsp.GetDesired().GetComposite() == nil {
		return nil // Requirements only.
	}
	pods := o.req.GetObserved().GetComposite().GetResource().GetFields()["spec"].GetStructValue().GetFields()["pods"].GetStructValue().GetFields()
	policy := pods["networkPolicy"].GetStructValue().GetFields()["type"].GetStringValue()
	wall := "network-policy"
	if ours["cilium-network-policy"] || policy == "Cilium" {
		wall = "cilium-network-policy"
	}
	if ours["network-policy"] && ours["cilium-network-policy"] {
		bad = append(bad, "there are two walls around the pods")
	}
	schema := o.req.GetRequiredSchemas()["cilium-network-policy"]
	lacks := schema != nil && schema.GetOpenapiV3() == nil
	if ours[wall] == (policy == "None" || lacks) {
		bad = append(bad, fmt.Sprintf("it is %t that there is a wall around the pods", ours[wall]))
	}
	observed := o.req.GetObserved().GetResources()
	waits := ours[wall] && observed[wall] == nil && observed["injection"] == nil
	if waits && ours["injection"] {
		bad = append(bad, "pods join before their wall")
	}
	for _, key := range joining {
		if ours[key] != ours[joining[0]] && (key != "injection" || !waits) {
			bad = append(bad, "pods join by halves, with or without "+key)
		}
		if ours[key] && !ours["attachment"] {
			bad = append(bad, "pods would join a gateway that does not know of them, by "+key)
		}
	}
	ready := false
	for _, c := range o.rsp.GetConditions() {
		ready = ready || c.GetType() == "PodsReady" && c.GetStatus() == fnv1.Status_STATUS_CONDITION_TRUE
	}
	if unready := o.rsp.GetDesired().GetComposite().GetReady() == fnv1.Ready_READY_FALSE; unready == ready {
		bad = append(bad, "PodsReady and the peer's readiness do not agree")
	}
	return bad
}

// allOrNothing: a response is the full desired set, or requirements only, or
// Fatal; and what earlier functions desired is in all of them.
func allOrNothing(_ testing.TB, o outcome) (bad []string) {
	before, after := o.req.GetDesired(), o.rsp.GetDesired()
	for key, r := range before.GetResources() {
		if !proto.Equal(r, after.GetResources()[key]) {
			bad = append(bad, fmt.Sprintf("what an earlier function desired as %s is not passed through", key))
		}
	}
	ours := map[string]bool{}
	for key := range after.GetResources() {
		if before.GetResources()[key] == nil {
			ours[key] = true
		}
	}
	if o.fatal() {
		if !proto.Equal(before, after) && proto.Size(before)+proto.Size(after) > 0 {
			bad = append(bad, "a Fatal response changes what is desired")
		}
		return bad
	}
	if isPeer(o) {
		if before != nil && len(ours) == 0 && after.GetComposite().GetReady() == before.GetComposite().GetReady() {
			return bad
		}
		return append(bad, wholePeer(o, ours)...)
	}
	if len(ours) == 0 {
		if len(o.rsp.GetRequirements().GetResources()) == 0 {
			bad = append(bad, "the response is neither a gateway, nor requirements, nor Fatal")
		}
		return bad
	}
	for _, key := range always {
		if !ours[key] {
			bad = append(bad, "without "+key+" the set is not full")
		}
	}
	spec := o.req.GetObserved().GetComposite().GetResource().GetFields()["spec"].GetStructValue().GetFields()
	if spec["keys"].GetStructValue().GetFields()["seedSecretRef"] == nil && !ours["seed"] {
		bad = append(bad, "without seed the set is not full")
	}
	// Every peer of the spec is served, or says why it is not.
	states := map[string]string{}
	for _, v := range statusOf(o.rsp)["peers"].GetListValue().GetValues() {
		p := v.GetStructValue().GetFields()
		// A WireguardPeer of the same name stands after the inline one.
		if p["reason"].GetStringValue() != "DuplicateName" {
			states[p["name"].GetStringValue()] = p["state"].GetStringValue()
		}
		if p["state"].GetStringValue() == "Rejected" && (p["reason"].GetStringValue() == "" || p["message"].GetStringValue() == "") {
			bad = append(bad, fmt.Sprintf("peer %s is rejected without a reason", p["name"].GetStringValue()))
		}
	}
	for _, v := range spec["peers"].GetListValue().GetValues() {
		name := v.GetStructValue().GetFields()["name"].GetStringValue()
		state, ok := states[name]
		if !ok {
			bad = append(bad, fmt.Sprintf("peer %s is not in status", name))
		}
		if served := state != "Rejected"; served != ours["peer-"+name] {
			bad = append(bad, fmt.Sprintf("peer %s is %s, and it is %t that it has a Secret", name, state, ours["peer-"+name]))
		}
	}
	return bad
}

// frozenKeys: keys of the desired set are a contract. Another one would delete
// an object and create it again.
func frozenKeys(_ testing.TB, o outcome) (bad []string) {
	known := append(slices.Clone(always), "seed", "tunnel-service", "http-route", "udp-route", "network-policy", "pod-disruption-budget", "pod-monitor")
	if isPeer(o) {
		known = append([]string{"attachment", "config", "network-policy", "cilium-network-policy"}, joining...)
	}
	for key := range o.rsp.GetDesired().GetResources() {
		if o.req.GetDesired().GetResources()[key] == nil && !slices.Contains(known, key) && (isPeer(o) || !strings.HasPrefix(key, "peer-")) {
			bad = append(bad, "nobody knows the key "+key)
		}
	}
	return bad
}

// explicitReadiness: Crossplane takes what is not said for not ready, for ever.
func explicitReadiness(_ testing.TB, o outcome) (bad []string) {
	for key, r := range o.rsp.GetDesired().GetResources() {
		if o.req.GetDesired().GetResources()[key] == nil && r.GetReady() == fnv1.Ready_READY_UNSPECIFIED {
			bad = append(bad, "the readiness of "+key+" is not said")
		}
		if r.GetReady() == fnv1.Ready_READY_TRUE && o.req.GetObserved().GetResources()[key] == nil && o.req.GetDesired().GetResources()[key] == nil {
			bad = append(bad, key+" is ready before it is there")
		}
	}
	return bad
}

// quiet: no event for what goes as it should. A Fatal is said once.
func quiet(_ testing.TB, o outcome) (bad []string) {
	fatals := 0
	for _, r := range o.rsp.GetResults() {
		if r.GetSeverity() != fnv1.Severity_SEVERITY_FATAL {
			bad = append(bad, "it says without need: "+r.GetMessage())
			continue
		}
		fatals++
		if r.GetTarget() != fnv1.Target_TARGET_COMPOSITE_AND_CLAIM {
			bad = append(bad, "the user of a claim does not hear of: "+r.GetMessage())
		}
		if r.GetMessage() == "" {
			bad = append(bad, "a Fatal without a message")
		}
	}
	if fatals > 1 {
		bad = append(bad, fmt.Sprintf("it is Fatal %d times", fatals))
	}
	if o.rsp.GetMeta().GetTtl().AsDuration() <= 0 {
		bad = append(bad, "it has no TTL: Crossplane would never ask again")
	}
	if o.rsp.GetMeta().GetTag() != o.req.GetMeta().GetTag() {
		bad = append(bad, "it has another tag than the request")
	}
	return bad
}

// changesNothing are the reasons for which a peer keeps what it has.
var changesNothing = []string{"SeedMissing", "SeedMalformed", "SeedMismatch", "GatewayInvalid"}

// allConditions: the closed set, each once, in order, with a reason, for the
// claim too.
func allConditions(_ testing.TB, o outcome) (bad []string) {
	var types []string
	failed := false
	for _, c := range o.rsp.GetConditions() {
		types = append(types, c.GetType())
		if c.GetReason() == "" || strings.ContainsAny(c.GetReason(), " \n") {
			bad = append(bad, fmt.Sprintf("%s has the reason %q, which is not one word", c.GetType(), c.GetReason()))
		}
		if c.GetTarget() != fnv1.Target_TARGET_COMPOSITE_AND_CLAIM {
			bad = append(bad, c.GetType()+" is not for the claim")
		}
		if c.GetStatus() == fnv1.Status_STATUS_CONDITION_UNSPECIFIED {
			bad = append(bad, c.GetType()+" has no status")
		}
		if c.GetStatus() == fnv1.Status_STATUS_CONDITION_FALSE {
			if c.GetMessage() == "" {
				bad = append(bad, c.GetType()+" is False and does not say why")
			}
			failed = failed || c.GetType() == "SpecValid" || c.GetType() == "KeysReady" ||
				((c.GetType() == "ConfigReady" || c.GetType() == "PodsReady") && slices.Contains(changesNothing, c.GetReason()))
		}
	}
	want := conditionTypes
	if isPeer(o) {
		want = peerConditionTypes
	}
	if !slices.Equal(types, want) {
		bad = append(bad, fmt.Sprintf("the conditions are %v", types))
	}
	if o.fatal() != failed {
		bad = append(bad, "Fatal and the conditions do not agree")
	}
	return bad
}

// failClosed: who asks for an egress through a VPN never gets a direct one.
func failClosed(tb testing.TB, o outcome) (bad []string) {
	tb.Helper()
	spec := o.req.GetObserved().GetComposite().GetResource().GetFields()["spec"].GetStructValue().GetFields()
	// A null is as good as absent, and an API server drops it.
	if o.fatal() || spec["gluetun"].GetStructValue() == nil || o.rsp.GetDesired().GetResources()["config"] == nil {
		return nil
	}
	if c := gatewayConfig(tb, o.rsp); c.Egress.Mode != "Gluetun" {
		bad = append(bad, "the spec asks for gluetun, and the egress is "+c.Egress.Mode)
	}
	return bad
}

// statusOnly: of the composite resource a function may say its status.
func statusOnly(_ testing.TB, o outcome) (bad []string) {
	for key := range o.rsp.GetDesired().GetComposite().GetResource().GetFields() {
		if key != "apiVersion" && key != "kind" && key != "status" {
			bad = append(bad, "the composite resource has "+key)
		}
	}
	if len(o.rsp.GetDesired().GetComposite().GetConnectionDetails()) > 0 {
		bad = append(bad, "the composite resource has connection details")
	}
	if statusOf(o.rsp)["conditions"] != nil {
		bad = append(bad, "conditions stand in the status, where Crossplane does not take them from")
	}
	return bad
}
