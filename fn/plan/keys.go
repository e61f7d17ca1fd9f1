package plan

import (
	"fmt"
	"io"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// Keys are the gateway's own.
type Keys struct {
	Seed    wireguard.Seed
	Private wireguard.Key
	Public  wireguard.Key

	// ComposeSeed tells whether the seed Secret is composed, and ComposedSeed
	// what stands in it, byte for byte: it is immutable.
	ComposeSeed  bool
	ComposedSeed []byte

	// Generated tells whether the seed is new, and in nobody's cluster yet. Another
	// may still come before it.
	Generated bool

	// Fleeting tells whether the seed of a new gateway may go again: that of a former
	// one is there until garbage collection takes it, or the new one adopts it.
	Fleeting bool
}

// keys finds the seed, or generates it where the gateway never had one. A
// gateway that had one and lost it is never given another: every client would
// be cut off.
func (in *Inputs) keys() (Keys, error) {
	k := Keys{}

	// The Secret is read by name too: Crossplane hides one that another owner
	// controls from what is observed.
	own := in.RequiredSeed
	if own == nil {
		own = in.ObservedSeed
	}

	ref := in.Spec.Keys.SeedSecret
	var err error
	switch {
	case ref.Name != "":
		k.Seed, err = in.referencedSeed()
		// Where the seed was composed before, it stays, so that garbage
		// collection never takes the only copy.
		k.ComposeSeed, k.ComposedSeed = in.ObservedSeed != nil, own[names.DataSeed]
	case own != nil:
		k.Seed, err = parseSeed(own[names.DataSeed], names.Seed(in.Spec.Name), names.DataSeed)
		k.ComposeSeed, k.ComposedSeed = true, own[names.DataSeed]
		k.Fleeting = in.SeedFleeting && in.Status.PublicKey == ""
	case in.Status.PublicKey != "":
		err = in.seedLost()
	default:
		k.Seed, err = generateSeed(in.Random)
		k.ComposeSeed, k.ComposedSeed, k.Generated = true, k.Seed[:], true
	}
	if err != nil {
		return Keys{}, err
	}

	if was, is := in.Status.SeedID, k.Seed.ID(); was != "" && was != is && in.Spec.Keys.AcceptSeed != is {
		return Keys{}, &ConditionError{ConditionKeysReady, reasonSeedMismatch, fmt.Sprintf(
			"the seed is another one than before (its ID is %s, it was %s), which would change every derived key: put the old seed back, or set spec.keys.acceptSeed to %s if the new one is meant",
			is, was, is)}
	}
	k.Private = k.Seed.ServerKey(in.Spec.Keys.Rotation)
	k.Public = k.Private.Public()
	return k, nil
}

func (in *Inputs) referencedSeed() (wireguard.Seed, error) {
	ref := in.Spec.Keys.SeedSecret
	data, ok := in.Secrets[ref.Name]
	if !ok {
		return wireguard.Seed{}, &ConditionError{ConditionKeysReady, reasonSeedMissing, fmt.Sprintf(
			"there is no Secret %q in namespace %q, which spec.keys.seedSecretRef names: create it with the seed under the key %q", ref.Name, in.Spec.Namespace, ref.Key)}
	}
	return parseSeed(data[ref.Key], ref.Name, ref.Key)
}

func (in *Inputs) seedLost() error {
	name, was, never := names.Seed(in.Spec.Name), "", ""
	if id := in.Status.SeedID; id != "" {
		was = " (its ID was " + id + ")"
	} else {
		never = ". Or it never was there, where the API server refused it, which the gateway's events tell: then no key was ever used, so mend that and create the gateway again"
	}
	return &ConditionError{ConditionKeysReady, reasonSeedMissing, fmt.Sprintf(
		"the Secret %q in namespace %q is gone, and with it the seed%s that every key derives from; no key was changed. "+
			"Restore it from a backup, either under another name that you set as spec.keys.seedSecretRef, "+
			"or under its own name with the annotation crossplane.io/composition-resource-name: %s and without owner references%s",
		name, in.Spec.Namespace, was, names.KeySeed, never)}
}

func parseSeed(data []byte, secret, key string) (wireguard.Seed, error) {
	s, err := wireguard.ParseSeed(data)
	if err != nil {
		return wireguard.Seed{}, &ConditionError{ConditionKeysReady, reasonSeedMalformed, fmt.Sprintf(
			"the Secret %q holds no seed under the key %q: %s", secret, key, err)}
	}
	return s, nil
}

func generateSeed(random io.Reader) (wireguard.Seed, error) {
	s := wireguard.Seed{}
	if _, err := io.ReadFull(random, s[:]); err != nil {
		return s, &ConditionError{ConditionKeysReady, reasonSeedMissing, fmt.Sprintf("cannot generate a seed: %s", err)}
	}
	return s, nil
}
