package spec

import (
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
)

// Keys tells where the gateway's keys come from.
type Keys struct {
	SeedSecret SecretKey // zero: the gateway's own seed
	AcceptSeed string
	Rotation   int64
}

// SecretKey names one value in a Secret, or none where it is zero. The namespace is
// that of the gateway or WireguardPeer which refers to it.
type SecretKey struct {
	Name, Key string
}

// maxRotation is far more often than anybody rotates keys. A number of this size is
// exact in every encoding that it passes through.
const maxRotation = 1_000_000

func (p *parser) keys(path *field.Path, g *Gateway) {
	k := deref(p.spec.Keys, v1alpha1.Keys{})
	g.Keys = Keys{AcceptSeed: k.AcceptSeed, Rotation: k.Rotation}
	p.between(path.Child("rotation"), int(k.Rotation), 0, maxRotation)
	if r := k.SeedSecretRef; r != nil {
		g.Keys.SeedSecret = p.secretKey(path.Child("seedSecretRef"), r.Name, r.Key, v1alpha1.DefaultSeedKey)
	}
	if k.AcceptSeed != "" && !isSeedID(k.AcceptSeed) {
		p.refuse(path.Child("acceptSeed"), k.AcceptSeed, "is no seed ID: it is 16 hexadecimal digits, as in status.seedID")
	}
}

// isSeedID tells whether a string has the form of a seed's ID.
func isSeedID(s string) bool {
	if len(s) != 16 {
		return false
	}
	for _, c := range s {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
