package tunnel

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
)

const (
	controlTimeout = 5 * time.Second

	// maxAnswer is far more than the control server answers, in bytes.
	maxAnswer = 64 << 10
	// maxCountry is more than any country's name has, in bytes.
	maxCountry = 64

	pathPublicIP = "/v1/publicip/ip"
	pathPorts    = "/v1/portforward"
)

// Exit is how the internet sees the tunnel, as far as gluetun knows.
type Exit struct {
	PublicIP string
	Country  string
	Ports    []int // forwarded to the tunnel
}

// Equal compares.
func (e Exit) Equal(o Exit) bool {
	return e.PublicIP == o.PublicIP && e.Country == o.Country && slices.Equal(e.Ports, o.Ports)
}

// control asks gluetun's control server.
type control struct {
	url  string
	auth string // file with the role that gluetun was given, too
	http *http.Client
}

func newControl(url, auth string) *control {
	return &control{url: url, auth: auth, http: &http.Client{
		Timeout: controlTimeout,
		// Neither a proxy nor another host has any business with the key.
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// exit asks for all there is. The address is worth telling where the ports are
// not to be had, so it returns what it got together with the error.
func (c *control) exit(ctx context.Context) (Exit, error) {
	key, err := c.key()
	if err != nil {
		return Exit{}, err
	}
	out := Exit{}
	// Versions differ in what they leave out, so nothing is needed.
	address := struct {
		PublicIP string `json:"public_ip"`
		Country  string `json:"country"`
	}{}
	addressErr := c.get(ctx, pathPublicIP, key, &address)
	// It comes from whoever the provider's exit asked, so it is not passed on
	// unseen.
	if ip, err := netip.ParseAddr(address.PublicIP); err == nil && ip.Zone() == "" {
		out.PublicIP = ip.String()
		out.Country = printable(address.Country)
	}
	// One port comes as a number, several come as a list, and the next version
	// has both.
	ports := struct {
		Port  int   `json:"port"`
		Ports []int `json:"ports"`
	}{}
	portsErr := c.get(ctx, pathPorts, key, &ports)
	for _, p := range append([]int{ports.Port}, ports.Ports...) {
		if p > 0 && p <= 65535 && !slices.Contains(out.Ports, p) {
			out.Ports = append(out.Ports, p)
		}
	}
	return out, errors.Join(addressErr, portsErr)
}

// key reads it anew each time, since the mounted file follows its Secret.
func (c *control) key() (string, error) {
	b, err := os.ReadFile(c.auth)
	if err != nil {
		return "", fmt.Errorf("cannot read role for gluetun's control server: %w", err)
	}
	role := struct {
		Key string `json:"apikey"`
	}{}
	// The error of the decoder may quote what it read.
	if json.Unmarshal(b, &role) != nil || role.Key == "" {
		return "", errors.New("the role for gluetun's control server holds no key")
	}
	return role.Key, nil
}

func (c *control) get(ctx context.Context, path, key string, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path, http.NoBody)
	if err != nil {
		return fmt.Errorf("cannot ask gluetun for %s: %w", path, err)
	}
	req.Header.Set("X-Api-Key", key)
	resp, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("cannot ask gluetun for %s: %w", path, err)
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("gluetun answers %d to %s", resp.StatusCode, path)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("cannot read gluetun's answer to %s: %w", path, err)
	}
	if json.Unmarshal(b, into) != nil {
		return fmt.Errorf("gluetun's answer to %s is not understood", path)
	}
	return nil
}

// printable returns nothing where it is no text of a sensible length.
func printable(s string) string {
	if len(s) > maxCountry || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return ""
	}
	return s
}
