package spec

import (
	"fmt"
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
)

// GatewayAPI is how the gateway attaches to a Gateway of the Gateway API.
type GatewayAPI struct {
	Hostname    string
	ParentRefs  []v1alpha1.ParentReference // of the HTTPRoute
	Annotations map[string]string
	// UDPRoute is nil where the direct configuration does not go through a
	// Gateway.
	UDPRoute *UDPRoute
}

// UDPRoute leads the direct configuration through a Gateway.
type UDPRoute struct {
	ParentRefs []v1alpha1.ParentReference
	Port       int
}

// Tunnel carries WireGuard over a WebSocket.
type Tunnel struct {
	PathPrefix string // empty: derived from the seed
	Image      string
	Resources  corev1.ResourceRequirements
}

// gatewayAPI reads the routes. A hostname is needed by each: it is what
// clients connect to.
func (p *parser) gatewayAPI(path *field.Path, g *Gateway) {
	in := deref(p.spec.Gateway, v1alpha1.Gateway{})
	g.GatewayAPI = GatewayAPI{
		Hostname:    in.Hostname,
		ParentRefs:  p.parentRefs(path.Child("parentRefs"), in.ParentRefs),
		Annotations: in.Annotations,
	}
	p.annotations(path.Child("annotations"), in.Annotations)
	if h := in.Hostname; h != "" && (checkDomain(h) != "" || strings.ToLower(h) != h) {
		p.refuse(path.Child("hostname"), h, "is no DNS name in lower case, which a route needs: write it without scheme, port and wildcard")
	}
	udp := in.UDPRoute
	if udp == nil {
		return
	}
	at := path.Child("udpRoute")
	p.port(at.Child("port"), udp.Port)
	refs := p.parentRefs(at.Child("parentRefs"), udp.ParentRefs)
	if !udp.Enabled {
		return
	}
	if len(refs) == 0 {
		p.errs = append(p.errs, field.Required(at.Child("parentRefs"), "name the UDP listener that the route attaches to"))
	}
	if in.Hostname == "" {
		p.errs = append(p.errs, field.Required(path.Child("hostname"), "gateway.udpRoute needs the name by which clients reach the Gateway"))
	}
	g.GatewayAPI.UDPRoute = &UDPRoute{ParentRefs: refs, Port: defaulted(int(udp.Port), v1alpha1.DefaultUDPRoutePort)}
}

func (p *parser) parentRefs(path *field.Path, refs []v1alpha1.ParentReference) []v1alpha1.ParentReference {
	for i, r := range refs {
		at := path.Index(i)
		if r.Group != nil && *r.Group != "" && len(validation.IsDNS1123Subdomain(*r.Group)) > 0 {
			p.refuse(at.Child("group"), *r.Group, "is no API group")
		}
		if len(validation.IsDNS1123Subdomain(r.Name)) > 0 {
			p.refuse(at.Child("name"), r.Name, "is no name of a Gateway")
		}
		if r.Namespace != "" && len(validation.IsDNS1123Label(r.Namespace)) > 0 {
			p.refuse(at.Child("namespace"), r.Namespace, "is no name of a namespace")
		}
		if r.SectionName != "" && len(validation.IsDNS1123Subdomain(r.SectionName)) > 0 {
			p.refuse(at.Child("sectionName"), r.SectionName, "is no name of a listener")
		}
		if r.Kind != "" && !parentKind.MatchString(r.Kind) {
			p.refuse(at.Child("kind"), r.Kind, "is no kind of a parent")
		}
		p.port(at.Child("port"), r.Port)
		for _, other := range refs[:i] {
			if sameParent(r, other) && (r.SectionName == "" || other.SectionName == "" || r.SectionName == other.SectionName) {
				p.errs = append(p.errs, field.Duplicate(at, r.Name))
				break
			}
		}
	}
	return refs
}

// parentKind is what the Gateway API takes for a kind.
var parentKind = regexp.MustCompile(`^[a-zA-Z]([-a-zA-Z0-9]{0,61}[a-zA-Z0-9])?$`)

// sameParent tells whether two references mean the same object. The Gateway API
// takes both only if each names a listener of its own.
func sameParent(a, b v1alpha1.ParentReference) bool {
	return a.Name == b.Name && a.Namespace == b.Namespace &&
		deref(a.Group, gatewayv1.GroupName) == deref(b.Group, gatewayv1.GroupName) &&
		defaulted(a.Kind, "Gateway") == defaulted(b.Kind, "Gateway")
}

func (p *parser) tunnel(path *field.Path, g *Gateway) {
	in := p.spec.Tunnel
	if in == nil {
		return
	}
	p.oneOf(path.Child("type"), defaulted(in.Type, v1alpha1.DefaultTunnelType), v1alpha1.DefaultTunnelType)
	if s := in.PathPrefix; s != "" && !isPathSegment(s) {
		p.refuse(path.Child("pathPrefix"), s, "is not one segment of a path: use letters, digits, dots, dashes, underscores and tildes, and no slash")
	}
	if len(g.GatewayAPI.ParentRefs) == 0 {
		p.errs = append(p.errs, field.Required(field.NewPath("spec", "gateway", "parentRefs"), "the tunnel needs a Gateway that terminates TLS: name it"))
	}
	if g.GatewayAPI.Hostname == "" {
		p.errs = append(p.errs, field.Required(field.NewPath("spec", "gateway", "hostname"), "the tunnel needs the name by which clients reach the Gateway"))
	}
	g.Tunnel = &Tunnel{
		PathPrefix: in.PathPrefix,
		Image:      defaulted(in.Image, g.Platform.Images.Wstunnel),
		Resources:  p.resources(path.Child("resources"), in.Resources),
	}
	p.image(path.Child("image"), g.Tunnel.Image)
	if g.ListenPort == TunnelPort {
		p.refuse(field.NewPath("spec", "listenPort"), g.ListenPort, fmt.Sprintf("is the port of the tunnel: use another than %d", TunnelPort))
	}
}

// TunnelPort is the TCP port in the pod on which the tunnel is served.
const TunnelPort = 8080

// maxPathSegment keeps the prefix within what proxies match and logs show.
const maxPathSegment = 63

// isPathSegment tells whether a prefix is one segment of a path, of characters that
// need no escapes (RFC 3986, section 2.3). One dot or two would be another folder.
func isPathSegment(s string) bool {
	if len(s) > maxPathSegment || s == "." || s == ".." {
		return false
	}
	for _, c := range s {
		if (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && !strings.ContainsRune("-._~", c) {
			return false
		}
	}
	return true
}
