// Package gateway is the gateway's data plane: it reads the configuration that
// the function writes, and keeps device, routes, forwarding and firewall at
// what it says.
package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/device"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/firewall"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/kube"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/metrics"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/route"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/server"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/source"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/status"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/tunnel"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// Files within the state directory: the peers' endpoints, who has which of their
// addresses, and the pods that are served.
const (
	endpointsFile = "endpoints.json"
	ownersPath    = "owners"
	podsFile      = "pods.json"
)

// Options say where the agent gets its configuration, and where it reports.
type Options struct {
	// ConfigFile is where config.json of the configuration's Secret is mounted.
	ConfigFile string
	// Secret is the same Secret in the API. The zero value is none.
	Secret kube.Name
	// Status is the ConfigMap for the report. The zero value is none.
	Status kube.Name
	// Listen is the TCP address for health and metrics.
	Listen string
	// StateDir survives a restart of the container.
	StateDir string
	// Once ends after one sync.
	Once bool
}

// Run keeps the gateway going until the context ends. Then a device of the
// kernel stays, and the firewall stays in any case: what is torn down can be
// gone around. It returns an error only if it cannot start at all, or if Once
// found the gateway not ready.
func Run(ctx context.Context, o Options, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	dev, err := device.Open(wireguard.Device, filepath.Join(o.StateDir, endpointsFile), log)
	if err != nil {
		return err
	}
	defer dev.Close()
	peers, err := metrics.NewPeers(wireguard.Device)
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	if err := registry.Register(peers); err != nil {
		return fmt.Errorf("cannot register metrics: %w", err)
	}
	g := &gateway{
		log: log, device: dev, peers: peers,
		metrics: metrics.New(registry),
		health:  newHealth(),
		tunnel: tunnel.New(tunnel.Options{
			Device: wireguard.GluetunDevice,
			Index:  findTunnelIndex,
			// Both are from the same Secret, so they are mounted together.
			Auth:    filepath.Join(filepath.Dir(o.ConfigFile), wireguard.GluetunAuthKey),
			Control: "http://127.0.0.1:" + strconv.Itoa(wireguard.GluetunControlPort),
		}, log),
	}

	defer g.firewall.Close()
	client := apiClient(o, log)
	g.restoreOwners(filepath.Join(o.StateDir, ownersPath))
	g.restorePods(client, filepath.Join(o.StateDir, podsFile))
	if o.Once {
		return g.once(ctx, o, client)
	}
	if client != nil && !o.Status.IsZero() {
		publisher := status.New(client, o.Status, log)
		g.publish = publisher.Publish
		go publisher.Run(ctx)
	}
	web, err := server.Start(ctx, o.Listen, g.health.probes(), registry, log)
	if err != nil {
		return err
	}
	defer web.Stop(context.WithoutCancel(ctx))
	network, err := route.Watch(ctx)
	if err != nil {
		return err
	}
	tables, err := firewall.Watch(ctx)
	if err != nil {
		// It is looked at now and then all the same. Without the privilege nothing else
		// works either, which /readyz tells.
		log.Warn("Cannot watch the firewall", "error", err)
	}
	updates := source.Watch(ctx, source.Options{File: o.ConfigFile, Secret: o.Secret, Client: client}, log)
	go g.tunnel.Run(ctx)
	g.run(ctx, updates, network, tables)
	return nil
}

// apiClient returns nil where the API is not asked for or not to be had. The
// agent works with the mounted file then.
func apiClient(o Options, log *slog.Logger) rest.Interface {
	if o.Secret.IsZero() && o.Status.IsZero() {
		return nil
	}
	client, err := kube.NewClient()
	if err != nil {
		log.Warn("cannot use the Kubernetes API, the mounted file is used", "error", err)
		return nil
	}
	return client
}

// once does one sync with the first configuration that can be used.
func (g *gateway) once(ctx context.Context, o Options, client rest.Interface) error {
	ctx, cancel := context.WithTimeout(ctx, onceTimeout)
	defer cancel()
	updates := source.Watch(ctx, source.Options{File: o.ConfigFile, Secret: o.Secret, Client: client}, g.log)
	for u := range updates {
		if g.take(u) {
			g.sync(ctx, metrics.CauseConfig)
			if g.config.Egress.Mode == wireguard.EgressGluetun {
				g.seen = g.tunnel.Look(ctx, time.Now())
				g.tell()
			}
			break
		}
		if client == nil {
			// There is nobody else to ask.
			break
		}
	}
	if reasons := g.health.reasons(); len(reasons) > 0 {
		return fmt.Errorf("not ready: %w", errors.Join(reasons...))
	}
	return nil
}

// Remove takes away what the agent leaves behind: the firewall, the rules, and
// a device of the kernel. It is for hosts that outlive the gateway. The device
// goes first, so that nothing passes without firewall.
func Remove() error {
	if err := device.Remove(wireguard.Device); err != nil {
		return err
	}
	if err := route.EnsureRules(nil); err != nil {
		return err
	}
	if err := route.EnsureTunnelRoutes(route.Tunnel{}); err != nil {
		return err
	}
	if err := route.RemovePodRoutes(); err != nil {
		return err
	}
	return firewall.Remove(wireguard.FirewallTable)
}
