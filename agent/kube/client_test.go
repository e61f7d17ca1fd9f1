package kube

import "testing"

func TestName(t *testing.T) {
	cases := map[string]struct {
		reason string
		text   string
		want   Name
		fails  bool
	}{
		"Name":        {"a namespace and a name", "vpn/home-wireguard.config", Name{Namespace: "vpn", Name: "home-wireguard.config"}, false},
		"Empty":       {"nothing names nothing", "", Name{}, false},
		"NoNamespace": {"a name alone is not enough", "home", Name{}, true},
		"Half":        {"nor is half", "vpn/", Name{}, true},
		"OtherHalf":   {"of either kind", "/home", Name{}, true},
		"TooMany":     {"neither has a slash", "a/b/c", Name{}, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := Name{}
			err := got.UnmarshalText([]byte(tc.text))
			if (err != nil) != tc.fails || got != tc.want {
				t.Errorf("%s: got %v, error %v", tc.reason, got, err)
			}
			if err == nil && !got.IsZero() && got.String() != tc.text {
				t.Errorf("%s: the text form is %q", tc.reason, got)
			}
		})
	}
}
