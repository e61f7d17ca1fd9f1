package pods

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"reflect"

	"github.com/wireguardgateway/function-wireguard-gateway/agent/statefile"
)

// File keeps the pods that are served over a restart of the agent. There are no
// keys in it.
type File struct {
	Path    string
	written []Pod
}

const fileVersion = 1

type document struct {
	Version int   `json:"version"`
	Pods    []Pod `json:"pods"`
}

// Read returns the pods that were served, and none where there is no file.
func (f *File) Read() ([]Pod, error) {
	b, err := os.ReadFile(f.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read pods: %w", err)
	}
	d := document{}
	if err := json.Unmarshal(b, &d); err != nil {
		return nil, fmt.Errorf("cannot decode pods: %w", err)
	}
	if d.Version != fileVersion {
		return nil, fmt.Errorf("cannot decode pods: version %d is not known", d.Version)
	}
	return d.Pods, nil
}

// Write replaces the file if the pods differ from those it wrote last.
func (f *File) Write(pods []Pod) error {
	if pods == nil {
		pods = []Pod{}
	}
	if reflect.DeepEqual(f.written, pods) {
		return nil
	}
	b, err := json.Marshal(document{Version: fileVersion, Pods: pods})
	if err != nil {
		return fmt.Errorf("cannot encode pods: %w", err)
	}
	if err := statefile.Write(f.Path, b); err != nil {
		return fmt.Errorf("cannot write pods: %w", err)
	}
	f.written = pods
	return nil
}
