package spec

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/names"
)

// Pod is what the user adds to the gateway's pod.
type Pod struct {
	Labels                        map[string]string
	Annotations                   map[string]string
	NodeSelector                  map[string]string
	Tolerations                   []corev1.Toleration
	Affinity                      *corev1.Affinity
	TopologySpreadConstraints     []corev1.TopologySpreadConstraint
	PriorityClassName             string
	ImagePullSecrets              []corev1.LocalObjectReference
	HostNetwork                   bool
	TerminationGracePeriodSeconds int64

	InitContainers  []corev1.Container
	ExtraContainers []corev1.Container
	Volumes         []corev1.Volume
	Resources       corev1.ResourceRequirements // of the agent
}

func (p *parser) pod(root *field.Path, g *Gateway) {
	in := deref(p.spec.Pod, v1alpha1.Pod{})
	path := root.Child("pod")
	g.Pod = Pod{
		Labels:                        in.Labels,
		Annotations:                   in.Annotations,
		NodeSelector:                  in.NodeSelector,
		PriorityClassName:             in.PriorityClassName,
		HostNetwork:                   in.HostNetwork,
		TerminationGracePeriodSeconds: deref(in.TerminationGracePeriodSeconds, v1alpha1.DefaultTerminationGracePeriodSeconds),
	}
	p.labels(path.Child("labels"), in.Labels)
	p.ownLabels(path.Child("labels"), in.Labels)
	p.annotations(path.Child("annotations"), in.Annotations)
	p.labels(path.Child("nodeSelector"), in.NodeSelector)
	for i, o := range in.Tolerations {
		t := corev1.Toleration{}
		p.strict(path.Child("tolerations").Index(i), o.Raw, &t)
		g.Pod.Tolerations = append(g.Pod.Tolerations, t)
	}
	if in.Affinity != nil {
		g.Pod.Affinity = &corev1.Affinity{}
		p.strict(path.Child("affinity"), in.Affinity.Raw, g.Pod.Affinity)
	}
	for i, o := range in.TopologySpreadConstraints {
		c := corev1.TopologySpreadConstraint{}
		p.strict(path.Child("topologySpreadConstraints").Index(i), o.Raw, &c)
		g.Pod.TopologySpreadConstraints = append(g.Pod.TopologySpreadConstraints, c)
	}
	if s := in.PriorityClassName; s != "" && len(validation.IsDNS1123Subdomain(s)) > 0 {
		p.refuse(path.Child("priorityClassName"), s, "is no name of a PriorityClass")
	}
	for i, s := range in.ImagePullSecrets {
		if len(validation.IsDNS1123Subdomain(s.Name)) > 0 {
			p.refuse(path.Child("imagePullSecrets").Index(i).Child("name"), s.Name, "is no name of a Secret")
		}
		g.Pod.ImagePullSecrets = append(g.Pod.ImagePullSecrets, corev1.LocalObjectReference{Name: s.Name})
	}
	p.between(path.Child("terminationGracePeriodSeconds"), int(g.Pod.TerminationGracePeriodSeconds), 0, 3600)
	if in.HostNetwork && g.IPForwarding == v1alpha1.IPForwardingPodSysctl {
		p.errs = append(p.errs, field.Forbidden(root.Child("ipForwarding"),
			"PodSysctl cannot go together with pod.hostNetwork, since the kubelet sets no sysctls of the node: use InitContainer, or None and set them on the node"))
	}
	g.Pod.Resources = p.resources(root.Child("resources"), p.spec.Resources)
	p.containers(root, g)
}

// Prefixes of labels and annotations that are not the user's to set.
const (
	prefixOwn        = "wireguardgateway.io/"
	prefixCrossplane = "crossplane.io/"
)

// ownLabels refuses labels of ours, since selectors depend on them, and of
// Crossplane's.
func (p *parser) ownLabels(path *field.Path, labels map[string]string) {
	for _, k := range sortedKeys(labels) {
		switch {
		case k == names.LabelName, k == names.LabelInstance, strings.HasPrefix(k, prefixOwn):
			p.errs = append(p.errs, field.Forbidden(path.Key(k), "is set by the gateway itself: leave it out"))
		case strings.HasPrefix(k, prefixCrossplane):
			p.errs = append(p.errs, field.Forbidden(path.Key(k), "is for Crossplane to set: leave it out"))
		}
	}
}

func (p *parser) resources(path *field.Path, raw *runtime.RawExtension) corev1.ResourceRequirements {
	r := corev1.ResourceRequirements{}
	if raw != nil {
		p.strict(path, raw.Raw, &r)
	}
	p.noClaims(path, r)
	return r
}

// noClaims refuses claims of a pod's own: the gateway's pod has none, and the
// sidecar comes into pods of all kinds.
func (p *parser) noClaims(path *field.Path, r corev1.ResourceRequirements) {
	if len(r.Claims) > 0 {
		p.errs = append(p.errs, field.Forbidden(path.Child("claims"), "name claims of the pod, which are not made here: leave them out"))
	}
}

// strict decodes a Kubernetes object and refuses fields that Kubernetes does
// not know: the API server would drop them without a word.
func (p *parser) strict(path *field.Path, raw []byte, into any) {
	if len(raw) == 0 {
		return
	}
	unknown, err := kjson.UnmarshalStrict(raw, into)
	if err != nil {
		p.errs = append(p.errs, field.Invalid(path, field.OmitValueType{}, "cannot be read: "+err.Error()))
		return
	}
	for _, u := range unknown {
		p.errs = append(p.errs, field.Invalid(path, field.OmitValueType{}, u.Error()+": check its spelling and place"))
	}
}
