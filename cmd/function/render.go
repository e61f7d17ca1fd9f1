package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/crossplane/function-sdk-go/errors"
	"github.com/crossplane/function-sdk-go/logging"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/wireguardgateway/function-wireguard-gateway/fn"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/offline"
)

// renderCommand runs the function in process.
type renderCommand struct {
	Composite string `arg:"" help:"YAML file of a WireguardGateway." name:"xr" type:"existingfile"`

	Observed    []string `help:"YAML file of composed objects that exist. May be repeated." placeholder:"FILE" short:"o" type:"existingfile"`
	Required    []string `help:"YAML file of other objects that exist, such as Secrets that the gateway refers to. May be repeated." placeholder:"FILE" short:"e" type:"existingfile"`
	Composition string   `help:"YAML file of a Composition, whose input has the platform's defaults." placeholder:"FILE" type:"existingfile"`
}

// Run prints the composite resource with its status, every composed object, and
// the results. It fails where Crossplane would apply nothing.
func (c *renderCommand) Run() error {
	req, err := c.request()
	if err != nil {
		return err
	}
	rsp, err := offline.Run(context.Background(), fn.New(logging.NewNopLogger()), req)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(os.Stdout)
	if err := printResponse(w, req.Composite, rsp); err != nil {
		return err
	}
	if err := w.Flush(); err != nil {
		return errors.Wrap(err, "cannot print")
	}
	for _, r := range rsp.GetResults() {
		if r.GetSeverity() == fnv1.Severity_SEVERITY_FATAL {
			return errors.New(r.GetMessage())
		}
	}
	return nil
}

func (c *renderCommand) request() (offline.Request, error) {
	req := offline.Request{}
	var err error
	if req.Composite, err = offline.ReadObject(c.Composite); err != nil {
		return req, err
	}
	if err := checkFields(req.Composite); err != nil {
		return req, errors.Wrapf(err, "cannot render %s", c.Composite)
	}
	if c.Composition != "" {
		composition, err := offline.ReadObject(c.Composition)
		if err != nil {
			return req, err
		}
		if req.Input, err = offline.InputOf(composition); err != nil {
			return req, err
		}
	}
	for _, f := range c.Observed {
		os, err := offline.ReadObjects(f)
		if err != nil {
			return req, err
		}
		req.Observed = append(req.Observed, os...)
	}
	// What is composed can be required too, as in a cluster.
	req.Required = slices.Clone(req.Observed)
	for _, f := range c.Required {
		os, err := offline.ReadObjects(f)
		if err != nil {
			return req, err
		}
		req.Required = append(req.Required, os...)
	}
	return req, nil
}

func printResponse(w io.Writer, composite *unstructured.Unstructured, rsp *fnv1.RunFunctionResponse) error {
	docs := []*unstructured.Unstructured{compositeWithStatus(composite, rsp)}
	docs = append(docs, offline.Composed(composite, rsp)...)
	docs = append(docs, results(rsp)...)
	for _, o := range docs {
		b, err := yaml.Marshal(o.Object)
		if err != nil {
			return errors.Wrapf(err, "cannot print %s %q", o.GetKind(), o.GetName())
		}
		if _, err := fmt.Fprintf(w, "---\n%s%s", b, plainConfigs(o)); err != nil {
			return errors.Wrap(err, "cannot print")
		}
	}
	return nil
}

// compositeWithStatus shows what the user would see of the gateway.
func compositeWithStatus(composite *unstructured.Unstructured, rsp *fnv1.RunFunctionResponse) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": composite.GetAPIVersion(),
		"kind":       composite.GetKind(),
	}}
	o.SetName(composite.GetName())
	if ns := composite.GetNamespace(); ns != "" {
		o.SetNamespace(ns)
	}
	status, _ := rsp.GetDesired().GetComposite().GetResource().AsMap()["status"].(map[string]any)
	if status == nil {
		status = map[string]any{}
	}
	var conditions []any
	for _, c := range rsp.GetConditions() {
		m := map[string]any{"type": c.GetType(), "status": conditionStatus(c.GetStatus()), "reason": c.GetReason()}
		if c.GetMessage() != "" {
			m["message"] = c.GetMessage()
		}
		conditions = append(conditions, m)
	}
	status["conditions"] = conditions
	o.Object["status"] = status
	return o
}

func conditionStatus(s fnv1.Status) string {
	switch s {
	case fnv1.Status_STATUS_CONDITION_TRUE:
		return "True"
	case fnv1.Status_STATUS_CONDITION_FALSE:
		return "False"
	default:
		return "Unknown"
	}
}

// results have the form that Crossplane's own render gives them.
func results(rsp *fnv1.RunFunctionResponse) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, r := range rsp.GetResults() {
		out = append(out, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "render.crossplane.io/v1beta1",
			"kind":       "Result",
			"severity":   r.GetSeverity().String(),
			"message":    r.GetMessage(),
		}})
	}
	return out
}

// plainConfigs shows a Secret's client configurations in the clear, as
// comments: nobody reads base64.
func plainConfigs(o *unstructured.Unstructured) string {
	if o.GetKind() != "Secret" {
		return ""
	}
	data, _, _ := unstructured.NestedStringMap(o.Object, "data")
	b := &strings.Builder{}
	for _, key := range slices.Sorted(maps.Keys(data)) {
		if !strings.HasSuffix(key, ".conf") {
			continue
		}
		conf, err := base64.StdEncoding.DecodeString(data[key])
		if err != nil {
			continue
		}
		fmt.Fprintf(b, "# %s:\n", key)
		for line := range strings.Lines(string(conf)) {
			b.WriteString(strings.TrimRight("#   "+line, " \n") + "\n")
		}
	}
	return b.String()
}
