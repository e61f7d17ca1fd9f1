package apitest

import "slices"

// Invalid are specs that must be refused, by the schema and by the function.
func Invalid() []Case {
	return slices.Concat(invalidNetwork(), invalidExposure(), invalidEgress(), invalidPeers(), invalidPod())
}
