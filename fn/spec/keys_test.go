package spec

import "testing"

func TestKeys(t *testing.T) {
	g := accepted(t, `{keys: {seedSecretRef: {name: backup}, acceptSeed: 0123456789abcdef, rotation: 2}}`)
	want := Keys{SeedSecret: SecretKey{Name: "backup", Key: "seed"}, AcceptSeed: "0123456789abcdef", Rotation: 2}
	if g.Keys != want {
		t.Errorf("want %+v, got %+v", want, g.Keys)
	}
	testRefusals(t, map[string]refusal{
		"SecretName":  {"It is a DNS name.", `{keys: {seedSecretRef: {name: "a b"}}}`, []string{`spec.keys.seedSecretRef.name: Invalid value: "a b"`}},
		"AcceptShort": {"An ID has 16 digits.", `{keys: {acceptSeed: abc}}`, []string{`spec.keys.acceptSeed: Invalid value: "abc": is no seed ID`}},
		"AcceptUpper": {"It is compared as it stands.", `{keys: {acceptSeed: 0123456789ABCDEF}}`, []string{`spec.keys.acceptSeed: Invalid value: "0123456789ABCDEF"`}},
		"Rotation":    {"It counts up.", `{keys: {rotation: -1}}`, []string{`spec.keys.rotation: Invalid value: -1`}},
	})
}
