package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const sysctlRoot = "/proc/sys"

type sysctlCommand struct {
	Settings []string `arg:"" placeholder:"KEY=VALUE" help:"Kernel parameters, as sysctl(8) writes them."`
}

// Run exists because the image has no shell and no sysctl(8).
func (c *sysctlCommand) Run() error {
	for _, s := range c.Settings {
		path, value, err := parseSetting(s)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(sysctlRoot, path), []byte(value), 0); err != nil {
			return fmt.Errorf("cannot set kernel parameter: %w", err)
		}
	}
	return nil
}

// parseSetting returns the path below /proc/sys and the value. As in
// sysctl(8), a slash in a key is a dot in a name, such as that of a VLAN.
func parseSetting(s string) (path, value string, err error) {
	key, value, ok := strings.Cut(s, "=")
	if !ok || key == "" || value == "" {
		return "", "", fmt.Errorf("cannot set %q: write KEY=VALUE", s)
	}
	parts := strings.Split(key, ".")
	for i, p := range parts {
		parts[i] = strings.ReplaceAll(p, "/", ".")
	}
	path = filepath.Join(parts...)
	if !filepath.IsLocal(path) || path == "." {
		return "", "", fmt.Errorf("cannot set %q: its key is none of the kernel's", s)
	}
	return path, value, nil
}
