package dataplane

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// exit is what the control server tells of the tunnel from now on.
func (g *gluetun) exit(publicIP string, ports ...int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.publicIP, g.ports = publicIP, ports
}

// serve answers as gluetun's control server, with the role that the function
// gives it, and where its resolver and its health server are.
func (g *gluetun) serve(role string) {
	g.T.Helper()
	auth := struct {
		Auth   string `json:"auth"`
		APIKey string `json:"apikey"`
	}{}
	if err := json.Unmarshal([]byte(role), &auth); err != nil || auth.Auth != "apikey" || auth.APIKey == "" {
		g.T.Fatalf("no role that gluetun knows: %v", err)
	}
	l := g.listen(g.env["HTTP_CONTROL_SERVER_ADDRESS"])
	go func() { _ = http.Serve(l, g.control(auth.APIKey)) }()
	g.echo(53)
	health := g.listen("127.0.0.1:9999")
	go func() { _ = http.Serve(health, http.NotFoundHandler()) }()
}

func (g *gluetun) control(key string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.mu.Lock()
		defer g.mu.Unlock()
		answer := map[string]any{}
		switch {
		case r.Header.Get("X-Api-Key") != key:
			w.WriteHeader(http.StatusUnauthorized)
			return
		case r.RequestURI == "/v1/publicip/ip":
			answer["public_ip"] = g.publicIP
			if g.publicIP != "" {
				answer["country"], answer["city"] = "CH", "Testville"
			}
		case r.RequestURI == "/v1/portforward":
			if port := append(g.ports, 0)[0]; g.next || len(g.ports) < 2 {
				answer["port"] = port
			}
			if g.next || len(g.ports) > 1 {
				answer["ports"] = append([]int{}, g.ports...)
			}
		case r.RequestURI == "/v1/vpn/status":
			// A tunnel that does not pass anything is running all the same.
			answer["status"] = map[bool]string{true: "running", false: "stopped"}[g.publicIP != ""]
		case r.RequestURI == "/v1/openvpn/portforwarded":
			http.Redirect(w, r, "/v1/portforward", http.StatusMovedPermanently)
			return
		case g.next:
			w.WriteHeader(http.StatusNotFound)
			return
		default:
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		_ = json.NewEncoder(w).Encode(answer)
	})
}

// TestGluetunStandInAPI holds that the stand-in's control server answers as
// gluetun's did, in both versions.
func TestGluetunStandInAPI(t *testing.T) {
	g := &gluetun{publicIP: provider4}
	const full = `{"city":"Testville","country":"CH","public_ip":"198.51.100.10"}`
	cases := map[string]struct {
		path, key string
		next      bool
		publicIP  string
		ports     []int
		code      int
		body      string
	}{
		"NoKey":       {"/v1/publicip/ip", "", false, provider4, nil, 401, ""},
		"OtherKey":    {"/v1/publicip/ip", "other", true, provider4, nil, 401, ""},
		"IP":          {"/v1/publicip/ip", "k", false, provider4, nil, 200, full},
		"NextIP":      {"/v1/publicip/ip", "k", true, provider4, nil, 200, full},
		"NoIP":        {"/v1/publicip/ip", "k", false, "", nil, 200, `{"public_ip":""}`},
		"Query":       {"/v1/publicip/ip?api_key=k", "k", true, provider4, nil, 404, ""},
		"NoPort":      {"/v1/portforward", "k", false, provider4, nil, 200, `{"port":0}`},
		"NextNoPort":  {"/v1/portforward", "k", true, provider4, nil, 200, `{"port":0,"ports":[]}`},
		"Port":        {"/v1/portforward", "k", false, provider4, []int{8}, 200, `{"port":8}`},
		"Ports":       {"/v1/portforward", "k", false, provider4, []int{8, 9}, 200, `{"ports":[8,9]}`},
		"NextPorts":   {"/v1/portforward", "k", true, provider4, []int{8, 9}, 200, `{"port":8,"ports":[8,9]}`},
		"Old":         {"/v1/openvpn/portforwarded", "k", false, provider4, nil, 301, ""},
		"Running":     {"/v1/vpn/status", "k", false, provider4, nil, 200, `{"status":"running"}`},
		"Stopped":     {"/v1/vpn/status", "k", true, "", nil, 200, `{"status":"stopped"}`},
		"Unknown":     {"/v1/other", "k", false, provider4, nil, 401, ""},
		"NextUnknown": {"/v1/other", "k", true, provider4, nil, 404, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g.next = tc.next
			g.exit(tc.publicIP, tc.ports...)
			r := httptest.NewRequest(http.MethodGet, tc.path, http.NoBody)
			r.Header.Set("X-Api-Key", tc.key)
			w := httptest.NewRecorder()
			g.control("k").ServeHTTP(w, r)
			body := strings.TrimSpace(w.Body.String())
			if w.Code != tc.code || tc.body != body && tc.code == http.StatusOK {
				t.Errorf("want %d %s, got %d %s", tc.code, tc.body, w.Code, body)
			}
		})
	}
}
