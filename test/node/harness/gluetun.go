package harness

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// PushGluetun stores an image that does to a pod what gluetun does: the stand-in
// as its entrypoint, and beside it the machine's own ip(8) and iptables(8).
func (n *Node) PushGluetun(ctx context.Context, image string) error {
	program := n.path("gluetun")
	if err := n.Build(ctx, program, "./test/gluetun/container"); err != nil {
		return err
	}
	b, err := os.ReadFile(program)
	if err != nil {
		return err
	}
	files := []file{{"gluetun-entrypoint", b, 0o755}}
	for name, tool := range map[string]string{"ip": "ip", "iptables": "xtables-nft-multi", "ip6tables": "xtables-nft-multi"} {
		path, err := exec.LookPath(tool)
		if err != nil {
			return err
		}
		if b, err = os.ReadFile(path); err != nil {
			return err
		}
		files = append(files, file{"bin/" + name, b, 0o755})
		libraries, err := librariesOf(ctx, path)
		if err != nil {
			return err
		}
		files = append(files, libraries...)
	}
	img, err := newImage("", files...)
	if err != nil {
		return err
	}
	return n.Push(ctx, image, img)
}

// librariesOf returns what a program of the machine loads, and what iptables
// loads by the name of a match or a target.
func librariesOf(ctx context.Context, program string) ([]file, error) {
	out, err := exec.CommandContext(ctx, "ldd", program).Output()
	if err != nil {
		return nil, fmt.Errorf("cannot list the libraries of %s: %w", program, err)
	}
	var paths []string
	for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
		for word := range strings.FieldsSeq(s.Text()) {
			if filepath.IsAbs(word) {
				paths = append(paths, word)
			}
		}
	}
	if strings.Contains(program, "xtables") {
		extensions, err := filepath.Glob("/usr/lib/*-linux-gnu/xtables/*.so")
		if err != nil || len(extensions) == 0 {
			return nil, errors.Join(err, errors.New("iptables has no extensions here"))
		}
		paths = append(paths, extensions...)
	}
	var files []file
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		files = append(files, file{strings.TrimPrefix(path, "/"), b, 0o755})
	}
	return files, nil
}
