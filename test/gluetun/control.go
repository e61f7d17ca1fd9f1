package gluetun

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
)

// Control answers as gluetun's control server.
type Control struct {
	mu      sync.Mutex
	next    bool // answers as master does, not as 3.41.1
	ip      string
	ports   []int
	stopped bool
}

// Exit is what it tells of the tunnel from now on.
func (c *Control) Exit(publicIP string, ports ...int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ip, c.ports = publicIP, ports
}

// Upgrade makes it answer as master does from now on, not as 3.41.1.
func (c *Control) Upgrade() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.next = true
}

// Running is what it tells of the VPN from now on. One that passes nothing is
// running all the same.
func (c *Control) Running(running bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = !running
}

// Key returns the one of a role as HTTP_CONTROL_SERVER_AUTH_DEFAULT_ROLE has it.
func Key(role string) (string, error) {
	auth := struct {
		Auth   string `json:"auth"`
		APIKey string `json:"apikey"`
	}{}
	if err := json.Unmarshal([]byte(role), &auth); err != nil {
		return "", fmt.Errorf("cannot read the role: %w", err)
	}
	if auth.Auth != "apikey" || auth.APIKey == "" {
		return "", errors.New("the role has no API key")
	}
	return auth.APIKey, nil
}

// Handler answers those who have the key.
func (c *Control) Handler(key string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		answer := map[string]any{}
		switch {
		case r.Header.Get("X-Api-Key") != key:
			w.WriteHeader(http.StatusUnauthorized)
			return
		case r.RequestURI == "/v1/publicip/ip":
			answer["public_ip"] = c.ip
			if c.ip != "" {
				answer["country"], answer["city"] = "CH", "Testville"
			}
		case r.RequestURI == "/v1/portforward":
			if port := append(c.ports, 0)[0]; c.next || len(c.ports) < 2 {
				answer["port"] = port
			}
			if c.next || len(c.ports) > 1 {
				answer["ports"] = append([]int{}, c.ports...)
			}
		case r.RequestURI == "/v1/vpn/status":
			answer["status"] = map[bool]string{false: "running", true: "stopped"}[c.stopped]
		case r.RequestURI == "/v1/openvpn/portforwarded":
			http.Redirect(w, r, "/v1/portforward", http.StatusMovedPermanently)
			return
		case c.next:
			w.WriteHeader(http.StatusNotFound)
			return
		default:
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_ = json.NewEncoder(w).Encode(answer)
	})
}
