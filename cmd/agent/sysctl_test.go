package main

import "testing"

func TestParseSetting(t *testing.T) {
	cases := map[string]struct {
		reason      string
		setting     string
		path, value string
		fails       bool
	}{
		"Plain":   {"dots part the path", "net.ipv6.conf.all.forwarding=1", "net/ipv6/conf/all/forwarding", "1", false},
		"Slash":   {"a slash is a dot of a name", "net.ipv4.conf.eth0/100.forwarding=1", "net/ipv4/conf/eth0.100/forwarding", "1", false},
		"NoValue": {"a value is needed", "net.ipv6.conf.all.forwarding", "", "", true},
		"Empty":   {"also not an empty one", "net.ipv6.conf.all.forwarding=", "", "", true},
		"NoKey":   {"a key is needed", "=1", "", "", true},
		"Escape":  {"nothing outside is written", "//.//.etc.passwd=1", "", "", true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			path, value, err := parseSetting(tc.setting)
			if path != tc.path && !tc.fails || value != tc.value && !tc.fails || (err != nil) != tc.fails {
				t.Errorf("%s: got %q, %q, %v", tc.reason, path, value, err)
			}
		})
	}
}
