package spec

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// Types of a provider's VPN.
const (
	VPNTypeWireGuard = "wireguard"
	VPNTypeOpenVPN   = "openvpn"
)

// providerCustom is a server of the user's own, which gluetun knows nothing of.
const providerCustom = "custom"

// Ports on which gluetun listens: on loopback, and for DNS. That of its control
// server is wireguard.GluetunControlPort.
const (
	gluetunHealthPort = 9999
	dnsPort           = 53
)

// Gluetun sends peers' traffic out through a commercial VPN.
type Gluetun struct {
	Provider          string
	Type              string
	CredentialsSecret string
	Servers           v1alpha1.GluetunServers
	Endpoint          *v1alpha1.GluetunEndpoint // of provider custom
	PortForwarding    bool
	OutboundSubnets   []netip.Prefix // the cluster's and the user's, without doubles
	Env               []v1alpha1.EnvVar
	Image             string
	Resources         corev1.ResourceRequirements
}

func (p *parser) gluetun(path *field.Path, g *Gateway) {
	in := p.spec.Gluetun
	if in == nil {
		return
	}
	out := &Gluetun{
		Provider:          in.Provider,
		Type:              defaulted(in.Type, VPNTypeWireGuard),
		CredentialsSecret: p.secretName(path.Child("credentials", "secretRef", "name"), in.Credentials.SecretRef.Name),
		Servers:           deref(in.Servers, v1alpha1.GluetunServers{}),
		PortForwarding:    deref(in.PortForwarding, v1alpha1.Toggle{}).Enabled,
		OutboundSubnets:   p.outboundSubnets(path.Child("outboundSubnets"), in.OutboundSubnets, g),
		Env:               in.Env,
		Image:             defaulted(in.Image, g.Platform.Images.Gluetun),
		Resources:         p.resources(path.Child("resources"), in.Resources),
	}
	// gluetun's image is the user's to choose.
	p.notOwnSecret(path.Child("credentials", "secretRef", "name"), out.CredentialsSecret, g)
	p.oneOf(path.Child("type"), out.Type, VPNTypeWireGuard, VPNTypeOpenVPN)
	p.gluetunProvider(path, in, out)
	p.gluetunServers(path.Child("servers"), out.Servers)
	out.Endpoint = p.gluetunEndpoint(path, in, out)
	p.gluetunEnv(path.Child("env"), out)
	p.portForwarding(path.Child("portForwarding"), out)
	if g.Pod.HostNetwork {
		p.errs = append(p.errs, field.Forbidden(field.NewPath("spec", "pod", "hostNetwork"), "cannot go together with gluetun, whose firewall would take over the node's network: leave one of them out"))
	}
	if g.ListenPort == dnsPort {
		p.refuse(field.NewPath("spec", "listenPort"), g.ListenPort, "is the port of gluetun's resolver: use another")
	}
	g.Gluetun = out
}

func notInProvider(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && !strings.ContainsRune(" ._-", r)
}

// gluetunProvider refuses what makes gluetun exit as soon as it starts. Newer
// versions have WireGuard of more providers, so none is refused with an image that
// the user names, nor with one of the platform's that is not ours.
func (p *parser) gluetunProvider(path *field.Path, in *v1alpha1.Gluetun, out *Gluetun) {
	_, known := wireGuardProviders[out.Provider]
	switch {
	case out.Provider == "" || strings.ContainsFunc(out.Provider, notInProvider):
		p.refuse(path.Child("provider"), out.Provider, "is no provider: use gluetun's VPN_SERVICE_PROVIDER, in lower case, such as protonvpn or custom")
	case out.Type == VPNTypeWireGuard && !known && in.Image == "" && isOurGluetun(out.Image):
		providers := slices.Sorted(maps.Keys(wireGuardProviders))
		last := len(providers) - 1
		p.refuse(path.Child("provider"), out.Provider, fmt.Sprintf("has no WireGuard in %s: set type to openvpn, use %s or %s, or set image to a gluetun that has it",
			DefaultGluetunImage, strings.Join(providers[:last], ", "), providers[last]))
	}
	configured := slices.ContainsFunc(out.Env, func(e v1alpha1.EnvVar) bool { return e.Name == envOpenVPNConfig && e.Value != "" })
	if out.Type == VPNTypeOpenVPN && out.Provider == providerCustom && !configured {
		p.errs = append(p.errs, field.Required(path.Child("env"), fmt.Sprintf(
			"provider custom of type openvpn needs %s, the path of its configuration: put that into the Secret of credentials and name it %s/KEY, or set type to wireguard",
			envOpenVPNConfig, wireguard.GluetunCredentials)))
	}
}

