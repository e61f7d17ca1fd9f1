package wireguard

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"
)

// salt separates our derivations from any other use of the same seed. It is
// frozen: another salt would rotate every key of every gateway.
const salt = "wireguardgateway.io/v1"

// SeedSize is the size of a seed, in bytes.
const SeedSize = 32

// Seed is the one random secret of a gateway. Every other secret is derived
// from it with HKDF-SHA256 (RFC 5869), so a backup of the seed restores all.
type Seed [SeedSize]byte

// ParseSeed reads a seed as it stands in a Secret: 32 raw bytes, or their
// base64 as `wg genkey` prints it. The error never quotes the value.
func ParseSeed(b []byte) (Seed, error) {
	if len(b) == SeedSize {
		return Seed(b), nil
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(string(bytes.TrimSpace(b)))
	if err != nil || len(raw) != SeedSize {
		return Seed{}, fmt.Errorf("a seed is %d raw bytes, or their base64 as `wg genkey` prints it: got %d bytes that are neither", SeedSize, len(b))
	}
	return Seed(raw), nil
}

// ID names the seed without revealing it: 16 hexadecimal digits.
func (s Seed) ID() string {
	b := s.derive("id")
	return hex.EncodeToString(b[:8])
}

// ServerKey returns the gateway's own private key.
func (s Seed) ServerKey(rotation int64) Key {
	return clamp(s.derive("server", strconv.FormatInt(rotation, 10)))
}

// PeerKey returns the private key of the named peer.
func (s Seed) PeerKey(namespace, name string, rotation int64) Key {
	return clamp(s.derive("peer", namespace, name, strconv.FormatInt(rotation, 10)))
}

// PresharedKey returns the key that the gateway shares with the named peer.
func (s Seed) PresharedKey(namespace, name string, rotation int64) Key {
	return Key{Key: s.derive("psk", namespace, name, strconv.FormatInt(rotation, 10))}
}

// AttachmentKey returns the key of the HMAC by which a gateway knows the
// attachments that our own function wrote.
func (s Seed) AttachmentKey() []byte {
	b := s.derive("attachment")
	return b[:]
}

// PodClassKey returns the key that all pods of one WireguardPeer derive theirs
// from.
func (s Seed) PodClassKey(namespace, name string) Key {
	return Key{Key: s.derive("pods", namespace, name)}
}

// PodKey returns the private key of one pod, from its class key and its UID.
func PodKey(class Key, uid string) Key {
	return clamp(derive(class.Key[:], "pod", uid))
}

// TunnelPathPrefix returns the path segment under which the WebSocket tunnel
// is served where the user names none: 32 hexadecimal digits.
func (s Seed) TunnelPathPrefix() string {
	b := s.derive("tunnel-prefix")
	return hex.EncodeToString(b[:16])
}

// GluetunControlKey returns the API key of gluetun's control server: 64
// hexadecimal digits.
func (s Seed) GluetunControlKey() string {
	b := s.derive("gluetun-control")
	return hex.EncodeToString(b[:])
}

// derive expands the seed for one label. Neither namespaces nor names contain
// a slash, so no two labels are the same.
func (s Seed) derive(parts ...string) [32]byte {
	return derive(s[:], parts...)
}

func derive(secret []byte, parts ...string) [32]byte {
	b, err := hkdf.Key(sha256.New, secret, []byte(salt), strings.Join(parts, "/"), 32)
	if err != nil {
		// 32 bytes is always within what HKDF-SHA256 can expand to.
		panic(err)
	}
	return [32]byte(b)
}

// clamp turns random bytes into a Curve25519 private key (RFC 7748, section 5).
func clamp(b [32]byte) Key {
	b[0] &= 248
	b[31] &= 127
	b[31] |= 64
	return Key{Key: wgtypes.Key(b)}
}
