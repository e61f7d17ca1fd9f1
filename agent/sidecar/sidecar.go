// Package sidecar joins the pod that it runs in to its gateway. It locks the pod
// down before anything else, brings up the tunnel, and keeps both as they have to
// be. What it leaves behind when it ends is the lockdown.
package sidecar

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"golang.zx2c4.com/wireguard/wgctrl"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/device"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/firewall"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/route"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/server"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/source"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

// resolvConf is written by the kubelet, the same for every container.
const resolvConf = "/etc/resolv.conf"

// Options say what the sidecar is told.
type Options struct {
	// EnrolmentFile is where enrolment.json is mounted.
	EnrolmentFile string
	// Listen is the TCP address for probes and metrics.
	Listen string
	// Environment returns a variable, or the empty string.
	Environment func(name string) string
}

// Run keeps the pod in its tunnel until the context ends. It returns an error
// only where it cannot start. The lockdown is in place then too, unless the
// error is of the lockdown itself.
func Run(ctx context.Context, o Options, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	s := &sidecar{log: log, health: newHealth(), guard: newGuard()}
	defer s.firewall.Close()
	// Whatever goes wrong from here on, nothing leaves. One that an earlier
	// sidecar has left is replaced without a gap.
	if b, err := os.ReadFile(o.EnrolmentFile); err == nil {
		if e, err := parseEnrolment(b); err == nil {
			s.enrolment = e
		}
	}
	pod, unknown := readPod(o.Environment)
	s.pod = pod
	adopted, err := s.firewall.Exists(wireguard.LockdownTable)
	if err == nil {
		s.noInbound = !adopted
		err = s.lock()
	}
	if err == nil {
		err = unknown
	}
	if err != nil {
		return err
	}
	log.Info("locked down", "pod", pod.uid, "addresses", pod.addresses, "node", pod.node)
	limitMemory(o.Environment)

	s.device, err = device.Open(wireguard.ClientDevice, "", log)
	if err != nil {
		return err
	}
	defer s.device.Close()
	s.wireguard, err = wgctrl.New()
	if err != nil {
		return fmt.Errorf("cannot talk to WireGuard: %w", err)
	}
	defer func() { _ = s.wireguard.Close() }()
	registry := prometheus.NewRegistry()
	if err := registry.Register(s.health); err != nil {
		return fmt.Errorf("cannot register metrics: %w", err)
	}
	web, err := server.Start(ctx, o.Listen, s.health.probes(), registry, log)
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
		return err
	}
	updates := source.Watch(ctx, source.Options{File: o.EnrolmentFile}, log)
	return s.run(ctx, updates, network, tables)
}

// newGuard returns a mark that nobody can know.
func newGuard() uint32 {
	b := make([]byte, 4)
	// It never fails.
	_, _ = rand.Read(b)
	// 0 is no mark.
	return binary.NativeEndian.Uint32(b) | 1
}
