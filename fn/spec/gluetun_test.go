package spec

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/input/v1beta1"
)

// withGluetun is a gateway with these settings of gluetun's beside those that it
// needs. They come first, since a second provider is an error of YAML's.
func withGluetun(settings string) string {
	for _, d := range []string{"provider: protonvpn", "credentials: {secretRef: {name: proton}}"} {
		if key, _, _ := strings.Cut(d, ":"); !strings.Contains(settings, key+":") {
			settings += ", " + d
		}
	}
	return "gluetun: {" + strings.TrimPrefix(settings, ", ") + "}"
}

const testEndpoint = `endpoint: {ip: 198.51.100.10, port: 51821, publicKey: "QY28S6n0ZP/puq3/9BAOJlzx3Q8dGZzn5iVmy4pEln0="}`

func TestGluetun(t *testing.T) {
	cluster := []netip.Prefix{
		netip.MustParsePrefix("10.42.0.0/16"), netip.MustParsePrefix("10.43.0.0/16"), netip.MustParsePrefix("fd43::/112"), netip.MustParsePrefix("192.0.2.0/24"),
	}
	cases := map[string]struct {
		reason   string
		settings string
		check    func(*Gluetun) any
		want     any
	}{
		"Type":          {"WireGuard is the default.", "", func(g *Gluetun) any { return g.Type }, VPNTypeWireGuard},
		"Subnets":       {"The cluster's networks are reached directly.", "", func(g *Gluetun) any { return g.OutboundSubnets }, cluster},
		"MoreSubnets":   {"The user's come on top, none twice.", "outboundSubnets: [192.168.50.0/24, 10.43.0.0/16]", func(g *Gluetun) any { return g.OutboundSubnets }, append(slices.Clone(cluster), netip.MustParsePrefix("192.168.50.0/24"))},
		"OpenVPNServer": {"A server of OpenVPN has no public key.", "provider: custom, type: openvpn, endpoint: {ip: 198.51.100.10, port: 1194}, env: [{name: OPENVPN_CUSTOM_CONFIG, value: /run/secrets/gluetun/a.ovpn}]", func(g *Gluetun) any { return g.Endpoint.PublicKey }, ""},
		"IPv6Server":    {"A server may have an IPv6 address.", "provider: custom, " + strings.Replace(testEndpoint, "198.51.100.10", `"2001:db8:3::10"`, 1), func(g *Gluetun) any { return g.Endpoint.IP }, "2001:db8:3::10"},
		"Forwarding":    {"Some providers forward ports.", "portForwarding: {enabled: true}", func(g *Gluetun) any { return g.PortForwarding }, true},
		"ForwardingOff": {"Any provider can go without.", "provider: mullvad, portForwarding: {enabled: false}", func(g *Gluetun) any { return g.PortForwarding }, false},
		"ForwardingCustom": {
			"A server of the user's own can be one of theirs.",
			"provider: custom, " + testEndpoint + ", portForwarding: {enabled: true}, env: [{name: VPN_PORT_FORWARDING_PROVIDER, value: protonvpn}]",
			func(g *Gluetun) any { return g.PortForwarding }, true,
		},
		"Env":        {"What is not computed is the user's.", "env: [{name: DNS_UPSTREAM_RESOLVER_TYPE, value: doh}]", func(g *Gluetun) any { return g.Env }, []v1alpha1.EnvVar{{Name: "DNS_UPSTREAM_RESOLVER_TYPE", Value: "doh"}}},
		"EnvOpenVPN": {"Settings of OpenVPN go with OpenVPN.", "type: openvpn, env: [{name: OPENVPN_PROTOCOL, value: tcp}]", func(g *Gluetun) any { return g.Env }, []v1alpha1.EnvVar{{Name: "OPENVPN_PROTOCOL", Value: "tcp"}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := accepted(t, withGluetun(tc.settings))
			if diff := cmp.Diff(tc.want, tc.check(g.Gluetun), netTypes); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestNeededCredentials(t *testing.T) {
	const key, addresses, preshared, user, password = "wireguard-private-key", "wireguard-addresses", "wireguard-preshared-key", "openvpn-user", "openvpn-password"
	withConfig := func(path string) string {
		return fmt.Sprintf("provider: custom, type: openvpn, endpoint: {ip: 198.51.100.10, port: 1194}, env: [{name: OPENVPN_CUSTOM_CONFIG, value: %s}]", path)
	}
	cases := map[string]struct {
		reason   string
		settings string
		want     []string
	}{
		"NordVPN":    {"All customers have one address inside the tunnel.", "provider: nordvpn", []string{key}},
		"ProtonVPN":  {"All customers have one address inside the tunnel.", "provider: protonvpn", []string{key}},
		"AirVPN":     {"Each customer has an address, and a second key.", "provider: airvpn", []string{key, addresses, preshared}},
		"FastestVPN": {"Each customer has an address.", "provider: fastestvpn", []string{key, addresses}},
		"IVPN":       {"Each customer has an address.", "provider: ivpn", []string{key, addresses}},
		"Mullvad":    {"Each customer has an address.", "provider: mullvad", []string{key, addresses}},
		"Surfshark":  {"Each customer has an address.", "provider: surfshark", []string{key, addresses}},
		"Windscribe": {"Each customer has an address.", "provider: windscribe", []string{key, addresses}},
		"OwnServer":  {"gluetun knows nothing of it.", "provider: custom, " + testEndpoint, []string{key, addresses}},
		"Unknown":    {"A newer gluetun may know the address.", "provider: newvpn, image: example.com/gluetun:v4", []string{key}},

		"OpenVPN":          {"OpenVPN has a user with a password.", "type: openvpn", []string{user, password}},
		"OpenVPNAccount":   {"The number of an account needs no password.", "provider: ivpn, type: openvpn", []string{user}},
		"OpenVPNMullvad":   {"gluetun knows the password, which is everybody's.", "provider: mullvad, type: openvpn", []string{user}},
		"OpenVPNAirVPN":    {"A certificate stands for both.", "provider: airvpn, type: openvpn", nil},
		"OpenVPNSecure":    {"A certificate stands for both.", "provider: vpnsecure, type: openvpn", nil},
		"OpenVPNConfig":    {"Whether a server of the user's own asks for a user is not known.", withConfig("/run/secrets/gluetun/custom.ovpn"), []string{"custom.ovpn"}},
		"OpenVPNElsewhere": {"A configuration that is not the Secret's is not missing there.", withConfig("/tmp/gluetun/custom.ovpn"), nil},
		"OpenVPNBelow":     {"Secrets have no folders.", withConfig("/run/secrets/gluetun/../custom.ovpn"), nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, accepted(t, withGluetun(tc.settings)).Gluetun.NeededCredentials()); diff != "" {
				t.Errorf("%s: -want, +got:\n%s", tc.reason, diff)
			}
		})
	}
}

func TestGluetunRefused(t *testing.T) {
	const host = `{ip: vpn.example.com, port: 51821, publicKey: "QY28S6n0ZP/puq3/9BAOJlzx3Q8dGZzn5iVmy4pEln0="}`
	testRefusals(t, map[string]refusal{
		"HostNetwork": {"gluetun's firewall would take over the node.", withGluetun("") + "\npod: {hostNetwork: true}", []string{"spec.pod.hostNetwork: Forbidden: cannot go together with gluetun"}},
		"DNSPort":     {"gluetun's resolver has it.", withGluetun("") + "\nlistenPort: 53", []string{"spec.listenPort: Invalid value: 53: is the port of gluetun's resolver"}},
		"Provider":    {"gluetun's names are in lower case.", withGluetun("provider: ProtonVPN"), []string{`spec.gluetun.provider: Invalid value: "ProtonVPN"`}},
		"Type":        {"gluetun has two that are supported.", withGluetun("type: ipsec"), []string{"spec.gluetun.type"}},

		"HostName":      {"gluetun resolves nothing before its tunnel is up.", withGluetun("provider: custom, endpoint: " + host), []string{`spec.gluetun.endpoint.ip: Invalid value: "vpn.example.com": is no address`}},
		"NoEndpoint":    {"A server of the user's own has to be named.", withGluetun("provider: custom"), []string{"spec.gluetun.endpoint: Required value"}},
		"OtherEndpoint": {"A known provider has servers of its own.", withGluetun(testEndpoint), []string{`spec.gluetun.endpoint: Forbidden: is for provider custom, not for "protonvpn"`}},
		"NoPublicKey":   {"A WireGuard server is known by its key.", withGluetun("provider: custom, endpoint: {ip: 198.51.100.10, port: 51821}"), []string{"spec.gluetun.endpoint.publicKey: Required value"}},
		"BadPublicKey":  {"A key is 32 bytes.", withGluetun("provider: custom, endpoint: {ip: 198.51.100.10, port: 51821, publicKey: short}"), []string{"spec.gluetun.endpoint.publicKey: Invalid value"}},
		"OpenVPNKey":    {"OpenVPN has no such key.", withGluetun("provider: custom, type: openvpn, env: [{name: OPENVPN_CUSTOM_CONFIG, value: /a}], " + testEndpoint), []string{"spec.gluetun.endpoint.publicKey: Forbidden: is for type wireguard"}},
		"OpenVPNConfig": {"gluetun takes the rest from a file.", withGluetun("provider: custom, type: openvpn, endpoint: {ip: 198.51.100.10, port: 1194}"), []string{"spec.gluetun.env: Required value: provider custom of type openvpn needs OPENVPN_CUSTOM_CONFIG"}},
		"OpenVPNEmpty":  {"gluetun takes an empty setting for none.", withGluetun("provider: custom, type: openvpn, endpoint: {ip: 198.51.100.10, port: 1194}, env: [{name: OPENVPN_CUSTOM_CONFIG}]"), []string{"spec.gluetun.env: Required value: provider custom of type openvpn needs OPENVPN_CUSTOM_CONFIG"}},
		"EndpointPort":  {"A server has a port.", withGluetun("provider: custom, " + strings.Replace(testEndpoint, "51821", "0", 1)), []string{"spec.gluetun.endpoint.port"}},

		"Forwarding":       {"This provider forwards none.", withGluetun("provider: mullvad, portForwarding: {enabled: true}"), []string{`spec.gluetun.portForwarding: Forbidden: does not work with provider "mullvad": use protonvpn, or perfect privacy, private internet access or privatevpn with type openvpn, or custom with one of these as VPN_PORT_FORWARDING_PROVIDER in env, or leave it out`}},
		"ForwardingCustom": {"gluetun has to know how to ask.", withGluetun("provider: custom, " + testEndpoint + ", portForwarding: {enabled: true}"), []string{`does not work with provider "custom"`}},

		"EnvOpenVPN":   {"It would do nothing.", withGluetun("env: [{name: OPENVPN_PROTOCOL, value: tcp}]"), []string{"spec.gluetun.env[0].name: Forbidden: OPENVPN_PROTOCOL says nothing to a VPN of type wireguard"}},
		"EnvWireGuard": {"Nor would the reverse.", withGluetun("type: openvpn, env: [{name: WIREGUARD_PERSISTENT_KEEPALIVE_INTERVAL, value: 25s}]"), []string{"spec.gluetun.env[0].name: Forbidden: WIREGUARD_PERSISTENT_KEEPALIVE_INTERVAL says nothing to a VPN of type openvpn"}},
		"EnvTwice":     {"One of them would win by chance.", withGluetun("env: [{name: TZ, value: UTC}, {name: TZ, value: CET}]"), []string{`spec.gluetun.env[1].name: Duplicate value: "TZ"`}},
		"EnvLower":     {"gluetun's settings are in capitals.", withGluetun("env: [{name: tz, value: UTC}]"), []string{`spec.gluetun.env[0].name: Invalid value: "tz"`}},

		"Everything":  {"Nothing would go through the tunnel.", withGluetun("outboundSubnets: [0.0.0.0/0]"), []string{`spec.gluetun.outboundSubnets[0]: Invalid value: "0.0.0.0/0": is everything`}},
		"Everything6": {"Nor of IPv6.", withGluetun(`outboundSubnets: ["::/0"]`), []string{`spec.gluetun.outboundSubnets[0]: Invalid value: "::/0": is everything`}},
		"HostBits":    {"Networks are canonical.", withGluetun("outboundSubnets: [192.168.50.1/24]"), []string{"spec.gluetun.outboundSubnets[0]: Invalid value"}},

		"TwoCountries": {"gluetun parts lists at commas.", withGluetun(`servers: {countries: ["Switzerland,Iceland"]}`), []string{"spec.gluetun.servers.countries[0]: Invalid value"}},
		"LineBreak":    {"Nothing that breaks a line gets through.", withGluetun(`servers: {names: ["a\nb"]}`), []string{"spec.gluetun.servers.names[0]: Invalid value"}},
	})
}

// gluetun ends at once where it has no WireGuard of a provider. Which it has is
// known of the one that comes with the function.
func TestProvidersWithoutWireGuard(t *testing.T) {
	const says = `spec.gluetun.provider: Invalid value: "%s": has no WireGuard in ghcr.io/qdm12/gluetun:v3.41.1: set type to openvpn, use airvpn, custom, fastestvpn, ivpn, mullvad, nordvpn, protonvpn, surfshark or windscribe, or set image to a gluetun that has it`
	for _, provider := range []string{"cyberghost", "perfect privacy", "pia", "private internet access", "privatevpn", "protonvnp"} {
		_, errs := parse(t, withGluetun("provider: "+provider))
		checkErrors(t, provider, []string{fmt.Sprintf(says, provider)}, errs)
		accepted(t, withGluetun("type: openvpn, provider: "+provider))
	}
	const digest = "@sha256:3f0ad7a1b2c4e5d60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e"
	cases := map[string]struct {
		reason          string
		platform, image string
		refused         bool
	}{
		"Tag":         {"It is ours.", "ghcr.io/qdm12/gluetun:v3.41.1", "", true},
		"Digest":      {"Releases name ours by its digest.", "ghcr.io/qdm12/gluetun" + digest, "", true},
		"Both":        {"The tag says which.", "ghcr.io/qdm12/gluetun:v3.41.1" + digest, "", true},
		"Newer":       {"It may have more.", "ghcr.io/qdm12/gluetun:v3.42.0" + digest, "", false},
		"Latest":      {"It may have more.", "ghcr.io/qdm12/gluetun", "", false},
		"Mirror":      {"Nothing is known of it.", "example.com/gluetun:v3.41.1", "", false},
		"UsersNewer":  {"It may have more.", "", "ghcr.io/qdm12/gluetun:v3.42.0", false},
		"UsersDigest": {"It may be newer than ours.", "", "ghcr.io/qdm12/gluetun" + digest, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			platform, errs := ParsePlatform(v1beta1.InputSpec{Images: v1beta1.Images{Gluetun: tc.platform}})
			if len(errs) > 0 {
				t.Fatal(errs)
			}
			s := fromYAML[v1alpha1.WireguardGatewaySpec](t, withGluetun(fmt.Sprintf("provider: privatevpn, image: %q", tc.image)))
			if _, errs = Parse("home", "vpn", s, &v1alpha1.WireguardGatewayStatus{}, platform); len(errs) > 0 != tc.refused {
				t.Errorf("%s Want it refused: %t, got %v", tc.reason, tc.refused, errs)
			}
		})
	}
}

// Users' containers find the forwarded port in gluetun's volume, and nothing
// else that is gluetun's.
func TestGluetunVolumes(t *testing.T) {
	const mounts = "extraContainers: [{name: a, image: i, volumeMounts: [{name: %s, mountPath: /a}]}]"
	g := accepted(t, withGluetun("portForwarding: {enabled: true}")+"\n"+fmt.Sprintf(mounts, "gluetun-status"))
	if got := g.Pod.ExtraContainers[0].VolumeMounts[0].Name; got != "gluetun-status" {
		t.Errorf("the container mounts %q", got)
	}
	_, errs := parse(t, fmt.Sprintf(mounts, "gluetun-status"))
	checkErrors(t, "Without gluetun there is none.",
		[]string{`spec.extraContainers[0].volumeMounts[0].name: Invalid value: "gluetun-status": is no volume in spec.volumes`}, errs)
	for _, name := range []string{"gluetun-credentials", "gluetun-rules", "gluetun-data"} {
		_, errs := parse(t, withGluetun("")+"\n"+fmt.Sprintf(mounts, name))
		checkErrors(t, "What is gluetun's own is not for others to mount.",
			[]string{fmt.Sprintf(`spec.extraContainers[0].volumeMounts[0].name: Invalid value: "%s": is no volume in spec.volumes`, name)}, errs)
		_, errs = parse(t, withGluetun("")+fmt.Sprintf("\nvolumes: [{name: %s, emptyDir: {}}]", name))
		checkErrors(t, "A volume of the gateway's own has this name.",
			[]string{fmt.Sprintf(`spec.volumes[0].name: Invalid value: "%s": is the name of a volume of the gateway's own`, name)}, errs)
	}
}

// Whoever sets what is computed is told both names: its own and the field's.
func TestGluetunEnvComputed(t *testing.T) {
	for _, name := range slices.Sorted(maps.Keys(computed)) {
		_, errs := parse(t, withGluetun(fmt.Sprintf("%senv: [{name: %s, value: x}]", providerFor(computed[name], VPNTypeWireGuard), name)))
		checkErrors(t, name, []string{fmt.Sprintf("spec.gluetun.env[0].name: Forbidden: %s is set by %s: leave it out here", name, computed[name])}, errs)
	}
}

// providerFor is custom where a setting is computed for that only.
func providerFor(from, vpn string) string {
	if vpn == VPNTypeWireGuard && (from == endpointIP || from == endpointPort) {
		return "provider: custom, " + testEndpoint + ", "
	}
	return ""
}

// Of the servers of a provider that gluetun knows, users may choose.
func TestGluetunEnvOfServers(t *testing.T) {
	for _, settings := range []string{
		"provider: private internet access, type: openvpn, env: [{name: OPENVPN_ENDPOINT_PORT, value: '1197'}]",
		"provider: private internet access, type: openvpn, env: [{name: OPENVPN_PORT, value: '1197'}, {name: OPENVPN_TARGET_IP, value: 192.0.2.7}]",
		"provider: mullvad, env: [{name: WIREGUARD_ENDPOINT_PORT, value: '53'}]",
	} {
		accepted(t, withGluetun(settings))
	}
}

// gluetun prefers the old name of a setting to the new one, and a file to both.
func TestGluetunEnvOtherNames(t *testing.T) {
	for name, from := range map[string]string{
		"VPNSP":           "spec.gluetun.provider",
		"PORT_FORWARDING": "spec.gluetun.portForwarding",
		"PRIVATE_INTERNET_ACCESS_VPN_PORT_FORWARDING":             "spec.gluetun.portForwarding",
		"PORT_FORWARDING_STATUS_FILE":                             "the volume gluetun-status",
		"PRIVATE_INTERNET_ACCESS_VPN_PORT_FORWARDING_STATUS_FILE": "the volume gluetun-status",
		"COUNTRY":                  "spec.gluetun.servers.countries",
		"REGION":                   "spec.gluetun.servers.regions",
		"CITY":                     "spec.gluetun.servers.cities",
		"SERVER_HOSTNAME":          "spec.gluetun.servers.hostnames",
		"SERVER_NAME":              "spec.gluetun.servers.names",
		"OPENVPN_TARGET_IP":        "spec.gluetun.endpoint.ip",
		"PORT":                     "spec.gluetun.endpoint.port",
		"OPENVPN_PORT":             "spec.gluetun.endpoint.port",
		"WIREGUARD_PORT":           "spec.gluetun.endpoint.port",
		"WIREGUARD_ADDRESS":        "spec.gluetun.credentials",
		"USER":                     "spec.gluetun.credentials",
		"PASSWORD":                 "spec.gluetun.credentials",
		"EXTRA_SUBNETS":            "spec.gluetun.outboundSubnets",
		"CONTROL_SERVER_ADDRESS":   "the gateway's pod",
		"HTTP_CONTROL_SERVER_PORT": "the gateway's pod",
		"DOT":                      "spec.dns",
		"UID":                      "the gateway's pod",
		"GID":                      "the gateway's pod",

		"WIREGUARD_PRIVATE_KEY_SECRETFILE":           "spec.gluetun.credentials",
		"WIREGUARD_CONF_SECRETFILE":                  "spec.gluetun.credentials",
		"USER_SECRETFILE":                            "spec.gluetun.credentials",
		"PASSWORD_FILE":                              "spec.gluetun.credentials",
		"SERVER_COUNTRIES_SECRETFILE":                "spec.gluetun.servers.countries",
		"CITY_FILE":                                  "spec.gluetun.servers.cities",
		"VPN_PORT_FORWARDING_STATUS_FILE_SECRETFILE": "the volume gluetun-status",
		"FIREWALL_ENABLED_DISABLING_IT_SHOOTS_YOU_IN_YOUR_FOOT_SECRETFILE": "the gateway, which must not leak",
	} {
		for _, vpn := range []string{VPNTypeWireGuard, VPNTypeOpenVPN} {
			if vpn == VPNTypeOpenVPN && providerFor(from, VPNTypeWireGuard) != "" {
				continue
			}
			_, errs := parse(t, withGluetun(fmt.Sprintf("%stype: %s, env: [{name: %s, value: x}]", providerFor(from, vpn), vpn, name)))
			checkErrors(t, vpn+" "+name, []string{fmt.Sprintf("spec.gluetun.env[0].name: Forbidden: %s is set by %s: leave it out here", name, from)}, errs)
		}
	}
	accepted(t, withGluetun("env: [{name: PUBLICIP_FILE, value: /tmp/gluetun/ip}, {name: HTTPPROXY_USER_SECRETFILE, value: /run/secrets/gluetun/proxy-user}]"))
}

func TestOverlapsTunnel(t *testing.T) {
	cases := map[string]struct {
		reason   string
		settings string
		want     string // the subnet
	}{
		"Apart":   {"Small networks are no danger.", "outboundSubnets: [192.168.50.0/24]", ""},
		"Swallow": {"The provider's resolver would be looked for outside.", "outboundSubnets: [192.168.50.0/24, 10.0.0.0/9]", "10.0.0.0/9"},
		"Within":  {"So would it where the subnet is a part.", "outboundSubnets: [10.2.0.1/32]", "10.2.0.1/32"},
		"Unknown": {"Of this provider nothing is known.", "provider: ivpn, outboundSubnets: [10.0.0.0/9]", ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := ""
			if subnet, _, ok := accepted(t, withGluetun(tc.settings)).Gluetun.OverlapsTunnel(); ok {
				got = subnet.String()
			}
			if got != tc.want {
				t.Errorf("%s: got %q, want %q", tc.reason, got, tc.want)
			}
		})
	}
}
