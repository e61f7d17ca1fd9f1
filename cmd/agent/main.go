// Command agent runs in the pods of a gateway.
package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
	"k8s.io/klog/v2"
)

type cli struct {
	Gateway gatewayCommand `cmd:"" help:"Keep the gateway's device, routes, forwarding and firewall at what its configuration says."`
	Client  clientCommand  `cmd:"" help:"Keep a pod in the tunnel to its gateway, and everything else from leaving it."`
	Probe   probeCommand   `cmd:"" help:"Ask the client of this pod whether it is ready, and exit with status 1 if not."`
	Sysctl  sysctlCommand  `cmd:"" help:"Set kernel parameters of this network namespace and exit."`
	Remove  removeCommand  `cmd:"" help:"Remove the firewall, rules and kernel device that a gateway left behind."`
}

func main() {
	os.Exit(run())
}

// run returns the exit status.
func run() int {
	log := slog.New(slog.NewJSONHandler(os.Stderr, nil))
	// The Kubernetes client has a logger of its own.
	klog.SetSlogLogger(slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	c := kong.Parse(&cli{}, kong.Name("agent"), kong.Description("The data plane of a WireGuard gateway."),
		kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(log), kong.UsageOnError())
	if err := c.Run(); err != nil {
		log.Error("cannot go on", "command", c.Command(), "error", err)
		return 1
	}
	return 0
}
