package gluetun_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/wireguardgateway/function-wireguard-gateway/test/gluetun"
)

// TestControl holds that the control server answers as gluetun's did, in both versions.
func TestControl(t *testing.T) {
	const exit = "198.51.100.10"
	const full = `{"city":"Testville","country":"CH","public_ip":"198.51.100.10"}`
	cases := map[string]struct {
		path, key string
		next      bool
		publicIP  string
		ports     []int
		code      int
		body      string
	}{
		"NoKey":       {"/v1/publicip/ip", "", false, exit, nil, 401, ""},
		"OtherKey":    {"/v1/publicip/ip", "other", true, exit, nil, 401, ""},
		"IP":          {"/v1/publicip/ip", "k", false, exit, nil, 200, full},
		"NextIP":      {"/v1/publicip/ip", "k", true, exit, nil, 200, full},
		"NoIP":        {"/v1/publicip/ip", "k", false, "", nil, 200, `{"public_ip":""}`},
		"Query":       {"/v1/publicip/ip?api_key=k", "k", true, exit, nil, 404, ""},
		"NoPort":      {"/v1/portforward", "k", false, exit, nil, 200, `{"port":0}`},
		"NextNoPort":  {"/v1/portforward", "k", true, exit, nil, 200, `{"port":0,"ports":[]}`},
		"Port":        {"/v1/portforward", "k", false, exit, []int{8}, 200, `{"port":8}`},
		"Ports":       {"/v1/portforward", "k", false, exit, []int{8, 9}, 200, `{"ports":[8,9]}`},
		"NextPorts":   {"/v1/portforward", "k", true, exit, []int{8, 9}, 200, `{"port":8,"ports":[8,9]}`},
		"Old":         {"/v1/openvpn/portforwarded", "k", false, exit, nil, 301, ""},
		"Running":     {"/v1/vpn/status", "k", false, exit, nil, 200, `{"status":"running"}`},
		"Stopped":     {"/v1/vpn/status", "k", true, "", nil, 200, `{"status":"stopped"}`},
		"Unknown":     {"/v1/other", "k", false, exit, nil, 401, ""},
		"NextUnknown": {"/v1/other", "k", true, exit, nil, 404, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := &gluetun.Control{}
			if tc.next {
				c.Upgrade()
			}
			c.Exit(tc.publicIP, tc.ports...)
			c.Running(tc.publicIP != "")
			r := httptest.NewRequest(http.MethodGet, tc.path, http.NoBody)
			r.Header.Set("X-Api-Key", tc.key)
			w := httptest.NewRecorder()
			c.Handler("k").ServeHTTP(w, r)
			body := strings.TrimSpace(w.Body.String())
			if w.Code != tc.code || tc.body != body && tc.code == http.StatusOK {
				t.Errorf("want %d %s, got %d %s", tc.code, tc.body, w.Code, body)
			}
		})
	}
}
