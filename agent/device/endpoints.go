package device

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/netip"
	"os"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/statefile"
)

// endpointsFile is where peers were seen last. A userspace device forgets it
// with its process, and without it every client would be cut off until it
// notices by itself, which takes WireGuard 15 seconds.
type endpointsFile struct {
	path    string
	written map[wgtypes.Key]sighting
}

// sighting is where a peer was seen.
type sighting struct {
	address netip.AddrPort
	// configured is the endpoint that the peer had in the configuration then. It
	// is empty where it had none, and where that is not known.
	configured string
}

const endpointsVersion = 1

type endpointsDocument struct {
	Version   int               `json:"version"`
	Endpoints map[string]string `json:"endpoints"`
	// Configured is what older agents do not write.
	Configured map[string]string `json:"configured,omitempty"`
}

// read returns the endpoints by public key, and none where there is no file.
func (f *endpointsFile) read() (map[wgtypes.Key]sighting, error) {
	b, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read endpoints: %w", err)
	}
	return parseEndpoints(b)
}

// parseEndpoints leaves out what it cannot use: one peer's entry is no reason to
// cut off the others.
func parseEndpoints(b []byte) (map[wgtypes.Key]sighting, error) {
	d := endpointsDocument{}
	if err := json.Unmarshal(b, &d); err != nil {
		return nil, fmt.Errorf("cannot decode endpoints: %w", err)
	}
	if d.Version != endpointsVersion {
		return nil, fmt.Errorf("cannot decode endpoints: version %d is not known", d.Version)
	}
	out := make(map[wgtypes.Key]sighting, len(d.Endpoints))
	for k, e := range d.Endpoints {
		key, err := wgtypes.ParseKey(k)
		if err != nil {
			continue
		}
		address, err := netip.ParseAddrPort(e)
		if err != nil || address.Port() == 0 {
			continue
		}
		out[key] = sighting{address, d.Configured[k]}
	}
	return out, nil
}

// write replaces the file if the endpoints differ from those it wrote last.
func (f *endpointsFile) write(endpoints map[wgtypes.Key]sighting) error {
	if f.written != nil && maps.Equal(f.written, endpoints) {
		return nil
	}
	d := endpointsDocument{Version: endpointsVersion, Endpoints: make(map[string]string, len(endpoints)), Configured: map[string]string{}}
	for k, e := range endpoints {
		d.Endpoints[k.String()] = e.address.String()
		if e.configured != "" {
			d.Configured[k.String()] = e.configured
		}
	}
	b, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("cannot encode endpoints: %w", err)
	}
	if err := statefile.Write(f.path, b); err != nil {
		return fmt.Errorf("cannot write endpoints: %w", err)
	}
	f.written = endpoints
	return nil
}
