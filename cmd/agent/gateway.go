package main

import (
	"context"
	"log/slog"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/gateway"
	"github.com/wireguardgateway/function-wireguard-gateway/agent/kube"
	"github.com/wireguardgateway/function-wireguard-gateway/wireguard"
)

type gatewayCommand struct {
	Config string    `required:"" type:"path" placeholder:"FILE" help:"config.json of the gateway's configuration Secret, as it is mounted."`
	Secret kube.Name `placeholder:"NAMESPACE/NAME" help:"The same Secret in the API, watched so that changes arrive at once."`
	Status kube.Name `placeholder:"NAMESPACE/NAME" help:"ConfigMap to which the agent reports."`
	Listen string    `default:":9586" help:"TCP address for health and metrics."`
	Once   bool      `help:"Apply the configuration once and exit, with status 1 if the gateway is not ready."`
}

func (c *gatewayCommand) Run(ctx context.Context, log *slog.Logger) error {
	return gateway.Run(ctx, gateway.Options{
		ConfigFile: c.Config, Secret: c.Secret, Status: c.Status,
		Listen: c.Listen, StateDir: wireguard.StateDir, Once: c.Once,
	}, log)
}

type removeCommand struct{}

func (c *removeCommand) Run() error {
	return gateway.Remove()
}
