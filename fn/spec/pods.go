package spec

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// Pods is a class of pods that join a gateway by a label.
type Pods struct {
	BypassCIDRs    []netip.Prefix // none: the cluster's own
	Implementation string
	Image          string // empty: the platform's
	Resources      corev1.ResourceRequirements
	NetworkPolicy  string // Kubernetes, Cilium or None
	AllowEgress    []networkingv1.NetworkPolicyEgressRule
}

func (p *parser) pods(path *field.Path, in *v1alpha1.Pods, platform Platform) *Pods {
	out := &Pods{
		BypassCIDRs:    p.cidrs(path.Child("bypassCIDRs"), in.BypassCIDRs),
		Implementation: defaulted(in.Implementation, v1alpha1.DefaultImplementation),
		Image:          in.Image,
		Resources:      p.resources(path.Child("resources"), in.Resources),
		NetworkPolicy:  v1alpha1.DefaultPodsNetworkPolicy,
	}
	for i, s := range in.BypassCIDRs {
		if n, message := parseCIDR(s); message == "" && n.Bits() == 0 {
			p.refuse(path.Child("bypassCIDRs").Index(i), s, "is everything, which would leave nothing for the tunnel: name the networks of the cluster")
		}
	}
	p.oneOf(path.Child("implementation"), out.Implementation, wireguard.ImplementationAuto, wireguard.ImplementationKernel, wireguard.ImplementationUserspace)
	p.image(path.Child("image"), in.Image)
	p.sidecarResources(path.Child("resources"), out.Resources)
	if in.NetworkPolicy != nil {
		out.NetworkPolicy = defaulted(in.NetworkPolicy.Type, out.NetworkPolicy)
	}
	p.oneOf(path.Child("networkPolicy", "type"), out.NetworkPolicy,
		v1alpha1.PodsNetworkPolicyAuto, v1alpha1.PodsNetworkPolicyKubernetes, v1alpha1.PodsNetworkPolicyCilium, v1alpha1.PodsNetworkPolicyNone)
	if out.NetworkPolicy == v1alpha1.PodsNetworkPolicyAuto {
		out.NetworkPolicy = v1alpha1.PodsNetworkPolicyKubernetes
		if platform.Cilium {
			out.NetworkPolicy = v1alpha1.PodsNetworkPolicyCilium
		}
	}
	out.AllowEgress = p.egress(path.Child("allowEgress"), in.AllowEgress)
	return out
}

// sidecarResources refuses what the API server would refuse in every pod that
// gets the sidecar: there, others would get the error.
func (p *parser) sidecarResources(path *field.Path, r corev1.ResourceRequirements) {
	p.sidecarAmounts(path.Child("requests"), r.Requests)
	p.sidecarAmounts(path.Child("limits"), r.Limits)
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		request, limit := r.Requests[name], r.Limits[name]
		_, limited := r.Limits[name]
		switch at := path.Child("requests").Key(string(name)); {
		case limited && request.Cmp(limit) > 0:
			p.refuse(at, request.String(), "is more than its limit of "+limit.String()+": raise the limit, or ask for less")
		case overcommitted(string(name)):
		case !limited || request.Cmp(limit) != 0:
			p.refuse(at, request.String(), "must be the same as its limit, since this resource cannot be shared: set both")
		}
	}
}

// sidecarAmounts refuses resources by their names and amounts.
func (p *parser) sidecarAmounts(path *field.Path, list corev1.ResourceList) {
	_, cpu := list[corev1.ResourceCPU]
	_, memory := list[corev1.ResourceMemory]
	for _, name := range slices.Sorted(maps.Keys(list)) {
		at, quantity := path.Key(string(name)), list[name]
		switch whole := quantity.MilliValue()%1000 == 0; {
		case !resourceName(string(name)):
			p.errs = append(p.errs, field.Forbidden(at, "is no resource of a container: use cpu, memory, ephemeral-storage, hugepages-<size>, or one with a domain, such as example.com/tun"))
		case quantity.Sign() < 0:
			p.refuse(at, quantity.String(), "is negative")
		case !whole && !overcommitted(string(name)):
			p.refuse(at, quantity.String(), "is no whole number, and this resource cannot be shared")
		case strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix) && !cpu && !memory:
			p.errs = append(p.errs, field.Forbidden(at, "goes together with cpu or memory only: set one of them too"))
		}
	}
}

// resourceName tells whether a container can ask for a resource of this name.
func resourceName(name string) bool {
	if !strings.Contains(name, "/") {
		return overcommitted(name) || strings.HasPrefix(name, corev1.ResourceHugePagesPrefix)
	}
	return len(validation.IsQualifiedName(name)) == 0 && !strings.HasPrefix(name, corev1.DefaultResourceRequestsPrefix)
}

// overcommitted tells whether a node may promise more of a resource than it has.
func overcommitted(name string) bool {
	switch corev1.ResourceName(name) {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		return true
	default:
		return false
	}
}
