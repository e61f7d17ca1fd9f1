package spec

import (
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/wireguardgateway/function-wireguard-gateway/input/v1beta1"
)

// Images of the gateway's pod where the input names none.
const (
	DefaultAgentImage    = "ghcr.io/wireguardgateway/agent:v0.1.0"
	DefaultGluetunImage  = "ghcr.io/qdm12/gluetun:v3.41.1"
	DefaultWstunnelImage = "ghcr.io/erebe/wstunnel:v10.6.2"
)

// Platform is the function's input that was read and found valid.
type Platform struct {
	Images        v1beta1.Images
	PullPolicy    string
	ClusterDomain string
	PodCIDRs      []netip.Prefix
	ServiceCIDRs  []netip.Prefix
	NodeCIDRs     []netip.Prefix
	ClusterDNS    netip.Addr // invalid where unset
	Cilium        bool
	TTL           time.Duration
}

// ClusterCIDRs are the networks of pods, Services and nodes, without doubles.
func (p Platform) ClusterCIDRs() []netip.Prefix {
	return Distinct(p.PodCIDRs, p.ServiceCIDRs, p.NodeCIDRs)
}

// ParsePlatform reads the function's input.
func ParsePlatform(in v1beta1.InputSpec) (Platform, field.ErrorList) {
	p := &parser{}
	root := field.NewPath("input", "spec")
	out := Platform{
		Images: v1beta1.Images{
			Agent:    defaulted(in.Images.Agent, DefaultAgentImage),
			Gluetun:  defaulted(in.Images.Gluetun, DefaultGluetunImage),
			Wstunnel: defaulted(in.Images.Wstunnel, DefaultWstunnelImage),
		},
		PullPolicy:    defaulted(in.ImagePullPolicy, v1beta1.DefaultImagePullPolicy),
		ClusterDomain: defaulted(in.ClusterDomain, v1beta1.DefaultClusterDomain),
		PodCIDRs:      p.cidrs(root.Child("podCIDRs"), in.PodCIDRs),
		ServiceCIDRs:  p.cidrs(root.Child("serviceCIDRs"), in.ServiceCIDRs),
		NodeCIDRs:     p.cidrs(root.Child("nodeCIDRs"), in.NodeCIDRs),
		Cilium:        in.Cilium,
		TTL:           v1beta1.DefaultTTL,
	}
	p.image(root.Child("images", "agent"), out.Images.Agent)
	p.image(root.Child("images", "gluetun"), out.Images.Gluetun)
	p.image(root.Child("images", "wstunnel"), out.Images.Wstunnel)
	p.oneOf(root.Child("imagePullPolicy"), out.PullPolicy, "Always", "IfNotPresent", "Never")
	if message := checkDomain(out.ClusterDomain); message != "" {
		p.refuse(root.Child("clusterDomain"), out.ClusterDomain, message)
	}
	if in.ClusterDNS != "" {
		out.ClusterDNS, _ = p.address(root.Child("clusterDNS"), in.ClusterDNS, in.ClusterDNS)
	}
	if in.TTL != nil {
		out.TTL = in.TTL.Duration
		if out.TTL <= 0 {
			p.refuse(root.Child("ttl"), in.TTL.Duration.String(), "is not positive: use a duration such as 1m")
		}
	}
	return out, p.errs
}
