package plan

import "github.com/wireguardgateway/function-wireguard-gateway/fn/spec"

// Conditions that a failed plan makes false.
const (
	// ConditionKeysReady is false where a gateway has no seed that it may use.
	ConditionKeysReady = "KeysReady"
	// ConditionSpecValid is false where a gateway asks for more than fits.
	ConditionSpecValid = "SpecValid"
	// ConditionConfigReady is that of a WireguardPeer with a client.
	ConditionConfigReady = "ConfigReady"
	// ConditionPodsReady is that of a WireguardPeer with pods.
	ConditionPodsReady = "PodsReady"
)

// Reasons of failures that concern the seed.
const (
	reasonSeedMissing   = "SeedMissing"
	reasonSeedMalformed = "SeedMalformed"
	reasonSeedMismatch  = "SeedMismatch"
)

// ConditionOf is the condition of a WireguardPeer that a failed plan makes false.
func ConditionOf(p *spec.WireguardPeer) string {
	if p.Pods != nil {
		return ConditionPodsReady
	}
	return ConditionConfigReady
}

// ConditionError is why there is no plan: the condition that it makes false, a
// reason in one word, and what to do.
type ConditionError struct {
	Condition string
	Reason    string
	Message   string
}

// Error returns the message.
func (e *ConditionError) Error() string { return e.Message }
