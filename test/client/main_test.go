// Package client tests the sidecar with real packets: network namespaces are
// the pod, the node, the gateway and the internet. What counts is who is seen
// there, since a packet that went around the tunnel works just as well. It
// needs root and, beside util-linux, the Debian packages that packages lists.
package client

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// packages are the tools that the tests use, and where Debian has them.
var packages = map[string]string{
	"ip": "iproute2", "wg": "wireguard-tools", "nft": "nftables", "ping": "iputils-ping", "sysctl": "procps",
	"nsenter": "util-linux", "unshare": "util-linux", "setpriv": "util-linux",
}

// Programs that were built for the tests.
var agentBinary, wireguardGoBinary string

// atOnce is how many of the parallel tests run at once: they wait far more than
// they compute. Those that measure are not parallel, and so run before.
const atOnce = 4

func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", strconv.Itoa(atOnce))
	os.Exit(run(m))
}

func run(m *testing.M) int {
	if reason := missing(); reason != "" {
		fmt.Println("skipping the tests of the sidecar:", reason)
		return 0
	}
	dir, err := os.MkdirTemp("", "client")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	agentBinary, wireguardGoBinary = filepath.Join(dir, "agent"), filepath.Join(dir, "wireguard-go")
	for binary, source := range map[string]string{
		agentBinary:       "../../cmd/agent",
		wireguardGoBinary: "golang.zx2c4.com/wireguard",
	} {
		cmd := exec.Command("go", "build", "-o", binary, source)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			fmt.Printf("cannot build %s: %v\n%s", source, err, out)
			return 1
		}
	}
	return m.Run()
}

// missing returns why the tests cannot run here.
func missing() string {
	if os.Getuid() != 0 {
		return "they need root, for network namespaces"
	}
	for tool, pkg := range packages {
		if _, err := exec.LookPath(tool); err != nil {
			return fmt.Sprintf("they need %s, of package %s", tool, pkg)
		}
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return "they need /dev/net/tun"
	}
	return ""
}
