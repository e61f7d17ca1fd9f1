package wireguard

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// Key is a WireGuard private, public or preshared key. Its text form is the
// base64 of wg(8), 44 characters, in JSON too.
type Key struct {
	wgtypes.Key
}

// ParseKey parses the base64 form of a key. White space around it is ignored,
// because `wg genkey > file` ends in a line break.
func ParseKey(s string) (Key, error) {
	s = strings.TrimSpace(s)
	// The error never quotes the value: it may be a private key.
	if len(s) != 44 {
		return Key{}, fmt.Errorf("a key is 44 characters of base64, as `wg genkey` prints it: got %d characters", len(s))
	}
	// Strict, as wg(8) is: of several spellings of a key it knows one.
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != wgtypes.KeyLen {
		return Key{}, errors.New("a key is 44 characters of base64, as `wg genkey` prints it: this is not base64 of 32 bytes")
	}
	return Key{Key: wgtypes.Key(b)}, nil
}

// Public returns the public key that belongs to a private key.
func (k Key) Public() Key {
	return Key{Key: k.PublicKey()}
}

// IsZero tells whether the key is unset. All zeros is no valid key of any kind.
func (k Key) IsZero() bool {
	return k == Key{}
}

// MarshalText returns the base64 form.
func (k Key) MarshalText() ([]byte, error) {
	return []byte(k.String()), nil
}

// UnmarshalText parses the base64 form.
func (k *Key) UnmarshalText(b []byte) error {
	p, err := ParseKey(string(b))
	if err != nil {
		return err
	}
	*k = p
	return nil
}
