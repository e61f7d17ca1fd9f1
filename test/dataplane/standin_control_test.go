package dataplane

import (
	"net/http"

	"github.com/wireguardgateway/function-wireguard-gateway/test/gluetun"
)

// serve answers as gluetun's control server, with the role that the function
// gives it, and where its resolver and its health server are.
func (g *standIn) serve(role string) {
	g.T.Helper()
	key, err := gluetun.Key(role)
	if err != nil {
		g.T.Fatal(err)
	}
	l := g.listen(g.settings.Env["HTTP_CONTROL_SERVER_ADDRESS"])
	go func() { _ = http.Serve(l, g.control.Handler(key)) }()
	g.echo(53)
	health := g.listen("127.0.0.1:9999")
	go func() { _ = http.Serve(health, http.NotFoundHandler()) }()
}
