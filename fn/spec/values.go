package spec

import (
	"fmt"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
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

// gatewayName also refuses what cannot be the name of a Service (RFC 1035).
func (p *parser) gatewayName(path *field.Path, s string) {
	errs := len(p.errs)
	p.name(path, s)
	if len(p.errs) == errs && s[0] >= '0' && s[0] <= '9' {
		p.refuse(path, s, "must begin with a letter, since the name of the gateway's Service is made of it")
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

// JoinHostPort joins a host and a port, with brackets around IPv6 addresses.
func JoinHostPort(host string, port int) string {
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// domain is a DNS name as the schema has it: relative or with a dot at its end,
// with underscores where resolvers take them. The last label begins with a
// letter: of digits only it would make a broken address.
var domain = regexp.MustCompile(`^([A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?[.])*[A-Za-z]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?[.]?$`)

// checkDomain says what is wrong with a DNS name. Its case does not matter.
func checkDomain(s string) (message string) {
	if len(s) > validation.DNS1123SubdomainMaxLength || !domain.MatchString(s) {
		return "is no DNS name"
	}
	return ""
}

// image is a reference to a container image, as the schema has it.
var image = regexp.MustCompile(`^([A-Za-z0-9][A-Za-z0-9._:/@-]*)?$`)

func (p *parser) image(path *field.Path, s string) {
	if !image.MatchString(s) {
		p.refuse(path, s, "is no image: write a name with a tag or a digest")
	}
}

func (p *parser) secretName(path *field.Path, name string) string {
	if len(validation.IsDNS1123Subdomain(name)) > 0 {
		p.refuse(path, name, "is no name of a Secret")
	}
	return name
}

func (p *parser) secretKey(path *field.Path, name, key, defaultKey string) SecretKey {
	k := SecretKey{Name: p.secretName(path.Child("name"), name), Key: defaulted(key, defaultKey)}
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
		if strings.HasPrefix(k, prefixCrossplane) {
			p.errs = append(p.errs, field.Forbidden(path.Key(k), "is for Crossplane to set: leave it out"))
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
