package render_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// endsAgree: what the gateway's device expects of a peer is what the peer's
// configuration says, or they never shake hands.
func endsAgree(tb testing.TB, o outcome) (bad []string) {
	tb.Helper()
	if o.rsp.GetDesired().GetResources()["config"] == nil || isPeer(o) || o.req.GetDesired().GetResources()["config"] != nil {
		return nil
	}
	config := gatewayConfig(tb, o.rsp)
	gateway := config.PrivateKey.Public().String()
	if named := statusOf(o.rsp)["seedID"].GetStringValue() != ""; named == seedIsNew(o) {
		bad = append(bad, "status names the seed before it is in the cluster, or not after")
	}
	if got := statusOf(o.rsp)["publicKey"].GetStringValue(); got != gateway {
		bad = append(bad, "status has another public key than the device")
	}
	for _, class := range config.PodClasses {
		seed, err := wireguard.ParseSeed(secretData(o.rsp.GetDesired().GetResources()["seed"].GetResource())["seed"])
		if err == nil && class.Key != seed.PodClassKey(class.Namespace, class.Name) {
			bad = append(bad, class.Name+" has another key than its pods will have")
		}
	}
	for i := range config.Peers {
		p := &config.Peers[i]
		secret := secretData(o.rsp.GetDesired().GetResources()["peer-"+p.Name].GetResource())
		if metadata(o.req.GetObserved().GetComposite().GetResource())["namespace"].GetStringValue() != p.Namespace {
			continue // Its Secret is in its own namespace.
		}
		if len(secret) == 0 {
			bad = append(bad, p.Name+" is on the device and has no configuration")
		}
		var addresses []string
		for _, a := range (wireguard.Peer{Addresses: p.Addresses}).AllowedIPs() {
			addresses = append(addresses, a.String())
		}
		want := map[string]string{"PublicKey": gateway, "Address": strings.Join(addresses, ", ")}
		if p.PresharedKey != nil {
			want["PresharedKey"] = p.PresharedKey.String()
		}
		for name, conf := range secret {
			if !strings.HasSuffix(name, ".conf") {
				continue
			}
			got := lines(string(conf))
			for key, value := range want {
				if !slices.Equal(got[key], []string{value}) {
					bad = append(bad, fmt.Sprintf("%s, %s: the device expects %s %s, and the peer has %v", p.Name, name, key, value, len(got[key])))
				}
			}
			if p.PresharedKey == nil && got["PresharedKey"] != nil {
				bad = append(bad, p.Name+" has a preshared key that the device does not know")
			}
			for _, private := range got["PrivateKey"] {
				if k, err := wireguard.ParseKey(private); err != nil || k.Public() != p.PublicKey {
					bad = append(bad, p.Name+" has another key than the device knows")
				}
			}
		}
	}
	return bad
}

// lines returns the values of a configuration by their keys.
func lines(conf string) map[string][]string {
	out := map[string][]string{}
	for line := range strings.Lines(conf) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), " = "); ok {
			out[k] = append(out[k], v)
		}
	}
	return out
}

// narrowRequirements: what is required is named, or bears labels that only ours
// bear. A selector without labels would select nothing, and one of all objects
// would make each of them an event.
func narrowRequirements(_ testing.TB, o outcome) (bad []string) {
	for name, s := range o.rsp.GetRequirements().GetResources() {
		if s.GetApiVersion() == "" || s.GetKind() == "" {
			bad = append(bad, name+" has no kind")
		}
		if s.GetMatchName() == "" && len(s.GetMatchLabels().GetLabels()) == 0 {
			bad = append(bad, name+" selects by nothing")
		}
		for k, v := range s.GetMatchLabels().GetLabels() {
			if k == "" || v == "" {
				bad = append(bad, name+" selects by an empty label")
			}
		}
		if s.GetKind() == "Secret" && s.GetNamespace() == "" {
			bad = append(bad, name+" is a Secret of any namespace")
		}
	}
	return bad
}

// seedIsNew tells whether the seed was generated in this very call.
func seedIsNew(o outcome) bool {
	return o.rsp.GetDesired().GetResources()["seed"] != nil && o.req.GetObserved().GetResources()["seed"] == nil &&
		len(o.req.GetRequiredResources()["seed"].GetItems()) == 0
}
