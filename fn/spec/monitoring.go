package spec

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/wireguardgateway/function-wireguard-gateway/api/v1alpha1"
)

// PodMonitor tells the Prometheus operator to collect the gateway's metrics.
type PodMonitor struct {
	Labels   map[string]string
	Interval string
}

// interval is a duration in the form of the Prometheus operator: each unit
// once, the largest first.
var interval = regexp.MustCompile(`^([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$`)

func (p *parser) podMonitor(path *field.Path, g *Gateway) {
	in := deref(deref(p.spec.Monitoring, v1alpha1.Monitoring{}).PodMonitor, v1alpha1.PodMonitor{})
	path = path.Child("podMonitor")
	out := PodMonitor{Labels: in.Labels, Interval: defaulted(in.Interval, v1alpha1.DefaultPodMonitorInterval)}
	p.labels(path.Child("labels"), in.Labels)
	p.ownLabels(path.Child("labels"), in.Labels)
	if !interval.MatchString(out.Interval) || !strings.ContainsAny(out.Interval, "123456789") {
		p.refuse(path.Child("interval"), out.Interval, "is no duration: write one such as 30s or 1m30s")
	}
	if in.Enabled {
		g.PodMonitor = &out
	}
}
