// Package status publishes the agent's report in the gateway's status
// ConfigMap.
package status

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/kube"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

const (
	requestTimeout = 10 * time.Second

	// settle is how long a report has to stand before it is written, so that
	// what comes and goes within one start is one write.
	settle = 250 * time.Millisecond

	// countInterval is how often a report is written that differs in the number
	// of pods only: each write costs the gateway a reconcile.
	countInterval = 10 * time.Second

	minRetry, maxRetry = time.Second, time.Minute
)

// Publisher writes reports.
type Publisher struct {
	client rest.Interface
	name   kube.Name
	log    *slog.Logger
	latest chan wireguard.Report
}

// New returns a publisher for the named ConfigMap. It does nothing until Run.
func New(client rest.Interface, name kube.Name, log *slog.Logger) *Publisher {
	return &Publisher{client: client, name: name, log: log, latest: make(chan wireguard.Report, 1)}
}

// Publish hands over a report. It never waits: a report that was not written
// yet is dropped for it.
func (p *Publisher) Publish(r wireguard.Report) {
	select {
	case <-p.latest:
	default:
	}
	p.latest <- r
}

// Run writes each report that differs from the one before, and the last one
// again whenever the ConfigMap is found without it. It ends with the context.
// The ConfigMap itself is composed by others: where there is none, it waits.
func (p *Publisher) Run(ctx context.Context) {
	events := make(chan kube.Event)
	go kube.Watch(ctx, p.client, "configmaps", p.name, func(e kube.Event) {
		select {
		case events <- e:
		case <-ctx.Done():
		}
	})
	w := &writer{Publisher: p, due: time.NewTimer(time.Hour), retry: minRetry}
	w.due.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case r := <-p.latest:
			w.want(r)
		case e := <-events:
			w.see(e)
		case <-w.due.C:
			w.write(ctx)
		}
	}
}

// writer is what Run knows between events.
type writer struct {
	*Publisher
	due   *time.Timer
	retry time.Duration

	pending bool // due is set
	report  *wireguard.Report
	wrote   time.Time // when the last write was
	present bool      // the ConfigMap is there
	data    string    // report.json in it, as far as known
	failed  string
}

func (w *writer) want(r wireguard.Report) {
	if w.report != nil && reflect.DeepEqual(*w.report, r) {
		return
	}
	w.report = &r
	w.schedule()
}

// schedule sees to it that the report is written when it should.
func (w *writer) schedule() {
	at := time.Now().Add(settle)
	if old, err := wireguard.DecodeReport([]byte(w.data)); err == nil && countOnly(old, *w.report) {
		if w.pending {
			return
		}
		if next := w.wrote.Add(countInterval); next.After(at) {
			at = next
		}
	}
	w.pending = true
	w.due.Reset(time.Until(at))
}

// countOnly tells whether two reports differ in the number of pods only.
func countOnly(a, b wireguard.Report) bool {
	a.Version, a.InjectedPods = b.Version, b.InjectedPods
	return reflect.DeepEqual(a, b)
}

func (w *writer) see(e kube.Event) {
	if e.Err != nil {
		return
	}
	m, ok := e.Object.(*corev1.ConfigMap)
	w.present = ok
	if !ok {
		return
	}
	w.data = m.Data[wireguard.ReportKey]
	if w.report != nil && w.data != w.encoded() {
		w.schedule()
	}
}

func (w *writer) encoded() string {
	b, err := w.report.Encode()
	if err != nil {
		return ""
	}
	return string(b)
}

func (w *writer) write(ctx context.Context) {
	w.pending = false
	data := w.encoded()
	if !w.present || data == w.data {
		return
	}
	if err := w.apply(ctx, data); err != nil {
		if w.failed != err.Error() && ctx.Err() == nil {
			w.failed = err.Error()
			w.log.Warn("cannot publish report", "error", err)
		}
		w.pending = true
		w.due.Reset(w.retry)
		w.retry = min(2*w.retry, maxRetry)
		return
	}
	w.data, w.wrote, w.failed, w.retry = data, time.Now(), "", minRetry
}

// apply sends the data by server-side apply, so that whoever owns the rest of
// the ConfigMap never meets ours.
func (w *writer) apply(ctx context.Context, data string) error {
	body, err := json.Marshal(map[string]any{
		"apiVersion": "v1",
		"kind":       "ConfigMap",
		"metadata":   map[string]any{"namespace": w.name.Namespace, "name": w.name.Name},
		"data":       map[string]string{wireguard.ReportKey: data},
	})
	if err != nil {
		return fmt.Errorf("cannot encode ConfigMap: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	force := true
	err = w.client.Patch(types.ApplyPatchType).
		Namespace(w.name.Namespace).Resource("configmaps").Name(w.name.Name).
		VersionedParams(&metav1.PatchOptions{FieldManager: wireguard.ReportFieldManager, Force: &force}, metav1.ParameterCodec).
		Body(body).Do(ctx).Error()
	if err != nil {
		return fmt.Errorf("cannot apply ConfigMap %s: %w", w.name, err)
	}
	return nil
}