// isOurGluetun tells whether an image is the one that this package knows: by
// its tag, or as a release has it, by a digest alone.
func isOurGluetun(image string) bool {
	name, _, pinned := strings.Cut(image, "@")
	repository, _, _ := strings.Cut(DefaultGluetunImage, ":")
	return name == DefaultGluetunImage || (pinned && name == repository)
}

// outboundSubnets returns what the pod reaches beside the tunnel: the cluster's
// networks and the user's.
func (p *parser) outboundSubnets(path *field.Path, subnets []string, g *Gateway) []netip.Prefix {
	var out []netip.Prefix
	for i, s := range subnets {
		n, ok := p.cidr(path.Index(i), s)
		if ok && n.Bits() == 0 {
			p.refuse(path.Index(i), s, "is everything, so that nothing would go through the tunnel: name the networks that the pod reaches beside it")
			continue
		}
		if ok {
			out = append(out, n)
		}
	}
	return Distinct(g.Platform.ClusterCIDRs(), out)
}

// gluetunServers refuses what would be two filters, or a broken one: gluetun
// takes them as lists with commas.
func (p *parser) gluetunServers(path *field.Path, s v1alpha1.GluetunServers) {
	for _, f := range []struct {
		name   string
		values []string
	}{{"countries", s.Countries}, {"regions", s.Regions}, {"cities", s.Cities}, {"hostnames", s.Hostnames}, {"names", s.Names}} {
		for i, v := range f.values {
			if v == "" || strings.ContainsFunc(v, func(r rune) bool { return r == ',' || r < ' ' || r == 0x7f }) {
				p.refuse(path.Child(f.name).Index(i), v, "is no single filter: write one value an item, without commas and line breaks")
			}
		}
	}
}

func (p *parser) gluetunEndpoint(path *field.Path, in *v1alpha1.Gluetun, out *Gluetun) *v1alpha1.GluetunEndpoint {
	e, at := in.Endpoint, path.Child("endpoint")
	switch {
	case e == nil && out.Provider == providerCustom:
		p.errs = append(p.errs, field.Required(at, "provider custom needs the server to connect to: give it, or name your provider"))
	case e != nil && out.Provider != providerCustom:
		p.errs = append(p.errs, field.Forbidden(at, fmt.Sprintf("is for provider custom, not for %q: leave it out, or set provider to custom", out.Provider)))
	}
	if e == nil {
		return nil
	}
	if _, err := netip.ParseAddr(e.IP); err != nil {
		p.refuse(at.Child("ip"), e.IP, "is no address: gluetun resolves no names before its tunnel is up, so look the server's address up and write that")
	}
	p.between(at.Child("port"), int(e.Port), 1, 65535)
	switch {
	case out.Type == VPNTypeOpenVPN && e.PublicKey != "":
		p.errs = append(p.errs, field.Forbidden(at.Child("publicKey"), "is for type wireguard: leave it out, or set type to wireguard"))
	case out.Type == VPNTypeWireGuard && e.PublicKey == "":
		p.errs = append(p.errs, field.Required(at.Child("publicKey"), "is what a WireGuard server is known by: give it, or set type to openvpn"))
	case e.PublicKey != "":
		if _, err := wireguard.ParseKey(e.PublicKey); err != nil {
			p.refuse(at.Child("publicKey"), e.PublicKey, "is no public key: it is 44 characters of base64")
		}
	}
	return e
}

