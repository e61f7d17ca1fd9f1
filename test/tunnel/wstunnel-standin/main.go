// Command wstunnel-standin takes the place of wstunnel 10 in tests. It speaks
// the same wire format, and knows those flags that the rendered client
// configurations and containers use: a flag that it does not know is refused,
// as wstunnel would. It carries UDP only, and is not meant for anything else.
package main

import (
	"errors"
	"fmt"
	"log"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

func main() {
	log.SetFlags(0)
	command, o, err := parse(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(2)
	}
	if command == "server" {
		err = serve(o)
	} else {
		err = forward(o)
	}
	log.Fatal(err)
}

// options are the flags and the address of both commands.
type options struct {
	address url.URL
	ping    time.Duration

	// Of the client.
	prefix string
	local  string // host and port of the listener
	remote string // host and port that the server is asked for
	verify bool
	name   string // instead of the address's own, for TLS
	host   string // the same, for HTTP
	mark   int

	// Of the server.
	restrictTo     []string
	restrictPrefix []string
}

// flag is how a flag takes its value. Those without a value have no parser for
// one.
type flag struct {
	commands string // empty: in any place
	set      func(o *options, value string) error
	bare     func(o *options)
}

var flags = map[string]flag{
	"--log-lvl": {set: func(_ *options, v string) error {
		if !slices.Contains([]string{"TRACE", "DEBUG", "INFO", "WARN", "ERROR", "OFF"}, v) {
			return errors.New("no such level")
		}
		return nil
	}},
	"--http-upgrade-path-prefix": {commands: "client", set: func(o *options, v string) error { o.prefix = v; return nil }},
	"--local-to-remote":          {commands: "client", set: func(o *options, v string) error { return o.setLocal(v) }},
	"--tls-verify-certificate":   {commands: "client", bare: func(o *options) { o.verify = true }},
	"--tls-sni-override":         {commands: "client", set: func(o *options, v string) error { o.name = v; return nil }},
	"--http-headers": {commands: "client", set: func(o *options, v string) error {
		value, ok := strings.CutPrefix(v, "Host:")
		if !ok {
			return errors.New("the stand-in sets no header but Host")
		}
		o.host = strings.TrimSpace(value)
		return nil
	}},
	"--socket-so-mark": {commands: "client", set: func(o *options, v string) (err error) {
		o.mark, err = strconv.Atoi(v)
		return err
	}},
	"--restrict-to":                       {commands: "server", set: func(o *options, v string) error { o.restrictTo = append(o.restrictTo, v); return nil }},
	"--restrict-http-upgrade-path-prefix": {commands: "server", set: func(o *options, v string) error { o.restrictPrefix = append(o.restrictPrefix, v); return nil }},
	"--websocket-ping-frequency": {commands: "client server", set: func(o *options, v string) (err error) {
		o.ping, err = time.ParseDuration(v)
		return err
	}},
}

func parse(args []string) (command string, o *options, err error) {
	o = &options{prefix: "v1", ping: 30 * time.Second}
	var positional []string
	for len(args) > 0 {
		if strings.HasPrefix(args[0], "-") {
			if args, err = o.flag(command, args); err != nil {
				return "", nil, err
			}
			continue
		}
		positional = append(positional, args[0])
		command, args = positional[0], args[1:]
	}
	if len(positional) != 2 || (command != "client" && command != "server") {
		return "", nil, fmt.Errorf("want client or server, and an address, got %q", positional)
	}
	u, err := url.Parse(positional[1])
	if err != nil {
		return "", nil, err
	}
	if u.Scheme != "ws" && (u.Scheme != "wss" || command == "server") {
		return "", nil, fmt.Errorf("the stand-in does not do %s", u.Scheme)
	}
	o.address = *u
	return command, o, nil
}

// flag takes the first argument, with its value, and returns the others.
func (o *options) flag(command string, args []string) ([]string, error) {
	name, value, inline := strings.Cut(args[0], "=")
	args = args[1:]
	f, ok := flags[name]
	switch {
	case !ok || (f.commands != "" && (command == "" || !strings.Contains(f.commands, command))):
		return nil, fmt.Errorf("unexpected argument '%s' found", name)
	case f.bare != nil && inline:
		return nil, fmt.Errorf("unexpected value for '%s'", name)
	case f.bare != nil:
		f.bare(o)
		return args, nil
	case !inline && (len(args) == 0 || strings.HasPrefix(args[0], "-")):
		return nil, fmt.Errorf("a value is required for '%s'", name)
	case !inline:
		value, args = args[0], args[1:]
	}
	if err := f.set(o, value); err != nil {
		return nil, fmt.Errorf("invalid value '%s' for '%s': %w", value, name, err)
	}
	return args, nil
}

// setLocal reads udp://[BIND:]PORT:HOST:PORT?timeout_sec=0. An idle tunnel that
// is closed would lose what the gateway sends.
func (o *options) setLocal(v string) error {
	rest, ok := strings.CutPrefix(v, "udp://")
	if !ok {
		return errors.New("the stand-in does UDP only")
	}
	rest, query, _ := strings.Cut(rest, "?")
	if query != "timeout_sec=0" {
		return errors.New("the stand-in has no idle timeout: want timeout_sec=0")
	}
	p := strings.Split(rest, ":")
	if len(p) != 4 {
		return errors.New("want BIND:PORT:HOST:PORT")
	}
	o.local, o.remote = net.JoinHostPort(p[0], p[1]), net.JoinHostPort(p[2], p[3])
	return nil
}
