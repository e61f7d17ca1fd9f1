package main

import (
	"context"
	"log/slog"
	"os"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/sidecar"
)

type clientCommand struct {
	Enrolment string `required:"" type:"path" placeholder:"FILE" help:"enrolment.json of the class's enrolment Secret, as it is mounted."`
	Listen    string `default:"127.0.0.1:9586" help:"TCP address for probes and metrics."`
}

func (c *clientCommand) Help() string {
	return "The pod's facts come from the environment: POD_UID, POD_IPS and NODE_NAME."
}

func (c *clientCommand) Run(ctx context.Context, log *slog.Logger) error {
	return sidecar.Run(ctx, sidecar.Options{EnrolmentFile: c.Enrolment, Listen: c.Listen, Environment: os.Getenv}, log)
}