// forwardingProviders forward ports to their customers, all but the first with
// OpenVPN alone.
var forwardingProviders = []string{"protonvpn", "perfect privacy", "private internet access", "privatevpn"}

// envForwardingProvider is the setting that names the provider behind provider
// custom.
const envForwardingProvider = "VPN_PORT_FORWARDING_PROVIDER"

func (p *parser) portForwarding(path *field.Path, out *Gluetun) {
	if !out.PortForwarding || slices.Contains(forwardingProviders, out.Provider) {
		return
	}
	behind := slices.IndexFunc(out.Env, func(e v1alpha1.EnvVar) bool { return e.Name == envForwardingProvider })
	if out.Provider == providerCustom && behind >= 0 {
		return
	}
	p.errs = append(p.errs, field.Forbidden(path, fmt.Sprintf(
		"does not work with provider %q: use %s, or %s, %s or %s with type openvpn, or custom with one of these as %s in env, or leave it out",
		out.Provider, forwardingProviders[0], forwardingProviders[1], forwardingProviders[2], forwardingProviders[3], envForwardingProvider)))
}

// Fields that name a server of the user's own.
const (
	endpointIP   = "spec.gluetun.endpoint.ip"
	endpointPort = "spec.gluetun.endpoint.port"
)

// computed are gluetun's variables that have one right value, with what it comes
// from. The names that they had in older versions of gluetun count too: a version
// that still knows an old name prefers it.
var computed = map[string]string{
	"VPN_SERVICE_PROVIDER": "spec.gluetun.provider",
	"VPNSP":                "spec.gluetun.provider",
	"VPN_TYPE":             "spec.gluetun.type",
	"VPN_INTERFACE":        "the gateway's firewall",
	"WIREGUARD_INTERFACE":  "the gateway's firewall",
	"OPENVPN_INTERFACE":    "the gateway's firewall",

	"VPN_PORT_FORWARDING":                                     "spec.gluetun.portForwarding",
	"PORT_FORWARDING":                                         "spec.gluetun.portForwarding",
	"PRIVATE_INTERNET_ACCESS_VPN_PORT_FORWARDING":             "spec.gluetun.portForwarding",
	"VPN_PORT_FORWARDING_STATUS_FILE":                         "the volume " + VolumeGluetunStatus,
	"PORT_FORWARDING_STATUS_FILE":                             "the volume " + VolumeGluetunStatus,
	"PRIVATE_INTERNET_ACCESS_VPN_PORT_FORWARDING_STATUS_FILE": "the volume " + VolumeGluetunStatus,

	"SERVER_COUNTRIES": "spec.gluetun.servers.countries",
	"COUNTRY":          "spec.gluetun.servers.countries",
	"SERVER_REGIONS":   "spec.gluetun.servers.regions",
	"REGION":           "spec.gluetun.servers.regions",
	"SERVER_CITIES":    "spec.gluetun.servers.cities",
	"CITY":             "spec.gluetun.servers.cities",
	"SERVER_HOSTNAMES": "spec.gluetun.servers.hostnames",
	"SERVER_HOSTNAME":  "spec.gluetun.servers.hostnames",
	"SERVER_NAMES":     "spec.gluetun.servers.names",
	"SERVER_NAME":      "spec.gluetun.servers.names",

	"WIREGUARD_ENDPOINT_IP":   endpointIP,
	"OPENVPN_ENDPOINT_IP":     endpointIP,
	"OPENVPN_TARGET_IP":       endpointIP,
	"VPN_ENDPOINT_IP":         endpointIP,
	"WIREGUARD_ENDPOINT_PORT": endpointPort,
	"WIREGUARD_PORT":          endpointPort,
	"OPENVPN_ENDPOINT_PORT":   endpointPort,
	"OPENVPN_PORT":            endpointPort,
	"VPN_ENDPOINT_PORT":       endpointPort,
	"PORT":                    endpointPort,
	"WIREGUARD_PUBLIC_KEY":    "spec.gluetun.endpoint.publicKey",

	"WIREGUARD_MTU":            "spec.mtu.direct",
	"WIREGUARD_IMPLEMENTATION": "the gateway's pod",

	"WIREGUARD_PRIVATE_KEY":     "spec.gluetun.credentials",
	"WIREGUARD_PRESHARED_KEY":   "spec.gluetun.credentials",
	"WIREGUARD_ADDRESSES":       "spec.gluetun.credentials",
	"WIREGUARD_ADDRESS":         "spec.gluetun.credentials",
	"WIREGUARD_CONF_SECRETFILE": "spec.gluetun.credentials",
	"OPENVPN_USER":              "spec.gluetun.credentials",
	"USER":                      "spec.gluetun.credentials",
	"OPENVPN_PASSWORD":          "spec.gluetun.credentials",
	"PASSWORD":                  "spec.gluetun.credentials",

	"FIREWALL": "the gateway, which must not leak",
	"FIREWALL_ENABLED_DISABLING_IT_SHOOTS_YOU_IN_YOUR_FOOT": "the gateway, which must not leak",
	"FIREWALL_INPUT_PORTS":      "spec.listenPort and what else listens",
	"FIREWALL_OUTBOUND_SUBNETS": "spec.gluetun.outboundSubnets",
	"EXTRA_SUBNETS":             "spec.gluetun.outboundSubnets",

	"HEALTH_SERVER_ADDRESS":                    "the gateway's pod",
	"HTTP_CONTROL_SERVER_ADDRESS":              "the gateway's pod",
	"CONTROL_SERVER_ADDRESS":                   "the gateway's pod",
	"HTTP_CONTROL_SERVER_PORT":                 "the gateway's pod",
	"HTTP_CONTROL_SERVER_AUTH_CONFIG_FILEPATH": "the gateway's pod",
	"HTTP_CONTROL_SERVER_AUTH_DEFAULT_ROLE":    "the gateway's pod",
	"PUID":                                     "the gateway's pod",
	"UID":                                      "the gateway's pod",
	"PGID":                                     "the gateway's pod",
	"GID":                                      "the gateway's pod",

	"DNS_SERVER":          "spec.dns",
	"DOT":                 "spec.dns",
	"DNS_KEEP_NAMESERVER": "spec.dns",
}

