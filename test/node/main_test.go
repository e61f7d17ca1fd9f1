// Package node proves on a real node, with a kubelet that runs pods, what users
// get: from the installation of packages to traffic.
//
// `make test-node` runs it.
package node

import (
	"fmt"
	"os"
	"testing"

	"github.com/wireguardgateway/function-wireguard-gateway/test/node/harness"
)

func TestMain(m *testing.M) {
	if os.Getenv(harness.RequiredVariable) == "" {
		fmt.Println("not run: make test-node starts a node for these tests")
		return
	}
	if err := harness.Runnable(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := stopShared(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}
