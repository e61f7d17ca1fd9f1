package main

import (
	function "github.com/crossplane/function-sdk-go"
	"github.com/crossplane/function-sdk-go/errors"

	"github.com/wireguardgateway/function-wireguard-gateway/fn"
)

// serveCommand has the flags of Crossplane's function specification.
type serveCommand struct {
	Debug bool `help:"Also log what is only of interest when something is wrong." short:"d"`

	Network            string `default:"tcp"   help:"Network to listen on."`
	Address            string `default:":9443" help:"Address to listen on."`
	MetricsAddress     string `default:":8080" help:"Address to serve metrics on. Empty serves none."`
	TLSCertsDir        string `env:"TLS_SERVER_CERTS_DIR" help:"Folder with tls.key, tls.crt and ca.crt, for mutual TLS."`
	Insecure           bool   `help:"Serve without TLS. Needs no certificates."`
	MaxRecvMessageSize int    `default:"32" help:"Largest request to accept, in MiB. A gateway of a thousand peers sends several."`
}

// Run serves until the process ends.
func (c *serveCommand) Run() error {
	log, err := function.NewLogger(c.Debug)
	if err != nil {
		return errors.Wrap(err, "cannot make logger")
	}
	return errors.Wrap(function.Serve(fn.New(log),
		function.Listen(c.Network, c.Address),
		function.MTLSCertificates(c.TLSCertsDir),
		function.Insecure(c.Insecure),
		function.MaxRecvMessageSize(c.MaxRecvMessageSize<<20),
		function.WithMetricsServer(c.MetricsAddress),
	), "cannot serve function")
}