// setBy returns what the value of a variable comes from, if it is computed. gluetun
// reads every setting from a file too, which a variable with a suffix names.
func setBy(variable string) (from string, ours bool) {
	for _, suffix := range []string{"", "_SECRETFILE", "_FILE"} {
		if setting, ok := strings.CutSuffix(variable, suffix); ok {
			if from, ours = computed[setting]; ours {
				return from, true
			}
		}
	}
	return "", false
}

// mayChoose tells whether users may set a variable although its value comes from
// somewhere else: it selects one of a provider's addresses or ports, and only
// provider custom has an endpoint that says which.
func (t *Gluetun) mayChoose(from string) bool {
	return t.Provider != providerCustom && (from == endpointIP || from == endpointPort)
}

// envName is the form of all of gluetun's variables.
var envName = regexp.MustCompile(`^[A-Z_][A-Z0-9_]*$`)

func (p *parser) gluetunEnv(path *field.Path, out *Gluetun) {
	seen := map[string]bool{}
	other := map[string]string{VPNTypeWireGuard: "OPENVPN_", VPNTypeOpenVPN: "WIREGUARD_"}[out.Type]
	for i, e := range out.Env {
		at := path.Index(i)
		switch from, ours := setBy(e.Name); {
		case !envName.MatchString(e.Name):
			p.refuse(at.Child("name"), e.Name, "is no name of a setting: gluetun's are in capitals, digits and underscores")
		case seen[e.Name]:
			p.errs = append(p.errs, field.Duplicate(at.Child("name"), e.Name))
		case ours && !out.mayChoose(from):
			p.errs = append(p.errs, field.Forbidden(at.Child("name"), fmt.Sprintf("%s is set by %s: leave it out here", e.Name, from)))
		case other != "" && strings.HasPrefix(e.Name, other):
			p.errs = append(p.errs, field.Forbidden(at.Child("name"), fmt.Sprintf("%s says nothing to a VPN of type %s: leave it out, or change type", e.Name, out.Type)))
		}
		if strings.ContainsRune(e.Value, 0) {
			p.refuse(at.Child("value"), e.Value, "holds a zero byte, which no environment variable can")
		}
		seen[e.Name] = true
	}
}

