package wireguard

import (
	"net/netip"
	"strconv"
	"strings"
)

// ClientConfig is a peer's own configuration, in the format of wg-quick(8).
type ClientConfig struct {
	// PrivateKey is left out where nil: the device that made it keeps it.
	PrivateKey *Key
	Addresses  []netip.Prefix
	// DNS are servers, then search domains.
	DNS []string
	// MTU is in bytes. 0 leaves it to the client.
	MTU int
	// FwMark marks the client's own datagrams. 0 leaves it to the client.
	FwMark int
	// PreUp and PostDown are shell commands. Only wg-quick knows them: the mobile
	// apps refuse a configuration that has any.
	PreUp, PostDown []string

	// Of the gateway, as the client sees it.
	PublicKey    Key
	PresharedKey *Key
	AllowedIPs   []netip.Prefix
	Endpoint     string
	// PersistentKeepalive is in seconds. 0 leaves the line out.
	PersistentKeepalive int
}

// String returns the configuration file: one "Key = value" a line, in the
// order of wg-quick(8), lists joined by ", ".
func (c ClientConfig) String() string {
	b := &strings.Builder{}
	line := func(key, value string) {
		if value != "" {
			b.WriteString(key + " = " + value + "\n")
		}
	}

	b.WriteString("[Interface]\n")
	line("Address", joinPrefixes(c.Addresses))
	line("DNS", strings.Join(c.DNS, ", "))
	line("MTU", number(c.MTU))
	for _, command := range c.PreUp {
		line("PreUp", command)
	}
	for _, command := range c.PostDown {
		line("PostDown", command)
	}
	line("FwMark", number(c.FwMark))
	line("PrivateKey", optionalKey(c.PrivateKey))

	b.WriteString("\n[Peer]\n")
	line("PublicKey", c.PublicKey.String())
	line("PresharedKey", optionalKey(c.PresharedKey))
	line("AllowedIPs", joinPrefixes(c.AllowedIPs))
	line("Endpoint", c.Endpoint)
	line("PersistentKeepalive", number(c.PersistentKeepalive))
	return b.String()
}

func joinPrefixes(ps []netip.Prefix) string {
	s := make([]string, len(ps))
	for i, p := range ps {
		s[i] = p.String()
	}
	return strings.Join(s, ", ")
}

func number(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func optionalKey(k *Key) string {
	if k == nil {
		return ""
	}
	return k.String()
}
