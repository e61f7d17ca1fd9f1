package wireguard

import (
	"strings"
	"testing"
)

func TestParsePortRange(t *testing.T) {
	cases := map[string]struct {
		reason string
		in     string
		want   PortRange
		err    string // part of the error, empty for none
	}{
		"Port":         {"A port is a range of one.", "443", PortRange{443, 443}, ""},
		"Range":        {"Both ends are included.", "8000-8100", PortRange{8000, 8100}, ""},
		"RangeOfOne":   {"A range may be of one.", "53-53", PortRange{53, 53}, ""},
		"All":          {"These are the outermost ports.", "1-65535", PortRange{1, 65535}, ""},
		"Empty":        {"Nothing is no port.", "", PortRange{}, `"" is no port`},
		"Zero":         {"Port 0 does not exist.", "0", PortRange{}, `"0" is no port`},
		"TooHigh":      {"Ports have 16 bits.", "65536", PortRange{}, `"65536" is no port`},
		"TooHighRange": {"The end counts too.", "1-65536", PortRange{}, `"65536" is no port`},
		"Negative":     {"It would be a range from nothing.", "-1", PortRange{}, `"" is no port`},
		"Plus":         {"A sign is none of a port.", "+80", PortRange{}, `"+80" is no port`},
		"UpsideDown":   {"The message gives the right form.", "90-80", PortRange{}, `write "80-90"`},
		"Three":        {"A range has two ends.", "1-2-3", PortRange{}, `"2-3" is no port`},
		"Name":         {"Names of services are not looked up.", "https", PortRange{}, `"https" is no port`},
		"Spaces":       {"Spaces are not skipped.", "80 - 90", PortRange{}, `"80 " is no port`},
		"LineBreak":    {"Nothing that breaks a line gets through.", "80\n", PortRange{}, `"80\n" is no port`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := ParsePortRange(tc.in)
			switch {
			case tc.err == "" && err != nil:
				t.Fatalf("%s\nwant no error, got %v", tc.reason, err)
			case tc.err != "" && (err == nil || !strings.Contains(err.Error(), tc.err)):
				t.Fatalf("%s\nwant an error with %s, got %v", tc.reason, tc.err, err)
			}
			if got != tc.want {
				t.Errorf("%s\nwant %v, got %v", tc.reason, tc.want, got)
			}
		})
	}
}
