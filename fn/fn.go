// Package fn is the control plane: a Crossplane composition function that turns
// a WireguardGateway into the objects of a running gateway, and a WireguardPeer
// into what its client needs. It is a pure mapping from what is observed to what
// is desired; Crossplane applies, heals and collects.
package fn

import (
	"context"
	"crypto/rand"
	"io"
	"runtime/debug"
	"slices"
	"time"

	"github.com/crossplane/function-sdk-go/errors"
	"github.com/crossplane/function-sdk-go/logging"
	fnv1 "github.com/crossplane/function-sdk-go/proto/v1"
	"github.com/crossplane/function-sdk-go/response"
	"google.golang.org/protobuf/proto"

	"github.com/wireguardgateway/function-wireguard-gateway/fn/plan"
	"github.com/wireguardgateway/function-wireguard-gateway/fn/render"
	"github.com/wireguardgateway/function-wireguard-gateway/input/v1beta1"
)

// Function composes WireguardGateways and WireguardPeers.
type Function struct {
	fnv1.UnimplementedFunctionRunnerServiceServer

	log    logging.Logger
	now    func() time.Time
	random io.Reader
}

// Option changes how a Function works.
type Option func(*Function)

// WithClock sets the clock by which peers expire.
func WithClock(now func() time.Time) Option {
	return func(f *Function) { f.now = now }
}

// WithRandom sets the source of new seeds.
func WithRandom(r io.Reader) Option {
	return func(f *Function) { f.random = r }
}

// New returns a function that logs to the given logger.
func New(log logging.Logger, opts ...Option) *Function {
	f := &Function{log: log, now: time.Now, random: rand.Reader}
	for _, o := range opts {
		o(f)
	}
	return f
}

// RunFunction composes one gateway, or one WireguardPeer: the kind tells which.
// The response is the full desired set, or only what the function requires to
// know, or Fatal: then Crossplane changes nothing, and what runs keeps running.
// It never returns a Go error.
func (f *Function) RunFunction(_ context.Context, req *fnv1.RunFunctionRequest) (*fnv1.RunFunctionResponse, error) {
	rsp := response.To(req, v1beta1.DefaultTTL)
	compose, conditions := f.compose, newConditions(gatewayConditions...)
	if isPeer(req) {
		compose, conditions = f.composePeer, newConditions(peerConditions...)
	}
	err := f.recovered(func() error { return compose(req, rsp, conditions) })
	if err != nil {
		conditions.fail(err)
		fatal(rsp, err)
		f.log.Info("Cannot compose", "reason", err.Error())
	}
	conditions.set(rsp)
	return rsp, nil
}

// recovered turns a panic into an error. One gateway must not end the process,
// which serves all of them.
func (f *Function) recovered(compose func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			f.log.Info("Recovered from a panic", "panic", p, "stack", string(debug.Stack()))
			err = errors.Errorf("cannot compose, because of an error in the function: %v", p)
		}
	}()
	return compose()
}

func (f *Function) compose(req *fnv1.RunFunctionRequest, rsp *fnv1.RunFunctionResponse, c *conditions) error {
	xr, err := decodeComposite(req)
	if err != nil {
		return err
	}
	f.log.Debug("Composing gateway", "namespace", xr.namespace, "name", xr.name)
	observed, err := decodeObserved(req)
	if err != nil {
		return err
	}
	c.workload(observed)

	gateway, err := parse(req, xr)
	if err != nil {
		return err
	}
	c.specValid()

	// What is required depends on the spec alone, so it is stable: Crossplane
	// answers it all at once, or has answered already.
	required, answered, err := newQuestions(req, rsp).forGateway(gateway)
	if err != nil || !answered {
		return err
	}

	in := plan.Inputs{
		Spec:            gateway,
		Status:          &xr.status,
		ObservedSeed:    observed.seed,
		ObservedConfig:  observed.config,
		ObservedService: observed.service,
		RequiredSeed:    required.seed,
		SeedFleeting: required.seedDeleted ||
			required.seedController != "" && required.seedController != xr.uid && observed.seed == nil,
		Secrets:      required.secrets,
		Nodes:        required.nodes,
		Attachments:  required.attachments,
		Namespaces:   required.namespaces,
		ObjectSize:   xr.size,
		ResponseSize: proto.Size(rsp),
		Now:          f.now(),
		Random:       f.random,
	}
	compose := func(full bool) (grown bool, err error) {
		in.Full = full
		return composeGateway(req, rsp, c, xr, observed, required.lacks, in)
	}
	grown, err := compose(false)
	full := isTooLarge(err) || grown && proto.Size(rsp) > plan.MaxResponse-plan.Reserve
	if len(in.Attachments) == 0 || !full {
		return err
	}
	// WireguardPeers that are served may grow as long as it all fits, which is known
	// once it is made. What they are not given is left for the gateway's owner.
	fits := err == nil
	if _, err = compose(true); err != nil && fits {
		_, err = compose(false)
	}
	return err
}

// composeGateway plans the gateway, renders it, and adds it to the response,
// which it leaves as it is where that fails. Grown tells whether a WireguardPeer
// got more than it had.
func composeGateway(req *fnv1.RunFunctionRequest, rsp *fnv1.RunFunctionResponse, c *conditions, xr *composite, observed *observed, lacks missingKinds, in plan.Inputs) (grown bool, err error) {
	g, err := plan.New(in)
	if err != nil {
		return false, err
	}
	c.planned(g, observed, lacks)

	objects, err := render.Gateway(g)
	if err != nil {
		return false, errors.Wrap(err, "cannot render gateway")
	}
	if err := checkSecrets(peersField, objects, len(g.Peers)); err != nil {
		return false, err
	}
	// A kind that the cluster lacks would keep everything else from being applied.
	objects = slices.DeleteFunc(objects, func(o render.Composed) bool { return lacks[o.GVK] })
	st := status(g, observed)
	if err := encode(req, rsp, xr.identity, objects, &st, readiness(g, observed)); err != nil {
		return false, err
	}
	setTTL(rsp, g.Platform.TTL, g.NextExpiry, in.Now)
	return g.Grown, nil
}
