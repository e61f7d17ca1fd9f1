// Command coredns is CoreDNS with the few plugins that a cluster's DNS needs. With all of them it
// would bring the libraries of every cloud along.
package main

import (
	"slices"

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/ready"
)

func main() {
	// The order in which a query passes them.
	dnsserver.Directives = slices.Clone([]string{"ready", "errors", "cache", "hosts", "kubernetes", "forward"})
	coremain.Run()
}