// Files in the Secret with the user's credentials. It is mounted at
// wireguard.GluetunCredentials.
const (
	FileWireGuardPrivateKey   = "wireguard-private-key"
	FileWireGuardPresharedKey = "wireguard-preshared-key"
	FileWireGuardAddresses    = "wireguard-addresses"
	FileOpenVPNUser           = "openvpn-user"
	FileOpenVPNPassword       = "openvpn-password"
)

// wireGuardProviders are those of which our gluetun has WireGuard servers, with
// the files that it cannot start without beside the private key. Where all
// customers have the same address, it knows that by itself.
var wireGuardProviders = map[string][]string{
	"airvpn":       {FileWireGuardAddresses, FileWireGuardPresharedKey},
	providerCustom: {FileWireGuardAddresses},
	"fastestvpn":   {FileWireGuardAddresses},
	"ivpn":         {FileWireGuardAddresses},
	"mullvad":      {FileWireGuardAddresses},
	"nordvpn":      nil,
	"protonvpn":    nil,
	"surfshark":    {FileWireGuardAddresses},
	"windscribe":   {FileWireGuardAddresses},
}

// openVPNCredentials are the files that gluetun cannot start without, for providers
// where these are not a user and a password. Certificates are settings of their
// own.
var openVPNCredentials = map[string][]string{
	"airvpn":    nil,
	"ivpn":      {FileOpenVPNUser}, // it may be an account that has no password
	"mullvad":   {FileOpenVPNUser}, // gluetun knows the password
	"vpnsecure": nil,
}

// envOpenVPNConfig is the setting with the path of the configuration for a server of
// the user's own.
const envOpenVPNConfig = "OPENVPN_CUSTOM_CONFIG"

// NeededCredentials are the files that gluetun cannot start without. No setting in
// env can replace one of them: those that could are computed, so users cannot set
// them.
func (t *Gluetun) NeededCredentials() []string {
	switch files, other := openVPNCredentials[t.Provider]; {
	case t.Type == VPNTypeWireGuard:
		return slices.Concat([]string{FileWireGuardPrivateKey}, wireGuardProviders[t.Provider])
	case t.Provider == providerCustom:
		return t.openVPNConfig()
	case other:
		return files
	default:
		return []string{FileOpenVPNUser, FileOpenVPNPassword}
	}
}

// openVPNConfig is the configuration for a server of the user's own, if it is
// in the Secret.
func (t *Gluetun) openVPNConfig() []string {
	for _, e := range t.Env {
		file, ok := strings.CutPrefix(e.Value, wireguard.GluetunCredentials+"/")
		if ok && e.Name == envOpenVPNConfig && len(validation.IsConfigMapKey(file)) == 0 {
			return []string{file}
		}
	}
	return nil
}

// providerTunnels are networks that providers use inside their tunnels, for
// their resolver and for handing out ports.
var providerTunnels = map[string]netip.Prefix{
	"airvpn":    netip.MustParsePrefix("10.128.0.0/10"),
	"mullvad":   netip.MustParsePrefix("10.64.0.0/10"),
	"nordvpn":   netip.MustParsePrefix("10.5.0.0/16"),
	"protonvpn": netip.MustParsePrefix("10.2.0.0/16"),
	"surfshark": netip.MustParsePrefix("10.14.0.0/16"),
}

// OverlapsTunnel returns the first outbound subnet that overlaps with the provider's
// own network inside the tunnel, and that network.
func (t *Gluetun) OverlapsTunnel() (subnet, tunnel netip.Prefix, ok bool) {
	tunnel, known := providerTunnels[t.Provider]
	if !known {
		return netip.Prefix{}, netip.Prefix{}, false
	}
	subnet, ok = overlap(tunnel, t.OutboundSubnets)
	return subnet, tunnel, ok
}
