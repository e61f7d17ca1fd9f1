// Command function serves the composition function, or renders a gateway
// without a cluster.
package main

import (
	"github.com/alecthomas/kong"
)

type cli struct {
	Serve  serveCommand  `cmd:"" default:"withargs" help:"Serve the function over gRPC (the default)."`
	Render renderCommand `cmd:"" help:"Print what Crossplane would apply for a gateway, without a cluster."`
}

func main() {
	k := kong.Parse(&cli{},
		kong.Name("function"),
		kong.Description("A Crossplane composition function that composes WireGuard VPN gateways."),
	)
	k.FatalIfErrorf(k.Run())
}
