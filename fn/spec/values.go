package spec

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
)

// name refuses what cannot be part of the names and labels of composed objects.
func (p *parser) name(path *field.Path, s string) {
	if len(s) > v1alpha1.MaxNameLength {
		p.errs = append(p.errs, field.Invalid(path, s, fmt.Sprintf("is too long: use at most %d characters", v1alpha1.MaxNameLength)))
		return
	}
	if len(validation.IsDNS1123Label(s)) > 0 {
		p.refuse(path, s, "is no DNS label: use lower case letters, digits and dashes, and start and end with a letter or digit")
	}
}

func (p *parser) between(path *field.Path, v, least, most int) {
	if v < least || v > most {
		p.refuse(path, v, fmt.Sprintf("is out of range: use %d to %d", least, most))
	}
}

// port refuses what is no port. 0 is unset.
func (p *parser) port(path *field.Path, v int32) {
	if v != 0 {
		p.between(path, int(v), 1, 65535)
	}
}

func (p *parser) oneOf(path *field.Path, v string, allowed ...string) {
	if !slices.Contains(allowed, v) {
		p.errs = append(p.errs, field.NotSupported(path, v, allowed))
	}
}

// host parses an address, with or without brackets, or a DNS name. It returns
// it without brackets.
func (p *parser) host(path *field.Path, s string) string {
	h, message := parseHost(s)
	if message != "" {
		p.refuse(path, s, message)
	}
	return h
}

func parseHost(s string) (host, message string) {
	bare, bracketed := strings.CutPrefix(s, "[")
	if bracketed {
		var closed bool
		if bare, closed = strings.CutSuffix(bare, "]"); !closed {
			return "", "is no host: the bracket is not closed"
		}
	}
	if a, err := netip.ParseAddr(bare); err == nil {
		if a.Zone() != "" || a.Is4In6() || (bracketed && a.Is4()) {
			return "", "is no host: write a plain IPv4 or IPv6 address, or a DNS name"
		}
		return a.String(), ""
	}
	if bracketed {
		return "", "is no host: only an IPv6 address stands in brackets"
	}
	if message := checkDomain(bare); message != "" {
		return "", "is no host: write an IPv4 or IPv6 address or a DNS name, without scheme and port"
	}
	return bare, ""
}

// checkDomain says what is wrong with a DNS name (RFC 1123, section 2.1). Its
// case does not matter. A last label of digits only would make it a broken
// address.
func checkDomain(s string) (message string) {
	last := s[strings.LastIndexByte(s, '.')+1:]
	if len(validation.IsDNS1123Subdomain(strings.ToLower(s))) > 0 || strings.Trim(last, "0123456789") == "" {
		return "is no DNS name"
	}
	return ""
}

func (p *parser) secretKey(path *field.Path, name, key, defaultKey string) SecretKey {
	k := SecretKey{Name: name, Key: defaulted(key, defaultKey)}
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		p.refuse(path.Child("name"), name, "is no name of a Secret")
	}
	if len(validation.IsConfigMapKey(k.Key)) > 0 {
		p.refuse(path.Child("key"), k.Key, "is no data key of a Secret")
	}
	return k
}

// labels refuses what the API server would refuse as labels of an object.
func (p *parser) labels(path *field.Path, labels map[string]string) {
	for _, k := range sortedKeys(labels) {
		if len(validation.IsQualifiedName(k)) > 0 {
			p.refuse(path, k, "is no label key")
		}
		if len(validation.IsValidLabelValue(labels[k])) > 0 {
			p.refuse(path.Key(k), labels[k], "is no label value: use at most 63 letters, digits, dashes, underscores and dots")
		}
	}
}

// annotations refuses what the API server would refuse as annotations.
func (p *parser) annotations(path *field.Path, annotations map[string]string) {
	for _, k := range sortedKeys(annotations) {
		if len(validation.IsQualifiedName(strings.ToLower(k))) > 0 {
			p.refuse(path, k, "is no annotation key")
		}
	}
}

func sortedKeys(m map[string]string) []string {
	ks := make([]string, 0, len(m))
	for k := range m {
		ks = append(ks, k)
	}
	slices.Sort(ks)
	return ks
}
