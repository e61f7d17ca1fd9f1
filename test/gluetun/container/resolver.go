package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"strings"
	"time"
)

const resolverFile = "/etc/resolv.conf"

// resolve answers questions for names on port 53, and makes itself the pod's
// resolver. Names of the cluster go to those who were that before. The others go
// through the tunnel, in the clear.
func resolve() error {
	b, err := os.ReadFile(resolverFile)
	if err != nil {
		return fmt.Errorf("cannot read the resolvers: %w", err)
	}
	var local string
	lines := []string{"nameserver 127.0.0.1"}
	for line := range strings.Lines(string(b)) {
		words := strings.Fields(line)
		switch {
		case len(words) != 2 || words[0] != "nameserver":
			lines = append(lines, strings.TrimSpace(line))
		case words[1] != "127.0.0.1" && local == "":
			local = words[1]
		}
	}
	// In place: the kubelet has mounted that file into all containers.
	if err := os.WriteFile(resolverFile, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
		return fmt.Errorf("cannot become the resolver: %w", err)
	}
	p, err := (&net.ListenConfig{}).ListenPacket(context.Background(), "udp", ":53")
	if err != nil {
		return fmt.Errorf("cannot resolve names: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", ":53")
	if err != nil {
		return fmt.Errorf("cannot resolve names: %w", err)
	}
	go func() { log.Print(answer(p, local)) }()
	go func() { log.Print(pass(l)) }()
	return nil
}

// answer answers over UDP.
func answer(p net.PacketConn, local string) error {
	b := make([]byte, 1500)
	for {
		n, from, err := p.ReadFrom(b)
		if err != nil {
			return err
		}
		question := append([]byte{}, b[:n]...)
		go func() {
			upstream := internet
			if local != "" && ofCluster(question) {
				upstream = local
			}
			if reply, err := forward(question, upstream); err == nil {
				_, _ = p.WriteTo(reply, from)
			}
		}()
	}
}

// ofCluster tells whether a question is for a name of the cluster.
func ofCluster(question []byte) bool {
	return strings.Contains(string(question), "\x07cluster\x05local\x00")
}

func forward(question []byte, upstream string) ([]byte, error) {
	c, err := net.DialTimeout("udp", net.JoinHostPort(upstream, "53"), time.Second)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	if err := c.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
		return nil, err
	}
	if _, err := c.Write(question); err != nil {
		return nil, err
	}
	b := make([]byte, 1500)
	n, err := c.Read(b)
	return b[:n], err
}

// pass passes on what comes over TCP.
func pass(l net.Listener) error {
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer func() { _ = c.Close() }()
			up, err := net.DialTimeout("tcp", net.JoinHostPort(internet, "53"), 5*time.Second)
			if err != nil {
				return
			}
			defer func() { _ = up.Close() }()
			go func() { _, _ = io.Copy(up, c) }()
			_, _ = io.Copy(c, up)
		}()
	}
}
