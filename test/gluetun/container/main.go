// Command container stands in for gluetun's program, in an image of its own: it
// is /gluetun-entrypoint, takes the same environment and files, and does to the
// pod's network what gluetun 3.41.1 was seen to do. It knows one provider,
// custom, and one type of VPN, wireguard.
//
// Where gluetun asks services on the internet, such as for its own address, it
// asks the host that 1.1.1.1 is in tests.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/wireguardgateway/function-wireguard-gateway/test/gluetun"
)

const (
	healthAddress = "127.0.0.1:9999"
	rulesFile     = "/iptables/post-rules.txt"
	// internet is who is asked through the tunnel.
	internet = "1.1.1.1"
)

func main() {
	log.SetFlags(log.Ltime | log.Lmicroseconds)
	if len(os.Args) == 2 && os.Args[1] == "healthcheck" {
		if err := askHealth(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := run(ctx)
	stop()
	if err != nil {
		log.Fatal(err)
	}
	log.Print("shutdown successful")
}

// run does what gluetun does, in its order. What fails after the firewall leaves
// it closed.
func run(ctx context.Context) error {
	network, err := findNetwork()
	if err != nil {
		return err
	}
	s := gluetun.Settings{Env: environment()}
	rules, err := os.ReadFile(rulesFile)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("cannot read the user's rules: %w", err)
	}
	s.Rules = string(rules)
	if err := execute(gluetun.Firewall(s, network)...); err != nil {
		return fmt.Errorf("cannot set up the firewall: %w", errors.Join(err, execute(gluetun.Open()...)))
	}
	a, err := readAccount(s.Env, network)
	if err != nil {
		return err
	}
	if err := execute(gluetun.Routing(s, network, output)...); err != nil {
		return fmt.Errorf("cannot set up routing: %w", err)
	}
	v := &vpn{settings: s, account: a, control: &gluetun.Control{}, health: &health{}}
	v.control.Running(false)
	if err := v.serve(); err != nil { //nolint:contextcheck // It goes on for as long as the process does.
		return err
	}
	if err := resolve(); err != nil { //nolint:contextcheck // It goes on for as long as the process does.
		return err
	}
	v.loop(ctx)
	return execute(gluetun.Leave()...)
}

// serve answers the agent and the kubelet's probe.
func (v *vpn) serve() error {
	key, err := gluetun.Key(v.settings.Env["HTTP_CONTROL_SERVER_AUTH_DEFAULT_ROLE"])
	if err != nil {
		return err
	}
	for address, handler := range map[string]http.Handler{
		v.settings.Env["HTTP_CONTROL_SERVER_ADDRESS"]: v.control.Handler(key),
		healthAddress: v.health,
	} {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", address)
		if err != nil {
			return fmt.Errorf("cannot serve: %w", err)
		}
		s := &http.Server{Handler: handler, ReadHeaderTimeout: time.Second}
		go func() { log.Print(s.Serve(l)) }()
	}
	return nil
}

func environment() map[string]string {
	out := map[string]string{}
	for _, v := range os.Environ() {
		name, value, _ := strings.Cut(v, "=")
		out[name] = value
	}
	return out
}

// execute runs command lines without quotes one by one, up to the first that
// fails.
func execute(lines ...string) error {
	for _, line := range lines {
		words := strings.Fields(line)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}

// output runs a command line and returns what it prints.
func output(line string) string {
	words := strings.Fields(line)
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	if err != nil {
		log.Printf("%s: %v: %s", line, err, out)
	}
	return string(out)
}
